"""The noise law where all is exact: many prompts over one set of weights, a softmax each (docs/which_n.md).

    python -m evidence.law_simulated        a minute or two; writes law_simulated.csv

The simulator of section 4.1 has one prompt, so no V_b. Here PROMPTS prompts share D weights θ: z_x = Φ_x θ, p_x is the
mass of prompt x's right answers, J the mean of p_x. g_x, V_b and V_w are sums over all answers. A step takes
B = 512 / N prompts with replacement, N answers of each, and moves θ by η times the mean of their estimates of g_x.

    noise    trace of the covariance of a step, over 2,000 draws, beside (V_b + V_w / (N - 1)) / B and beside the exact
             variance, which also has the term of order 1/N² (trainer/noise.py)
    J        after STEPS steps, exact; the best of RATES for each N, mean over SEEDS seeds, and its standard error

Two worlds: with few answers to a prompt V_w / V_b is small, with many it is large.
"""

import torch
from torch import Tensor

from evidence.rows import HERE, write

PROMPTS, D, SAMPLES, STEPS, SEEDS = 1024, 48, 512, 40, 10
NS, RATES = (2, 4, 8, 16, 32, 64, 128, 256, 512), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
WORLDS = {"6 answers": (6, 2), "100 answers": (100, 5)}  # answers of a prompt, and how many are right


class World:
    """Features (P, A, D), and which answers are right (P, A): those that one hidden direction and chance like best."""

    def __init__(self, answers: int, right: int):
        g = torch.Generator().manual_seed(0)
        self.features = torch.randn(PROMPTS, answers, D, generator=g, dtype=torch.float64)
        hidden = torch.randn(D, generator=g, dtype=torch.float64) / D**0.5
        likes = self.features @ hidden
        likes += torch.randn(PROMPTS, answers, generator=g, dtype=torch.float64)
        self.right = likes >= likes.topk(right, -1).values[:, -1:]

    def policy(self, theta: Tensor, x: Tensor) -> Tensor:
        """π of these prompts, (B, A)."""
        return (self.features[x] @ theta).softmax(-1)

    def scores(self, pi: Tensor, x: Tensor) -> Tensor:
        """∇log π(answer) of every answer of these prompts, (B, A, D)."""
        return self.features[x] - (pi[..., None] * self.features[x]).sum(1, keepdim=True)

    def exact(self, theta: Tensor, n: int) -> dict[str, float]:
        """J, V_b, V_w, and the trace of the covariance of one prompt's estimate from N rollouts, all by sums."""
        every = torch.arange(PROMPTS)
        pi = self.policy(theta, every)
        s = self.scores(pi, every)
        p = (pi * self.right).sum(-1)
        size = s.square().sum(-1)
        g = (pi[..., None] * self.right[..., None] * s).sum(1)  # (P, D)
        g2 = g.square().sum(-1)
        within = (pi * (self.right.double() - p[:, None]).square() * size).sum(-1) - g2
        second = (g2 + p * (1 - p) * (pi * size).sum(-1)) / (n * (n - 1))
        between = g2.mean() - g.mean(0).square().sum()
        return {
            "J": float(p.mean()), "V_b": float(between), "V_w": float(within.mean()),
            "exact": float(between + (within / n + second).mean()),
        }  # fmt: skip

    def step(self, theta: Tensor, n: int, g: torch.Generator) -> Tensor:
        """The mean of SAMPLES / N prompts' estimates of g_x, (D,)."""
        x = torch.randint(PROMPTS, (SAMPLES // n,), generator=g)
        pi = self.policy(theta, x)
        drawn = torch.multinomial(pi, n, replacement=True, generator=g)  # (B, N)
        rewards = self.right[x].gather(1, drawn).double()
        weights = torch.zeros(pi.shape, dtype=torch.float64)
        weights.scatter_add_(1, drawn, (rewards - rewards.mean(1, keepdim=True)) / (n - 1))
        return (weights[..., None] * self.scores(pi, x)).sum(1).mean(0)


def rows_of(name: str, world: World) -> list[dict]:
    """A row for each N: its noise at the start, sampled and by the law, and J after training."""
    start, rows = torch.zeros(D, dtype=torch.float64), []
    for n in NS:
        exact = world.exact(start, n)
        g = torch.Generator().manual_seed(n)
        steps = torch.stack([world.step(start, n, g) for _ in range(2000)])
        rate, found, theta = max((learned(world, n, rate) for rate in RATES), key=lambda x: float(x[1].mean()))
        after = world.exact(theta, n)
        rows.append({
            "world": name, "N": n, "B": SAMPLES // n, "V_w": exact["V_w"], "V_b": exact["V_b"],
            "noise, sampled": float(steps.var(0).sum()), "noise, exact": exact["exact"] * n / SAMPLES,
            "noise, law": (exact["V_b"] + exact["V_w"] / (n - 1)) * n / SAMPLES, "J at the start": exact["J"],
            "rate": rate, "J": float(found.mean()), "J, s.e.": float(found.std() / SEEDS**0.5),
            "V_w / V_b after": after["V_w"] / after["V_b"],
        })  # fmt: skip
    return rows


def learned(world: World, n: int, rate: float) -> tuple[float, Tensor, Tensor]:
    """J after STEPS steps at this rate, a number a seed; and the last seed's weights."""
    found, theta = [], torch.zeros(D, dtype=torch.float64)
    for seed in range(SEEDS):
        theta, g = torch.zeros(D, dtype=torch.float64), torch.Generator().manual_seed(1000 * n + seed)
        for _ in range(STEPS):
            theta = theta + rate * world.step(theta, n, g)
        found.append(float((world.policy(theta, torch.arange(PROMPTS)) * world.right).sum(-1).mean()))
    return rate, torch.tensor(found), theta


def main() -> None:
    torch.set_num_threads(1)
    write(HERE / "law_simulated.csv", [row for name, how in WORLDS.items() for row in rows_of(name, World(*how))])


if __name__ == "__main__":
    main()
