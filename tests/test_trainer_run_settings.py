"""trainer/run_settings.py: what a resumed run takes over, and what it may not change."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from helpers import settings, write_problems

from kinds.users import load_rewards
from trainer.command_line import read_settings
from trainer.data import load_data
from trainer.process import Refusal
from trainer.run_settings import check_same_run, input_digests
from trainer.settings import GIVEN


def read(*argv: str):
    return read_settings("", list(argv))


DIGESTS = {"the problems": "a"}


def started(folder, **changes):
    """A run's folder with the settings that it began with."""
    config, _ = settings(folder, precision="float32", **changes)
    (folder / "run").mkdir()
    at_start = asdict(config) | {"sharded": False, "digests": DIGESTS}
    (folder / "run/config.json").write_text(json.dumps(at_start))


def test_resume_takes_the_settings_of_the_run(tmp_path):
    """Makes impossible: a resumed run with the defaults in place of the settings that it began with; one that cannot
    continue with another budget, or with less memory per forward pass.
    """
    started(tmp_path, learning_rate=3e-3, temperature=0.4, max_steps=7)
    argv = ["--resume", "--name", "run", "--output_dir", str(tmp_path), "--max_steps", "9", "--save_every", "5"]
    argv += ["--max_tokens_per_micro_batch", "99", "--gradient_checkpointing", "--max_engine_kl", "0.3"]
    config, origins = read(*argv)
    assert (config.learning_rate, config.temperature, config.max_steps, config.save_every) == (3e-3, 0.4, 9, 5)
    assert origins["temperature"] == "as the run began"
    _, origins = read(*argv, "--learning_rate", "1e-3")
    assert origins["learning_rate"] == GIVEN  # a run that diverges may continue with a lower rate
    check_same_run(config, False, DIGESTS)


@pytest.mark.parametrize("argv, sharded, digests, named", [
    (["--objective", "gspo"], False, {}, r"objective .*'gspo'.*another --name"),
    (["--precision", "bfloat16"], False, {}, "precision"),
    ([], True, {}, "sharded"), ([], False, {"the problems": "b"}, "the problems"),
    ([], False, {"reward.py": "c"}, "reward.py"),
])  # fmt: skip
def test_resume_refuses_another_run(tmp_path, argv, sharded, digests, named):
    """Makes impossible: half a run with one setting, precision or set of problems, half with another."""
    started(tmp_path)
    config, _ = read("--resume", "--name", "run", "--output_dir", str(tmp_path), *argv)
    with pytest.raises(Refusal, match=named):
        check_same_run(config, sharded, DIGESTS | digests)


def test_a_run_from_before_a_setting_existed_had_its_default(tmp_path):
    """Makes impossible: a setting that a fork adds, and all runs before it lost; another value of it for half a run."""
    started(tmp_path)
    file = tmp_path / "run/config.json"
    at_start = json.loads(file.read_text())
    del at_start["system_prompt"], at_start["lora_rank"]
    file.write_text(json.dumps(at_start))
    words = ["--resume", "--name", "run", "--output_dir", str(tmp_path)]
    check_same_run(read(*words)[0], False, DIGESTS)
    with pytest.raises(Refusal, match=r"lora_rank \(0 -> 4\)"):
        check_same_run(read(*words, "--lora_rank", "4")[0], False, DIGESTS)


def test_an_evaluation_or_a_damaged_file_cannot_be_resumed(tmp_path):
    """Makes impossible: a traceback for a folder that is no run."""
    started(tmp_path)
    path = tmp_path / "run/config.json"
    for text in ("{", "[]", '{"a": 1}', json.dumps(json.loads(path.read_text()) | {"eval_only": True})):
        path.write_text(text)
        with pytest.raises(Refusal, match="--resume"):
            read("--resume", "--name", "run", "--output_dir", str(tmp_path))


def test_digests_follow_problems_their_order_tokenizer_and_rewards(tmp_path, chat_model, forget_kinds):
    """Makes impossible: a resumed run with other problems, another tokenizer, template or reward file."""
    mine, words = tmp_path / "mine.py", tmp_path / "words.py"
    mine.write_text("from words import GOOD\nKINDS = {'mine': lambda response, reference: GOOD}\n")

    def digests(*prompts, good=1, **changes):
        words.write_text(f"GOOD = {good}\n")
        load_rewards([str(mine)])
        problems = write_problems(tmp_path / "x.jsonl", *(prompts or ["12:3=", "21:3="] * 4))
        config, origins = settings(tmp_path, data=problems, rewards=str(mine), **changes)
        return input_digests(config, load_data(config, origins))

    one = digests()
    others = [digests(), digests(*["21:3=", "12:3="] * 4), digests(model=chat_model), digests(good=0)]
    changed = [[Path(name).name for name in one if one[name] != other[name]] for other in others]
    assert changed == [[], ["the training problems"], ["the tokenizer"], ["words.py"]]
