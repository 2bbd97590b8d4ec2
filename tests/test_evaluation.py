"""Appendix D, evaluation: a row for each benchmark and their mean, what is kept of each problem, the paired t-test."""

import csv
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import scipy.stats
import torch
from accelerate import Accelerator
from test_train import ROOT, TINY, config, few_problems, launch, lines, loaded, run, start

import brorl
import train
from train import Answers, Config

TRAIN = [sys.executable, str(ROOT / "train.py")]
TTEST = [sys.executable, str(ROOT / "figures/ttest.py")]


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


# ------------------------------------------------------------------------------------------------- the paired t-test


def test_paired_t_test_by_hand():
    """Makes impossible: a - b for b - a, s / n for s / √n, n degrees of freedom, tails exchanged.

    d = (0, 1, 2): Δ = 1, s = 1, t = √3. With ν = 2, P(T > t) = 1/2 - t / (2 √(2 + t²)).
    """
    test = brorl.paired_t_test(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 2.0, 3.0]))
    assert (test.instances, test.mean_a, test.mean_b, test.delta, test.degrees_of_freedom) == (3, 1.0, 2.0, 1.0, 2)
    assert test.standard_error == pytest.approx(1 / 3**0.5) and test.t == pytest.approx(3**0.5)
    tail = 0.5 - 3**0.5 / (2 * 5**0.5)
    assert test.p_one_tailed == pytest.approx(tail) and test.p_two_tailed == pytest.approx(2 * tail)
    assert (test.low, test.high) == pytest.approx((1 - 4.302653 / 3**0.5, 1 + 4.302653 / 3**0.5), abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5, 30, 1000, 10_000])
@pytest.mark.parametrize("shift", [0.0, 1e-9, 0.003, -0.05, 0.2, 3.0])
def test_scipy_agrees(n, shift):
    """Makes impossible: a p-value that is wrong for few instances, for many, far out in the tail, or below 0."""
    dice = torch.Generator().manual_seed(n)
    a = torch.randint(17, (n,), generator=dice) / 16
    b = a + shift + 0.1 * torch.randn(n, generator=dice, dtype=torch.float64)
    ours = brorl.paired_t_test(a, b)
    one = scipy.stats.ttest_rel(b.numpy(), a.double().numpy(), alternative="greater")
    two = scipy.stats.ttest_rel(b.numpy(), a.double().numpy())
    assert ours.t == pytest.approx(one.statistic, rel=1e-9) and ours.degrees_of_freedom == one.df
    assert ours.p_one_tailed == pytest.approx(one.pvalue, rel=1e-8, abs=1e-300)
    assert ours.p_two_tailed == pytest.approx(two.pvalue, rel=1e-8, abs=1e-300)
    assert (ours.low, ours.high) == pytest.approx((*two.confidence_interval(0.95),), rel=1e-9)


@pytest.mark.parametrize("degrees_of_freedom", [1, 2, 7, 9999, 10**6])
@pytest.mark.parametrize("t", [0.0, 1e-12, 0.5, 1.0, 4.84, 40.0, 1e6, -4.84])
def test_students_tail_is_scipys(t, degrees_of_freedom):
    """Makes impossible: a continued fraction that has not converged, or that cancels."""
    want = scipy.stats.t.sf(t, degrees_of_freedom)
    assert brorl.student_t_tail(t, degrees_of_freedom) == pytest.approx(want, rel=1e-8, abs=1e-300)


def test_the_papers_p_value():
    """Makes impossible: another test than the paper's, whose t = 4.84 on over 10,000 instances has p = 6.5e-7."""
    tails = [brorl.student_t_tail(t, 10_000) for t in (4.845, 4.835)]
    assert tails[0] < 6.55e-7 and tails[1] > 6.45e-7


def test_differences_that_are_all_the_same():
    """Makes impossible: a division by 0, or "no difference at all" called significant."""
    a = torch.tensor([0.25, 0.5, 0.0])
    none = brorl.paired_t_test(a, a)
    assert (none.t, none.p_one_tailed, none.p_two_tailed, none.low, none.high) == (0, 0.5, 1, 0, 0)
    up, down = brorl.paired_t_test(a, a + 0.5), brorl.paired_t_test(a, a - 0.5)
    assert (up.t, up.p_one_tailed, up.p_two_tailed) == (math.inf, 0, 0)
    assert (down.t, down.p_one_tailed, down.p_two_tailed) == (-math.inf, 1, 0)


@pytest.mark.parametrize(
    ("a", "b"), [([1.0], [0.0]), ([1.0, 0.0], [1.0, 0.0, 0.0]), ([[1.0, 0.0]], [[1.0, 0.0]]), ([], [])]
)
def test_paired_t_test_refuses_what_is_not_paired(a, b):
    """Makes impossible: one instance, or lists that broadcast against each other."""
    with pytest.raises(ValueError, match="two equally long lists of at least 2 scores"):
        brorl.paired_t_test(torch.tensor(a), torch.tensor(b))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A run of two steps, and another seed's."""
    folder = tmp_path_factory.mktemp("pair")
    for seed in (0, 1):
        run(folder, name=f"seed{seed}", seed=seed, learning_rate=1e-3)
    return folder / "seed0", folder / "seed1"


def test_the_t_test_of_two_runs(two_runs):
    """Makes impossible: runs exchanged, another evaluation than the one asked for, a number that is not the test's."""
    a, b = two_runs
    done = call(TTEST, a, b)
    assert done.returncode == 0, done.stderr
    scores = [torch.tensor(lines(folder / "eval.jsonl")[-1]["correct"]) / 4 for folder in two_runs]
    test = brorl.paired_t_test(*scores)
    assert "16 instances, 4 responses each: test" in done.stdout and done.stdout.count("step 2") == 2
    for name, folder, mean in (("A", a, test.mean_a), ("B", b, test.mean_b)):
        assert f"{name}: {folder}, step 2        pass@1 {mean:.4f}" in done.stdout
    for number in (f"{test.delta:+.4f}, standard", f"{test.low:+.4f} to {test.high:+.4f}", f"{test.t:.2f}, 15 degrees",
                   f"{test.p_one_tailed:.2g}\n", f"{test.p_two_tailed:.2g}\n"):  # fmt: skip
        assert number in done.stdout
    before_after = call(TTEST, a, a, "--step", 0, 2).stdout
    want = [lines(a / "metrics.jsonl")[step]["eval/pass@1"] for step in (0, 2)]
    assert all(f"step {step}        pass@1 {x:.4f}" in before_after for step, x in zip((0, 2), want, strict=True))
    same = call(TTEST, a, b, "--step", 0).stdout  # the seeds of the evaluation are the same, and so is the policy
    assert "Δ = B - A              +0.0000" in same and "No difference is shown" in same


def test_the_t_test_refuses_runs_that_do_not_pair(two_runs, tmp_path):
    """Makes impossible: scores of other problems, of other settings or of no evaluation subtracted from each other."""
    a, _ = two_runs

    def refused(other, *more):
        done = call(TTEST, a, other, *more)
        assert done.returncode == 2 and not done.stdout and "Traceback" not in done.stderr
        return done.stderr

    assert "has no config.json: name a folder that train.py wrote" in refused(tmp_path)
    assert "policy is a model: train.py --eval_only --model" in refused(TINY / "policy")
    assert "was not evaluated at step 7, but at 0, 1, 2" in refused(a, "--step", 7)
    assert "one step for both runs, or one for each" in refused(a, "--step", 0, 1, 2)
    small, large = halves(tmp_path)
    run(tmp_path, name="halves", max_steps=1, eval_data=[small, large])
    run(tmp_path, name="others", max_steps=1, eval_data=[large])
    (tmp_path / "test.jsonl").write_text("".join(reversed(problems())))
    run(tmp_path, name="reversed", max_steps=1, eval_data=[str(tmp_path / "test.jsonl")])
    assert "different problems, test (16) and large (12)" in refused(tmp_path / "others")
    assert "test (16) and test (16), which differ in content" in refused(tmp_path / "reversed")
    for name, changes in (("k", {"eval_samples": 2}), ("t", {"eval_temperature": 0.5}),
                          ("length", {"eval_max_response_tokens": 9})):  # fmt: skip
        run(tmp_path, name=name, max_steps=1, **changes)
        assert f"different settings, --{next(iter(changes))}: " in refused(tmp_path / name)
    run(tmp_path, name="same", max_steps=1, eval_max_response_tokens=12)  # in words what the others have in silence
    for name in ("same", "halves"):  # and the same problems in the same order, from two files
        assert call(TTEST, a, tmp_path / name).returncode == 0
    (tmp_path / "same/eval.jsonl").unlink()
    assert "same has no eval.jsonl: score its model" in refused(tmp_path / "same")
    (tmp_path / "k/eval.jsonl").write_text('{"step": 0, "sam')
    assert "k was not evaluated yet" in refused(tmp_path / "k")
    (tmp_path / "k/eval.jsonl").write_text("{]\n")
    assert "k/eval.jsonl is damaged: score its model" in refused(tmp_path / "k")
    (tmp_path / "k/config.json").write_text("{}")
    assert "it lacks eval_samples, " in refused(tmp_path / "k")
    (tmp_path / "k/config.json").write_text("{")
    assert "it lacks anything that can be read" in refused(tmp_path / "k")
    done = call(TRAIN, "--eval_only", "--model", a)
    assert done.returncode == 2 and f"is a run: its policy is {a}/model" in done.stderr
