"""What runs without Linux: each file of the paper by itself, and the kinds that need no worker process."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Other packages choose by sys.platform, so they are loaded by a first pass, before the names of Unix are taken away.
TWO_PASSES = """
import os, select, sys

def of_the_project(module):
    path = str(getattr(module, "__file__", None) or "")
    return path.startswith(ROOT) and "site-packages" not in path

sys.path.insert(0, ROOT)
scenario()
for name in [name for name, module in sys.modules.items() if of_the_project(module)]:
    del sys.modules[name]
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp"))  # None: cannot be imported
sys.platform = "win32"
for module, names in ((os, ("fork", "register_at_fork", "sched_getaffinity", "getuid", "killpg", "memfd_create")),
                      (select, ("poll", "epoll"))):
    for name in names:
        vars(module).pop(name, None)
scenario()
"""


def run_twice(scenario: str, folder: Path) -> None:
    """The body of a function, as it is, and then without what only Unix has."""
    body = textwrap.indent(textwrap.dedent(scenario), "    ")
    script = f"ROOT = {str(ROOT)!r}\ndef scenario():\n{body}{TWO_PASSES}"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_papers_files_run_without_unix(tmp_path):
    """Mistake: an import of fcntl or resource, anywhere below these files, that ends the first command on Windows."""
    run_twice("""
        import brorl, loss, sim, torch, train
        from rollout import Request, Sampling, TorchEngine
        from transformers import AutoModelForCausalLM
        from verify import verify

        sim.main("--vocabulary 50 --correct_tokens 5 --steps 3 --rollouts 2 8 --out sim".split())
        model = AutoModelForCausalLM.from_pretrained(ROOT + "/tiny/policy", dtype=torch.float32)
        [(_, group)] = TorchEngine(model).generate([Request([5, 6, 7], 4, 0)], Sampling(3))
        assert len(group.responses) == 4
        ifeval = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        for kind, response, reference in (
            ("countdown", "4*5", {"numbers": [4, 5], "target": 20}), ("ifeval", "yes", ifeval),
            ("math", "\\\\boxed{0.5}", "\\\\frac{1}{2}"), ("science", "\\\\boxed{9.8 m/s^2}", "9.8 m/s^2"),
        ):
            assert verify(kind, response, reference).reward == 1.0, kind
    """, tmp_path)  # fmt: skip


def test_a_kind_that_needs_a_worker_says_so(tmp_path):
    """Mistake: a program judged where no worker can start, and a traceback about fork, poll or fcntl."""
    run_twice("""
        from verify import verify
        try:
            verify("code", "```python\\nprint(6)\\n```", {"inputs": ["3"], "outputs": ["6"]}, allow_weak_sandbox=True)
            assert hasattr(os, "fork")
        except RuntimeError as sentence:
            assert not hasattr(os, "fork") and "Linux" in str(sentence)
    """, tmp_path)  # fmt: skip
