"""sandbox/: hostile programs and calls, each beside innocent ones.

attacks.txt has the programs. A program that breaks out prints "reached". It must end in a way that its second line
lists, within its limit and a second. The innocent jobs that run before, beside and after it must not notice.

Needs no root, but shows more as root: then every child has its own user.
"""

import contextlib
import itertools
import json
import math
import os
import platform
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

import verify
from sandbox import WeakSandbox, kernel, walls
from sandbox import pool as sandbox_pool
from sandbox.jobs import MAX_OUTPUT, Call, Ended, Program, Result
from sandbox.keeper import NICENESS
from sandbox.kernel import ABSENT, AUDIT_ARCH, REFUSED, TESTED, seccomp_filter
from sandbox.pool import Pool
from sandbox.values import tagged
from sandbox.worker import START, Worker

ROOT = Path(verify.__file__).resolve().parent
EXECUTE = f"{ROOT / 'tests' / 'hostile_call.py'}:execute"  # of any text, as far as text can get where calls run
ENDLESS_S = 0.5  # for what never ends: there are many of them
PATIENCE_S = 60.0  # until processes that must end have ended
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
MARK = f"hostile-{os.getpid()}"


@pytest.fixture(scope="module")
def pool():
    os.environ["SECRET_TOKEN"] = "the-trainers"
    with closing(Pool()) as pool:
        run(pool, INNOCENT, allow_weak=True)
        [worker] = pool._idle
        if worker.level < sandbox_pool.REQUIRED_LEVEL:
            pytest.skip(f"the walls of this machine reach level {worker.level} only ({worker.faults})")
        yield pool
    del os.environ["SECRET_TOKEN"]


def run(pool, *jobs, timeout_s=60.0, workers=2, allow_weak=False):
    outcomes = dict(pool.run(jobs, timeout_s, workers, allow_weak))
    return [outcomes[index] for index in range(len(jobs))]


def keeps_to_its_limit(limit_s, trial, before=lambda: None):
    """Whether trial(limit_s) returns within three times its limit. A busy machine gets more tries with longer limits;
    what has no limit, or a multiple of it, fails all.
    """
    for seconds in (limit_s, 3 * limit_s, 9 * limit_s, 27 * limit_s):
        before()
        start = time.monotonic()
        trial(seconds)
        if time.monotonic() - start < 3 * seconds:
            return True
    return False


INNOCENT = Program("print(int(input()) + 1)", ["41", "1"])
INNOCENT_VERDICT = Ended("ok", [Result("ok", "42\n"), Result("ok", "2\n")])
CHECK = Call(EXECUTE, ["assert 1 + 1 == 2"])
CHECK_VERDICT = Ended("ok", "done")

PRINTED = {  # programs that end well on this input, "abc" and "def", and their output
    "print(input()[::-1])": "cba\n",
    "import sys; print(sys.stdin.buffer.read())": "b'abc\\ndef'\n",
    "import sys; print(1); sys.exit(0)": "1\n",
    "import sys; sys.exit(print(1))": "1\n",
    "import os; print(1); os._exit(0)": "",
    "if __name__ == '__main__': print(2)": "2\n",
    "x = 5\nimport __main__\nprint(__main__.x)": "5\n",
    "import atexit; atexit.register(lambda: print('end'))": "end\n",
    "import threading; threading.Thread(target=lambda: print(input())).start()": "abc\n",
    "import threading, sys; sys.setrecursionlimit(10**6); threading.stack_size(2**26)\n"
    "def f(n): return n and 1 + f(n - 1)\n"
    "t = threading.Thread(target=lambda: print(f(20000))); t.start(); t.join()": "20000\n",
    "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50000))": "50000\n",
    "import asyncio\nasync def f(): return 3\nprint(asyncio.run(f()))": "3\n",
    "import json, decimal, sqlite3, unittest, dataclasses, zoneinfo, tempfile, xml.dom.minidom; print(4)": "4\n",
    "from dataclasses import dataclass\n@dataclass\nclass A: x: int\nprint(A(1))": "A(x=1)\n",
    "print(heappop([1, 2]), Counter('aa'), inf, List[int])": "1 Counter({'a': 2}) inf typing.List[int]\n",
    "print(len(str(10**6000)))": "6001\n",
    "print('\\u00e9\\U0001f600')": "é😀\n",
    "import multiprocessing, concurrent.futures, subprocess, socket; print(6)": "6\n",
}
FAILED = {
    "unparsed": ["x = (", "return 1", "print('\x00')\x00", "print('\ud800')", "x = " + "{" * 5000 + "}" * 5000],
    "error": [
        "1 / 0", "print(1); 1 / 0", "import sys; print(1); sys.exit(1)", "import sys; print(1); sys.exit('no')",
        "import os; print(1, flush=True); os._exit(7)"],
    "crashed": ["import os; os.abort()"],
}  # fmt: skip


def test_how_a_program_ends(pool):
    """Makes impossible: walls so high, or a harness so odd, that honest programs fail; an exit that is counted as
    success; text that is no program counted as a failed one.
    """
    want = {source: ("ok", text) for source, text in PRINTED.items()}
    want |= {source: (status, None) for status, sources in FAILED.items() for source in sources}
    tested = [outcome.value[0] for outcome in run(pool, *(Program(source, ["abc\ndef"]) for source in want))]
    got = [(one.status, one.value if one.status == "ok" else None) for one in tested]
    assert dict(zip(want, got, strict=True)) == want


def test_a_function_takes_and_gives_values(pool):
    """Makes impossible: a tuple that comes back as a list, or an argument that arrives as something else."""
    values = [None, True, 3, -(10**3000), 2.5, math.inf, "é\ud800", [1, [2]], {"1": [2], "a": []}, "", []]
    test = {"fn_name": "f", "args": values}
    sources = [
        "def f(*args): return [*args, (1, {2})]",
        "class Solution:\n    def f(self, *args): return [*args, (1, {2})]",
    ]
    for outcome in run(pool, *(Program(source, [test]) for source in sources)):
        [tested] = outcome.value
        assert tested.status == "ok"
        assert json.loads(tested.value) == [*map(tagged, values), {"tuple": [1, {"foreign": "set"}]}]


@pytest.mark.parametrize(
    ("source", "tested"),
    [
        ("def f(x): return x", Result("ok", "1")), ("def f(x): raise KeyError(x)", Result("error", "KeyError")),
        ("def g(x): return x", Result("error", "AttributeError")), ("f = 3", Result("error", "AttributeError")),
        ("def f(): return 1", Result("error", "TypeError")), ("def f(x): exit(0)", Result("error", "")),
        ("import sys\nsys.exit(0)\ndef f(x): return x", Result("error", "")),
        ("def f(x): print('1' * 100); return x", Result("ok", "1")),
        ("def f(x): return object()", Result("ok", '{"foreign": "object"}')),
        ("def f(x):\n    for _ in range(100_000): x = [x]\n    return x", Result("error", "RecursionError")),
        ("def f(x): return 'x' * 20_000_000", Result("output")),
        ("import os\ndef f(x):\n    os.write(4, b'[1'); os._exit(0)", Result("ok", "[1")),
        ("import os\ndef f(x): os._exit(0)", Result("ok", "")),
        ("def f(x): return gcd(x, 2) + len([*accumulate([x])])", Result("ok", "2")),
    ],
)  # fmt: skip
def test_how_a_function_ends(pool, source, tested):
    """Makes impossible: printed text or an exit taken for the returned value; a value that breaks its reader."""
    program = Program(source, [{"fn_name": "f", "args": [1]}])
    assert run(pool, program, INNOCENT) == [Ended("ok", [tested]), INNOCENT_VERDICT]


@pytest.mark.parametrize("name", ["factorial", "gcd", "sqrt", "accumulate", "Counter", "len", "math"])
def test_a_program_that_defines_nothing_has_no_function(pool, name):
    """Makes impossible: `pass` that is paid where the test calls a function that programs may use without an import."""
    sources = (
        "pass",
        "class Solution: pass",
        f"def {name}(x): return 7",
        f"class Solution:\n def {name}(_, x): return 7",
    )
    jobs = [Program(source, [{"fn_name": name, "args": [4]}]) for source in sources]
    found = [outcome.value[0].status for outcome in run(pool, *jobs)]
    assert found == ["error", "error", "ok", "ok"]


def test_a_program_has_no_file_of_its_keeper(pool):
    """Makes impossible: a program that answers for its keeper, because the trainer has many open files and the number
    of the keeper's connection is as high as theirs.
    """
    look = (
        "import os\ndef is_open(fd):\n    try: os.fstat(fd)\n    except OSError: return False\n    return True\n"
        "print([fd for fd in range(4, 5000) if is_open(fd)])"
    )
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]
    try:
        with closing(Pool()) as crowded:
            [outcome] = run(crowded, Program(look, [""]))
    finally:
        for fd in held:
            os.close(fd)
    assert outcome.value == [Result("ok", "[]\n")]


TEXTS = (ROOT / "tests" / "attacks.txt").read_text().split("\n=== ")[1:]
ATTACKS = dict(text.split("\n", 1) for text in TEXTS)  # name -> program
PREAMBLE = ATTACKS.pop("preamble")


@pytest.fixture(scope="module")
def names():
    """The names that programs get, with the path of a file that every user may read and no program may touch."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    victim = Path(folder) / "diary.txt"
    victim.write_text("mine")
    victim.chmod(0o644)
    values = {"project": str(ROOT), "home": str(Path.home()), "victim": str(victim)}
    values |= {"trainer": os.getpid(), "mark": MARK}
    yield "".join(f"{name} = {value!r}\n" for name, value in values.items())
    assert victim.read_text() == "mine"
    assert victim.stat().st_mode & 0o777 == 0o644
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(pool, names, name):
    """Makes impossible: the attack in the program's first line, or harm to other jobs."""
    source = ATTACKS[name]
    ends, x86, _ = source.split("\n")[1].removeprefix("# ends: ").partition(", on x86_64")
    if x86 and platform.machine() != "x86_64":
        pytest.skip("written in the numbers of x86_64")

    def trial(limit_s):
        attack = Program(names + PREAMBLE + source, ["0\n"], test_s=limit_s)
        before, got, beside, call = run(pool, INNOCENT, attack, INNOCENT, CHECK, timeout_s=max(60.0, 2 * limit_s))
        [tested] = got.value
        assert tested.status in ends.split(), tested
        assert "reached" not in (tested.value or ""), tested
        assert name != "fake_success" or tested.value == ""
        assert (before, beside, call) == (INNOCENT_VERDICT, INNOCENT_VERDICT, CHECK_VERDICT)

    assert keeps_to_its_limit(ENDLESS_S if "timeout" in ends else 60.0, trial)
    assert run(pool, INNOCENT, CHECK) == [INNOCENT_VERDICT, CHECK_VERDICT]


HOSTILE_CALLS = {
    "exit": ("__import__('os')._exit(0)", "crashed"),
    "endless": ("while True: pass", "timeout"),
    "memory": ("x = []\nwhile True: x.append(bytearray(2**26))", None),
    "crash": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "killer": ("import os\nos.kill(os.getppid(), 9)", "ok"),
    "closed": ("import os; os.closerange(0, 99)", "crashed"),
    "forged reply": ('import os; os.write(3, b\'{"value": "forged"}\\n\'); os._exit(0)', "ok"),
    "forged nonsense": ("import os; os.write(3, b'\\xff\\n'); os._exit(0)", "crashed"),
    "forged depth": ("import os; os.write(3, b'[' * 90000 + b'\\n'); os._exit(0)", "crashed"),
    "forged length": ("import os\nwhile True: os.write(3, b'x' * 65536)", "crashed"),
    "silence": ("import os; os.close(3)\nwhile True: pass", "crashed"),
}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name", HOSTILE_CALLS)
def test_hostile_call(pool, name, alone):
    """Makes impossible: a call that ends, hangs or fools its process, and harms the calls after it."""
    text, status = HOSTILE_CALLS[name]
    hostile = Call(EXECUTE, [text], evaluates=alone)

    def trial(limit_s):
        [got] = run(pool, hostile, timeout_s=limit_s)
        assert status is None or got.status == status
        assert got.value != "done"

    assert keeps_to_its_limit(60.0 if status in ("ok", "crashed") else ENDLESS_S, trial)
    assert run(pool, CHECK, INNOCENT) == [CHECK_VERDICT, INNOCENT_VERDICT]


def test_a_call_that_left_a_bomb(pool):
    """Makes impossible: an innocent call judged as crashed, because the call before it left a bomb."""
    bomb = "import os, threading, time\nthreading.Timer(0.05, os._exit, (0,)).start()"
    assert run(pool, Call(EXECUTE, [bomb])) == [CHECK_VERDICT]
    slow = Call(EXECUTE, ["import time; time.sleep(0.3)"])
    assert run(pool, slow, slow, CHECK, CHECK) == [CHECK_VERDICT] * 4


@pytest.mark.parametrize(
    ("call", "status", "error"),
    [
        (Call(EXECUTE, []), "crashed", "TypeError"),
        (Call("json:f", []), "crashed", "AttributeError"),
        (Call("builtins:exec", ["raise TimeoutError"]), "crashed", "TimeoutError"),
        (Call("builtins:exec", ["raise PermissionError(1, 'closed')"]), "environment", "PermissionError"),
        (Call("builtins:exec", ["raise ImportError"], alone=True), "environment", "ImportError"),
    ],
)
def test_a_call_that_raises(pool, call, status, error):
    """Makes impossible: an exception that ends the batch or counts as a verdict; a closed file blamed on an answer."""
    raised, beside = run(pool, call, CHECK)
    assert raised.status == status and raised.value.startswith(error)
    assert beside == CHECK_VERDICT


def test_long_arguments(pool):
    """Makes impossible: a request longer than the pipe, with both sides waiting for the other to read."""
    assert run(pool, Call(EXECUTE, ["#" * 10_000_000]), CHECK) == [CHECK_VERDICT] * 2
    blind = Call(EXECUTE, ["import os, time\nos.close(0)\ntime.sleep(99)" + "#" * 10_000_000])

    def trial(limit_s):
        assert run(pool, blind, blind, timeout_s=limit_s) == [Ended("timeout")] * 2

    assert keeps_to_its_limit(1.0, trial)


def test_workers_give_way_to_the_trainer(pool):
    """Makes impossible: a trainer that the kernel ends first when the memory is full; endless programs that take its
    core, because nice values do not count between sessions: where the kernel groups by session, the group needs one.
    """
    run(pool, INNOCENT, CHECK)
    for keeper in keepers(pool):
        assert Path(f"/proc/{keeper}/oom_score_adj").read_text() == "1000\n"
        assert os.getpriority(os.PRIO_PROCESS, keeper) == min(19, os.nice(0) + NICENESS)
        group = Path(f"/proc/{keeper}/autogroup")
        assert not group.exists() or group.read_text().split()[1:] == ["nice", str(NICENESS)]


def test_total_limit(pool):
    """Makes impossible: a program with many tests that runs for hours, since only each test has a limit."""

    def trial(limit_s):
        [outcome] = run(pool, Program("while True: pass", [""] * 50, test_s=0.4 * limit_s), timeout_s=limit_s)
        assert outcome.value == [Result("timeout")] * 50

    assert keeps_to_its_limit(0.8, trial)


def test_limits_of_jobs():
    """Makes impossible: a job that takes the time of the next one, or is charged for the start of its worker."""

    def in_a_row(seconds):  # the start of the worker, and each job; any two of them take longer than a job may
        slow, start = Call(EXECUTE, [f"import time; time.sleep({seconds})"]), Worker.start
        late = mock.patch.object(Worker, "start", lambda worker: (time.sleep(seconds), start(worker)))
        with late, closing(Pool()) as fresh:
            return run(fresh, slow, slow, timeout_s=1.8 * seconds, workers=1)

    assert any(in_a_row(seconds) == [CHECK_VERDICT] * 2 for seconds in (0.5, 2, 8))  # 8 on a busy machine
    with closing(Pool()) as fresh:
        assert run(fresh, INNOCENT) == [INNOCENT_VERDICT]  # fails, where the other tests skip, if a wall is broken


def test_what_is_kept(pool):
    """Makes impossible: the output of every test kept until the end, which can fill the memory."""
    source = f"print('x' * {MAX_OUTPUT // 2})"
    [outcome] = run(pool, Program(source, [""] * 4))
    assert [tested.status for tested in outcome.value] == ["ok", "output", "output", "output"]


def test_a_batch_that_is_given_up(pool):
    """Makes impossible: a batch that is given up leaves jobs running or a lock held, or takes all jobs."""
    taken = []
    endless = (taken.append(n) or Program("while True: pass", [""]) for n in range(40))
    batch = pool.run(itertools.chain([INNOCENT], endless), 10, 2)
    next(batch)
    batch.close()
    assert len(taken) <= 2
    assert run(pool, INNOCENT, CHECK) == [INNOCENT_VERDICT, CHECK_VERDICT]


def test_any_thread_may_use_it(pool):
    """Makes impossible: workers that die with the thread that started them, or answers for the wrong thread."""
    with ThreadPoolExecutor(3) as threads:
        got = list(threads.map(lambda _: run(pool, INNOCENT, CHECK), range(3)))
    used = sorted(keepers(pool))
    got.append(run(pool, INNOCENT, CHECK))
    assert sorted(keepers(pool)) == used
    assert got == [[INNOCENT_VERDICT, CHECK_VERDICT]] * 4


def keepers(pool):
    return [worker.process.pid for worker in pool._idle]


def processes():
    """(Pid, session, command line) of every process that is no zombie."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, *fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                yield int(entry), int(fields[2]), Path(f"/proc/{entry}/cmdline").read_text().split("\0")


def processes_of_session(session):
    return [pid for pid, of, _ in processes() if of == session]


def in_time(condition):
    """Wait until the condition holds, but not for ever. Returns whether it does."""
    deadline = time.monotonic() + PATIENCE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


def gone(sessions):
    return in_time(lambda: not any(map(processes_of_session, sessions)))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_keeper(pool, how):
    """Makes impossible: workers that were killed, or no longer answer, cost innocent answers their verdicts."""
    lost = []

    def lose():
        run(pool, INNOCENT, INNOCENT, CHECK, CHECK)
        lost.extend(keepers(pool))
        for pid in keepers(pool):
            os.kill(pid, how)

    def trial(limit_s):
        run(pool, Program("while True: pass", [""], test_s=limit_s), timeout_s=limit_s)

    if how == signal.SIGSTOP:
        assert keeps_to_its_limit(2 * ENDLESS_S, trial, lose)
        pool.close()
    else:
        lose()
    assert run(pool, INNOCENT, INNOCENT, CHECK, CHECK) == [INNOCENT_VERDICT] * 2 + [CHECK_VERDICT] * 2
    assert gone(lost)


ENDLESS = """
import os, sys, threading, time
from sandbox.jobs import *
from sandbox.pool import Pool
pool = Pool()
loop = Program("while True: pass", [""], test_s=1e3)
jobs = [loop, Call(sys.argv[1], ["while True: pass"])]
def report():
    while len(pool._active) < 2:
        time.sleep(0.05)
    if os.fork() == 0:
        time.sleep(600)
    print(*[worker.process.pid for worker in pool._active], flush=True)
threading.Thread(target=report).start()
list(pool.run(jobs, 1e3, 2))
"""


def test_a_killed_trainer_leaves_no_orphan():
    """Makes impossible: endless jobs that survive a killed trainer, while a fork of it holds the pipes."""
    command = [sys.executable, "-c", ENDLESS, EXECUTE]
    trainer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        sessions = [int(word) for word in trainer.stdout.readline().split()]
        assert len(sessions) == 2
        assert in_time(lambda: all(len(processes_of_session(session)) == 2 for session in sessions))
        trainer.kill()
        trainer.wait()
        assert gone(sessions)
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)  # the fork too


@pytest.mark.usefixtures("pool")
def test_a_fork_in_the_middle_of_a_batch():
    """Makes impossible: a fork that waits forever for the lock of a batch, which was held when it was forked."""
    item = "code", "```python\nprint(1)\n```", {"inputs": [""], "outputs": ["1"]}
    verify.verify_batch([item])
    with sandbox_pool._pool._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)  # ends the fork if it waits
            code = 1
            try:
                code = 0 if verify.verify_batch([item]) == [(1.0, True, "correct")] else 2
                sandbox_pool._pool.close()
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0) == (pid, 0)


def test_weak_walls_are_refused(pool, monkeypatch):
    """Makes impossible: model code run on a machine where nothing holds it, because nobody said so."""
    monkeypatch.setattr(sandbox_pool, "REQUIRED_LEVEL", 4)
    for job in (INNOCENT, Call(EXECUTE, CHECK.args, evaluates=True)):
        with pytest.raises(WeakSandbox, match=r"level 3 of the 4 .*allow_weak_sandbox"):
            run(pool, job)
    assert run(pool, CHECK) == [CHECK_VERDICT]
    assert run(pool, INNOCENT, allow_weak=True) == [INNOCENT_VERDICT]


@pytest.fixture
def another_user():
    """(Python, options of subprocess.run) for a process that is not root. As root, this needs a Python to run there."""
    if os.geteuid() != 0:
        return sys.executable, {"cwd": ROOT}
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        with contextlib.suppress(OSError, TypeError, subprocess.CalledProcessError):
            enough = "import sys, encodings; sys.exit(sys.version_info < (3, 11))"
            subprocess.run([python, "-c", enough], check=True, capture_output=True, **nobody)
            subprocess.run(["ls", ROOT / "sandbox"], check=True, capture_output=True, **nobody)
            return python, nobody
    pytest.skip("another user cannot reach a Python or this folder")


LEVEL = '''
import ctypes, json, os
from sandbox.jobs import Program
from sandbox.pool import Pool
look = """import os, resource
print(os.getuid(), os.readlink('/proc/self/ns/user'), *resource.getrlimit(resource.RLIMIT_NPROC))"""
pool = Pool()
found = [outcome.value[0].value.split() for _, outcome in pool.run([Program(look, [""])] * 2, 60, 2, True)]
if os.fork() == 0:
    os._exit(ctypes.CDLL(None).unshare(0x10000000) != 0)
print(json.dumps([pool._idle[0].level, pool._idle[0].faults, os.wait()[1] == 0, *found]))
'''


def level(project, python=sys.executable, **options):
    """The level that the sandbox of this folder reaches, its faults, whether user namespaces are allowed; of two
    programs at the same time: the user, the user namespace and the limit on threads.
    """
    environment = os.environ | {"PYTHONPATH": str(project)}
    command = [python, "-c", LEVEL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_as_another_user(another_user):
    """Makes impossible: walls that stand only because root built them; right programs that fail by the threads of
    another program, because the kernel counts both as one user's.
    """
    python, options = another_user
    reached, faults, namespaces, (user, one, *threads), (_, other, *_) = level(ROOT, python, **options)
    assert (reached, faults) == (3, "") and user != "0"
    if namespaces and [int(number) for number in re.findall("[0-9]+", platform.release())[:2]] >= [5, 14]:
        assert one != other and threads == ["64", "64"]


@pytest.mark.parametrize(
    ("name", "old", "new", "reached", "fault"),
    [
        ("kernel.py", "return platform", "return False and platform", 1, "no seccomp, "),
        ("kernel.py", "if version < 1:", "if True:", 2, "no Landlock"),
        # The kernel does nothing, and nobody notices.
        ("kernel.py", "if prctl(PR_SET", "if False and prctl(PR_SET", 1, "the network can be reached, "),
        ("kernel.py", "restricted = libc", "restricted = True or libc", 2, "files can be read"),
    ],
)
def test_the_level_is_found_by_trying(pool, tmp_path, name, old, new, reached, fault):
    """Makes impossible: a level that only repeats the request to the kernel, although a wall is missing; a fault that
    the user cannot read.
    """
    shutil.copytree(ROOT / "sandbox", tmp_path / "sandbox")
    file = tmp_path / "sandbox" / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    found, faults, *_ = level(tmp_path, cwd=tmp_path)
    assert found == reached and faults.startswith(fault)


def test_python_below_a_closed_folder(pool, tmp_path, monkeypatch):
    """Makes impossible: root's own Python, whose data files no worker may open, and every answer fails."""
    tmp_path.chmod(0o700)
    package = tmp_path / "site-packages" / "packed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def read(path): return open(path).read()")
    for file in (inside := package / "data.txt", outside := tmp_path / "secret.txt"):
        file.write_text("words")
    monkeypatch.syspath_prepend(package.parent)
    with closing(Pool()) as fresh:
        read, closed = run(fresh, *(Call("packed:read", [str(path)]) for path in (inside, outside)))
    assert read == Ended("ok", "words")
    assert closed.status == "environment" and "PermissionError" in closed.value


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has users to give away")
def test_every_worker_has_a_user_of_its_own():
    """Makes impossible: children that run as root, or count against each other's limits."""
    source = "import os, time; time.sleep(0.3); print(os.getresuid(), os.getresgid(), os.getgroups())"
    with closing(Pool()) as pool:
        users = {outcome.value[0].value for outcome in run(pool, Program(source, [""]), Program(source, [""]))}
    assert len(users) == 2
    for user in users:
        [number] = set(re.findall("[0-9]+", user))
        assert int(number) >= walls.FIRST_USER


def verdict_of_filter(machine, number, *arguments, arch=None):
    """Run the filter as the kernel would."""
    words = [argument & (2**64 - 1) for argument in arguments] + [0] * (6 - len(arguments))
    data = struct.pack("=IIQ6Q", number, AUDIT_ARCH[arch or machine], 0, *words)
    instructions = [*struct.iter_unpack("=HBBI", seccomp_filter(machine, 4242))]
    at = accumulator = 0
    while True:
        code, yes, no, k = instructions[at]
        at += 1
        if code == kernel.LOAD:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif code == kernel.AND:
            accumulator &= k
        elif code == kernel.RETURN:
            return k
        else:
            equal, greater, any_bit = accumulator == k, accumulator > k, accumulator & k
            holds = {kernel.EQUAL: equal, kernel.GREATER: greater, kernel.ANY_BIT: any_bit}
            at += yes if holds[code] else no


ALLOW, NO = kernel.ALLOW, kernel.ERRNO


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_the_filter_says_what_the_table_says(machine):
    """Makes impossible: a jump that lands one instruction off, on a machine that nobody here has."""
    column = list(AUDIT_ARCH).index(machine)
    tested = {name: numbers[column] for name, numbers in TESTED.items()}
    for numbers in REFUSED.values():
        if numbers[column] is not None:
            assert verdict_of_filter(machine, numbers[column]) == NO | 1
    for numbers in ABSENT.values():
        assert verdict_of_filter(machine, numbers[column]) == NO | 38
    refused = {numbers[column] for numbers in [*REFUSED.values(), *ABSENT.values(), *TESTED.values()]}
    for number in set(range(kernel.LAST_KNOWN_CALL + 1)) - refused:
        assert verdict_of_filter(machine, number, 3, 3, 3) == ALLOW
    for number in (452, 1000, 0x40000000, 2**32 - 1):
        assert verdict_of_filter(machine, number) == NO | 38
    [other] = set(AUDIT_ARCH) - {machine}
    assert verdict_of_filter(machine, 0, arch=other) == kernel.KILL_PROCESS

    for decision, calls in FILTERED.items():
        for name, *arguments in calls:
            assert verdict_of_filter(machine, tested[name], *arguments) == decision, (name, arguments)


FILTERED = {
    ALLOW: [
        ("clone", 0x3D0F00), ("kill", 4242, 9), ("tgkill", 4242, 9), ("openat", -100, 0, os.O_RDONLY | os.O_CLOEXEC),
        ("prlimit64", 0), ("prlimit64", 4242), ("prctl", 15), ("ioctl", 0, 0x5401), ("fcntl", 0, 1), ("fcntl", 0, 2),
        ("fcntl", 0, 4), ("socketpair", 1, 1), ("socketpair", 1, 1 | 0o2000000),
    ],
    NO | 1: [
        ("clone", 17), ("clone", 0x100 | 17), ("kill", 4241, 9), ("kill", 0, 9), ("kill", -1, 9), ("tgkill", 4241, 9),
        ("tgkill", 0, 9), ("tgkill", -1, 9), ("prlimit64", 1), ("prctl", 1), ("prctl", 4), ("fcntl", 0, 8),
        ("fcntl", 0, 10), ("fcntl", 0, 15), ("socketpair", 1, 2), ("socketpair", 2, 1), ("socketpair", 1, 5),
    ],
    NO | 13: [
        ("openat", -100, 0, flags) for flags in (
            os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_RDONLY | os.O_CREAT, os.O_TMPFILE | os.O_RDWR)
    ],
    NO | 25: [("ioctl", 0, 0x5412)],
}  # fmt: skip


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_the_numbers_are_the_kernels(machine):
    """Makes impossible: a number that is off by one, refuses an honest call and lets a dangerous one through."""
    path = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
    if not Path(path[machine]).exists():
        pytest.skip("the kernel's headers for this machine type are not installed")
    text = Path(path[machine]).read_text()
    found = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    column = list(AUDIT_ARCH).index(machine)
    for name, numbers in {**REFUSED, **ABSENT, **TESTED}.items():
        if numbers[column] is not None:
            assert found[name] == numbers[column], name
        elif machine == "aarch64":
            assert name not in found, name


@pytest.mark.slow
def test_no_memory_growth(pool):
    """Makes impossible: a buffer, a pipe or a process kept per job: a run of days would end by it."""

    def batch():
        run(pool, *[INNOCENT, CHECK] * 30)
        return len(os.listdir("/proc/self/fd")), resource.getrusage(0).ru_maxrss

    batch()
    first = batch()
    for _ in range(5):
        last = batch()
    assert last[0] == first[0]
    assert last[1] <= first[1] * 1.05 + 2048


def test_nothing_is_left(pool):
    """Makes impossible: processes, files or a broken pool after everything above."""
    assert run(pool, INNOCENT, CHECK) == [INNOCENT_VERDICT, CHECK_VERDICT]
    sessions = keepers(pool)
    assert sessions
    # Idle keepers have no child but the one that waits for the next call.
    assert all(len(processes_of_session(session)) <= 2 for session in sessions)
    pool.close()
    sandbox_pool.end_workers()
    assert gone(sessions)
    assert not [line for _, _, line in processes() if {START, str(os.getpid())} <= set(line)]
    for folder in ("/", "/tmp", "/var/tmp", "/dev/shm", Path.home(), ROOT, Path.cwd()):
        assert MARK not in os.listdir(folder)
    assert run(pool, INNOCENT, CHECK) == [INNOCENT_VERDICT, CHECK_VERDICT]
