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

simulator/ holds the command line, its checks, the tables and pictures, and Theorem 1 on its draws (`--mass_balance`).

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

What it shows beyond the paper's figure, at equal samples and after step 1,000, is docs/simulator.md.

What is done for speed, none of which changes the distribution of any curve: the N's are rows of one parameter, which
one AdamW treats element by element; the gradient is the closed form of section 2; the draws invert the cdf at uniforms
that come sorted. L sums over the draws, so that their order is of no account.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import brorl
from simulator import command
from simulator.curves import Curves, steps_to_record
from simulator.mass_balance import theorem_1_on_draws

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
        command.check_setting(self)


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
    mass_balance: bool = False,
    on_step: Callable[[], object] = lambda: None,
) -> Curves:
    """Section 4.1 for every N of `rollouts` at once, one row each.

    Every row has draws of its own, seeded by (seed, N), so that a curve does not depend on which others are run.
    record: the steps at which to measure, each of 0 ... steps if not given. on_step is called after every step.
    """
    rewards, p_start = rewards_of(setting).to(device), start(setting).to(device)
    correct = torch.arange(setting.vocabulary, device=device) < setting.correct_tokens
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
            measured.append(measure(p[:, : setting.correct_tokens], p_start))
            if mass_balance:
                r_c, r_w = setting.reward_correct, setting.reward_incorrect
                measured[-1] |= theorem_1_on_draws(p, centred, tokens, correct, r_c, r_w)
        if step < setting.steps:
            adamw.step()
            on_step()

    values = {name: torch.stack([row[name] for row in measured], -1).cpu().numpy() for name in measured[0]}
    return Curves(seed, tuple(rollouts), steps, values)


# ------------------------------------------------------------------------------------ the two experiments


def run_figure3(setting: Setting, rollouts, seeds, device="cpu", mass_balance=False) -> list[Curves]:
    """The paper's setting, seed after seed."""
    with tqdm(total=len(seeds) * setting.steps, unit="step", disable=None) as bar:
        return [simulate(setting, rollouts, s, device, mass_balance=mass_balance, on_step=bar.update) for s in seeds]


def run_sweep(setting: Setting, rollouts, seeds, samples, device="cpu") -> list[Curves]:
    """Every N for the setting's steps, and on until it has drawn `samples`: a narrow N takes more steps for them."""
    steps = {n: max(setting.steps, samples // n) for n in rollouts}
    curves = []
    with tqdm(total=len(seeds) * sum(steps.values()), unit="step", disable=None) as bar:
        for seed in seeds:
            for n in rollouts:
                bar.set_description(f"seed {seed}, N = {n}")
                record = steps_to_record(steps[n], dense=setting.steps)
                longer = replace(setting, steps=steps[n])
                curves.append(simulate(longer, (n,), seed, device, record, mass_balance=True, on_step=bar.update))
    return curves


def main(argv: list[str] | None = None) -> list[Curves]:
    args = command.parse(argv, __doc__.split("\n\n")[0], Setting, FIGURE_3, SWEEP)
    torch.set_num_threads(args.threads)
    seeds = range(args.seed, args.seed + args.seeds)
    began = time.perf_counter()
    if args.sweep:
        curves = run_sweep(args.setting, args.rollouts, seeds, args.samples, args.device)
    else:
        curves = run_figure3(args.setting, args.rollouts, seeds, args.device, args.mass_balance)
    command.show(args, curves, time.perf_counter() - began)
    return curves


if __name__ == "__main__":
    main()
