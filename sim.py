"""BroRL, section 4.1: the token-level simulator of Figure 3.

    python sim.py                  Figure 3: N = 4, 8, 16, 512, 51,200 for 1,000 steps; about 10 seconds on one core
    python sim.py --seeds 3        the same for three seeds: lines are means, bands show the range
    python sim.py --mass_balance   also a table of Theorem 1 and Corollary 3 on the draws
    python sim.py --sweep          N = 16 to 2,048, each with 2,048,000 samples; about 3 minutes on one core

Each command prints tables and writes a picture and a CSV to runs/sim/ (--out names another folder).

The policy is one softmax over d tokens. Each step draws N tokens i.i.d., centres their rewards on the batch mean b, and
takes one AdamW step on L_sur = -(1/N) Σ_j (R_j - b) p_j, a sum over the draws j: see `loop`.

    name here          paper   meaning
    z                  z       logits, (V,), with V = d
    p                  p       softmax(z), (V,); the paper's temperature τ is 1
    n                  N       number of draws in a step
    tokens             j       the tokens drawn in a step, (N,); a token drawn twice is in it twice
    rewards            R       reward of each token, (V,): +1 if it is correct, -1 if not
    r                  R_j     reward of each draw, (N,); its mean is b
    correct_mass       Q_pos   probability of all correct tokens
    percent_improved           share of the correct tokens whose probability is above its start, in percent
    worst_drop                 smallest change of a correct token's probability since the start; negative for a loss
    anchor                     probability of the anchor token

The paper leaves these choices open, wholly or in part:

1. AdamW's weight decay and its other constants are PyTorch's defaults. With weight decay 0.01 the correct mass ends at
   0.602 to 0.647, as in the paper's figure. With weight decay 0 it ends at 0.609 to 0.654.
2. The correct tokens start at logit 3, which the paper calls optional. Their mass is then 0.63 at step 0, as in the
   figure. With logit 0 it would be 0.08.
3. The correct tokens are the first 10,000. The anchor z_0 is one of them.
4. The anchor, at logit 5 as in the paper, is trained like any other token.

docs/paper.md has the measurements beyond Figure 3.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

import brorl

FIGURE_3 = (4, 8, 16, 512, 51_200)
SWEEP = (16, 64, 256, 1024, 2048)
PANELS = {
    "correct_mass": "Total correct mass Q_pos",
    "percent_improved": "% of correct tokens above their start",
    "worst_drop": "Worst drop among correct tokens",
    "anchor": "Probability of the anchor (not in the paper)",
}


def setting(default, text: str):
    return field(default=default, metadata={"help": f"{text} (default: {default})"})


@dataclass(frozen=True)
class Constants:
    """The constants of section 4.1. `python sim.py --help` prints the texts."""

    vocabulary: int = setting(128_000, "d, the number of tokens: section 4.1")
    correct_tokens: int = setting(10_000, "number of correct tokens, with the anchor: section 4.1")
    correct_logit: float = setting(3.0, "logit of a correct token at step 0; an incorrect one has 0: section 4.1")
    anchor_logit: float = setting(5.0, "logit of the anchor, token 0, at step 0: section 4.1")
    steps: int = setting(1000, "number of steps, the paper's T: section 4.1")
    lr: float = setting(1e-3, "AdamW's learning rate: section 4.1")
    weight_decay: float = setting(0.01, "AdamW's weight decay; not in the paper: PyTorch's default")

    def __post_init__(self):
        if not 1 <= self.correct_tokens < self.vocabulary:
            raise ValueError(f"--correct_tokens {self.correct_tokens}: use 1 to {self.vocabulary - 1}")
        if self.steps < 1:
            raise ValueError(f"--steps {self.steps} takes no step: use 1 or more")


# ------------------------------------------------------------------------------------------- section 4.1: the loop


def loop(
    constants: Constants, n: int, generator: torch.Generator, every: int = 1, mass_balance: bool = False
) -> Iterator[dict[str, Tensor]]:
    """Run section 4.1 for one N. Yield `measure` at the steps 0 to `steps`, before the update of the step.

    L_sur = -(1/N) Σ_j (R_j - b) p_j over the N draws j, with the batch mean b = (1/N) Σ_j R_j.
    every: yield at every `every`-th step only. mass_balance: yield `theorem_1_on_draws` too.
    """
    z = initial_logits(constants).requires_grad_()  # (V,)
    rewards = rewards_of(constants)  # (V,)
    p_start = torch.softmax(z.detach(), -1)[: constants.correct_tokens]  # (C,)
    adamw = torch.optim.AdamW([z], constants.lr, weight_decay=constants.weight_decay, fused=True)

    for step in range(constants.steps + 1):
        p = torch.softmax(z, -1)  # (V,)
        tokens = draw(p, n, generator)  # (N,)
        if step % every == 0:
            measured = measure(p[: constants.correct_tokens], p_start)
            yield measured | (theorem_1_on_draws(p, tokens, constants) if mass_balance else {})
        if step == constants.steps:
            return  # all updates are done
        r = rewards[tokens]  # (N,)
        L_sur = brorl.surrogate(p[tokens], r - r.mean(), n)  # -(1/N) Σ_j (R_j - b) p_j
        adamw.zero_grad()
        L_sur.backward()
        adamw.step()


def initial_logits(constants: Constants) -> Tensor:
    """Return the logits at step 0, (V,): 5 for the anchor z_0, 3 for the other correct tokens, 0 for the incorrect."""
    z = torch.zeros(constants.vocabulary)
    z[: constants.correct_tokens] = constants.correct_logit
    z[0] = constants.anchor_logit
    return z


def rewards_of(constants: Constants) -> Tensor:
    """Return R of every token, (V,): +1 for the correct tokens, which come first, and -1 for the others."""
    rewards = torch.full((constants.vocabulary,), -1.0)
    rewards[: constants.correct_tokens] = 1.0
    return rewards


@torch.no_grad()
def draw(p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n i.i.d. tokens from p, (V,): invert the cdf at n sorted uniforms. Returns (n,), in ascending order.

    The first n arrival times of a Poisson process, divided by arrival n + 1, are distributed as n sorted uniforms.
    The cdf is in float64: in float32 it would change the p of an incorrect token, 3e-6, by up to 2%.
    """
    cdf = p.cumsum(-1, dtype=torch.float64)
    uniform = torch.rand(n + 1, dtype=torch.float64, generator=generator)
    arrivals = uniform.neg_().log1p_().neg_().cumsum(0)
    sorted_uniform = arrivals[:-1] / arrivals[-1] * cdf[-1]
    # For sorted queries numpy's search takes half the time of torch's.
    return torch.from_numpy(np.searchsorted(cdf.numpy(), sorted_uniform.numpy()))


@torch.no_grad()
def measure(p: Tensor, p_start: Tensor) -> dict[str, Tensor]:
    """Return the three panels of Figure 3 and the anchor, (...) each. p: the correct tokens only, (..., C)."""
    gain = p - p_start
    return {
        "correct_mass": p.sum(-1),
        "percent_improved": 100.0 * (gain > 0).sum(-1) / gain.shape[-1],
        "worst_drop": gain.amin(-1),
        "anchor": p[..., 0].clone(),  # a view would keep the p of every step in memory
    }


# ------------------------------------------------------------------------------- Theorem 1 on the draws of a step


def add_centred_rewards(out: Tensor, tokens: Tensor, rewards: Tensor) -> None:
    """Add the centred reward R_j - b of each draw to the entry of its token. A token drawn twice counts twice."""
    r = rewards[tokens]
    out.index_add_(0, tokens, r - r.mean())


def surrogate_gradient(p: Tensor, centred: Tensor, n: int, temperature: float = 1.0) -> Tensor:
    """Return ∂L_sur/∂z_j = -(1/(Nτ)) p_j (R'_j - S_R), with R'_j the sum of token j's centred
    rewards over its draws, and S_R = Σ_i R'_i p_i.

    This is minus the gradient step of section 2 with η = 1/τ, because p = softmax(z/τ). p, centred: (..., V).
    """
    return brorl.logit_step(p, centred, eta=1.0 / temperature, n=n).neg_()


@torch.no_grad()
def theorem_1_on_draws(p: Tensor, tokens: Tensor, constants: Constants) -> dict[str, Tensor]:
    """Return Theorem 1 and Corollary 3 on the draws of one step. τ = 1. p: (V,); tokens: (N,).

    The theorem is about a plain gradient step, and the simulator moves by AdamW: the numbers say what a plain step
    would do. s_r and the three terms are the paper's: a token drawn twice counts once, and rewards are not centred.
    linear_step is the change of Q_pos along -∇L_sur, to first order; repeated draws count. The terms and linear_step
    are divided by η.
    """
    n, rewards = len(tokens), rewards_of(constants).to(p.dtype)
    correct, sampled = rewards > 0, torch.zeros_like(p, dtype=torch.bool)
    sampled[tokens] = True
    m = brorl.masses(p, correct, sampled)
    centred = torch.zeros_like(p)
    add_centred_rewards(centred, tokens, rewards)
    dp = brorl.probability_step(p, -surrogate_gradient(p, centred, n))
    return {
        "s_r": brorl.mood(m),
        **brorl.mass_balance(m, 1.0, n)._asdict(),
        "linear_step": dp[correct].sum(),
        "unsampled_second_moment": m.u_pos2 + m.u_neg2,
        "predicted_second_moment": brorl.total_unsampled_second_moment(p, n),
    }


# ------------------------------------------------------------------------------------------------------- the curves


class Curves(NamedTuple):
    """The measurements of one seed for K values of N at M steps, each from before the step's update."""

    seed: int
    rollouts: tuple[int, ...]  # (K,), the values of N
    steps: np.ndarray  # (M,)
    values: dict[str, np.ndarray]  # name -> (K, M)


def simulate(
    constants: Constants, rollouts: tuple[int, ...], seed: int = 0, every: int = 1, mass_balance: bool = False
) -> Curves:
    """Run `loop` for each N of `rollouts` and collect the measurements of every `every`-th step.

    Each N has its own generator, seeded by (seed, N), so its curve does not depend on the other N.
    """
    rows = []
    for n in rollouts:
        generator = torch.Generator().manual_seed(1_000_003 * seed + n)
        steps = loop(constants, n, generator, every, mass_balance)
        rows.append(
            list(tqdm(steps, f"seed {seed}, N = {n:,}", constants.steps // every + 1, leave=False, disable=None))
        )
    values = {name: np.array([[measured[name].item() for measured in row] for row in rows]) for name in rows[0][0]}
    return Curves(seed, tuple(rollouts), np.arange(0, constants.steps + 1, every), values)


def by_rollouts(curves: list[Curves]) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Collect the seeds of each N. Returns N -> (steps, name -> (seeds, M)), in ascending N."""
    found = {}
    for n in sorted({n for c in curves for n in c.rollouts}):
        rows = [(c, c.rollouts.index(n)) for c in curves if n in c.rollouts]
        names, steps = rows[0][0].values, rows[0][0].steps
        found[n] = steps, {name: np.stack([c.values[name][k] for c, k in rows]) for name in names}
    return found


def write_csv(path: Path, curves: list[Curves]) -> None:
    """Write a row for each seed, N and tenth measured step, and for the last step."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["seed", "N", "step", "samples", *curves[0].values])
        for c in curves:
            for k, n in enumerate(c.rollouts):
                for at in sorted({*range(0, len(c.steps), 10), len(c.steps) - 1}):
                    numbers = [f"{values[k, at]:.6g}" for values in c.values.values()]
                    writer.writerow([c.seed, n, c.steps[at], n * c.steps[at], *numbers])


def table(curves: list[Curves], at: int) -> str:
    """Format three panels at index `at` of the kept steps, in 80 columns: mean over the seeds ± half their range."""

    def cell(x: np.ndarray) -> str:
        return f"{x.mean():.4g}" + (f" ± {np.ptp(x) / 2:.1g}" if len(x) > 1 else "")

    shown = {"correct_mass": 16, "percent_improved": 18, "worst_drop": 19}  # and the width of the column
    lines = [f"{'N':>7}{'step':>8}{'samples':>12}" + "".join(f"{name:>{width}}" for name, width in shown.items())]
    for n, (steps, values) in by_rollouts(curves).items():
        cells = "".join(f"{cell(values[name][:, at]):>{width}}" for name, width in shown.items())
        lines.append(f"{n:>7,}{steps[at]:>8,}{n * steps[at]:>12,}{cells}")
    return "\n".join(lines)


def table_of_theorem_1(curves: list[Curves]) -> str:
    """Format the numbers of `theorem_1_on_draws`, a column for each N: means over the seeds and the kept steps."""
    runs = {n: values for n, (_, values) in by_rollouts(curves).items()}
    rows = {name: [values[name].mean() for values in runs.values()] for name in curves[0].values if name not in PANELS}
    rows["third term / first term"] = np.divide(rows["unsampled_coupling"], rows["sampled_correct"]).tolist()
    rows["share of linear_step < 0"] = [(values["linear_step"] < 0).mean() for values in runs.values()]
    lines = [f"{name:<25}" + "".join(f"{x:>11.2g}" for x in row) for name, row in rows.items()]
    return "\n".join([f"{'N':<25}" + "".join(f"{n:>11,}" for n in runs), *lines])


# ----------------------------------------------------------------------------------------------------- the pictures


# The colour-blind tell these colours apart (Okabe and Ito, 2008). Another N has a colour between two of them.
COLOURS = {2: "#CC79A7", 8: "#56B4E9", 16: "#0072B2", 64: "#009E73", 512: "#D55E00", 51_200: "#000000"}


def colour_of(n: int) -> tuple[float, ...]:
    """The colour of N in every picture: red, green and blue from 0 to 1, linear in log N."""
    rgb = np.array([to_rgb(colour) for colour in COLOURS.values()])
    return tuple(float(np.interp(np.log(n), np.log([*COLOURS]), rgb[:, i])) for i in range(3))


def plot_figure3(path: Path, curves: list[Curves], about: str, per_sample: bool = False) -> None:
    """Draw Figure 3, against steps or against samples drawn. Lines are means over the seeds, bands their range."""
    names = list(PANELS) if per_sample else list(PANELS)[:3]
    figure = Figure(figsize=(4.2 * len(names), 4.6), layout="constrained", dpi=110)
    for axis, name in zip(figure.subplots(1, len(names)), names, strict=True):
        for n, (steps, values) in by_rollouts(curves).items():
            x, y = steps * (n if per_sample else 1), values[name]
            axis.plot(x, y.mean(0), color=colour_of(n), label=f"N = {n:,}")
            axis.fill_between(x, y.min(0), y.max(0), color=colour_of(n), alpha=0.25, linewidth=0)
        axis.set(title=PANELS[name], xlabel="samples drawn" if per_sample else "step")
        axis.grid(alpha=0.3)
        if name == "worst_drop":
            axis.set_yscale("symlog", linthresh=1e-6)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(f"BroRL, section 4.1, simulated: {about}", weight="bold", size="medium")
    figure.savefig(path)


# ------------------------------------------------------------------------------------------------- the command line


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags. Exit with one sentence if a flag is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    add = parser.add_argument
    for f in fields(Constants):
        add(f"--{f.name}", type=type(f.default), default=f.default, help=f.metadata["help"])
    add("--rollouts", type=int, nargs="+", metavar="N", help=f"a curve per N (default: {FIGURE_3}; --sweep: {SWEEP})")
    add("--seeds", type=int, default=1, help="number of seeds; not in the paper (default: 1)")
    add("--sweep", action="store_true", help="run a smaller N longer: all N draw equal samples; not in the paper")
    add("--mass_balance", action="store_true", help="print Theorem 1 and Corollary 3 on the draws; not in the paper")
    add("--out", type=Path, default=Path("runs/sim"), help="folder of the picture and the CSV (default: runs/sim)")
    args = parser.parse_args(argv)
    args.rollouts = tuple(args.rollouts or (SWEEP if args.sweep else FIGURE_3))
    try:
        args.constants = Constants(**{f.name: getattr(args, f.name) for f in fields(Constants)})
        if min(args.rollouts) < 1 or len(set(args.rollouts)) < len(args.rollouts):
            raise ValueError(f"--rollouts {args.rollouts}: use values of 1 or more, each once")
        if args.sweep and any(max(args.rollouts) % n for n in args.rollouts):
            raise ValueError(f"--rollouts {args.rollouts}: --sweep needs values that divide the largest")
        if args.seeds < 1:
            raise ValueError(f"--seeds {args.seeds}: use 1 or more")
        args.out.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        parser.exit(2, f"sim.py: {error}\n")
    except OSError as error:
        parser.exit(2, f"sim.py: --out {args.out}: {error.strerror}; name another folder\n")
    return args


def main(argv: list[str] | None = None) -> None:
    """Run every N for every seed. Print the tables; write the picture and the CSV."""
    args, curves, began = parse(argv), [], time.perf_counter()
    torch.set_num_threads(1)  # a second thread gains little at this size
    s: Constants = args.constants
    for seed in range(args.seeds):
        for n in args.rollouts:
            # With --sweep an N that is k times smaller takes k times the steps and keeps every k-th: equal samples at
            # an index.
            k = max(args.rollouts) // n if args.sweep else 1
            curves.append(simulate(replace(s, steps=k * s.steps), (n,), seed, k, args.mass_balance))

    for at in (s.steps // 64, s.steps // 16, s.steps // 4, s.steps)[0 if args.sweep else 3 :]:
        print(table(curves, at))
    if args.mass_balance:
        print(table_of_theorem_1(curves))
    picture = args.out / ("sweep.png" if args.sweep else "figure3.png")
    about = f"d = {s.vocabulary:,}, {s.correct_tokens:,} correct, lr {s.lr:g}, weight decay {s.weight_decay:g}"
    plot_figure3(picture, curves, f"{about}, {args.seeds} seed(s)", per_sample=args.sweep)
    write_csv(picture.with_suffix(".csv"), curves)
    print(f"{time.perf_counter() - began:.0f} s; wrote {picture} and {picture.with_suffix('.csv')}")


if __name__ == "__main__":
    main()
