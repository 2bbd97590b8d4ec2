"""A real chat model through train.py as a user would run it: SmolLM2-135M-Instruct (tools/smollm.py).

Its folder is BRORL_SMOLLM, or brorl/smollm in the user's cache, and is made there if it is not. Where it cannot be made
these tests are skipped; with BRORL_SMOLLM they fail. The engine is torch, or vLLM with BRORL_VLLM=1.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import ROOT, ended, lines, start
from transformers import AutoTokenizer

from trainer.problems import load_problems

pytestmark = pytest.mark.slow
ENGINE = "vllm" if os.environ.get("BRORL_VLLM") else "torch"


@pytest.fixture(scope="session")
def model() -> Path:
    given = os.environ.get("BRORL_SMOLLM")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(given) if given else cache / "brorl" / "smollm"
    if not folder.exists():
        command = [sys.executable, "-m", "tools.smollm", str(folder)]
        made = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if made.returncode:
            (pytest.fail if given else pytest.skip)(made.stderr.strip().rpartition("\n")[2])
    return folder


@pytest.fixture(scope="session")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


def chat(a: int, b: int) -> list[dict]:
    """A problem after three solved ones."""
    messages = [{"role": "system", "content": "Answer within \\boxed{}."}]
    for x, y in (3, 4), (5, 1), (2, 6):
        messages += [{"role": "user", "content": f"What is {x} + {y}?"}]
        messages += [{"role": "assistant", "content": f"\\boxed{{{x + y}}}"}]
    return [*messages, {"role": "user", "content": f"What is {a} + {b}?"}]


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Sums that the model gets right some of the time: it likes to say 9, 7 and 11."""
    path = tmp_path_factory.mktemp("smollm") / "sums.jsonl"
    asked = [(6, 3), (4, 3), (6, 5), (4, 5), (2, 8), (5, 4), (7, 3), (8, 3)]
    rows = [{"prompt": chat(a, b), "kind": "math", "reference": str(a + b)} for a, b in asked]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def straight(tmp_path_factory, model, data) -> tuple[Path, str]:
    """A run of three steps, and what it printed."""
    folder = tmp_path_factory.mktemp("straight")
    command = [
        f"--engine={ENGINE}", f"--model={model}", f"--data={data}", f"--eval_data={data}", f"--output_dir={folder}",
        "--name=run", "--rollouts_per_prompt=16", "--prompts_per_step=2", "--updates_per_step=2",
        "--learning_rate=1e-6", "--max_response_tokens=12", "--eval_max_response_tokens=12", "--eval_samples=2",
        "--eval_every=3", "--max_steps=3",
    ]  # fmt: skip
    on_cpu = str(not torch.cuda.is_available()).lower()
    return folder / "run", ended(start(command, HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU=on_cpu))


def test_three_steps(straight, tokenizer, data):
    """Makes impossible: another model in the engine than in the trainer; a chat, a stop or a text that is not real."""
    folder, said = straight
    metrics = lines(folder / "metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2, 3] and "good: KL(engine, trainer)" in said
    for m in metrics[1:]:
        assert m["prompts"] >= 2 and m["engine_difference"] < 1e-4 and m["engine_difference_max"] < 1e-3
        assert 0 < m["reward"] < 1 and math.isfinite(m["loss"]) and m["grad_norm"] > 0
        assert m["truncated"] < 0.5 and 3 < m["response_tokens"] < 12  # most say \boxed{9} and stop
    assert metrics[3]["kl_ref"] > 0 and metrics[3]["kl_old"] > 0, "the updates moved no weight"
    prompts = [p.prompt for p in load_problems(data)]
    samples = lines(folder / "samples.jsonl")
    assert samples and all(row["prompt"] in prompts for row in samples)
    assert any(row["response"].startswith("\\boxed{") and row["response"].endswith("}") for row in samples)
    assert not any(token in row["response"] for row in samples for token in tokenizer.all_special_tokens)


def test_digits_stand_alone(tokenizer):
    """Makes impossible: digits that are joined to spaces before them, as the GGUF file has them."""
    for text, tokens in {"\n\n5": ["ĊĊ", "5"], "  12": ["ĠĠ", "1", "2"], "a 5": ["a", "Ġ", "5"]}.items():
        assert tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) == tokens
