"""train.py on the emulated GPU of emulated_gpu.py: devices that mix, numbers that are waited for, checkpoints."""

import json
import re
import shutil
from pathlib import Path

import pytest
from helpers import ROOT, arguments, ended, lines, run, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="the emulated GPU needs a C++ compiler, and there is no g++"),
]


def on_gpu(folder: Path, **settings) -> dict:
    """Run train.py on the emulated GPU. Returns what it found; fails if an operation mixes devices."""
    flags = arguments(folder, engine="torch", eval_every=0, eval_samples=1, **settings)
    environment = {"ACCELERATE_USE_CPU": "false"}
    said = ended(start(flags, train=ROOT / "tests/emulated_gpu.py", **environment))
    found = json.loads(said.splitlines()[-1])
    assert found["device"] == "cuda:0" and found["mixed"] == {}
    return found


def waits(found: dict, phase: str) -> float:
    """Waits for the GPU per decoded token or micro-batch."""
    return sum(n for event, n in found["waits"].items() if event.startswith(phase)) / found["units"][phase]


def said_on_the_page() -> dict[str, float]:
    """The table of docs/training.md."""
    page = (ROOT / "docs/training.md").read_text()
    rows = re.findall(r"^\| (a decoded token|a micro-batch of stage \d)[^|]*\| ([\d.]+) \|$", page, re.M)
    return {name: float(most) for name, most in rows}


def test_a_run_on_a_gpu_mixes_no_devices_and_resumes(tmp_path):
    """Makes impossible: a tensor that stays on the CPU, a checkpoint that only a CPU can write or read, more waits for
    the GPU than the page says. In bfloat16, prompts are shared.
    """
    found = on_gpu(tmp_path, max_steps=1)
    assert json.loads((tmp_path / "run/config.json").read_text())["precision"] == "bfloat16"
    on_gpu(tmp_path, max_steps=2, resume=True)
    assert [row["step"] for row in lines(tmp_path / "run/metrics.jsonl")] == [0, 1, 2]
    most = said_on_the_page()
    assert len(most) == 3
    for phase, name in zip(("decode", "score", "update"), most, strict=True):
        assert waits(found, phase) <= most[name], (name, found["waits"])


@pytest.mark.parametrize(
    "changes", [{"offload": True}, {"lora_rank": 4, "learning_rate": 1e-3}], ids=["offload", "lora"]
)
def test_offload_and_adapters_mix_no_devices_and_resume(changes, tmp_path):
    """Makes impossible: moments, a reference, an adapter or a checkpoint on the wrong device."""
    on_gpu(tmp_path, max_steps=1, **changes)
    on_gpu(tmp_path, max_steps=2, resume=True, **changes)
    assert [row["step"] for row in lines(tmp_path / "run/metrics.jsonl")] == [0, 1, 2]


def test_a_gpu_computes_what_a_cpu_computes(tmp_path):
    """Makes impossible: weights that an update on a GPU does not reach. In float32, in whole rows, with checkpointing,
    a mask and top-p.
    """
    rows = {"max_response_tokens": 40, "gradient_checkpointing": True, "objective": "mask_truncated", "eval_top_p": 0.9}
    on_gpu(tmp_path, name="gpu", precision="float32", **rows)
    run(tmp_path, name="cpu", eval_every=0, eval_samples=1, **rows)
    for a, b in zip(lines(tmp_path / "gpu/metrics.jsonl"), lines(tmp_path / "cpu/metrics.jsonl"), strict=True):
        assert a == pytest.approx(b, rel=0.1, abs=1e-4)  # AdamW divides rounding errors by their size
