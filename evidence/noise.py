"""--log_noise against enumeration: V_w and V_b of the tiny world (docs/which_n.md). Adds to noise.csv.

    python -m evidence.noise                                     the embedded policy, 128 held-out problems
    python -m evidence.noise --model runs/brorl-seed0/model      another one

Exact: g_x = ∇p_x = Σ_y π(y) ∇log π(y) over all correct answers y, each by its own backward pass (tiny/exact.py has the
answers), and V_w,x = (1 - p)² Σ_y π(y) |∇log π(y)|² + p² E|∇log π|² over wrong responses - |g_x|². Wrong responses are
too many to write down, so their part is a mean over DRAWN of them a problem; p² makes it small.
Estimated: what --log_noise logs in the first step of a run that rolls out the same problems N times, all looked at.
"""

import argparse
import json
import tempfile
from pathlib import Path
from unittest import mock

import torch
from accelerate import Accelerator
from torch import Tensor

import train
from evidence.rows import EVIDENCE, ROOT, load, write
from rollout import TorchEngine
from tiny import exact
from trainer import noise
from verify import load_data

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


def estimated(model: str, problems: Path, count: int, n: int, seed: int) -> dict[str, float]:
    """What --log_noise logs of a step that draws N rollouts of each of these problems."""
    with tempfile.TemporaryDirectory() as out, mock.patch.object(noise, "PROMPTS", count):
        config = train.Config(
            model=model, data=[str(problems)], eval_data=[str(problems)], output_dir=out, name="look", seed=seed,
            rollouts_per_prompt=n, prompts_per_step=count, refill=1, temperature=1.0, max_steps=1, log_noise=1,
            eval_every=0, eval_samples=1,
        )  # fmt: skip
        accelerator = Accelerator(cpu=True)
        train.train(config, accelerator, train.set_up(config, accelerator))
        row = json.loads(Path(out, "look", "metrics.jsonl").read_text().splitlines()[1])
        return {name: row[f"noise/{name}"] for name in noise.Variances._fields}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny/policy")
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[16, 512])
    parser.add_argument("--repeats", type=int, default=8, help="estimates of each N (default: 8)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        some = Path(folder, "some.jsonl")
        some.write_text("".join((ROOT / "tiny/test.jsonl").read_text().splitlines(keepends=True)[: args.problems]))
        policy, tokenizer = exact.load_policy(args.model)
        rows: list[dict] = [
            {"how": "enumerated", "N": ""} | enumerated(policy, tokenizer, load_data([str(some)]))._asdict()
        ]
        for n in args.rollouts:
            looks = [estimated(args.model, some, args.problems, n, seed) for seed in range(args.repeats)]
            rows += [{"how": "estimated", "N": n} | look for look in looks]
    who = {"policy": args.model, "problems": args.problems}
    kept = [row for row in load(EVIDENCE / "noise.csv") if row["policy"] != args.model]
    write(EVIDENCE / "noise.csv", [*kept, *(who | row for row in rows)])


if __name__ == "__main__":
    main()
