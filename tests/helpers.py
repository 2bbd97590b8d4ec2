"""Shared by the tests: small runs, rollouts of the tiny policy, random policies, real processes."""

import atexit
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer

import train
from rollout import Request, Sampling, TorchEngine
from trainer.command_line import read_settings
from trainer.outcomes import Outcomes, Rollout
from trainer.policy import Policy
from trainer.problems import load_problems
from trainer.rollouts import Judge, roll_out, rollouts_of
from trainer.settings import Config
from verify import REASONS, Problem, Verdict

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tiny"
PATIENCE_S = 300  # a busy machine can be ten times slower


@functools.cache
def few_problems(name: str = "test", count: int = 16) -> str:
    """The first problems of tiny/NAME.jsonl as a file: a run reads them quickly."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows = (TINY / f"{name}.jsonl").read_text().splitlines(keepends=True)
    Path(folder, f"{name}.jsonl").write_text("".join(rows[:count]))
    return str(Path(folder, f"{name}.jsonl"))


def arguments(folder, **changes) -> list[str]:
    """The command line of a small run: 4 prompts x 8 rollouts, two steps. None leaves a setting out."""
    small = {
        "data": few_problems("train", 256), "eval_data": few_problems(), "output_dir": folder, "name": "run",
        "rollouts_per_prompt": 8, "prompts_per_step": 4, "updates_per_step": 2, "learning_rate": 1e-4, "max_steps": 2,
        "eval_samples": 4, "eval_every": 1, "save_every": 1, "kl_coef": 1e-3, "reference_reset_steps": 2,
    }  # fmt: skip
    found: list[str] = []
    for name, value in (small | changes).items():
        if isinstance(value, list):
            found += [f"--{name}", *map(str, value)]
        elif value is not None and value is not False:
            found.append(f"--{name}" if value is True else f"--{name}={value}")
    return found


def settings(folder, **changes) -> tuple[Config, dict[str, str]]:
    return read_settings("", arguments(folder, **changes))


def set_up(folder, **changes):
    """(config, accelerator, setup) of a small run."""
    config, origins = settings(folder, **changes)
    config.precision = "float32"  # as start_accelerator fills it in
    accelerator = Accelerator(cpu=True)
    return config, accelerator, train.set_up(config, accelerator, origins)


def run(folder, **changes) -> list[dict]:
    """Train; returns the lines of metrics.jsonl. The picture is left out: drawing it takes longer than the run."""
    with mock.patch("trainer.pictures.draw_curves"):
        train.train(*set_up(folder, **changes))
    return lines(Path(folder) / changes.get("name", "run") / "metrics.jsonl")


def flags(folder: Path, name: str, **settings) -> list[str]:
    """The command line of a run of two small steps that writes a checkpoint after each."""
    recipe = {"kl_coef": None, "reference_reset_steps": None}
    return arguments(folder, **recipe | {"name": name, "eval_samples": 2, "eval_every": 0} | settings)


def trained(folder: Path, name: str, **settings) -> Path:
    """Run train.py in this process. Returns the folder of the run."""
    config, origins = read_settings("", flags(folder, name, **settings))
    accelerator = train.start_accelerator(config)
    train.train(config, accelerator, train.set_up(config, accelerator, origins))
    return folder / name


def lines(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_problems(path: Path, *prompts) -> str:
    """A file of countdown problems with these prompts."""
    reference = {"numbers": [1, 2], "target": 3}
    rows = [{"prompt": prompt, "kind": "countdown", "reference": reference} for prompt in prompts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def loaded():
    """The tiny policy and its tokenizer."""
    folder = str(TINY / "policy")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def drawn(count=6, n=8, seed=0, limit=12) -> tuple[list[Rollout], Outcomes]:
    """Rollouts of the tiny policy with verdicts; at temperature 3 their lengths differ."""
    model, tokenizer = loaded()
    sampling = Sampling(limit, 3.0, stop_token_ids=(tokenizer.eos_token_id,))
    problems = load_problems(TINY / "train.jsonl")[:count]
    seeds = [seed * 1000 + i for i in range(count)]
    return roll_out(
        TorchEngine(model, 1.0), problems, n, seeds, sampling, Judge(tokenizer, Config()), Accelerator(cpu=True)
    )


def outcomes(correct, reward=None, kinds=None, judged=True, truncated=False) -> Outcomes:
    """The outcomes of two rounds with these (P, N) verdicts; the k-th response has k tokens."""
    table = torch.tensor(correct, dtype=torch.bool)
    reasons = torch.where(table, REASONS.index("correct"), REASONS.index("wrong" if judged else "timeout"))
    reward = table.double() if reward is None else torch.tensor(reward)
    length = torch.arange(table.numel()).view(table.shape)
    cut = torch.full(table.shape, truncated)
    return Outcomes(reward, table, reasons, length, cut, torch.ones_like(table), kinds or ["math"] * len(table), 2)


def random_policy(kind, **changes) -> Policy:
    """A random policy, with weights large enough that attention matters."""
    small = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(kind(**small | changes), dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.3, generator=generator)
    return Policy(model)


def ulp(weight):
    """The distance of a bfloat16 number to the next one further from 0."""
    return torch.exp2(weight.abs().log2().floor() - 7)


def off_the_grid(policy):
    """Move each weight off the bfloat16 numbers by a third of an ulp, which rounding to the nearest does not see."""
    with torch.no_grad():
        for p in policy.parameters():
            p.copy_(p.bfloat16().float())
            p.add_(ulp(p) / 3 * (p != 0))
    return policy


def random_rollouts(sizes, longest=9) -> list[Rollout]:
    """(prompt tokens, rollouts) per prompt; responses of 1 to `longest` random tokens, some of them equal."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length):
        return torch.randint(50, (length,), generator=generator, dtype=torch.int32)

    made = []
    for index, (length, n) in enumerate(sizes):
        prompt, responses = tokens(length), []
        for number in range(n):
            size = int(torch.randint(1, longest + 1, (1,), generator=generator))
            responses.append(responses[-1] if number % 4 == 3 else tokens(size))
            problem, logp = Problem("", "", None), -torch.rand(len(responses[-1]))
            made.append(Rollout(problem, index, number, prompt, responses[-1], logp, False))
    return made


def sampled(model, prompts: list[list[int]], n: int, temperature: float = 1.0) -> list:
    """N responses to each prompt, as groups in the order of the prompts."""
    requests = [Request(prompt, n, i) for i, prompt in enumerate(prompts)]
    drawn = dict(TorchEngine(model).generate(requests, Sampling(12, temperature, stop_token_ids=(0,))))
    return [drawn[i] for i in range(len(prompts))]


def judged(groups: list, problems: list[Problem], right) -> list[Rollout]:
    """The groups as rollouts. right: (prompt index, response) -> whether the response counts as correct."""
    found = []
    for p, (group, problem) in enumerate(zip(groups, problems, strict=True)):
        for r, response in zip(rollouts_of(group, problem, p, 0), group.responses, strict=True):
            correct = bool(right(p, response))
            r.verdict = Verdict(float(correct), correct, "correct" if correct else "wrong")
            found.append(r)
    return found


ON_CPU = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def start(
    command: list[str], processes: int = 1, train=ROOT / "train.py", cwd=ROOT, config_file=None, **environment
) -> subprocess.Popen:
    """Start train.py with these arguments, in a new session, by torch's launcher if there are several ranks.

    config_file: of Accelerate, whose launcher then starts the processes that the file names.
    """
    python = [sys.executable]
    if config_file:
        python += ["-m", "accelerate.commands.launch", "--config_file", str(config_file)]
        python += ["--main_process_port", free_port()]
    elif processes > 1:
        python += ["-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port", free_port()]
    return subprocess.Popen(
        [*python, str(train), *map(str, command)], cwd=cwd, env=ON_CPU | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen, code: int | None = 0) -> str:
    """Wait for the end of a process; returns its output. None accepts every exit code."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert code is None or process.returncode == code, (process.returncode, said[-4000:])
    return said


def kill(process: subprocess.Popen) -> None:
    """SIGKILL for the process and everything that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_until(process: subprocess.Popen | None, condition) -> None:
    """Wait for a condition, while the process runs if there is one."""
    until = time.monotonic() + PATIENCE_S
    while (process is None or process.poll() is None) and not condition():
        assert time.monotonic() < until, "the condition of the test did not become true"
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, bytes]:
    """The files that must be equal byte for byte in two equal runs."""
    names = "metrics.jsonl", "samples.jsonl", "eval.jsonl", "model/model.safetensors"
    return {name: (folder / name).read_bytes() for name in names}
