"""Appendix D, evaluation: a row for each benchmark and their mean, what is kept of each problem, the paired t-test."""

import csv
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate import Accelerator
from test_train import ROOT, TINY, config, few_problems, launch, lines, loaded, run, start

import train
from train import Answers, Config

TRAIN = [sys.executable, str(ROOT / "train.py")]


def call(command, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)


def problems() -> list[str]:
    return Path(few_problems.path).read_text().splitlines(keepends=True)


def halves(folder) -> tuple[str, str]:
    """Two sources, of 4 and of 12 problems."""
    rows = problems()
    for name, part in (("small", rows[:4]), ("large", rows[4:])):
        (folder / f"{name}.jsonl").write_text("".join(part))
    return str(folder / "small.jsonl"), str(folder / "large.jsonl")


# --------------------------------------------------------------------------------------------- rows by source


def test_rows_by_source_by_hand():
    """Makes impossible: a mean in which a benchmark of 5,000 problems drowns one of 30; problems in another's row.

    Two problems with 4 and 2 of 4 correct: 3/4 ± 1/4. Three with 0, 1, 2: 1/4 ± 1/4 / sqrt(3). Mean: 1/2.
    """
    answers = Answers(4, [4, 2, 0, 1, 2], [10.0, 20.0, 1.0, 2.0, 6.0], [0, 1, 0, 0, 3], [1.0, 0.5, 0.0, 0.25, 0.5])
    rows = train.score_sources(answers, {"a": 2, "b": 3})
    assert list(rows) == ["a", "b", "mean of 2"]
    assert [row["problems"] for row in rows.values()] == [2, 3, 5]
    assert [row["pass@1"] for row in rows.values()] == pytest.approx([0.75, 0.25, 0.5])
    errors = [math.sqrt(0.125 / 2), 0.25 / math.sqrt(3)]
    assert [row["pass@1_se"] for row in rows.values()] == pytest.approx([*errors, math.hypot(*errors) / 2])
    assert [row["pass@4"] for row in rows.values()] == pytest.approx([1, 2 / 3, 5 / 6])
    assert [row["response_tokens"] for row in rows.values()] == pytest.approx([15, 3, 9])
    assert [row["truncated"] for row in rows.values()] == pytest.approx([1 / 8, 3 / 12, 3 / 16])
    assert train.score(answers)["pass@1"] == pytest.approx(9 / 20)  # a run's own metric: every problem the same
    (only,) = train.score_sources(answers, {"all": 5}).values()
    assert only == train.score(answers) | {"problems": 5}


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["hf:aime24", "hf:aime25=/data/x", "/a/test.jsonl"], ["aime24", "aime25", "test"]),
        (["gym:chain_sum", "gym:number_sorting*20"], ["gym:chain_sum", "gym:number_sorting"]),
        (["/a/test.jsonl", "/b/test.jsonl", "/b/new.jsonl"], ["/a/test.jsonl", "/b/test.jsonl", "new"]),
        (["hf:math", "/a/math.jsonl"], ["hf:math", "/a/math.jsonl"]),
        (["gym:chain_sum*5", "gym:chain_sum*9"], ["gym:chain_sum*5", "gym:chain_sum*9"]),
    ],
)
def test_sources_have_short_and_distinct_names(specs, names):
    """Makes impossible: two benchmarks in one row because their files have the same name."""
    assert train.source_names(specs) == names


@pytest.mark.parametrize(
    ("model", "name"),
    [(None, "eval-policy"), ("runs/a/model", "eval-a"), ("nvidia/Nemo-1.5B", "eval-Nemo-1.5B"), ("m/x/", "eval-x")],
)
def test_an_evaluation_is_named_after_its_model(model, name):
    """Makes impossible: every run's model scored under the one name "eval-model"."""
    train.resolve(c := Config(model=model, eval_only=True))
    assert c.name == name


def test_scoring_writes_what_it_prints(tmp_path):
    """Makes impossible: scores that are on a screen only, or of other digits in the file; an evaluation overwritten."""
    small, large = halves(tmp_path)
    arguments = ["--eval_only", "--output_dir", tmp_path, "--eval_data", small, large, "--eval_samples=4"]
    done = call(TRAIN, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    folder = tmp_path / "eval-policy"
    assert {x.name for x in folder.iterdir()} == {"config.json", "eval.jsonl", "scores.csv"}
    (line,) = lines(folder / "eval.jsonl")
    assert line["step"] == 0 and line["k"] == 4 and line["sources"] == {"small": 4, "large": 12}
    assert all(len(line[name]) == 16 for name in ("correct", "response_tokens", "truncated", "reward"))
    rows = list(csv.DictReader((folder / "scores.csv").open()))
    assert [row["source"] for row in rows] == ["small", "large", "mean of 2"]
    scores = [float(row["pass@1"]) for row in rows]
    assert scores == [sum(line["correct"][:4]) / 16, sum(line["correct"][4:]) / 48, (scores[0] + scores[1]) / 2]
    for row in rows:
        assert f"{row['source']:9}  {float(row['pass@1']):.3f} ± {float(row['pass@1_se']):.3f}" in done.stdout
    assert "every source counts the same" in done.stdout and "16 held-out problems, 4 responses each" in done.stdout

    before = (folder / "eval.jsonl").read_bytes()
    again = call(TRAIN, *arguments)
    assert again.returncode == 2 and "an evaluation exists at" in again.stderr and "--overwrite" in again.stderr
    assert call(TRAIN, *arguments, "--overwrite").returncode == 0
    assert (folder / "eval.jsonl").read_bytes() == before
    with pytest.raises(ValueError, match="is an evaluation, which starts over: --eval_only --overwrite"):
        start(Config(resume=True, name="eval-policy", output_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"eval_data": ["hf:math:0.7", "hf:amc:0.3"]}, "--eval_data hf:math:0.7 hf:amc:0.3: held-out problems are not"),
        ({"eval_data": [str(TINY / "test.jsonl")] * 2}, r"test.jsonl twice: name each source once"),
        ({"eval_max_response_tokens": 0}, "--eval_max_response_tokens 0: must be at least 1"),
        (
            {"eval_max_response_tokens": 2000},
            r"problem 1: .* \+ --eval_max_response_tokens 2000 exceed the model's 1024",
        ),
    ],
)
def test_settings_that_make_no_sense_for_an_evaluation(tmp_path, changes, says):
    """Makes impossible: problems asked twice or mixed by weight, responses longer than the model."""
    for only in (True, False):
        with pytest.raises(ValueError, match=says):
            start(config(tmp_path, eval_only=only, **changes))
    assert not (tmp_path / "run").exists()


def test_an_evaluations_responses_have_their_own_length(tmp_path, monkeypatch):
    """Makes impossible: the paper's 32k of the evaluation taken for training's, or training's for the evaluation's."""
    generate, asked = train.TorchEngine.generate, []

    def listen(self, prompts, n, *, max_new_tokens, **kwargs):
        asked.append((n, max_new_tokens))
        return generate(self, prompts, n, max_new_tokens=max_new_tokens, **kwargs)

    monkeypatch.setattr(train.TorchEngine, "generate", listen)
    metrics = run(tmp_path, max_response_tokens=12, eval_max_response_tokens=5, eval_samples=3, max_steps=1)
    assert {length for n, length in asked if n == 3} == {5} and {length for n, length in asked if n == 8} == {12}
    assert metrics[0]["eval/truncated"] > 0.9 and metrics[0]["eval/response_tokens"] <= 5


@pytest.fixture
def bare(tmp_path) -> str:
    """The tiny policy without its recipe.json, as a model from elsewhere is: 1,024 positions."""
    shutil.copytree(TINY / "policy", tmp_path / "bare", ignore=shutil.ignore_patterns("recipe.json"))
    return str(tmp_path / "bare")


def test_an_evaluation_is_appendix_ds_whatever_the_recipe(bare):
    """Makes impossible: two recipes scored by two protocols, or an evaluation as long as the training happens to be."""
    for recipe in ("brorl", "prorl"):
        for length in (None, 12, 16384):
            train.resolve(c := Config(model=bare, recipe=recipe, max_response_tokens=length))
            protocol = c.eval_samples, c.eval_temperature, c.eval_top_p, c.eval_max_response_tokens
            assert protocol == (16, 0.6, 0.95, 32768)
            assert c.max_response_tokens == (length or 16384)


def test_an_evaluation_is_cut_to_a_models_positions_and_says_so(tmp_path, bare, capsys):
    """Makes impossible: a model of few positions refused for the paper's 32k, or cut in silence."""
    c = config(tmp_path, model=bare, eval_only=True, eval_samples=1, eval_temperature=1.0)
    setup = train.set_up(c, Accelerator(cpu=True))
    longest = max(map(len, setup.held_out_prompts))
    assert c.eval_max_response_tokens == 1024 - longest
    told = train.protocol(c, setup.held_out, setup.run.cut)
    assert f"cut at {1024 - longest:,} tokens, all that the model's 1,024 positions leave, at temperature" in told
    train.resolve(c := config(tmp_path, model=bare, eval_max_response_tokens=50))
    train.Run(c, Accelerator(cpu=True)).load_held_out(loaded()[1], 1024, given=True)
    assert c.eval_max_response_tokens == 50 and "positions" not in train.protocol(c, [1])
    with pytest.raises(ValueError, match="a response of at least 1 exceed the model's 8 positions"):
        train.Run(c, Accelerator(cpu=True)).load_held_out(loaded()[1], 8)


def test_a_run_from_before_evaluations_had_a_length_of_their_own_resumes(tmp_path):
    """Makes impossible: a run that cannot go on because its config.json says null where there is a number now."""
    run(tmp_path, max_steps=1)
    path = tmp_path / "run/config.json"
    settings = json.loads(path.read_text())
    assert settings["eval_max_response_tokens"] == settings["max_response_tokens"] == 12
    path.write_text(json.dumps(settings | {"eval_max_response_tokens": None}))
    assert [row["step"] for row in run(tmp_path, max_steps=2, resume=True)] == [0, 1, 2]


def test_held_out_problems_that_are_generated_are_not_those_of_training(tmp_path, monkeypatch):
    """Makes impossible: gym:NAME in --data and in --eval_data being the same problems, as with one seed for both."""
    seeds, load_data = [], train.load_data
    monkeypatch.setattr(train, "load_data", lambda specs, seed: seeds.append(seed) or load_data(specs, seed))
    train.set_up(config(tmp_path), Accelerator(cpu=True))
    training, held_out = seeds
    assert training == 0 and held_out - training > 10**8


# ----------------------------------------------------------------------------------------- what is kept of each problem


def test_every_evaluation_is_kept_problem_by_problem(tmp_path):
    """Makes impossible: a score that its line in eval.jsonl does not add up to; an evaluation that is not kept."""
    metrics = run(tmp_path, max_steps=3, eval_every=2)
    kept = lines(tmp_path / "run/eval.jsonl")
    assert [row["step"] for row in kept] == [m["step"] for m in metrics if "eval/pass@1" in m] == [0, 2, 3]
    for row in kept:
        m = metrics[row["step"]]
        answers = Answers(*(row[name] for name in Answers._fields))
        assert {f"eval/{k}": v for k, v in train.score(answers).items()} == {k: v for k, v in m.items() if "eval/" in k}
        assert row["samples"] == m["samples"] and row["sources"] == {"test": 16} and row["k"] == 4


def test_the_digest_tells_problems_apart(tmp_path):
    """Makes impossible: two runs on other problems, or on the same in another order, compared pair by pair."""
    rows, found = problems(), []
    for i, part in enumerate((rows, rows, rows[::-1], rows[:-1])):
        (tmp_path / f"{i}.jsonl").write_text("".join(part))
        one = train.Run(c := config(tmp_path, eval_data=[str(tmp_path / f"{i}.jsonl")]), Accelerator(cpu=True))
        train.resolve(c)
        one.load_held_out(loaded()[1], None)
        found.append(one.problems)
    assert found[0] == found[1] and len({*found}) == 3


def test_the_order_is_that_of_the_problems_on_any_number_of_processes(tmp_path):
    """Makes impossible: an instance paired with another one, because processes hand over their shares one by one.

    Greedy responses do not depend on who draws them: one process and two write the same line.
    """
    found = []
    for processes in (1, 2):
        done = launch(
            ROOT / "train.py", "--eval_only", f"--output_dir={tmp_path}", f"--name=on{processes}", "--eval_samples=1",
            f"--eval_data={few_problems.path}", "--eval_temperature=0", processes=processes, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        found.append((tmp_path / f"on{processes}/eval.jsonl").read_text())
    correct = json.loads(found[0])["correct"]
    assert found[0] == found[1] and correct != correct[0::2] + correct[1::2]
