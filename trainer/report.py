"""The first lines of a run, its scores, and curves.png."""

from __future__ import annotations

import json
import math
import os
import statistics
from pathlib import Path

import torch
from accelerate import Accelerator

import brorl
from trainer.data import Data
from trainer.rollouts import Outcomes, starts_with_two_bos
from trainer.settings import Config, shown

PASS_AT = 4, 16, 64, 256, 1024  # k of the reported pass@k, as far as an evaluation has samples


def introduction(config: Config, sources: dict[str, str], data: Data, policy, engine, accelerator: Accelerator) -> str:
    """The first lines of a run: what it will do, each setting of the recipe with its source, and remarks."""
    n, b, u = config.rollouts_per_prompt, config.prompts_per_step, config.updates_per_step
    size = sum(p.numel() for p in policy.model.parameters()) / 1e6
    precision = {"no": "float32", "bf16": "bfloat16, weights in float32"}[accelerator.mixed_precision]
    limits = {"steps": config.max_steps, "hours": config.max_hours}
    facts = {
        "model": f"{short(config.model)}, {size:,.2f}M parameters",
        "processes": f"{accelerator.num_processes} on {accelerator.device.type}, {precision}",
        "problems": f"{len(data.problems):,} to train on, {len(data.held_out):,} held out",
        "a step": f"B x N = {b} x {n}, responses of up to {config.max_response_tokens:,} tokens, U = {u}",
        "budget": ", ".join(f"{limit:g} {name}" for name, limit in limits.items() if limit),
        "engine": engine.description,
    }
    hidden = ("a step", "budget") if config.eval_only else ()
    lines = [f"BroRL, recipe {config.recipe}, run {config.name}"]
    lines += [f"  {name:11} {text}" for name, text in facts.items() if name not in hidden]
    values = {name: getattr(config, name) for name in sources if not config.eval_only or name.startswith("eval_")}
    lines += [f"    {name:24} {shown(x):>9}  {sources[name]}" for name, x in values.items() if x is not None]
    return "\n".join([*lines, *(f"  note: {remark}" for remark in remarks(config, data))])


def short(path: str) -> str:
    """A path as a user would type it here; a hub name stays."""
    return min(path, os.path.relpath(path), key=len) if os.path.exists(path) else path


def remarks(config: Config, data: Data) -> list[str]:
    """Sentences for the start of a run about its problems, if there is something that the user should know."""
    found = []
    texts = {p.prompt for p in [*data.problems, *data.held_out] if isinstance(p.prompt, str)}
    if texts and data.tokenizer.chat_template is not None:
        found.append("the chat template is not used for prompts that are text: write messages or set --system_prompt")
    bos = data.tokenizer.bos_token
    rendered = [text for text in texts if bos and text.startswith(bos)]
    if any(starts_with_two_bos(data.tokenizer, data.tokenizer(text).input_ids) for text in rendered):
        found.append(f"text prompts start with {bos}, and the tokenizer adds another one: the model sees one of them")
    if config.engine == "torch" and torch.cuda.is_available():
        found.append("on a GPU vLLM is much faster than the torch engine: pip install -r requirements-gpu.txt")
    prompts = {json.dumps(problem.prompt) for problem in data.problems}
    if repeated := len(data.problems) - len(prompts):
        found.append(f"training problems that repeat the prompt of another one: {repeated:,}")
    if seen := sum(json.dumps(problem.prompt) in prompts for problem in data.held_out):
        found.append(f"held-out prompts that are training prompts too: {seen:,}; their score is not a held-out score")
    return found


def score_sources(outcomes: Outcomes, sources: dict[str, int]) -> dict[str, dict[str, float]]:
    """Scores per source. With several, their mean comes last: every source counts the same, as in table 1."""
    counts = list(sources.values())
    tables = [x.split(counts) for x in (outcomes.correct, outcomes.length, outcomes.truncated)]
    rows = {name: scores_of(*part) for name, *part in zip(sources, *tables, strict=True)}
    if len(rows) > 1:
        mean = {key: statistics.fmean(row[key] for row in rows.values()) for key in next(iter(rows.values()))}
        mean["pass@1_se"] = math.hypot(*(row["pass@1_se"] for row in rows.values())) / len(rows)
        rows[f"mean of {len(rows)}"] = mean
    return rows


def scores_of(correct: torch.Tensor, length: torch.Tensor, truncated: torch.Tensor) -> dict[str, float]:
    """Appendix D: pass@1 over k responses with its standard error over problems, and the unbiased pass@k. (P, k)."""
    solved, k = correct.double().mean(-1), correct.shape[1]
    counts = correct.sum(-1).tolist()
    return {
        "pass@1": float(solved.mean()),
        "pass@1_se": float(solved.std() / len(solved) ** 0.5) if len(solved) > 1 else 0.0,
        **{f"pass@{m}": statistics.fmean(brorl.pass_at_k_estimate(k, c, m) for c in counts) for m in PASS_AT if m <= k},
        "response_tokens": float(length.double().mean()),
        "truncated": float(truncated.double().mean()),
    }


def draw_curves(rows: list[dict], path: Path, title: str) -> None:
    """curves.png: held-out pass@k, reward, entropy, KL, clipping and gradient norm over the samples generated."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    scores = [key for key in rows[0] if key.startswith("eval/pass@") and not key.endswith("_se")]
    panels = {  # title -> what is normal, and the metrics
        "held-out pass@k, band: 2 standard errors": ("pass@1 rises", scores),
        "reward; pass rate of dynamic sampling": ("reward rises; pass rate stays above 0", ["reward", "pass_rate"]),
        "entropy (nats per token)": ("falls slowly; near 0 the policy has stopped exploring", ["entropy"]),
        "KL (nats per token)": ("kl_ref grows until a reset; engine_kl stays near 0", ["kl_ref", "engine_kl"]),
        "share of tokens clipped": ("a few percent at most", ["clip_high_fraction", "clip_low_fraction"]),
        "gradient norm before clipping": ("no jumps by a factor of 10", ["grad_norm"]),
    }
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    for axis, (panel, (normal, keys)) in zip(axes.flat, panels.items(), strict=True):
        for key in keys:
            points = [(row["samples"], row[key], row.get(f"{key}_se", 0)) for row in rows if key in row]
            if points:
                x, y, se = zip(*points, strict=True)
                axis.plot(x, y, lw=1.5, label=key.removeprefix("eval/"))
                low, high = ([a + sign * s for a, s in zip(y, se, strict=True)] for sign in (-2, 2))
                axis.fill_between(x, low, high, alpha=0.2)
        axis.set_title(f"{panel}\n{f'normal: {normal}' if axis.lines else 'no data'}", fontsize=10)
        if not axis.lines:
            axis.set_axis_off()
        axis.set_xlabel("samples generated")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
        if len(axis.lines) > 1:
            low, high = axis.get_ylim()
            axis.set_ylim(low, high + 0.2 * (high - low))  # room for the legend above the curves
            axis.legend(fontsize=8, loc="upper center", ncols=len(axis.lines))
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)
