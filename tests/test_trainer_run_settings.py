"""trainer/run_settings.py: the settings that a resumed run takes over, and those that it may not change."""

import json
from dataclasses import asdict

import pytest
from helpers import settings

from trainer.command_line import read_settings
from trainer.exits import Refusal
from trainer.run_settings import check_same_run
from trainer.settings import GIVEN


def read(*argv: str):
    return read_settings("", list(argv))


LAUNCH, DIGESTS = {"precision": "float32", "sharded": False}, {"the problems": "a"}


def started(folder, **changes):
    """A run's folder with the settings that it began with."""
    config, _ = settings(folder, **changes)
    (folder / "run").mkdir()
    at_start = asdict(config) | LAUNCH | {"digests": DIGESTS}
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
    check_same_run(config, LAUNCH, DIGESTS)


@pytest.mark.parametrize("argv, launch, digests, named", [
    (["--objective", "gspo"], {}, {}, "objective"), ([], {"precision": "bfloat16"}, {}, "precision"),
    ([], {}, {"the problems": "b"}, "the problems"), ([], {}, {"reward.py": "c"}, "reward.py"),
])  # fmt: skip
def test_resume_refuses_another_run(tmp_path, argv, launch, digests, named):
    """Makes impossible: half a run with one setting, precision or set of problems, half with another."""
    started(tmp_path)
    config, _ = read("--resume", "--name", "run", "--output_dir", str(tmp_path), *argv)
    with pytest.raises(Refusal, match=named):
        check_same_run(config, LAUNCH | launch, DIGESTS | digests)


def test_an_evaluation_or_a_damaged_file_cannot_be_resumed(tmp_path):
    """Makes impossible: a traceback for a folder that is no run."""
    started(tmp_path)
    path = tmp_path / "run/config.json"
    for text in ("{", "[]", '{"a": 1}', json.dumps(json.loads(path.read_text()) | {"eval_only": True})):
        path.write_text(text)
        with pytest.raises(Refusal, match="--resume"):
            read("--resume", "--name", "run", "--output_dir", str(tmp_path))
