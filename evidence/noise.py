"""--log_noise against enumeration: V_w and V_b of the tiny world (docs/which_n.md).

    python -m evidence.noise                                     the embedded policy, 128 held-out problems
    python -m evidence.noise --model runs/brorl-seed0/model      another one

Exact: g_x = ∇p_x = Σ_y π(y) ∇log π(y) over all correct answers y, each by its own backward pass (tiny/exact.py has the
answers), and V_w,x = (1 - p)² Σ_y π(y) |∇log π(y)|² + p² E|∇log π|² over wrong responses - |g_x|². Wrong responses are
too many to write down, so their part is a mean over DRAWN of them a problem; p² makes it small. Estimated: what
trainer/noise.py makes of N rollouts of the same problems, several times over. Prints both, and adds to noise.csv beside
this file.
"""

import argparse
import time
from pathlib import Path
from unittest import mock

import torch
from accelerate import Accelerator
from torch import Tensor

from evidence.report import header, line
from evidence.runs import load, write
from rollout import TorchEngine
from tiny import exact
from train import dynamic_sampling, own_parts
from trainer import noise
from trainer.checks import TINY
from trainer.report import short
from trainer.rollouts import Judge, StepRollouts, roll_out
from trainer.settings import Config
from verify import load_data

HERE = Path(__file__).parent
DRAWN = 64


def score(policy, prompt: list[int], response: list[int]) -> tuple[Tensor, float]:
    """∇log π(response), one vector, and log π."""
    tokens = torch.tensor([prompt + response])
    length = torch.tensor([len(prompt)]), torch.tensor([len(response)])
    logp = policy(tokens, *length, 1.0)[0].sum()
    return torch.cat([x.flatten() for x in torch.autograd.grad(logp, list(policy.parameters()))]), float(logp.detach())


def enumerated(policy, tokenizer, problems) -> noise.Variances:
    """V_w, V_b and |ḡ|² of these problems, from all their correct answers and some wrong responses."""
    code, (stop,) = exact.alphabet(tokenizer), exact.one_stop_token(tokenizer, policy.model)
    prompts = [exact.encoded(tokenizer, problem) for problem in problems]
    groups = TorchEngine(policy.model).generate(prompts, DRAWN, max_new_tokens=12, stop_token_ids=[stop], seed=1)
    slopes, within = [], 0.0
    for problem, prompt, group in zip(problems, prompts, groups, strict=True):
        right = [[*(code[c] for c in text), stop] for text in exact.answers_of(problem)]
        slope, squares, p = torch.zeros(1), 0.0, 0.0
        for response in right:
            s, logp = score(policy, prompt, response)
            chance = torch.tensor(logp).exp().item()
            slope, squares, p = slope + chance * s, squares + chance * float(s @ s), p + chance
        wrong = [r for r in group.responses if r not in right]
        sizes = {tuple(r): float(score(policy, prompt, r)[0].square().sum()) for r in wrong}
        of_wrong = sum(sizes[tuple(r)] for r in wrong) / max(1, len(wrong)) * (1 - p)
        within += (1 - p) ** 2 * squares + p**2 * of_wrong - float(slope @ slope)
        slopes.append(slope)
    g = torch.stack(slopes).double()
    count = len(problems)
    mean2 = float(g.sum(0).square().sum() - g.square().sum()) / (count * (count - 1))
    return noise.Variances(within / count, float(g.square().sum() / count) - mean2, mean2)


def estimated(policy, tokenizer, problems, n: int, seed: int) -> dict[str, float]:
    """What --log_noise logs of a step that draws N rollouts of each of these problems."""
    config = Config(
        rollouts_per_prompt=n,
        temperature=1.0,
        max_tokens_per_micro_batch=8192,
        mini_batches="prompts",
        verify_workers=1,
    )
    accelerator, prompts = Accelerator(cpu=True), [exact.encoded(tokenizer, problem) for problem in problems]
    stop = exact.one_stop_token(tokenizer, policy.model)
    seeds = [seed * len(problems) * n + i * n for i in range(len(problems))]
    judge = Judge(tokenizer, problems, config.judging)
    engine = TorchEngine(policy.model)
    drawn = StepRollouts(problems, prompts)
    drawn.add(
        list(range(len(problems))),
        *roll_out(
            engine, judge, prompts, n, seeds, own_parts(len(prompts), n, 0, 1), accelerator, show=False,
            max_new_tokens=12, temperature=1.0, top_p=1.0, stop_token_ids=stop,
        ),
    )  # fmt: skip
    kept = drawn.take(dynamic_sampling(drawn.outcomes.correct, len(problems))[0])
    with mock.patch.object(noise, "PROMPTS", len(problems)):
        return noise.Noise(policy, config, accelerator).measure(policy, policy, kept, len(kept) / len(problems), seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(TINY / "policy"))
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[16, 512])
    parser.add_argument("--repeats", type=int, default=8, help="estimates of each N (default: 8)")
    args = parser.parse_args()
    policy, tokenizer = exact.load_policy(args.model)
    problems = load_data([str(TINY / "test.jsonl")])[: args.problems]
    started = time.perf_counter()
    true = enumerated(policy, tokenizer, problems)
    rows: list[dict] = [{"how": "enumerated", "N": "", **true._asdict()}]
    print(f"{len(problems)} problems, enumerated in {time.perf_counter() - started:.0f} s", flush=True)
    for n in args.rollouts:
        for seed in range(args.repeats):
            found = estimated(policy, tokenizer, problems, n, seed)
            rows.append({"how": "estimated", "N": n} | {name: found[f"noise/{name}"] for name in true._fields})
    header("", "V_w", "V_b", "V_w / V_b", "N*")
    for n in ("", *args.rollouts):
        own = [row for row in rows if row["N"] == n]
        within, between = (torch.tensor([row[name] for row in own]) for name in ("within", "between"))
        cells = [f"{within.mean():.1f}", f"{between.mean():.2f}"]
        if n:
            error = [float(x.std() / len(own) ** 0.5) for x in (within, between)]
            cells = [f"{cell} ± {e:.2g}" for cell, e in zip(cells, error, strict=True)]
        ratio = float(within.mean() / between.mean())
        line(f"N = {n}" if n else "enumerated", *cells, f"{ratio:.1f}", f"{noise.best_n(ratio):.1f}")
    who = {"policy": short(args.model), "problems": len(problems)}
    kept = [row for row in load(HERE / "noise.csv") if row["policy"] != who["policy"]]
    write(HERE / "noise.csv", [*kept, *(who | row for row in rows)])


if __name__ == "__main__":
    main()
