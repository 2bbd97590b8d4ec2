"""train.py on the emulated GPU of emulated_gpu.py: devices that mix, checkpoints."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import ROOT, arguments, ended, lines, run, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="the emulated GPU needs a C++ compiler, and there is no g++"),
]


def on_gpu(folder: Path, **settings) -> None:
    """Run train.py on the emulated GPU. Fails if an operation mixes devices."""
    flags = arguments(folder, engine="torch", eval_every=0, eval_samples=1, **settings)
    environment = {"ACCELERATE_USE_CPU": "false"}
    said = ended(start(flags, train=ROOT / "tests/emulated_gpu.py", **environment))
    assert json.loads(said.splitlines()[-1]) == {"device": "cuda:0", "mixed": {}}


@pytest.mark.parametrize(
    "changes", [{}, {"offload": True}, {"lora_rank": 4, "learning_rate": 1e-3}], ids=["plain", "offload", "lora"]
)
def test_a_run_on_a_gpu_mixes_no_devices_and_resumes(changes, tmp_path):
    """Makes impossible: weights, moments, a reference, an adapter or a checkpoint on the wrong device; a checkpoint
    that only a CPU can write or read. In bfloat16, prompts are shared.
    """
    on_gpu(tmp_path, max_steps=1, **changes)
    assert json.loads((tmp_path / "run/config.json").read_text())["precision"] == "bfloat16"
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
