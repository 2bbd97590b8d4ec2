"""trainer/public_data.py: rows of public data sets, generated entries."""

import importlib.util
import json
import logging
import sys

import pytest
from judging import instruction, needs

from trainer.problems import load_problems
from trainer.public_data import HUB, map_rows
from trainer.sources import load_sources
from verify import verify

STDIN_TESTS = {"inputs": ["1\n"], "outputs": ["2\n"]}
ROWS = {
    "gsm8k": {"question": "1+1?", "answer": "One and one is <<1+1=2>>2.\nTimes 600 that is 1,200.\n#### 1,200"},
    "gsm8k_test": {"question": "1-5?", "answer": "One less five is <<1-5=-4>>-4.\n#### -4"},
    "deepscaler": {"problem": "1+1?", "answer": "2", "solution": "It is \\boxed{2}."},
    "eurus_code": {
        "data_source": "taco", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "ability": "code", "reward_model": {"style": "rule", "ground_truth": json.dumps(STDIN_TESTS)},
        "extra_info": {"split": "train", "index": 0},
    },
    "scp_116k": {
        "domain": "Physics", "problem": "g?", "matched_solution": "9.8 m/s^2", "o1_solution": "...",
        "is_o1_solution_same_with_matched_solution": True,
    },
    "nemotron_if": {
        "input": [{"role": "user", "content": "No commas."}], "output": "",
        "args": {"instruction_id_list": ["punctuation:no_comma"], "instruction_kwargs": [None]},
    },
    "aime24": {"id": 60, "problem": "1+1?", "solution": "...", "answer": "204", "url": "", "year": "2024"},
    "aime25": {"problem": "1+1?", "answer": "70", "id": "0"},
    "math": {"problem": "1+1?", "level": "Level 1", "type": "Algebra", "solution": "So $\\boxed{\\frac{1}{2}}.$"},
    "minerva": {"question": "c?", "answer": "2.45e6"},
    "olympiadbench": {"question": "1?", "final_answer": ["$\\frac{1}{2}$", "3"], "is_multiple_answer": True},
}  # fmt: skip
RIGHT = {"math": "\\boxed{%s}", "science": "\\boxed{%s}", "ifeval": "No comma"}
PROGRAM = "```python\nprint(int(input()) + 1)\n```"


@pytest.mark.parametrize("name", HUB)
def test_rows_of_public_data_sets(name):
    """Makes impossible: a missing column, a gold that its kind refuses, or lost tests."""
    [problem] = map_rows(name, [ROWS[name]], HUB[name][3])
    kind, reference = problem.kind, problem.reference
    if kind == "code":
        verdict = verify(kind, PROGRAM, reference, allow_weak_sandbox=True)
    else:
        verdict = verify(kind, RIGHT[kind].replace("%s", str(reference)), reference)
    assert verdict == (1.0, True, "correct")
    assert kind not in ("math", "science") or problem.prompt.endswith(" within \\boxed{}.")


def test_golds_of_the_mappings():
    """Makes impossible: the gold read from the wrong column, or one of several answers."""
    names = ("math", "olympiadbench", "gsm8k", "gsm8k_test")
    golds = {name: map_rows(name, [ROWS[name]], HUB[name][3])[0].reference for name in names}
    assert golds == {
        "math": "\\frac{1}{2}", "olympiadbench": "$\\frac{1}{2}$, 3", "gsm8k": "1200", "gsm8k_test": "-4"
    }  # fmt: skip
    with pytest.raises(ValueError, match="row 0"):
        map_rows("hf:gsm8k", [{"question": "1+1?", "answer": "2"}], HUB["gsm8k"][3])


def test_gsm8k_percentages():
    """Makes impossible: 40% refused where the question asks for a percentage, or paid where it asks for a number."""
    for question, answer, golds in (
        ("5 of 20 are absent. What percentage of them is that?", "25", ["25", "25\\%"]),
        ("It rose from 5 to 6. By what percent did it rise?", "20", ["20", "20\\%"]),
        ("It rose from 5 to 6. What is the percent increase?", "20%", "20%"),
        ("40 percent of the 20 students are girls. How many boys are there?", "12", "12"),
        ("What percentage is known? How many dollars is 20 percent of 50?", "10", "10"),
    ):
        row = {"question": question, "answer": f"So.\n#### {answer}"}
        [problem] = map_rows("x", [row], HUB["gsm8k"][3])
        assert problem.reference == golds
        number = answer.removesuffix("%")
        assert verify("math", f"\\boxed{{{number}}}", problem.reference).correct == ("%" not in answer)
        assert verify("math", f"\\boxed{{{number}\\%}}", problem.reference).correct == ("%" in str(golds))


def test_arguments_of_eurus():
    """Makes impossible: a function of one list called with its elements."""
    tests = {"fn_name": "f", "inputs": ["[1, 2]", '[3]\n"a"', [[4], 5]], "outputs": ["3", "[3]", 9]}
    row = ROWS["eurus_code"] | {"reward_model": {"ground_truth": json.dumps(tests)}}
    [problem] = map_rows("x", [row], HUB["eurus_code"][3])
    assert problem.reference == tests | {"inputs": [[[1, 2]], [[3], "a"], [[4], 5]]}
    assert HUB["eurus_code"][3](ROWS["eurus_code"] | {"ability": "math"}) is None


def test_refused_rows_are_reported_once(caplog, monkeypatch):
    """Makes impossible: rows that vanish in silence, eight ranks that all name them, or one bad gold that stops 40,000
    good ones.
    """
    good, bad = ROWS["deepscaler"], ROWS["deepscaler"] | {"answer": "1/0"}
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        assert not caplog.text
        with caplog.at_level(logging.WARNING):
            assert len(map_rows("hf:x", [good] * 30 + [bad], HUB["deepscaler"][3])) == 30
    assert "hf:x, row 30" in caplog.text and "'1/0'" in caplog.text
    with pytest.raises(ValueError, match=r"hf:x, row 1"):
        map_rows("hf:x", [good, bad], HUB["deepscaler"][3])
    with pytest.raises(ValueError, match="hf:x"):
        map_rows("hf:x", [], HUB["deepscaler"][3])


@needs("datasets")
def test_a_local_copy_of_a_data_set(tmp_path, monkeypatch):
    """Makes impossible: a mapping that works on dicts and not on the rows of the package datasets."""
    import datasets

    for name in HUB:
        datasets.Dataset.from_list([ROWS[name]] * 12).save_to_disk(tmp_path / name)
        problems = load_sources([f"hf:{name}={tmp_path / name}"])
        assert len(problems) == 12 and problems[0] == map_rows(name, [ROWS[name]], HUB[name][3])[0]

    def load_dataset(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for source in (f"hf:minerva={tmp_path}/nowhere", "hf:minerva"):
        with pytest.raises(ValueError, match=r"hf:minerva=FOLDER"):
            load_sources([source])


@needs("reasoning_gym")
def test_generated_entries(tmp_path):
    """Makes impossible: entries that change between runs with one seed, or that no file can hold."""
    first, again, other = (load_sources(["gym:chain_sum*5"], seed=seed) for seed in (1, 1, 2))
    assert len(first) == 5 and first == again != other
    assert "<answer>" in first[0].prompt and first[0].kind == "logic"
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(json.dumps(p._asdict()) for p in first))
    assert load_problems(file) == first
    for wrong in ("gym:chain_sums", "gym:composite*3"):
        with pytest.raises(ValueError, match=wrong.partition("*")[0]):
            load_sources([wrong])


def test_optional_packages_are_named(monkeypatch):
    """Makes impossible: an ImportError from the depths, or a missing package found out at step 1."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("datasets", "reasoning_gym", "langdetect"):
        monkeypatch.setitem(sys.modules, name, None)
    entry = {"question": "1+1", "answer": "2", "metadata": {}}
    for package, load in (
        ("reasoning-gym", lambda: verify("logic", "a", {"dataset": "chain_sum", "entry": entry})),
        ("langdetect", lambda: verify("ifeval", "a", instruction("change_case:english_capital", {}))),
        ("datasets", lambda: load_sources(["hf:aime24"])),
        ("reasoning-gym", lambda: load_sources(["gym:chain_sum"])),
    ):
        with pytest.raises(ValueError, match=package):
            load()
