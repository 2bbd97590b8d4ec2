"""BroRL, section 4.1: the token-level simulator of Figure 3, and the two questions its readers ask.

    python sim.py             Figure 3: N = 4, 8, 16, 512, 51,200 for 1,000 steps; a few seconds on one core
    python sim.py --seeds 3   the same with a band over seeds
    python sim.py --sweep     the N's between, and the narrow ones continued until they have drawn as many samples
                              as the widest has; about a minute and a quarter on one core

One softmax over d tokens is the whole policy. In each step N tokens are drawn i.i.d., their rewards are
centred on the batch mean b, and AdamW follows L = -(1/N) Σ_j (R_j - b) p_j over the draws.

    name here                  paper    meaning
    z, p                       z, p     logits and p = softmax(z / τ), (K, V): one row for each N, V = d
    rollouts, n                N        draws in a step
    tokens                     j        the tokens drawn, (N,), each as often as it was drawn
    rewards                    R        +1 for a correct token, -1 for the others, (V,)
    centred                    R_j - b  summed over the draws of each token, (K, V); 0 where nothing was drawn
    correct_mass               Q_pos    probability of all correct tokens
    percent_improved                    share of the correct tokens above their probability at step 0
    worst_drop                          the least p_i - p_i(step 0) over the correct tokens; negative is a loss
    anchor                              probability of the anchor token, which is correct
    third_term                          Theorem 1: (1/N) S_R (Q_pos U_neg2 - Q_neg U_pos2), measured; times η it is
                                        what a step does to Q_pos through the tokens that it did not draw
    linear_step                         Theorem 1: all three terms together, over η
    unsampled_second_moment             U_pos2 + U_neg2, measured
    predicted_second_moment             Corollary 3: Σ_i p_i² (1-p_i)^N

What the paper leaves open, and what is chosen here:
1. AdamW's other constants are PyTorch's defaults. The weight decay of 0.01 is part of the figure: with them the
   mass ends at 0.601 ... 0.647, as in the paper's figure; with weight decay 0 at 0.608 ... 0.654.
2. The anchor token z_0 = 5 is one of the correct tokens, which are the first 10,000.
3. Theorem 1 has a token's reward count once and its step be plain gradient descent. Here a token drawn twice counts
   twice, rewards are centred, and AdamW takes the step. The third term keeps its form, with S_R over the actual
   draws, but describes the gradient and not the step that AdamW makes of it.

What it shows beyond the paper's figure (figures/sweep.png; every number is from a run of this file):
1. Equal steps, 1,000: the wider, the more mass and the more tokens improved, for every N of the sweep; the worst
   drop shrinks from N = 256 on.
2. Equal samples: wider stays better in the share of tokens improved and in the worst drop, but not in mass. Up to
   512,000 samples N = 256, 1,024 and 2,048 lie within 0.002 of each other, with 64 and 16 below until those two
   collapse. After 2,048,000 samples N = 16, 64 and 256 have a mass above 0.97, since they have given nearly all of
   it to the anchor: of the 10,000 correct tokens it alone is above its start. N = 1,024 ends above 2,048 without
   that, by 0.004.
3. That collapse comes with steps, and no N is spared: N = 51,200 falls from 100 % improved to 0.01 %, the anchor
   alone, by step 2,000, N = 2,048 by step 3,000, N = 512 by step 4,000 (`--rollouts 512 2048 51200 --steps 4000`).
   The mass goes to the anchor later: at N = 51,200 it has 0.04 of it at step 2,000 and 0.80 at step 3,000; between,
   at step 2,180, Q_pos is at its lowest, 0.528. The paper's T = 1,000 ends before all of it.
4. Theorem 1's third term is negative and hardly depends on N up to 2,048, where a correct token is still undrawn in
   most steps; at N = 51,200 it is gone (`--probe`). All three terms together are not negative in any of the 1,000
   steps, at any N: a plain gradient step would not lose mass. What a small N loses, it loses to AdamW, which
   rescales each token's gradient by that token's own past.

What is done for speed, none of which changes the distribution of any curve: the N's are rows of one parameter, which
one AdamW treats element by element; the gradient is the closed form of section 2; the draws invert the cdf at uniforms
that come sorted. L sums over the draws, so that their order is of no account.
"""

import argparse
import csv
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import brorl

FIGURE_3 = (4, 8, 16, 512, 51_200)
SWEEP = (16, 64, 256, 1024, 2048)


def option(default, text: str):
    return field(default=default, metadata={"help": f"{text} (default: {default})"})


@dataclass(frozen=True)
class Setting:
    """Everything section 4.1 fixes. A field's help is its documentation."""

    vocabulary: int = option(128_000, "d, the number of tokens: section 4.1")
    correct_tokens: int = option(10_000, "how many of them are correct, the anchor among them: section 4.1")
    correct_logit: float = option(3.0, "logit at step 0 of a correct token; the others start at 0: section 4.1")
    anchor_logit: float = option(5.0, "logit at step 0 of the anchor, token 0: section 4.1")
    reward_correct: float = option(1.0, "R of a correct token: section 4.1")
    reward_incorrect: float = option(-1.0, "R of any other token: section 4.1")
    temperature: float = option(1.0, "τ of the softmax: section 4.1")
    steps: int = option(1000, "T, the number of steps: section 4.1")
    lr: float = option(1e-3, "AdamW's learning rate: section 4.1")
    weight_decay: float = option(0.01, "AdamW's weight decay; paper silent: PyTorch's default")
    beta1: float = option(0.9, "AdamW's first decay rate; paper silent: PyTorch's default")
    beta2: float = option(0.999, "AdamW's second decay rate; paper silent: PyTorch's default")
    eps: float = option(1e-8, "AdamW's ε; paper silent: PyTorch's default")

    def __post_init__(self):
        if not 1 <= self.correct_tokens < self.vocabulary:
            raise ValueError(
                f"correct_tokens={self.correct_tokens} leaves no incorrect (or no correct) token among "
                f"vocabulary={self.vocabulary}: choose 1 <= correct_tokens < vocabulary"
            )
        if self.steps < 1:
            raise ValueError(f"steps={self.steps} takes no step: use 1 or more")
        for f in fields(self):
            if not math.isfinite(getattr(self, f.name)):
                raise ValueError(f"{f.name}={getattr(self, f.name)} cannot be computed with: use a finite number")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature} gives no softmax: use a value above 0")
        if not (self.lr >= 0 and self.weight_decay >= 0 and self.eps >= 0):
            raise ValueError("lr, weight_decay and eps must not be negative: use 0 or more for each")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1={self.beta1}, beta2={self.beta2}: AdamW needs both in [0, 1)")


# ------------------------------------------------------------------------------- one step, in its parts


def initial_logits(setting: Setting) -> Tensor:
    """Section 4.1: 0, with the correct tokens at 3 and the anchor z_0 at 5. Returns (V,)."""
    z = torch.zeros(setting.vocabulary)
    z[: setting.correct_tokens] = setting.correct_logit
    z[0] = setting.anchor_logit
    return z


def draw(p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n i.i.d. tokens of p, (V,), in ascending order, by inverting the cdf at n sorted uniforms. Returns (n,).

    The arrival times of a Poisson process, over the time of the (n+1)-th, are distributed as n sorted uniforms, so
    nothing has to be sorted. In float64: a float32 uniform has 24 bits, and an incorrect token's p is 50 of its units.
    """
    cdf = p.cumsum(-1, dtype=torch.float64)
    uniform = torch.rand(n + 1, dtype=cdf.dtype, device=cdf.device, generator=generator)
    arrivals = uniform.neg_().log1p_().neg_().cumsum(0)
    sorted_uniform = arrivals[:-1] / arrivals[-1] * cdf[-1]
    if cdf.is_cpu:
        # On sorted queries numpy begins each search where the one before ended, in half torch's time.
        return torch.from_numpy(np.searchsorted(cdf.numpy(), sorted_uniform.numpy()))
    return torch.searchsorted(cdf, sorted_uniform)


def add_centred_rewards(out: Tensor, tokens: Tensor, rewards: Tensor) -> None:
    """Adds R_j - b to out[j] for every draw j: a token drawn twice counts twice. b is the mean over the draws."""
    r = rewards[tokens]
    out.index_add_(0, tokens, r - r.mean())


def surrogate_gradient(p: Tensor, centred: Tensor, n: int, temperature: float = 1.0) -> Tensor:
    """∂L/∂z_j = -(1/(Nτ)) p_j (R'_j - S_R), R' the centred rewards and S_R = Σ_i R'_i p_i (section 2, 4.1).

    Minus the step of section 2, taken with η = 1; the softmax of z/τ brings the 1/τ. p, centred: (..., V).
    """
    return brorl.logit_step(p, centred, -1.0 / temperature, n)


def measure(p: Tensor, p_start: Tensor) -> dict[str, Tensor]:
    """The three panels of Figure 3, and the anchor. p: correct tokens only, (K, C); p_start: p at step 0, (C,)."""
    gain = p - p_start
    return {
        "correct_mass": p.sum(-1),
        "percent_improved": 100.0 * (gain > 0).sum(-1) / gain.shape[-1],
        "worst_drop": gain.amin(-1),
        "anchor": p[..., 0].clone(),  # a view would keep the whole p of every step in memory
    }


def probe(p: Tensor, centred: Tensor, tokens: list[Tensor], correct: Tensor) -> dict[str, Tensor]:
    """Theorem 1's third term and Corollary 3 on the draws of one step, for p at which they were drawn.

    The drawn tokens are marked from `tokens`: where all draws agree, their centred rewards are all 0.
    """
    n = p.new_tensor([[len(drawn)] for drawn in tokens])
    sampled = torch.zeros_like(p, dtype=torch.bool)
    for row, drawn in zip(sampled, tokens, strict=True):
        row[drawn] = True
    m = brorl.masses(p, correct, sampled)
    s_r = (centred * p).sum(-1)
    dp = brorl.probability_step(p, brorl.logit_step(p, centred, 1.0, n))
    return {
        "third_term": brorl.unsampled_coupling(m, s_r) / n[:, 0],
        "linear_step": torch.where(correct, dp, 0).sum(-1),
        "unsampled_second_moment": m.u_pos2 + m.u_neg2,
        "predicted_second_moment": brorl.total_unsampled_second_moment(p, n),
    }


# ------------------------------------------------------------------------------------------ the simulator


class Curves(NamedTuple):
    """What one seed gave for each of K values of N."""

    seed: int
    rollouts: tuple[int, ...]
    steps: np.ndarray  # (M,) the steps recorded: values before that many updates
    values: dict[str, np.ndarray]  # name -> (K, M)


@torch.no_grad()
def simulate(
    setting: Setting,
    rollouts: tuple[int, ...],
    seed: int = 0,
    device: str = "cpu",
    record: np.ndarray | None = None,
    with_probe: bool = False,
    on_step: Callable[[], object] = lambda: None,
) -> Curves:
    """Section 4.1 for every N of `rollouts` at once, one row each.

    Every row has draws of its own, seeded by (seed, N), so that a curve does not depend on which others are run.
    record: the steps at which to measure, each of 0 ... steps if not given. on_step is called after every step.
    """
    if min(rollouts) < 1:
        raise ValueError(f"rollouts={list(rollouts)}: a step needs at least N = 1 draw")
    z0 = initial_logits(setting).to(device)
    correct = torch.arange(setting.vocabulary, device=device) < setting.correct_tokens
    rewards = torch.where(correct, setting.reward_correct, setting.reward_incorrect)
    p_start = torch.softmax(z0 / setting.temperature, -1)[: setting.correct_tokens]

    generators = [torch.Generator(device).manual_seed(1_000_003 * seed + n) for n in rollouts]
    z = z0.repeat(len(rollouts), 1)
    z.grad, p, centred = torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z)
    adamw = torch.optim.AdamW(
        [z],
        lr=setting.lr,
        betas=(setting.beta1, setting.beta2),
        eps=setting.eps,
        weight_decay=setting.weight_decay,
        fused=True,
    )

    steps = np.arange(setting.steps + 1) if record is None else record
    recorded, measured = set(steps.tolist()), []
    for step in range(setting.steps + 1):
        tokens = []
        centred.zero_()
        for k, n in enumerate(rollouts):
            p[k] = torch.softmax(z[k] / setting.temperature, -1)
            tokens.append(draw(p[k], n, generators[k]))
            add_centred_rewards(centred[k], tokens[k], rewards)
            z.grad[k] = surrogate_gradient(p[k], centred[k], n, setting.temperature)

        if step in recorded:
            row = measure(p[:, : setting.correct_tokens], p_start)
            measured.append(row | probe(p, centred, tokens, correct) if with_probe else row)
        if step < setting.steps:
            adamw.step()
            on_step()

    values = {name: torch.stack([row[name] for row in measured], -1).cpu().numpy() for name in measured[0]}
    return Curves(seed, tuple(rollouts), steps, values)


def steps_to_record(steps: int, dense: int) -> np.ndarray:
    """Every step up to `dense`, and from there on 20 a decade, which a logarithmic axis shows evenly."""
    every = np.arange(min(steps, dense) + 1)
    if steps <= dense:
        return every
    decades = np.log10(steps / dense)
    beyond = np.geomspace(dense, steps, max(2, round(20 * decades))).round().astype(int)
    return np.union1d(every, beyond)


# ------------------------------------------------------------------------------------ the two experiments


def run_figure3(setting: Setting, rollouts, seeds, device="cpu", with_probe=False, quiet=False) -> list[Curves]:
    """The paper's setting, seed after seed."""
    with tqdm(total=len(seeds) * setting.steps, unit="step", disable=quiet) as bar:
        return [simulate(setting, rollouts, s, device, with_probe=with_probe, on_step=bar.update) for s in seeds]


def run_sweep(setting: Setting, rollouts, seeds, samples, device="cpu", quiet=False) -> list[Curves]:
    """Every N for the setting's steps, and on until it has drawn `samples`: a narrow N takes more steps for them."""
    steps = {n: max(setting.steps, samples // n) for n in rollouts}
    curves = []
    with tqdm(total=len(seeds) * sum(steps.values()), unit="step", disable=quiet) as bar:
        for seed in seeds:
            for n in rollouts:
                bar.set_description(f"seed {seed}, N = {n}")
                record = steps_to_record(steps[n], dense=setting.steps)
                longer = replace(setting, steps=steps[n])
                curves.append(simulate(longer, (n,), seed, device, record, with_probe=True, on_step=bar.update))
    return curves


# ----------------------------------------------------------------------------------- table, CSV, figures


def by_rollouts(curves: list[Curves]) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """N -> (steps, name -> (seeds, M)), in ascending N."""
    found: dict[int, list[tuple[np.ndarray, dict[str, np.ndarray]]]] = {}
    for c in curves:
        for k, n in enumerate(c.rollouts):
            found.setdefault(n, []).append((c.steps, {name: v[k] for name, v in c.values.items()}))
    return {
        n: (runs[0][0], {name: np.stack([values[name] for _, values in runs]) for name in runs[0][1]})
        for n, runs in sorted(found.items())
    }


def table(curves: list[Curves], at_step: int | None = None) -> str:
    """The panels' values at one step, or at each curve's last; mean over seeds, ± half their range."""
    lines = [f"{'N':>7} {'step':>8} {'samples':>11} {'correct mass':>16} {'% improved':>14} {'worst drop':>21}"]
    for n, (steps, values) in by_rollouts(curves).items():
        at = len(steps) - 1 if at_step is None else int(np.searchsorted(steps, at_step))

        def cell(name, form, values=values, at=at):
            x = values[name][:, at]
            return f"{x.mean():{form}}" + (f" ± {np.ptp(x) / 2:{form.lstrip('+')}}" if len(x) > 1 else "")

        lines.append(
            f"{n:>7,} {steps[at]:>8,} {n * steps[at]:>11,} {cell('correct_mass', '.4f'):>16} "
            f"{cell('percent_improved', '.2f'):>14} {cell('worst_drop', '+.1e'):>21}"
        )
    return "\n".join(lines)


def write_csv(path: Path, curves: list[Curves], every: int, dense: int) -> None:
    """One row a seed, N and recorded step; up to step `dense` only each `every`-th, to keep the file small."""
    names = list(curves[0].values)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["seed", "N", "step", "samples", *names])
        for c in curves:
            for k, n in enumerate(c.rollouts):
                for at, step in enumerate(c.steps.tolist()):
                    if step % every == 0 or step > dense or step == c.steps[-1]:
                        row = [f"{float(c.values[name][k, at]):.6g}" for name in names]
                        writer.writerow([c.seed, n, step, n * step, *row])


def table_at_equal_samples(curves: list[Curves], samples: int) -> str:
    """Correct mass / % improved after the same number of samples, mean over seeds, and which N leads in what.

    Between two recorded steps the values are interpolated; "-" and no verdict where a budget is not one step of N.
    """
    budgets = [samples // 4**i for i in (3, 2, 1, 0)]
    runs = by_rollouts(curves)
    at = {
        name: {n: np.interp(budgets, n * steps, values[name].mean(0)) for n, (steps, values) in runs.items()}
        for name in ("correct_mass", "percent_improved", "worst_drop")
    }
    lines = [f"{'N':>7}" + "".join(f"{f'{budget:,} samples':>22}" for budget in budgets)]
    for n in runs:
        triples = zip(budgets, at["correct_mass"][n], at["percent_improved"][n], strict=True)
        cells = (f"{mass:.4f} / {improved:.2f} %" if budget >= n else "-" for budget, mass, improved in triples)
        lines.append(f"{n:>7,}" + "".join(f"{cell:>22}" for cell in cells))
    for i, budget in enumerate(budgets):
        stepped = [n for n in runs if n <= budget]
        if len(stepped) < 2:
            continue
        mass, improved, drop = (max(stepped, key=lambda n, a=a, i=i: a[n][i]) for a in at.values())
        leaders = f"most mass N = {mass:,}, most improved N = {improved:,}, least worst drop N = {drop:,}"
        lines.append(f"After {budget:,} samples: {leaders}.")
    return "\n".join(lines)


def draw_panel(ax, curves: list[Curves], name: str, per_sample=False, last_step=None, smooth=1, **line) -> None:
    """One line for each N, mean over seeds, with a band from the least to the greatest."""
    import matplotlib.pyplot as plt

    runs = by_rollouts(curves)
    colors = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(runs)))
    for color, (n, (steps, values)) in zip(colors, runs.items(), strict=True):
        keep = steps <= (last_step or steps[-1])
        x, y = steps[keep] * (n if per_sample else 1), values[name][:, keep]
        if smooth > 1:
            x = x[smooth // 2 :][: len(x) - smooth + 1]
            y = np.stack([np.convolve(row, np.full(smooth, 1 / smooth), "valid") for row in y])
        ax.plot(x, y.mean(0), **{"color": color, "label": f"N = {n:,}", "linewidth": 1.6} | line)
        if len(y) > 1:
            ax.fill_between(x, y.min(0), y.max(0), color=color, alpha=0.25, linewidth=0)
    ax.grid(alpha=0.3)


def describe(setting: Setting, seeds: int) -> str:
    shown = f"{seeds} seeds, band: least to greatest" if seeds > 1 else "1 seed"
    return (
        f"d = {setting.vocabulary:,}, {setting.correct_tokens:,} correct, AdamW lr {setting.lr:g}, "
        f"weight decay {setting.weight_decay:g}, {shown}"
    )


def new_figure(rows: int, height: float):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, 3, figsize=(15, height), layout="constrained", squeeze=False)


def plot_figure3(path: Path, curves: list[Curves], setting: Setting, seeds: int) -> None:
    """The three panels of Figure 3."""
    figure, ((mass, improved, drop),) = new_figure(1, 4.6)
    draw_panel(mass, curves, "correct_mass")
    draw_panel(improved, curves, "percent_improved")
    draw_panel(drop, curves, "worst_drop")
    mass.set(title="Total correct mass", ylabel="Q_pos")
    improved.set(title="Correct tokens above their start", ylabel="% of correct tokens", ylim=(-3, 103))
    drop.set(title="Worst drop among correct tokens", ylabel="min (p - p at step 0)")
    drop.set_yscale("symlog", linthresh=1e-6)
    for ax in (mass, improved, drop):
        ax.set_xlabel("step")
    mass.legend()
    figure.suptitle(f"BroRL, Figure 3, simulated: {describe(setting, seeds)}")
    figure.savefig(path, dpi=110)


def plot_sweep(path: Path, curves: list[Curves], setting: Setting, seeds: int, samples: int) -> None:
    """Above: against samples drawn. Below: the first steps against steps, and what Theorem 1 and Corollary 3 say."""
    figure, ((mass, improved, drop), (steps, terms, moments)) = new_figure(2, 9)
    panels = {mass: "correct_mass", improved: "percent_improved", drop: "worst_drop"}
    zoom = mass.inset_axes((0.12, 0.13, 0.46, 0.42))
    for ax, name in (panels | {zoom: "correct_mass"}).items():
        draw_panel(ax, curves, name, per_sample=True)
        # From 4 of 1,000 steps of the widest N on: before that it has hardly moved.
        ax.set(xscale="log", xlim=(samples / 250, samples))
        ax.set_xlabel("samples drawn = N × steps")
    draw_panel(mass, curves, "anchor", per_sample=True, linestyle="--")
    mass.set(title="Equal samples: total correct mass", ylabel="Q_pos", ylim=(-0.02, 1.02))
    solid_and_dashed(mass, "all correct tokens", "the anchor alone", loc="upper left")
    start = by_rollouts(curves)[curves[0].rollouts[0]][1]["correct_mass"][0, 0]
    zoom.set(xlabel="", ylim=(start - 0.03, start + 0.02))
    zoom.tick_params(labelsize=7)
    zoom.text(0.03, 0.9, "the same, near its start", fontsize=8, transform=zoom.transAxes)
    improved.set(title="Equal samples: correct tokens above their start", ylabel="% of correct tokens", ylim=(-3, 103))
    improved.legend()
    drop.set(title="Equal samples: worst drop", ylabel="min (p - p at step 0)")
    drop.set_yscale("symlog", linthresh=1e-6)

    draw_panel(steps, curves, "correct_mass", last_step=setting.steps)
    steps.set(title="Equal steps: total correct mass", ylabel="Q_pos", xlabel="step")
    window = max(1, min(50, setting.steps // 10))
    draw_panel(terms, curves, "linear_step", last_step=setting.steps, smooth=window)
    draw_panel(terms, curves, "third_term", last_step=setting.steps, smooth=window, linestyle="--")
    terms.axhline(0, color="black", linewidth=0.8)
    terms.set(title=f"Theorem 1, mean of {window} steps", ylabel="ΔQ_pos / η of one gradient step", xlabel="step")
    draw_panel(moments, curves, "unsampled_second_moment", last_step=setting.steps, linewidth=0.6, alpha=0.7)
    draw_panel(moments, curves, "predicted_second_moment", last_step=setting.steps, linestyle="--", color="black")
    moments.set(title="Corollary 3: unsampled second moments", ylabel="U_pos2 + U_neg2", xlabel="step")
    solid_and_dashed(terms, "all three terms", "third term (unsampled coupling)")
    solid_and_dashed(moments, "measured", "predicted: Σ p² (1-p)^N")
    figure.suptitle(f"BroRL, section 4.1, beyond Figure 3: {describe(setting, seeds)}")
    figure.savefig(path, dpi=110)


def solid_and_dashed(ax, solid: str, dashed: str, **where) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color="black", linestyle=style, label=s) for style, s in (("-", solid), ("--", dashed))]
    ax.legend(handles=handles, **where)


# ---------------------------------------------------------------------------------------- command line


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for f in fields(Setting):
        parser.add_argument(f"--{f.name}", type=f.type, default=f.default, help=f.metadata["help"])
    add = parser.add_argument
    ours = " ".join(map(str, SWEEP))
    paper = " ".join(map(str, FIGURE_3))
    text = f"draws in a step, one curve for each N (default: {paper}: section 4.1; with --sweep {ours}: ours)"
    add("--rollouts", type=int, nargs="+", metavar="N", help=text)
    add("--seeds", type=int, default=1, help="how many seeds, for the bands; paper silent (default: 1)")
    add("--seed", type=int, default=0, help="the first seed (default: 0)")
    add("--sweep", action="store_true", help="the second figure: equal samples, Theorem 1 and Corollary 3; ours")
    add("--samples", type=int, help="with --sweep: samples that every N draws; ours (default: those of the largest N)")
    add("--probe", action="store_true", help="Theorem 1 and Corollary 3 also for Figure 3, into the CSV; ours")
    add("--csv_every", type=int, default=10, help="thins the CSV to each such step and the last (default: 10)")
    add("--out", type=Path, default=Path("figures"), help="folder of the figure and the CSV (default: figures)")
    add("--device", default="cpu", help="torch device (default: cpu)")
    text = "torch's CPU threads: a second one gains little at this size, and stalls on a busy machine (default: 1)"
    add("--threads", type=int, default=1, help=text)
    args = parser.parse_args(argv)
    try:
        check(args)
    except ValueError as error:
        parser.exit(2, f"sim.py: {error}\n")
    return args


def check(args: argparse.Namespace) -> None:
    """Fills in what depends on other flags and raises ValueError for anything that would fail later, or mislead."""
    args.setting = Setting(**{f.name: getattr(args, f.name) for f in fields(Setting)})
    args.rollouts = tuple(args.rollouts or (SWEEP if args.sweep else FIGURE_3))
    if min(args.rollouts) < 1:
        raise ValueError(f"--rollouts has N = {min(args.rollouts)}: a step needs at least 1 draw")
    if len(set(args.rollouts)) < len(args.rollouts):
        raise ValueError(f"--rollouts {' '.join(map(str, args.rollouts))} names an N twice: name each once")
    for name in ("seeds", "csv_every", "threads", "samples"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value} is too small: use 1 or more")
    if not 0 <= args.seed < 2**40:
        raise ValueError(f"--seed {args.seed} is out of range: use 0 ... 2**40 - 1")
    if args.samples is not None and not args.sweep:
        raise ValueError("--samples sets how far --sweep goes: add --sweep, or leave it out")
    args.samples = args.samples or max(args.rollouts) * args.steps
    try:
        torch.empty(1, dtype=torch.float64, device=args.device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device {args.device} cannot be used ({reason}): try --device cpu") from None
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=args.out).close()
    except OSError as error:
        raise ValueError(f"--out {args.out} cannot be written ({error.strerror}): name another folder") from None


def main(argv: list[str] | None = None) -> list[Curves]:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    seeds = range(args.seed, args.seed + args.seeds)
    start = time.perf_counter()
    if args.sweep:
        curves = run_sweep(args.setting, args.rollouts, seeds, args.samples, args.device)
    else:
        curves = run_figure3(args.setting, args.rollouts, seeds, args.device, args.probe)
    seconds = time.perf_counter() - start

    print(describe(args.setting, args.seeds))
    print(table(curves, at_step=args.steps))
    if args.sweep:
        print("\nEqual samples: correct mass / % of the correct tokens above their start")
        print(table_at_equal_samples(curves, args.samples))
    name = args.out / ("sweep" if args.sweep else "figure3")
    csv_path, png_path = name.with_suffix(".csv"), name.with_suffix(".png")
    write_csv(csv_path, curves, args.csv_every, dense=args.steps)
    if args.sweep:
        plot_sweep(png_path, curves, args.setting, args.seeds, args.samples)
    else:
        plot_figure3(png_path, curves, args.setting, args.seeds)
    print(f"\nsimulated in {seconds:.1f} s; wrote {png_path} and {csv_path}")
    return curves


if __name__ == "__main__":
    main()
