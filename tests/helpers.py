"""What several test files share: small runs, real rollouts of the embedded policy, random policies, real processes."""

import atexit
import functools
import json
import multiprocessing
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from accelerate import Accelerator
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

import train
from rollout import Group, TorchEngine
from trainer.batch import Batch
from trainer.policy import Policy
from trainer.settings import Config
from verify import load_problems

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tiny"
CPU = torch.device("cpu")
PATIENCE_S = 600  # with what must come: a busy machine can be twenty times slower

# ------------------------------------------------------------------------------------------------ a run in this process


@functools.cache
def few_problems(name: str = "test", count: int = 16) -> str:
    """The first held-out problems, or training problems, in a file of the same name: a run reads them in no time."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows = (TINY / f"{name}.jsonl").read_text().splitlines(keepends=True)
    Path(folder, f"{name}.jsonl").write_text("".join(rows[:count]))
    return str(Path(folder, f"{name}.jsonl"))


def config(folder, **changes) -> Config:
    """A small run: 4 prompts x 8 rollouts, two steps."""
    small = {
        "model": str(TINY / "policy"),
        "data": [few_problems("train", 256)],
        "eval_data": [few_problems()],
        "output_dir": str(folder),
        "name": "run",
        "rollouts_per_prompt": 8,
        "prompts_per_step": 4,
        "updates_per_step": 2,
        "learning_rate": 1e-4,
        "max_steps": 2,
        "eval_samples": 4,
        "eval_every": 1,
        "save_every": 1,
        "kl_coef": 1e-3,
        "reference_reset_steps": 2,
    }
    return Config(**small | changes)


def start(c: Config, picture: bool = False) -> None:
    """Train. The picture at the end takes longer than all else: it is left out where nobody looks at it."""
    accelerator = Accelerator(cpu=True)
    with nullcontext() if picture else mock.patch("trainer.run.curves"):
        train.train(c, accelerator, train.set_up(c, accelerator))


def run(folder, **changes) -> list[dict]:
    start(config(folder, **changes))
    return lines(Path(folder) / changes.get("name", "run") / "metrics.jsonl")


def lines(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_problem(folder, prompt) -> str:
    """A file of one countdown problem."""
    path = folder / "one.jsonl"
    path.write_text(json.dumps({"prompt": prompt, "kind": "countdown", "reference": {"numbers": [1, 2], "target": 3}}))
    return str(path)


# ------------------------------------------------------------------------------------------ policies and their rollouts


def loaded():
    """The embedded policy and its tokenizer."""
    folder = str(TINY / "policy")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def rollouts(count=12, seed=0) -> tuple[list[Group], torch.Tensor]:
    """Real rollouts of the tiny policy at temperature 3, so that lengths differ, with advantages of both signs."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:count]
    prompts = [tokenizer(p.prompt).input_ids for p in problems]
    groups = TorchEngine(model).generate(prompts, 6, max_new_tokens=12, temperature=3.0, seed=seed)
    return groups, torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def random_policy(kind, vocabulary=50, **settings) -> Policy:
    """A random policy, with weights large enough that its attention looks somewhere."""
    small = {
        "vocab_size": vocabulary, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(kind(**small | settings), dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.3, generator=generator)
    return Policy(model)


def random_groups(sizes, longest=9, vocabulary=50) -> list[Group]:
    """(prompt tokens, rollouts) a group; responses of 0 to longest - 1 tokens, whatever wrote them."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length):
        return torch.randint(vocabulary, (length,), generator=generator).tolist()

    lengths = [torch.randint(longest, (n,), generator=generator).tolist() for _, n in sizes]
    return [
        Group(tokens(prompt), [tokens(x) for x in own], [[0.0] * x for x in own], ["stop"] * n)
        for (prompt, n), own in zip(sizes, lengths, strict=True)
    ]


def batch_of(made: list[Group]) -> Batch:
    return Batch.of(made, torch.zeros(sum(len(g.responses) for g in made)), CPU)


def furthest(ours, theirs) -> float:
    return max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))


class Largest(TorchDispatchMode):
    """The most elements that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


# ------------------------------------------------------------------------------------------------------- real processes


def launched(script, *arguments, processes=2) -> list[str]:
    """By torch's launcher, as `accelerate launch` starts processes on GPUs; with --cpu it starts one only."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    return [*command, str(script), *map(str, arguments)]


ON_CPU = {
    "env": os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    "cwd": ROOT,
}


class Ahead:
    """Processes that import all of torch for themselves: started when pytest is, on the core that it leaves idle."""

    def __init__(self, command, **kwargs):
        self.command, self.kwargs = command, kwargs  # command: folder -> what to type

    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.out, self.err = (self.folder / name for name in ("stdout", "stderr"))
        with self.out.open("w") as out, self.err.open("w") as err:
            command = list(map(str, self.command(self.folder / "runs")))
            self.process = subprocess.Popen(command, stdout=out, stderr=err, **self.kwargs)

    def ended(self) -> subprocess.CompletedProcess:
        code = self.process.wait(PATIENCE_S)
        return subprocess.CompletedProcess(self.command, code, self.out.read_text(), self.err.read_text())


def few(folder, name: str, *more) -> list:
    """Arguments of a run whose processes differ: some have no prompt, no informative one, or fewer micro-batches."""
    return [
        f"--name={name}", f"--output_dir={folder}", f"--eval_data={few_problems()}",
        f"--data={few_problems('train', 256)}", "--rollouts_per_prompt=2", "--updates_per_step=2",
        "--eval_samples=4", "--refill=20", "--max_tokens_per_micro_batch=20", "--save_every=2", *more,
    ]  # fmt: skip


TRAIN = ROOT / "train.py"
AHEAD = {  # fixture -> what it waits for
    "two_processes": Ahead(
        lambda folder: launched(TRAIN, *few(folder, "two", "--prompts_per_step=3"), "--max_steps=2"), **ON_CPU
    ),
    "refused": Ahead(lambda folder: [sys.executable, TRAIN, "--rollouts_per_prompt", -4, "--output_dir", folder]),
}
FORKS: Any = None  # on Windows, which has no such processes
if "forkserver" in multiprocessing.get_all_start_methods():
    FORKS = multiprocessing.get_context("forkserver")
    FORKS.set_forkserver_preload(["pytest", "train", "helpers"])


def prepare_forks() -> None:
    """Start, in the background, the process that imports train.py once for all that `begin` starts."""
    before = dict(os.environ)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    forkserver.ensure_running()
    os.environ.clear()
    os.environ |= before


class Job:
    """Processes that run one script together, each in a session of its own: forked by one that has it all imported."""

    def __init__(self, script, arguments, processes=1, bytes_a_file=None, **environment):
        prepare_forks()
        handle, self.said = tempfile.mkstemp()
        os.close(handle)
        environment |= {"ACCELERATE_USE_CPU": "true", "LOCAL_WORLD_SIZE": str(processes)}
        if processes > 1:
            environment |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.processes = []
        for rank in range(processes):
            own = environment | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {})
            given = str(script), [*map(str, arguments)], own, self.said, bytes_a_file
            self.processes.append(FORKS.Process(target=become, args=given, daemon=True))
            self.processes[-1].start()

    def codes(self) -> list[int | None]:
        return [process.exitcode for process in self.processes]

    def running(self) -> bool:
        return None in self.codes()

    def signal(self, number: int, rank: int = 0) -> None:
        """To this process and all that it started."""
        try:
            os.killpg(self.processes[rank].pid, number)
        except ProcessLookupError:  # it has no session of its own yet
            os.kill(self.processes[rank].pid, number)
        if number == signal.SIGKILL:
            self.processes[rank].join()

    def ended(self, code: int | None = 0) -> str:
        """What the processes printed, once all have ended, with this code. Where one fails, the others are ended."""
        until = time.monotonic() + PATIENCE_S
        while self.running() and time.monotonic() < until:
            if any(self.codes()):
                until = min(until, time.monotonic() + 60)
            time.sleep(0.01)
        late = self.running()
        for process in self.processes:
            process.kill()
        said = Path(self.said).read_text(errors="replace")
        os.unlink(self.said)
        assert not late and (code is None or set(self.codes()) == {code}), (self.codes(), said[-4000:])
        return said


def become(script, arguments, environment, said, bytes_a_file) -> None:
    """What a forked process does first: a session, an output and an environment of its own."""
    os.setsid()
    handle = os.open(said, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ |= environment
    os.chdir(ROOT)
    if bytes_a_file:
        import resource  # here: Windows has none

        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, bytes_a_file))
    tqdm.set_lock(threading.RLock())  # its own is a semaphore that a process which is killed leaves behind
    sys.argv = [script, *arguments]
    mock.patch("trainer.run.curves").start()  # as in `start`
    runpy.run_path(script, run_name="__main__")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def small(folder, *more) -> list[str]:
    """What one types for a small run."""
    return [
        f"--output_dir={folder}", "--name=run", f"--data={few_problems('train', 256)}", f"--eval_data={few_problems()}",
        "--rollouts_per_prompt=16", "--prompts_per_step=4", "--updates_per_step=2", "--eval_samples=4",
        "--eval_every=5", "--reference_reset_steps=3", "--seed=3", *more,
    ]  # fmt: skip


def begin(folder, *more, **job) -> Job:
    """A small run by train.py's own main() in processes of its own."""
    return Job(ROOT / "train.py", small(folder, *more), **job)


def wait_for(job, condition) -> None:
    until = time.monotonic() + PATIENCE_S
    while job.running() and not condition():
        assert time.monotonic() < until, "what the test waits for did not come"
        time.sleep(0.002)


def count_lines(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def under_way(command: list, metrics: Path) -> tuple[subprocess.Popen, list[int]]:
    """A run of two processes by torch's launcher, two steps in; the numbers of its processes, in order of rank."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **ON_CPU)
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and count_lines(metrics) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    if count_lines(metrics) < 3:
        process.terminate()  # its processes too
        raise AssertionError(process.communicate()[0][-4000:])
    children = [int(x) for x in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    ranks = {x: b"\0" + Path(f"/proc/{x}/environ").read_bytes() for x in children}
    return process, [next(x for x in children if f"\0RANK={i}\0".encode() in ranks[x]) for i in range(2)]


def contents(folder: Path) -> dict[str, bytes]:
    """What must be the same of two runs."""
    return {name: (folder / "run" / name).read_bytes()
            for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl", "model/model.safetensors")}  # fmt: skip


# ------------------------------------------------------------------------------------- one update in several processes

# One optimizer step of every process on the groups that are its own, and the weights after it. A script that begins
# with a class Sharded (test_trainer_processes.py) makes it under FSDP2.
ONE_UPDATE = """
import os, sys, torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
import train
from trainer.batch import Batch
from trainer.policy import Policy
from trainer.checkpoint import Whole
from trainer.progress import Progress
state = torch.load(sys.argv[1], weights_only=False)
accelerator = globals().get("Sharded", Accelerator)(cpu=True)
mine = state["split"][accelerator.process_index]
batch = Batch.of([state["groups"][i] for i in mine], state["advantages"][mine], accelerator.device)
batch.old_logp, batch.ref_logp = batch.engine_logp + 0.05, batch.engine_logp - 0.1
policy = Policy(AutoModelForCausalLM.from_pretrained(state["model"], dtype=torch.float32))
if state["share"]:
    policy.share("on")
    batch.share = True
policy, optimizer = accelerator.prepare(policy, torch.optim.SGD(policy.parameters(), lr=1.0))
metrics = train.update(policy, optimizer, batch, state["config"], accelerator, Progress())
weights = Whole(accelerator.unwrap_model(policy)).state_dict()
if accelerator.is_main_process:
    torch.save((metrics, weights), sys.argv[2])
accelerator.wait_for_everyone()
accelerator.end_training()
os._exit(0)  # as train.py ends: torch's threads may abort a process that Python takes apart
"""


def after_one_update(folder, split, budget, share=False, script=ONE_UPDATE):
    """Metrics and weights after one step of rate 1 without clipping, from weights that it moves by the gradient.

    split: which of six groups each process has; budget: tokens of a micro-batch; share: the prompts.
    """
    groups, advantages = rollouts(6)
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl="k2", kl_coef=0.1, tis_cap=2.0, updates_per_step=1,
               max_tokens_per_micro_batch=budget, max_grad_norm=1e9)  # fmt: skip
    state = {"groups": groups, "advantages": advantages, "model": str(TINY / "policy"), "config": c}
    torch.save(state | {"split": split, "share": share}, folder / "state")
    (folder / "one_update.py").write_text(script)
    Job(folder / "one_update.py", [folder / "state", folder / "out"], processes=len(split)).ended()
    return torch.load(folder / "out", weights_only=False)


def gradient(weights: dict) -> dict[str, torch.Tensor]:
    """What an update of rate 1 subtracted."""
    start = Policy(loaded()[0]).state_dict()
    return {name: start[name] - weights[name] for name in start}
