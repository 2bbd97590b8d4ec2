"""BroRL, section 4.1: the token-level simulator of Figure 3, and the two questions its readers ask.

    python sim.py             Figure 3: N = 4, 8, 16, 512, 51,200 for 1,000 steps; a few seconds on one core
    python sim.py --seeds 3   the same with a band over seeds
    python sim.py --sweep     the N's between, and the narrow ones continued until they have drawn as many samples
                              as the widest has; about a minute and a quarter on one core

A CSV and a picture go to runs/sim/ (--out names another folder; the tracked ones are in evidence/).

One softmax over d tokens is the whole policy. In each step N tokens are drawn i.i.d., their rewards are centred on the
batch mean b, and AdamW follows L_sur = -(1/N) Σ_j (R_j - b) p_j over the draws. `as_written` is that loop, word for
word; `simulate` is the same for every N at once, and faster. The tests hold one against the other.

    name here                  paper    meaning
    z, p                       z, p     logits and p = softmax(z / τ), (K, V): one row for each N, V = d
    rollouts                   N's      a tuple: every N that is run, (K,)
    n                          N        draws in a step, of one row
    tokens                     j        the tokens drawn, (N,), each as often as it was drawn
    rewards                    R        +1 for a correct token, -1 for the others, (V,)
    centred                    R_j - b  summed over the draws of each token, (K, V); 0 where nothing was drawn
    correct_mass               Q_pos    probability of all correct tokens
    percent_improved                    share of the correct tokens above their probability at step 0
    worst_drop                          the least p_i - p_i(step 0) over the correct tokens; negative is a loss
    anchor                              probability of the anchor token, which is correct
    third_term, linear_step             Theorem 1 on the gradient that AdamW gets, over η: the coupling (1/N) S_R
                                        (Q_pos U_neg2 - Q_neg U_pos2) with the S_R of `centred`, and all three terms
    mood, sampled_correct,              Theorem 1 as the paper states it, over η: S_R and the three terms, rewards not
    ..., unsampled_coupling             centred and a token drawn twice counted once. The coupling differs from
                                        third_term by its S_R alone
    unsampled_second_moment             U_pos2 + U_neg2, measured
    predicted_second_moment             Corollary 3: Σ_i p_i² (1-p_i)^N

What the paper leaves open, and what is chosen here:
1. AdamW's other constants are PyTorch's defaults. The weight decay of 0.01 is part of the figure: with them the
   mass ends at 0.601 ... 0.647, as in the paper's figure; with weight decay 0 at 0.608 ... 0.654.
2. The paper calls the start of the correct tokens optional. Here they always start at 3, which puts the correct mass at
   0.63 at step 0, as in the figure; at 0 it would be 0.08.
3. The anchor token z_0 is one of the correct tokens, which are the first 10,000. "Fixing" it can mean its start or its
   value at every step. Here it starts at 5 and is then trained like any token. Held at 5, by z[:, 0] = 5 after each
   step of `simulate`, it moves the mass at step 1,000 by at most 0.0002 at any N. The worst drop becomes another one:
   -3.6e-6 in place of -1.0e-4 at N = 4 (means of seeds 0 to 2), -1.7e-5 in place of 5e-7 at N = 51,200 (seed 0). The
   paper's figure has -5e-5 to -1e-4, and 0: it fits the anchor that is trained.
4. Theorem 1 has a token's reward count once and its step be plain gradient descent. Here a token drawn twice counts
   twice, rewards are centred, and AdamW takes the step. The third term keeps its form, with S_R over the actual
   draws, but describes the gradient and not the step that AdamW makes of it.

What it shows beyond the paper's figure, at equal samples and after step 1,000, is docs/simulator.md.

What is done for speed, none of which changes the distribution of any curve: the N's are rows of one parameter, which
one AdamW treats element by element; the gradient is the closed form of section 2; the draws invert the cdf at uniforms
that come sorted. L sums over the draws, so that their order is of no account.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import brorl
from simulator import curves as report
from simulator.curves import Curves, steps_to_record

FIGURE_3 = (4, 8, 16, 512, 51_200)
SWEEP = (16, 64, 256, 1024, 2048)
OUT = Path("runs/sim")


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


# ------------------------------------------------------------------------------- the loop, as the paper has it


def as_written(setting: Setting, n: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    """Section 4.1 for one N: what it measures before each update, and after the last."""
    rewards, p_start = rewards_of(setting), start(setting)
    z = initial_logits(setting).requires_grad_()
    adamw = adamw_for(z, setting)
    for _ in range(setting.steps + 1):
        p = torch.softmax(z / setting.temperature, -1)
        yield measure(p.detach()[: setting.correct_tokens], p_start)

        tokens = draw(p.detach(), n, generator)  # N i.i.d. draws
        r = rewards[tokens]
        L_sur = brorl.surrogate(p[tokens], r - r.mean(), n)  # -(1/N) Σ_j (R_j - b) p_j
        adamw.zero_grad()
        L_sur.backward()
        adamw.step()


def initial_logits(setting: Setting) -> Tensor:
    """Section 4.1: 0, with the correct tokens at 3 and the anchor z_0 at 5. Returns (V,)."""
    z = torch.zeros(setting.vocabulary)
    z[: setting.correct_tokens] = setting.correct_logit
    z[0] = setting.anchor_logit
    return z


def start(setting: Setting) -> Tensor:
    """p of the correct tokens at step 0, (C,)."""
    return torch.softmax(initial_logits(setting) / setting.temperature, -1)[: setting.correct_tokens]


def rewards_of(setting: Setting) -> Tensor:
    """R of every token, (V,): the correct ones come first."""
    correct = torch.arange(setting.vocabulary) < setting.correct_tokens
    return torch.where(correct, setting.reward_correct, setting.reward_incorrect)


def adamw_for(z: Tensor, setting: Setting, **how) -> torch.optim.AdamW:
    betas = (setting.beta1, setting.beta2)
    return torch.optim.AdamW([z], setting.lr, betas, setting.eps, setting.weight_decay, **how)


def draw(p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n i.i.d. tokens of p, (V,), in ascending order, by inverting the cdf at n sorted uniforms. Returns (n,).

    The arrival times of a Poisson process, over the time of the (n+1)-th, are distributed as n sorted uniforms, so
    nothing has to be sorted. In float64: a float32 uniform has 24 bits, and an incorrect token's p is about 50 x 2^-24.
    """
    cdf = p.cumsum(-1, dtype=torch.float64)
    uniform = torch.rand(n + 1, dtype=cdf.dtype, device=cdf.device, generator=generator)
    arrivals = uniform.neg_().log1p_().neg_().cumsum(0)
    sorted_uniform = arrivals[:-1] / arrivals[-1] * cdf[-1]
    if cdf.is_cpu:
        # On sorted queries numpy begins each search where the one before ended, in half torch's time.
        return torch.from_numpy(np.searchsorted(cdf.numpy(), sorted_uniform.numpy()))
    return torch.searchsorted(cdf, sorted_uniform)


def measure(p: Tensor, p_start: Tensor) -> dict[str, Tensor]:
    """The three panels of Figure 3, and the anchor. p: correct tokens only, (K, C); p_start: p at step 0, (C,)."""
    gain = p - p_start
    return {
        "correct_mass": p.sum(-1),
        "percent_improved": 100.0 * (gain > 0).sum(-1) / gain.shape[-1],
        "worst_drop": gain.amin(-1),
        "anchor": p[..., 0].clone(),  # a view would keep the whole p of every step in memory
    }


# ------------------------------------------------------------------------------- the same, for all N at once


def add_centred_rewards(out: Tensor, tokens: Tensor, rewards: Tensor) -> None:
    """Adds R_j - b to out[j] for every draw j: a token drawn twice counts twice. b is the mean over the draws."""
    r = rewards[tokens]
    out.index_add_(0, tokens, r - r.mean())


def surrogate_gradient(p: Tensor, centred: Tensor, n: int, temperature: float = 1.0) -> Tensor:
    """∂L_sur/∂z_j = -(1/(Nτ)) p_j (R'_j - S_R), R' the centred rewards and S_R = Σ_i R'_i p_i (section 2, 4.1).

    Minus the gradient step of section 2, with η = 1/τ because p = softmax(z/τ). p, centred: (..., V).
    """
    return brorl.logit_step(p, centred, eta=1.0 / temperature, n=n).neg_()


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
    rewards, p_start = rewards_of(setting).to(device), start(setting).to(device)
    generators = [torch.Generator(device).manual_seed(1_000_003 * seed + n) for n in rollouts]
    z = initial_logits(setting).to(device).repeat(len(rollouts), 1)
    p, centred, z.grad = torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z)
    adamw = adamw_for(z, setting, fused=True)

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
            measured.append(row | probe(p, centred, tokens, setting) if with_probe else row)
        if step < setting.steps:
            adamw.step()
            on_step()

    values = {name: torch.stack([row[name] for row in measured], -1).cpu().numpy() for name in measured[0]}
    return Curves(seed, tuple(rollouts), steps, values)


def probe(p: Tensor, centred: Tensor, tokens: list[Tensor], setting: Setting) -> dict[str, Tensor]:
    """Theorem 1 and Corollary 3 on the draws of one step, for the p, (K, V), at which they were drawn; over η.

    Theorem 1 twice: on the gradient that AdamW gets, with centred rewards and a token drawn twice counted twice, and as
    the paper states it, with R_c and R_w as they are and the drawn tokens as a set (where R_c >= 0 >= R_w).
    The drawn tokens are marked from `tokens`: where all draws agree, their centred rewards are all 0.
    """
    correct = torch.arange(p.shape[-1], device=p.device) < setting.correct_tokens
    n = p.new_tensor([[len(drawn)] for drawn in tokens])
    sampled = torch.zeros_like(p, dtype=torch.bool)
    for row, drawn in zip(sampled, tokens, strict=True):
        row[drawn] = True
    m = brorl.masses(p, correct, sampled)
    s_r = (centred * p).sum(-1)
    dp = brorl.probability_step(p, brorl.logit_step(p, centred, 1.0, n))
    found = {
        "third_term": brorl.unsampled_coupling(m, s_r) / n[:, 0],
        "linear_step": torch.where(correct, dp, 0).sum(-1),
        "unsampled_second_moment": m.u_pos2 + m.u_neg2,
        "predicted_second_moment": brorl.total_unsampled_second_moment(p, n),
    }
    r_c, r_w = setting.reward_correct, setting.reward_incorrect
    if r_c >= 0 >= r_w:
        found["mood"] = brorl.mood(m, r_c, r_w)
        found |= brorl.mass_balance(m, 1.0, n[:, 0], r_c, r_w)._asdict()
    return found


# ------------------------------------------------------------------------------------ the two experiments


def run_figure3(setting: Setting, rollouts, seeds, device="cpu", with_probe=False, quiet=False) -> list[Curves]:
    """The paper's setting, seed after seed."""
    with tqdm(total=len(seeds) * setting.steps, unit="step", disable=quiet or None) as bar:
        return [simulate(setting, rollouts, s, device, with_probe=with_probe, on_step=bar.update) for s in seeds]


def run_sweep(setting: Setting, rollouts, seeds, samples, device="cpu", quiet=False) -> list[Curves]:
    """Every N for the setting's steps, and on until it has drawn `samples`: a narrow N takes more steps for them."""
    steps = {n: max(setting.steps, samples // n) for n in rollouts}
    curves = []
    with tqdm(total=len(seeds) * sum(steps.values()), unit="step", disable=quiet or None) as bar:
        for seed in seeds:
            for n in rollouts:
                bar.set_description(f"seed {seed}, N = {n}")
                record = steps_to_record(steps[n], dense=setting.steps)
                longer = replace(setting, steps=steps[n])
                curves.append(simulate(longer, (n,), seed, device, record, with_probe=True, on_step=bar.update))
    return curves


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
    add("--out", type=Path, default=OUT, help="folder of the figure and the CSV (default: runs/sim)")
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


def describe(setting: Setting, seeds: int) -> str:
    shown = f"{seeds} seeds, band: least to greatest" if seeds > 1 else "1 seed"
    return (
        f"d = {setting.vocabulary:,}, {setting.correct_tokens:,} correct, AdamW lr {setting.lr:g}, "
        f"weight decay {setting.weight_decay:g}, {shown}"
    )


def main(argv: list[str] | None = None) -> list[Curves]:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    seeds = range(args.seed, args.seed + args.seeds)
    began = time.perf_counter()
    if args.sweep:
        curves = run_sweep(args.setting, args.rollouts, seeds, args.samples, args.device)
    else:
        curves = run_figure3(args.setting, args.rollouts, seeds, args.device, args.probe)
    seconds = time.perf_counter() - began

    print(describe(args.setting, args.seeds))
    print(f"correct mass at step 0: {start(args.setting).sum():.4f}")
    print(report.table(curves, at_step=args.steps))
    if report.THEOREM_1[0] in curves[0].values:
        print("\nTheorem 1 as the paper states it, over η: means over the recorded steps")
        print(report.theorem_1(curves))
    if args.sweep:
        print("\nEqual samples: correct mass / % of the correct tokens above their start")
        print(report.table_at_equal_samples(curves, args.samples))
    wrote = write(args, curves)
    print(f"\nsimulated in {seconds:.1f} s; wrote {wrote[0]} and {wrote[1]}")
    return curves


def write(args: argparse.Namespace, curves: list[Curves]) -> tuple[Path, Path]:
    """The picture and the CSV, at --out."""
    from simulator import pictures  # here, since matplotlib takes longer to import than all else

    picture = args.out / ("sweep.png" if args.sweep else "figure3.png")
    report.write_csv(picture.with_suffix(".csv"), curves, args.csv_every, dense=args.steps)
    about = describe(args.setting, args.seeds)
    if args.sweep:
        pictures.plot_sweep(picture, curves, about, args.steps, args.samples)
    else:
        pictures.plot_figure3(picture, curves, about)
    return picture, picture.with_suffix(".csv")


if __name__ == "__main__":
    main()
