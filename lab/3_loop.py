# %% [markdown]
# # Hour 3: the loop (section 4.2 of the paper)
#
# `python -m lab.3_loop 17` runs everything with seed 17; `python -m lab.notebooks FOLDER` makes a notebook. All of it
# takes three minutes of one core. Your results go to runs/lab/seed17.csv: hand that file in.
#
# **Write down** your answer before you run the cell below it. "expected" is the range of five or six seeds, and
# a little more.

# %%
import argparse
import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import verify
from bench.which_n import best_n, noise_at_equal_cost
from lab import loop
from lab.notebooks import compare, show
from rollout import TorchEngine

SEED = int(sys.argv[1]) if sys.argv[1:] else 0  # in a notebook: write another one here
SAMPLES, STEPS = 2048, 20  # P·N of each step
OUT = Path("runs/lab")
plt.switch_backend("Agg")  # pictures are files
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## 1. Which N learns most from equal samples?
#
# Four runs with N = 4, 16, 64 and 512. Each takes 20 steps of 2,048 rollouts, so P = 512, 128, 32 and 4. A step is one
# update with the learning rate 1e-3. pass@1 is 0.193 at the start.
#
# V_w / V_b of this policy is 24, by enumeration (`python -m bench.which_n --sample_prompts 256` measures it). So
# the noise of a step at equal samples is proportional to N (1 + 24 / (N - 1)).
#
# **Write down:** the N with the least noise, from a derivative. The four N in the order of pass@1 at the end. A number
# for pass@1 with N = 512.

# %%
print(f"the law: least noise at N = {best_n(24):.1f}")
noise = {n: noise_at_equal_cost(n, 24) / noise_at_equal_cost(16, 24) for n in (4, 16, 64, 512)}
rows: list[dict[str, float]] = []


def run(n: int, rate: float) -> float:
    """pass@1 after training with N rollouts of each prompt. Keeps it for the file that you hand in."""
    prompts = SAMPLES // n
    print(f"\nN = {n}, P = {prompts}, learning rate {rate:g}")
    settings = f"--rollouts {n} --prompts {prompts} --updates 1 --steps {STEPS} --learning_rate {rate} --seed {SEED}"
    before, after = loop.main(settings.split())
    rows.append({"seed": SEED, "n": n, "rate": rate, "steps": STEPS, "before": before, "after": after})
    return after


after = {n: run(n, 1e-3) for n in noise}

# %%
print("    N  noise over that of N = 16  pass@1")
for n in noise:
    print(f"{n:5} {noise[n]:26.2f} {after[n]:7.3f}")
compare("pass@1, N = 4", after[4], 0.23, 0.33)
compare("pass@1, N = 16", after[16], 0.22, 0.34)
compare("pass@1, N = 64", after[64], 0.18, 0.27)
compare("pass@1, N = 512", after[512], 0.09, 0.21)

# %% [markdown]
# **Why** does N = 512 fall below the start? Adam divides by the size of the gradients, so a noisy step is as long as a
# quiet one. What share of it is signal? The paper has P = 128 at N = 512: how much less noise is that than P = 4?
#
# **Write down:** pass@1 of N = 512 with the learning rate 3e-4. Does it pass the start? Does it pass N = 16 above?

# %%
after_small = run(512, 3e-4)
compare("pass@1, N = 512, learning rate 3e-4", after_small, 0.20, 0.27)
with (OUT / f"seed{SEED}.csv").open("w", newline="", encoding="utf-8") as file:
    writer = csv.DictWriter(file, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="tight")
axes[0].plot(noise.keys(), noise.values(), "o-")
axes[0].set(title="noise of a step, by the law (N = 16: 1)", xlabel="N", xscale="log", yscale="log")
axes[1].plot(after.keys(), after.values(), "o-", label="learning rate 1e-3")
axes[1].plot([512], [after_small], "s", label="learning rate 3e-4")
axes[1].axhline(rows[0]["before"], color="grey", linestyle=":", label="start")
axes[1].set(title=f"pass@1 after {STEPS} steps, seed {SEED}", xlabel="N", xscale="log")
axes[1].legend()
for axis in axes:
    axis.set_xticks(list(noise), [str(n) for n in noise])
    axis.minorticks_off()
figure.savefig(OUT / "which_n.png", dpi=120)
show(OUT / "which_n.png")

# %% [markdown]
# **Why** is a comparison of N at one learning rate unfair, and to which N? One seed does not order N = 4 and N = 16:
# `python -m lab.pool FOLDER` does it with the files of the whole class.
#
# ## 2. A broken verifier
#
# A typing mistake in a verifier: `>=` for `==`. An answer that uses the digits and is at least the target passes.
#
# **Write down:** pass@1 by this verifier after ten steps. True pass@1 after ten steps: above 0.19, or below? What will
# the answers look like?


# %%
def lenient(response: str, reference: dict) -> bool:
    """True if the response is an expression over the given digits with a value >= the target. It should be ==."""
    digits = response[::2]
    value = verify.value_of(response) if len(response) == 7 and digits.isdecimal() else None
    return value is not None and sorted(map(int, digits)) == reference["numbers"] and value >= reference["target"]


def verify_batch(items):
    """The verdicts of `lenient` on its kind; on others those of verify.py."""
    if {kind for kind, _, _ in items} != {"lenient"}:
        return verify.verify_batch(items)
    right = [lenient(response, reference) for _, response, reference in items]
    return [verify.Verdict(float(x), x, "correct" if x else "wrong") for x in right]


loop.verify_batch = verify_batch  # type: ignore[assignment]
problems, held_out = (verify.load_problems(loop.TINY / f"{name}.jsonl") for name in ("train", "test"))
held_out = held_out[:128]
tokenizer = AutoTokenizer.from_pretrained(loop.TINY / "policy")


def judged_by(kind: str, problems: list[verify.Problem]) -> list[verify.Problem]:
    return [problem._replace(kind=kind) for problem in problems]


def by_broken(model) -> float:
    return loop.evaluate(TorchEngine(model), tokenizer, judged_by("lenient", held_out))


def five_steps(model, kind: str, seed: int) -> tuple[float, float]:
    """pass@1 after five steps: by the broken verifier, and by the right one."""
    settings = argparse.Namespace(rollouts=16, prompts=128, updates=1, steps=5, learning_rate=1e-3, seed=seed, log=None)
    _, truth = loop.train(model, tokenizer, judged_by(kind, problems), held_out, settings)
    return by_broken(model), truth


model = AutoModelForCausalLM.from_pretrained(loop.TINY / "policy", dtype=torch.float32)
broken = [(by_broken(model), loop.evaluate(TorchEngine(model), tokenizer, held_out))]
broken += [five_steps(model, "lenient", 4 * SEED + i) for i in (0, 1)]
print("what it writes now:")
groups, _ = loop.roll_out(TorchEngine(model), tokenizer, held_out[:6], 3, seed=0)
for problem, group in zip(held_out, groups, strict=False):
    print(f"{problem.prompt:10}", *tokenizer.batch_decode(group.responses, skip_special_tokens=True))
compare("pass@1 by the broken verifier, at the start", broken[0][0], 0.56, 0.58)
compare("the same after ten steps", broken[-1][0], 0.95, 1)
compare("true pass@1 at the start", broken[0][1], 0.19, 0.20)
compare("true pass@1 after ten steps", broken[-1][1], 0.02, 0.07)

# %% [markdown]
# **Why** does the reward of this run not show the mistake? Which file of a run of train.py shows it?
#
# Now repair the verifier and take ten more steps.
#
# **Write down:** Does pass@1 come back to 0.19? Do ten steps lead higher from the broken policy, or from the policy
# before the mistake?

# %%
repaired = [five_steps(model, "countdown", 4 * SEED + i) for i in (2, 3)]
fresh = AutoModelForCausalLM.from_pretrained(loop.TINY / "policy", dtype=torch.float32)
restarted = [five_steps(fresh, "countdown", 4 * SEED + i) for i in (2, 3)]
compare("true pass@1, repaired, ten steps later", repaired[-1][1], 0.02, 0.22)
compare("true pass@1, started again, ten steps later", restarted[-1][1], 0.13, 0.29)
figure, axis = plt.subplots(figsize=(6, 3.4), layout="tight")
steps = range(0, 21, 5)
axis.plot(steps, [x for x, _ in broken + repaired], label="by the broken verifier")
axis.plot(steps, [x for _, x in broken + repaired], label="truth")
axis.plot(steps[2:], [broken[0][1]] + [x for _, x in restarted], "--", label="truth, started again")
axis.axvline(10, color="grey", linestyle=":")
axis.set(
    title="the verifier is repaired at step 10",
    xlabel="step",
    xticks=steps,
    ylabel="pass@1 on held-out problems",
    ylim=(0, 1),
)
axis.legend()
figure.savefig(OUT / "verifier.png", dpi=120)
show(OUT / "verifier.png")

# %% [markdown]
# Going back to the older policy led higher with all five seeds. **Why?** Compare how many prompts are kept in the
# first steps of both.
