"""What several test files share. (helpers.py has the functions; here are the fixtures, and what comes before torch.)"""

import os

os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # for processes of tests too: spinning threads slow their neighbours

import shutil
import sys

import pytest
import torch

from sandbox import WeakSandbox
from sandbox.pool import NO_WORKERS

if sys.platform != "linux":  # these start processes as Linux does, or are about its kernel
    collect_ignore_glob = ["test_docs*", "test_engines_vllm.py", "test_evidence*", "test_smollm.py", "test_train*",
                           "test_kinds_code.py", "test_kinds_users.py", "test_sandbox.py"]  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    """A test that needs a worker process, or its walls, is skipped where there is none, or only macOS's weak ones."""
    try:
        return (yield)
    except RuntimeError as error:
        if str(error) == NO_WORKERS or (isinstance(error, WeakSandbox) and sys.platform == "darwin"):
            pytest.skip(str(error))
        raise


def pytest_collection_finish(session):
    """Where a test will need it, the process that others are forked from imports all of torch meanwhile."""
    helpers = sys.modules.get("helpers")
    if helpers and any(vars(item.module).keys() & {"begin", "Job", "after_one_update"} for item in session.items):
        helpers.prepare_forks()
    for name, ahead in helpers.AHEAD.items() if helpers else ():
        if any(name in item.fixturenames for item in session.items):
            ahead.start()


@pytest.fixture
def two_processes():
    """A run by torch's launcher, and its folder."""
    import helpers

    return helpers.AHEAD["two_processes"].ended(), helpers.AHEAD["two_processes"].folder / "runs"


@pytest.fixture
def refused():
    """`python train.py` with a mistake, and the folder that it was to write to."""
    import helpers

    return helpers.AHEAD["refused"].ended(), helpers.AHEAD["refused"].folder / "runs"


@pytest.fixture
def one_thread():
    """The default of the scripts whose main() sets it for the process: the tests of other files get theirs back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with `run`, of two steps, as `helpers.run` makes it. Only to be read."""
    from helpers import config, start

    folder = tmp_path_factory.mktemp("finished")
    start(config(folder), picture=True)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """The same, to be changed."""
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path


@pytest.fixture
def bf16():
    """An Accelerator that computes in bfloat16, and none left behind."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(True)
    PartialState()


@pytest.fixture
def forget_kinds():
    """Kinds that a test adds by --rewards are gone after it."""
    from sandbox.pool import restart
    from verify import KINDS, failures

    kinds = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(kinds)
    failures.clear()
    restart()
