"""The pictures of sim.py: Figure 2 with numbers, Figure 3's panels, and those of --sweep, which is ours."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.lines import Line2D
from torch import Tensor

import brorl
from simulator.curves import Curves, by_rollouts


def draw_panel(ax, curves: list[Curves], name: str, per_sample=False, last_step=None, smooth=1, **line) -> None:
    """One line for each N, mean over seeds, with a band from the least to the greatest."""
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


def new_figure(rows: int, height: float):
    return plt.subplots(rows, 3, figsize=(15, height), layout="constrained", squeeze=False)


def plot_figure2(path: Path, p: Tensor, correct: Tensor, sampled: dict[int, Tensor]) -> None:
    """Figure 2 with numbers: the tokens that one step draws from p, (V,). sampled: N -> bool, (seeds, V).

    Left the pools of probability, in the middle the sums of p² beside Corollary 3, right Theorem 1's three terms.
    """
    figure, ((pools, moments, terms),) = new_figure(1, 4.6)
    drawn = {n: brorl.masses(p, correct, mask) for n, mask in sampled.items()}
    rollouts, green, red = list(sampled), "#2a7f3f", "#b5382a"

    below = np.zeros(len(drawn))
    for label, color, alpha, parts in (
        ("P_pos: correct, drawn", green, 1, [m.p_pos for m in drawn.values()]),
        ("correct, not drawn", green, 0.35, [m.q_pos - m.p_pos for m in drawn.values()]),
        ("incorrect, not drawn", red, 0.35, [m.q_neg - m.p_neg for m in drawn.values()]),
        ("P_neg: incorrect, drawn", red, 1, [m.p_neg for m in drawn.values()]),
    ):
        heights = torch.stack(parts).mean(-1).numpy()
        pools.bar([f"{n:,}" for n in rollouts], heights, bottom=below, label=label, color=color, alpha=alpha)
        below += heights
    pools.set(title="Pools: Q_pos (green) and Q_neg (red)", xlabel="N", ylabel="probability", ylim=(0, 1.22))
    pools.tick_params(axis="x", labelsize=8)

    for name, label, color, line in (
        ("a2", "A_2: correct, drawn", green, "o-"),
        ("u_pos2", "U_pos2: correct, not drawn", green, "s"),
        ("u_neg2", "U_neg2: incorrect, not drawn", red, "s"),
        ("b2", "B_2: incorrect, drawn", red, "o-"),
    ):
        values = [getattr(m, name).mean().item() for m in drawn.values()]
        moments.plot(rollouts, values, line, color=color, label=label)
    for color, members in ((green, correct), (red, ~correct)):
        values = [brorl.total_unsampled_second_moment(p, n, members).item() for n in rollouts]
        moments.plot(rollouts, values, "--", color=color, label="Corollary 3, its expectation")
    moments.set(title="Second moments: sums of p²", xlabel="N", xscale="log", yscale="log")

    balances = [brorl.mass_balance(m, 1.0, n) for n, m in drawn.items()]
    for name in (*brorl.MassBalance._fields, "total"):
        x = torch.stack([getattr(balance, name) for balance in balances])  # (N's, seeds)
        (line,) = terms.plot(rollouts, x.mean(-1), marker="o", label=name.replace("_", " "))
        terms.fill_between(rollouts, x.amin(-1), x.amax(-1), color=line.get_color(), alpha=0.2, linewidth=0)
    terms.axhline(0, color="black", linewidth=0.8)
    terms.set(title="Theorem 1: the three terms and their total", xlabel="N", ylabel="ΔQ_pos / η", xscale="log")
    terms.set_yscale("symlog", linthresh=1e-10)
    pools.legend(fontsize=8, ncols=2, loc="upper left")
    moments.legend(fontsize=8)
    terms.legend(fontsize=8)
    figure.suptitle(f"BroRL, Figure 2, with numbers: one step that draws N tokens, mean of {len(x.T)} draws")
    figure.savefig(path, dpi=110)


def plot_figure3(path: Path, curves: list[Curves], about: str) -> None:
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
    figure.suptitle(f"BroRL, Figure 3, simulated: {about}")
    figure.savefig(path, dpi=110)


def plot_sweep(path: Path, curves: list[Curves], about: str, first_steps: int, samples: int) -> None:
    """Above: against samples drawn. Below: the first steps against steps, and what Theorem 1 and Corollary 3 say."""
    figure, ((mass, improved, drop), (steps, terms, moments)) = new_figure(2, 9)
    against_samples(mass, improved, drop, curves, samples)
    steps_theorem_and_moments(steps, terms, moments, curves, first_steps)
    figure.suptitle(f"BroRL, section 4.1, beyond Figure 3: {about}")
    figure.savefig(path, dpi=110)


def against_samples(mass, improved, drop, curves: list[Curves], samples: int) -> None:
    """Figure 3's panels, where every N has drawn as many samples."""
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


def steps_theorem_and_moments(steps, terms, moments, curves: list[Curves], first_steps: int) -> None:
    """At equal steps: the correct mass, Theorem 1's sum and its third term, and Corollary 3 beside what was drawn."""
    draw_panel(steps, curves, "correct_mass", last_step=first_steps)
    steps.set(title="Equal steps: total correct mass", ylabel="Q_pos", xlabel="step")
    window = max(1, min(50, first_steps // 10))
    draw_panel(terms, curves, "linear_step", last_step=first_steps, smooth=window)
    draw_panel(terms, curves, "centred_coupling", last_step=first_steps, smooth=window, linestyle="--")
    terms.axhline(0, color="black", linewidth=0.8)
    terms.set(title=f"Theorem 1, mean of {window} steps", ylabel="ΔQ_pos / η of one gradient step", xlabel="step")
    draw_panel(moments, curves, "unsampled_second_moment", last_step=first_steps, linewidth=0.6, alpha=0.7)
    draw_panel(moments, curves, "predicted_second_moment", last_step=first_steps, linestyle="--", color="black")
    moments.set(title="Corollary 3: unsampled second moments", ylabel="U_pos2 + U_neg2", xlabel="step")
    solid_and_dashed(terms, "all three terms", "third term (unsampled coupling)")
    solid_and_dashed(moments, "measured", "predicted: Σ p² (1-p)^N")


def solid_and_dashed(ax, solid: str, dashed: str, **where) -> None:
    handles = [
        Line2D([], [], color="black", linestyle="-", label=solid),
        Line2D([], [], color="black", linestyle="--", label=dashed),
    ]
    ax.legend(handles=handles, **where)
