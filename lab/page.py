"""The reading edition: each equation of the paper beside its code, its tests and a number.

    python -m lab.page OUT      writes a page for each file that docs/paper.md names; open OUT/brorl.html

A page needs neither network nor script. docs/paper.md says which functions and tests there are. Code and tests are read
from their files, and the numbers are computed while the page is written. Only the LaTeX and the calls stand below.
"""

import argparse
import ast
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from lab.grade import mistake

ROOT = Path(__file__).resolve().parent.parent

# What a page computes its numbers with: Python as a student can paste it.
CASE = {
    "brorl": """\
import torch, brorl
p = torch.tensor([8, 4, 3, 1]) / 16
correct = torch.tensor([False, True, False, True])
sampled = torch.tensor([True, True, False, False])  # tokens 0 and 1 were drawn, N = 4
m = brorl.masses(p, correct, sampled)
rewards = brorl.token_rewards(p, correct, sampled)
dz = brorl.logit_step(p, rewards, eta=0.5, n=4)""",
    "loss": """\
import torch, loss
correct = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]) == 1  # 3 prompts, N = 4
a = loss.group_advantages(correct.float())
r = torch.tensor([0.5, 1.0, 1.5])
old, engine = torch.tensor([0.6, 0.1, 0.9]).log(), torch.tensor([0.4, 0.5, 0.3]).log()
# A right and a wrong rollout of two tokens each, before the first update
logp = torch.tensor([-0.1, -2.0, -0.3, -0.9], requires_grad=True)
start, lengths = logp.detach(), torch.tensor([2, 2])
half = torch.tensor([0.5, -0.5])
clip = {"clip_low": 0.2, "clip_high": 0.27, "tis_cap": 2.0}
L, metrics = loss.policy_loss(logp, start, start, None, half, lengths, 4, **clip)
L.backward()""",
    "sim": """\
import torch, sim
setting = sim.Setting(vocabulary=2000, correct_tokens=100, steps=300)
def last(n):
    return list(sim.as_written(setting, n, torch.Generator().manual_seed(n)))[-1]""",
    "rollout": """\
from transformers import AutoModelForCausalLM, AutoTokenizer
from rollout import Request, Sampling, TorchEngine
tokenizer = AutoTokenizer.from_pretrained("tiny/policy")
engine = TorchEngine(AutoModelForCausalLM.from_pretrained("tiny/policy"))
request = Request(tokenizer("1569:20=").input_ids, n=512, seed=0)
[(_, group)] = engine.generate([request], Sampling(max_new_tokens=12, stop_token_ids=(0,)))""",
    "verify": """\
from verify import verify, verify_batch
problem = {"numbers": [1, 5, 6, 9], "target": 20}""",
}
# What stands beside a function: lines of LaTeX, and calls whose values are shown.
ROWS = {
    "brorl.masses": r"""
        P_{pos} = \sum_{i \in A} p_i
        P_{neg} = \sum_{i \in B} p_i
        Q_{pos} = \sum_{i \in P} p_i
        Q_{neg} = \sum_{i \notin P} p_i
        A_2 = \sum_{i \in A} p_i^2
        B_2 = \sum_{i \in B} p_i^2
        U_{pos,2} = \sum_{i \in P, \, i \notin A} p_i^2
        U_{neg,2} = \sum_{i \notin P, \, i \notin B} p_i^2
        >>> m""",
    "brorl.mood": r"""
        S_R = R_c P_{pos} + R_w P_{neg}
        >>> brorl.mood(m)""",
    "brorl.token_rewards": r"""
        R_i = \begin{cases} R_c & i \in A \\ R_w & i \in B \\ 0 & \text{else} \end{cases}
        >>> rewards""",
    "brorl.surrogate": r"""
        L = -\frac{1}{N} \sum_i R_i p_i
        >>> brorl.surrogate(p, rewards, n=4)""",
    "brorl.logit_step": r"""
        \Delta z_j = \frac{\eta}{N} p_j (R_j - S_R)
        >>> dz""",
    "brorl.probability_step": r"""
        \Delta p_i = p_i \Big( \Delta z_i - \sum_j p_j \Delta z_j \Big)
        >>> brorl.probability_step(p, dz)""",
    "brorl.mass_balance": r"""
        \Delta Q_{pos} = \frac{\eta}{N} \big[ (R_c - S_R) Q_{neg} A_2
        \quad + (S_R - R_w) Q_{pos} B_2
        \quad + S_R (Q_{pos} U_{neg,2}
        \qquad - Q_{neg} U_{pos,2}) \big]
        >>> brorl.mass_balance(m, eta=0.5, n=4)
        >>> brorl.mass_balance(m, eta=0.5, n=4).total""",
    "brorl.unsampled_coupling": r"""
        \frac{\eta}{N} S_R (Q_{pos} U_{neg,2}
        \qquad - Q_{neg} U_{pos,2})
        >>> brorl.unsampled_coupling(m, brorl.mood(m), eta=0.5, n=4)""",
    "brorl.expected_unsampled_second_moment": r"""
        E\big[ p^2 \, 1_{\text{not drawn}} \big] = p^2 (1 - p)^N
        >>> brorl.expected_unsampled_second_moment(p, n=4)""",
    "brorl.total_unsampled_second_moment": r"""
        \sum_i p_i^2 (1 - p_i)^N
        >>> [brorl.total_unsampled_second_moment(p, n) for n in (1, 4, 16, 64)]""",
    "brorl.pass_at_k": r"""
        \text{pass@}k = 1 - (1 - Q_{pos})^k
        >>> [brorl.pass_at_k(m.q_pos, k) for k in (1, 4, 16)]""",
    "brorl.pass_at_k_estimate": r"""
        1 - \frac{\binom{n - c}{k}}{\binom{n}{k}}
        >>> [brorl.pass_at_k_estimate(16, 5, k) for k in (1, 4, 16)]""",
    "brorl.scaled_learning_rate": r"""
        \eta_{new} = \eta_0 \sqrt{B_{new} / B_0}
        >>> brorl.scaled_learning_rate(1e-6, b_new=65536, b_0=8192)""",
    "loss.informative": r"""
        0 < \sum_{\tau} 1_{\tau \text{ correct}} < N
        >>> loss.informative(correct)""",
    "loss.group_advantages": r"""
        A_\tau = R_\tau - \text{mean}_{group}(R)
        >>> a""",
    "loss.whiten": r"""
        \frac{A_\tau - \text{mean}_{batch}(A)}{\text{std}_{batch}(A)}
        >>> loss.whiten(a, torch.tensor([True, True, False]))[:2]""",
    "loss.clipped_objective": r"""
        \min\big( r A,
        \quad \text{clip}(r, 1 - \epsilon_{low}, 1 + \epsilon_{high}) A \big)
        >>> loss.clipped_objective(r, torch.tensor(1.0), 0.2, 0.27)
        >>> loss.clipped_objective(r, torch.tensor(-1.0), 0.2, 0.27)""",
    "loss.truncated_importance_weight": r"""
        w = \min\Big( \frac{\pi_{old}}{\pi_{engine}}, C \Big)
        >>> loss.truncated_importance_weight(old, engine, cap=2.0)""",
    "loss.policy_loss": r"""
        L = \frac{1}{T} \sum_t \big[ -w_t \min\big( r_t A_t,
        \quad \text{clip}(r_t, 1 - \epsilon_{low}, 1 + \epsilon_{high}) A_t \big)
        \quad + \beta \, KL_t \big]
        >>> L
        >>> logp.grad""",
    "sim.as_written": r"""
        b = \frac{1}{N} \sum_j R_j
        L_{sur} = -\frac{1}{N} \sum_j (R_j - b) p_j
        >>> [last(n)["correct_mass"] for n in (4, 512)]""",
    "sim.simulate": r"""
        \frac{\partial L_{sur}}{\partial z_j} = -\frac{1}{N \tau} p_j (R'_j - S_R)
        S_R = \sum_i R'_i p_i
        >>> sim.simulate(setting, (4, 512)).values["correct_mass"][:, -1]""",
    "sim.measure": r"""
        Q_{pos} = \sum_{i \in P} p_i
        \frac{100}{|P|} \sum_{i \in P} 1_{p_i > p_i(0)}
        \min_{i \in P} \big( p_i - p_i(0) \big)
        >>> last(4)
        >>> last(512)""",
    "rollout.TorchEngine": r"""
        \pi(y | x) = \prod_t \pi(y_t | x, y_{\lt t})
        >>> tokenizer.decode(group.responses[0], skip_special_tokens=True)
        >>> len({*map(tuple, group.responses)})""",
    "verify.verify": r"""
        >>> verify("countdown", "(9-5)*(6-1)", problem)
        >>> verify("countdown", "9+5+6", problem)""",
    "verify.verify_batch": r"""
        >>> verify_batch([("countdown", "9+", problem)] * 3)""",
    "train.train": r"""
        E_\tau \big[ \min\big( r_\theta(\tau) A_\tau,
        \quad \text{clip}(r_\theta(\tau), 1 - \epsilon_{low},
        \quad 1 + \epsilon_{high}) A_\tau \big) \big]""",
}

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1rem; color: #222 }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin: 0 0 .6rem } p { margin: 0 0 .6rem }
section { border-top: 1px solid #bbb; padding: 1rem 0 }
.row { display: grid; grid-template-columns: 15rem minmax(0, 1fr) 15rem; gap: 1rem }
pre, code { font: 11.5px/1.45 ui-monospace, Menlo, Consolas, monospace } pre { margin: 0; overflow-x: auto }
.highlight, .head { background: #f6f6f3; padding: .5rem } .highlight, details { margin-bottom: .6rem }
.math { overflow: auto hidden; padding: .3rem 0 }
/* The mathematical font of macOS, Windows, Linux: the generic one may have no metrics for subscripts. */
math { display: inline math; font-family: "STIX Two Math", "Cambria Math", "Latin Modern Math", "DejaVu Math TeX Gyre" }
.test code { color: #555 }
.number { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid #2a7; padding-left: .6rem }
@media (max-width: 1100px) { .row { grid-template-columns: minmax(0, 1fr) } }
"""


def rows() -> dict[str, tuple[list[str], list[str]]]:
    """For each function of docs/paper.md what the paper calls it, and its tests; in the page's order."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for line in (ROOT / "docs/paper.md").read_text(encoding="utf-8").splitlines():
        cells = line.strip("|").split("|")
        if not line.startswith("|") or len(cells) != 3:
            continue
        for function in re.findall(r"`([\w.]+)`", cells[1]):
            papers, tests = found.setdefault(function, ([], []))
            papers.append(cells[0].strip().replace("`", ""))
            tests += [test for test in re.findall(r"`(test_\w+\.py(?:::\w+)?)`", cells[2]) if test not in tests]
    return found


def source(function: str) -> tuple[str, str]:
    """The text of a function, a class or a constant, and the docstring of its file. The file is not imported."""
    module, _, name = function.rpartition(".")
    text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    [node] = [x for x in tree.body if name in (getattr(x, "name", None), *map(ast.unparse, getattr(x, "targets", ())))]
    first = min(x.lineno for x in (node, *getattr(node, "decorator_list", ())))
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno]), ast.get_docstring(tree) or ""


def caught(test: str) -> str:
    """The first line of the docstring of a test, or of a file of tests."""
    if "::" in test:
        return mistake(test)
    return (ast.get_docstring(ast.parse((ROOT / "tests" / test).read_text(encoding="utf-8"))) or "").partition("\n")[0]


def shown(value: Any) -> str:
    """Numbers with four digits; a field of a tuple or dict a line."""
    value = value.tolist() if hasattr(value, "tolist") else value
    value = value._asdict() if hasattr(value, "_asdict") else value
    if isinstance(value, dict):
        return "\n".join(f"{name} = {shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def page(module: str, modules: list[str]) -> str:
    """The page of one file, as HTML."""
    from latex2mathml.converter import convert
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    def code(text: str) -> str:
        return highlight(text, PythonLexer(), HtmlFormatter())

    names: dict[str, Any] = {}
    exec(CASE.get(module, ""), names)
    sections = []
    for function, (papers, tests) in rows().items():
        if function.rpartition(".")[0] != module:
            continue
        text, head = source(function)
        lines = [line.strip() for line in ROWS.get(function, "").splitlines() if line]
        latex = [line for line in lines if not line.startswith(">>> ")]
        calls = [line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")]
        numbers = "\n".join(f"&gt;&gt;&gt; {escape(call)}\n{escape(shown(eval(call, names)))}" for call in calls)
        sections.append(f"""<section id="{function}"><h2>{function.replace("_", "_<wbr>")}</h2><div class="row">
<div>{"".join(f"<p>{escape(paper)}</p>" for paper in papers)}
{"".join(f'<div class="math">{convert(x, display="block")}</div>' for x in latex)}</div>
<div>{code(text)}</div>
<div>{"".join(f'<p class="test">{escape(caught(x))}<br><code>{x.replace("_", "_<wbr>")}</code></p>' for x in tests)}
{f'<pre class="number">{numbers}</pre>' if numbers else ""}</div></div></section>""")
    links = " · ".join(x if x == module else f'<a href="{x}.html">{x}</a>' for x in modules)
    case = f"<p>The numbers come from this case:</p>{code(CASE[module])}" if module in CASE else ""
    return f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{module} beside the paper</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}{HtmlFormatter().get_style_defs(".highlight")}</style>
</head><body><p>{links}</p><h1>{module.replace(".", "/")}.py beside the paper</h1>
<p>Left: what arXiv 2510.01180 says. Middle: its code. Right: the mistakes that its tests make impossible.</p>
<details><summary>The head of the file: what the names mean</summary><pre class="head">{escape(head)}</pre></details>
{case}{"".join(sections)}</body></html>
"""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.page", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", metavar="OUT", type=Path, help="a folder; it is made if it is not there")
    args = parser.parse_args(argv)
    modules = list(dict.fromkeys(function.rpartition(".")[0] for function in rows()))
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        for module in modules:
            (args.out / f"{module}.html").write_text(page(module, modules), encoding="utf-8")
    except ModuleNotFoundError as error:
        sys.exit(f"the reading edition needs two more packages ({error}): pip install latex2mathml pygments")
    print(f"{len(modules)} pages: open {args.out / modules[0]}.html")


if __name__ == "__main__":
    main()
