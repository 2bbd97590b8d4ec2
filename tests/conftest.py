"""Fixtures that several test files share. helpers.py has functions."""

import os
import shutil
import signal

# A shell starts a background job with SIGINT ignored, which its children inherit. The tests of Ctrl-C need the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
# For the processes of tests too: spinning threads slow their neighbours down.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch


@pytest.fixture
def one_thread():
    """The default of the scripts whose main() sets it for the process: the tests of other files get theirs back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with `run`, a small run of two steps. Only to be read."""
    from helpers import set_up

    import train

    folder = tmp_path_factory.mktemp("finished")
    train.train(*set_up(folder))
    return folder


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory):
    """A folder with what ranks.py wrote on two ranks. Only to be read."""
    from helpers import ROOT, ended, few_problems, start

    folder = tmp_path_factory.mktemp("two_ranks")
    files = {"PROBLEMS": few_problems("train", 256), "EVAL_PROBLEMS": few_problems()}
    ended(start([folder, "runs", "start", "shards"], 2, train=ROOT / "tests/ranks.py", **files))
    return folder


@pytest.fixture
def chat_model(tmp_path):
    """The tiny policy with a chat template: the contents of the messages, one after the other."""
    from helpers import TINY
    from transformers import AutoTokenizer

    shutil.copytree(TINY / "policy", tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "chat")
    return str(tmp_path / "chat")


@pytest.fixture
def bf16():
    """An Accelerator that computes in bfloat16; the next test gets a fresh state."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(True)
    PartialState()


@pytest.fixture
def forget_kinds():
    """Remove the kinds that a test adds by --rewards."""
    from sandbox.pool import end_workers
    from verify import KINDS, failures

    kinds = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(kinds)
    failures.clear()
    end_workers()
