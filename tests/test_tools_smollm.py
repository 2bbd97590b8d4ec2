"""tools/smollm.py: its problems and recipes."""

import json
import re

from tools import smollm
from trainer.command_line import read_settings
from trainer.problems import load_problems


def test_the_problems_and_recipes_of_the_real_model(tmp_path):
    """Makes impossible: a held-out problem in the training set, a recipe that train.py refuses or does not take."""
    smollm.write_problems(tmp_path, held_out=8, training=16)
    (tmp_path / "recipe.json").write_text(json.dumps(smollm.RECIPE_JSON))
    held_out, training = (load_problems(tmp_path / f"{name}.jsonl") for name in ("largest_test", "largest"))
    questions = [problem.prompt[-1]["content"] for problem in held_out + training]
    assert len(held_out) == 8 and len(training) == 16 and len({*questions}) == 24
    for problem, question in zip(held_out, questions, strict=False):
        assert problem.reference == str(max(map(int, re.findall(r"\d+", question))))
    files = [f"--data={tmp_path / 'largest.jsonl'}", f"--eval_data={tmp_path / 'largest_test.jsonl'}"]
    for recipe, settings in smollm.RECIPE_JSON.items():
        config, _ = read_settings("", [f"--model={tmp_path}", f"--recipe={recipe}", *files])
        assert {name: getattr(config, name) for name in settings} == {name: x["value"] for name, x in settings.items()}
