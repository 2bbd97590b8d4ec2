"""Does a wide N win where prompts are dear? Predicted by --preflight, then trained: docs/which_n.md.

    python -m evidence.price make --smollm FOLDER       models and problems; FOLDER is of `python -m evidence.smollm`
    python -m evidence.price predict                    --preflight in each world: price_predicted.csv
    python -m evidence.price run tiny-short tiny-long   the arms, minutes each; a finished arm is left alone
    python -m evidence.price collect                    price.csv from the runs
    python -m evidence.price                            the tables and price.png from both CSVs

A world is a model, prompts, and a rule that every token of a free answer has a share in:

    tiny-short, tiny-long       a Llama of 0.1M parameters, prompts of 16 and of 512 tokens, answers of 12. A prompt is
                                digits, half of them one digit; a right answer has that digit at least twice
    smollm-short, smollm-long   SmolLM2-135M goes on from a sentence of a story, or from some 480 tokens of it, for 8
                                tokens. A prompt names one of eight letters; a right answer has at least 4, 5 or 7 of it

In a world each step of each arm takes as much processor time, by the preflight: N decides how many prompts B it has.
All arms take equally many steps, of one update, at one of several learning rates. The run `along` measures V_w / V_b
while it trains; a second `predict` adds that to the prediction.

The committed rows differ. The tiny preflights were timed by the clock on the wall. smollm-long has N = 16 at 6e-5 too,
and N = 64 at 3.4e-4 in place of the two highest rates; its first arms drew up to 30 times B prompts a step, not 8, and
N = 16 at 9.6e-4 with seed 0 ended after step 6. smollm-short has one seed, at 4.8e-4, N = 64 at 3.4e-4 too.
"""

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from evidence.draw import panels, save
from evidence.rows import EVIDENCE, ROOT, at, by, load, write
from evidence.statistics import interval, shown
from evidence.tables import header, line, measured_ratio
from trainer.noise import noise_at_equal_cost

OUT = ROOT / "runs" / "price"
PREDICTED, FOUND, PICTURE = (EVIDENCE / name for name in ("price_predicted.csv", "price.csv", "price.png"))


class World(NamedTuple):
    """What is trained. Every step takes as long as one of `b` prompts with max(sizes) rollouts."""

    about: str
    sizes: tuple[int, ...]
    b: int
    steps: int
    rates: tuple[float, ...]
    along: float  # the rate of the run `along`
    seeds: int  # of each N at its best rate
    flags: dict[str, Any]


ANSWER, DIGITS = 12, "0123456789"  # of the tiny policy: tokens of an answer, digits to be asked for
SAME = {
    "mini_batches": "prompts", "updates_per_step": 1, "kl_coef": 0, "refill": 30, "round_confidence": 0.5,
    "eval_temperature": 1, "eval_top_p": 1,
}  # fmt: skip
TINY = SAME | {"max_response_tokens": ANSWER, "eval_max_response_tokens": ANSWER, "eval_samples": 32, "eval_every": 6}
LOOK = {"tiny": {"preflight_prompts": 256}, "smollm": {"preflight_prompts": 24}}  # flags of the preflight
NOISE_EVERY = {"tiny": 1, "smollm": 3}  # steps of `along`
REAL = SAME | {"max_response_tokens": 8, "eval_max_response_tokens": 8, "eval_samples": 16, "eval_every": 2,
               "refill": 8, "max_tokens_per_micro_batch": 4096}  # fmt: skip
REAL_RATES = (1.2e-4, 2.4e-4, 4.8e-4, 9.6e-4)
WORLDS = {
    "tiny-short": World("16 tokens", (4, 16, 64, 256, 512), 1, 36, (1e-3, 2e-3, 5e-3, 1e-2), 2e-3, 5, TINY),
    "tiny-long": World("512 tokens", (4, 16, 64, 256, 512), 1, 36, (1e-3, 2e-3, 5e-3, 1e-2), 2e-3, 5, TINY),
    "smollm-short": World("30 tokens", (16, 64, 512), 1, 8, REAL_RATES, 1.2e-4, 3, REAL),
    "smollm-long": World("480 tokens", (16, 64, 512), 1, 8, REAL_RATES, 1.2e-4, 3, REAL),
}

NOUNS = """
ship baker forest king dog teacher river clock farmer garden doctor bridge cat soldier church mill sailor tree house
judge train mother horse singer village tower fisherman wolf bell writer castle father road nurse harbour shepherd
library hunter island painter boat priest market giant school queen barber bird hotel captain witch well carpenter
street monk museum tailor mountain thief theatre pilot lamp butcher kitchen
""".split()  # noqa: SIM905
HELD_OUT = 24  # stories
LETTERS = {"a": 5, "e": 7, "i": 5, "n": 5, "o": 5, "r": 4, "s": 5, "t": 5}  # at least so many of each

# Other programs beside it do not change the seconds that --preflight measures.
PROCESSOR_TIME = "import time; time.perf_counter = time.process_time; import train; train.main()"

# ------------------------------------------------------------------------------------------------------ the worlds


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_tiny(out: Path, tokens: int) -> None:
    """A policy that writes characters at random, and problems whose prompts have so many tokens."""
    from tiny.make import CHARACTERS, make_policy, make_tokenizer

    torch.manual_seed(0)
    rng, tokenizer = random.Random(0), make_tokenizer()
    policy = make_policy(tokenizer)

    def prompt(digit: str) -> str:
        return "".join(digit if rng.random() < 0.5 else rng.choice("0123456789") for _ in range(tokens - 1)) + "="

    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for _ in range(150):  # it learns to write any character but EOS
        texts = [prompt(rng.choice(DIGITS)) + "".join(rng.choices(CHARACTERS, k=ANSWER)) for _ in range(16)]
        ids = torch.tensor(tokenizer(texts).input_ids)
        logits = policy(input_ids=ids[:, :-1]).logits[:, tokens - 1 :]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, tokens:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{out.name}: cross entropy {loss:.3f}, of uniform characters {np.log(len(CHARACTERS)):.3f}")
    policy.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    for name, count in (("train", 16384), ("test", 100)):
        digits = [DIGITS[i % len(DIGITS)] for i in range(count)]
        write_rows(out / f"{name}.jsonl", [
            {"prompt": prompt(digit), "kind": "ifeval", "reference": letters(digit, 2)}
            for digit in digits
        ])  # fmt: skip


def write_stories(smollm: Path) -> list[str]:
    """Beginnings of stories by the model, three of each noun; some end early. 16 minutes of a core, kept in a file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rollout import TorchEngine

    path = OUT / "stories.json"
    if not path.exists():
        model, tokenizer = AutoModelForCausalLM.from_pretrained(smollm), AutoTokenizer.from_pretrained(smollm)
        prompts = [tokenizer(f"Here is the story of the {noun}.\n\nOnce upon a time").input_ids for noun in NOUNS]
        groups = TorchEngine(model, memory_gib=8).generate(
            prompts, 3, max_new_tokens=520, temperature=0.9, top_p=0.95, seed=0
        )
        whole = [
            str(tokenizer.decode(x, skip_special_tokens=True))
            for group in groups
            for x in group.responses
            if len(x) >= 500
        ]
        texts = [str(tokenizer.decode(tokenizer("Once upon a time" + text).input_ids[:480])) for text in whole]
        path.write_text(json.dumps(["".join(re.findall(r"[^.!?]*[.!?]+", text)) for text in texts], indent=1))
    return json.loads(path.read_text())


def make_smollm(out: Path, smollm: Path, long: bool) -> None:
    """The model, and stories, or their last sentences, before the words that an answer continues.

    Each held-out story asks for one letter, each other story for every letter.
    """
    stories = write_stories(smollm)

    def problem(story: str, letter: str) -> dict:
        text = story if long else re.findall(r"[^.!?]+[.!?]+", story)[-1].strip()
        asked = f"{text}\n\nThe moral of the story, with many letters {letter}, is that"
        return {"prompt": asked, "kind": "ifeval", "reference": letters(letter, LETTERS[letter])}

    (out / "model").symlink_to(smollm.resolve(), target_is_directory=True)
    held_out = zip(stories[-HELD_OUT:], itertools.cycle(LETTERS))  # it ends with the stories
    write_rows(out / "test.jsonl", [problem(story, letter) for story, letter in held_out])
    trained = itertools.product(LETTERS, stories[:-HELD_OUT])
    write_rows(out / "train.jsonl", [problem(story, letter) for letter, story in trained])


def letters(letter: str, count: int) -> dict[str, Any]:
    """The reference of an answer that must have a letter so often."""
    arguments = {"letter": letter, "let_frequency": count, "let_relation": "at least"}
    return {"instruction_id_list": ["keywords:letter_frequency"], "kwargs": [arguments]}


def make(world: str, smollm: Path) -> None:
    """The world's folder: model/, train.jsonl, test.jsonl. One that is there is left alone."""
    folder = OUT / world
    if (folder / "test.jsonl").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if world.startswith("tiny"):
        make_tiny(folder, {"tiny-short": 16, "tiny-long": 512}[world])
    else:
        make_smollm(folder, smollm, world == "smollm-long")


# --------------------------------------------------------------------------------------------- predict, then train


def train(world: str, name: str, **settings) -> Path:
    """An arm of a world, or its preflight; its folder."""
    here = OUT / world
    files = {"model": here / "model", "data": here / "train.jsonl", "eval_data": here / "test.jsonl"}
    return run_alone(here, name, files | WORLDS[world].flags | settings)


def run_alone(here: Path, name: str, settings: dict[str, Any]) -> Path:
    """One run of train.py, on one core; its folder. A finished one is left alone, an unfinished one goes on."""
    folder = here / name
    if (folder / "model").exists() or (folder / "preflight.json").exists():
        return folder
    settings = {"output_dir": here, "name": name} | settings
    flags = [str(x) for key, value in settings.items() for x in (f"--{key}", value)]
    resume = ["--resume"] * (folder / "metrics.jsonl").exists()
    with (here / f"{name}.log").open("a") as log:
        subprocess.run([sys.executable, "-c", PROCESSOR_TIME, *flags, *resume], cwd=ROOT, stdout=log, stderr=log,
                       env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)  # fmt: skip
    print(f"{here.name} {name} finished", flush=True)
    return folder


def predict(world: str) -> list[dict]:
    """A row for each N: prompts of a step, noise at equal samples and at equal time, by --preflight.

    The same with V_w / V_b along a run of a middle N, once that is finished. Until then that of the start.
    """
    sizes, b = WORLDS[world].sizes, WORLDS[world].b
    folder = train(world, "preflight", preflight=True, rollouts_per_prompt=max(sizes), prompts_per_step=b,
                   **LOOK[world.partition("-")[0]])  # fmt: skip
    found = json.loads((folder / "preflight.json").read_text())
    table = {row["n"]: row for row in found["table"]}
    looks = [row for row in lines(OUT / world / "along" / "metrics.jsonl") if "noise/within" in row]
    within, between = (sum(row[f"noise/{part}"] for row in looks) for part in ("within", "between"))
    ratios = {"start": found["ratio"]["value"] or found["ratio"]["low"]}
    ratios["along"] = within / between if between > 0 else ratios["start"]
    rows = []
    for n in sizes:
        row = {"world": world, "N": n, "B": max(1, round(table[n]["b"])), "kept": table[n]["kept"],
               "seconds_of_a_prompt": table[n]["seconds"], "prompt_cost": found["prompt_cost"],
               **{f"ratio_{end}": found["ratio"][end] for end in ("low", "high")}}  # fmt: skip
        for when, ratio in ratios.items():
            each = 1 + ratio / (n - 1)  # of a prompt, in V_b
            row |= {f"ratio_{when}": ratio, f"noise_samples_{when}": each * n,
                    f"noise_time_{when}": each * table[n]["seconds"]}  # fmt: skip
        rows.append(row)
    for name in [name for name in rows[0] if name.startswith("noise")]:
        least = min(row[name] for row in rows)
        rows = [row | {name: row[name] / least} for row in rows]
    return rows


def run(world: str) -> None:
    """Every N at every rate with seed 0; then N at its best rate with the other seeds."""
    prompts = {row["N"]: row["B"] for row in load(PREDICTED) if row["world"] == world}
    todo = WORLDS[world]

    def arm(n: int, rate: float, seed: int, **more) -> Path:
        return train(world, f"n{n}-lr{rate:g}-seed{seed}", rollouts_per_prompt=n, prompts_per_step=prompts[n],
                     learning_rate=rate, seed=seed, max_steps=todo.steps, **more)  # fmt: skip

    n, rate = middle(world)
    train(world, "along", rollouts_per_prompt=n, prompts_per_step=prompts[n], learning_rate=rate,
          max_steps=todo.steps, log_noise=NOISE_EVERY[world.partition("-")[0]])  # fmt: skip
    for rate, n in itertools.product(todo.rates, todo.sizes):
        if (n, rate) != middle(world):
            arm(n, rate, 0)
    for seed in range(1, todo.seeds):
        for n in todo.sizes:
            arm(n, best_rate([row for row in rows_of(world) if row["N"] == n]), seed)


def middle(world: str) -> tuple[int, float]:
    """N and rate of the run `along`, which is also the arm of this N and rate, with seed 0."""
    sizes = WORLDS[world].sizes
    return sizes[len(sizes) // 2], WORLDS[world].along


def lines(path: Path) -> list[dict]:
    """[] where it is not there."""
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def rows_of(world: str) -> Iterator[dict]:
    """Every evaluation of every finished arm, with the samples and the processor seconds spent up to it."""
    for model in sorted((OUT / world).glob("*/model")):
        folder, name = model.parent, re.fullmatch(r"n(\d+)-lr(.+)-seed(\d+)", model.parent.name)
        n, rate, seed = (int(name[1]), float(name[2]), int(name[3])) if name else (*middle(world), 0)
        if not name and (OUT / world / f"n{n}-lr{rate:g}-seed{seed}").exists():
            continue
        seconds = [row["cpu_seconds"] - row.get("noise", 0.0) for row in lines(folder / "timing.jsonl") if row["step"]]
        spent = np.cumsum([0.0, *seconds])
        for row in lines(folder / "metrics.jsonl"):
            if "eval/pass@1" not in row:
                continue
            yield {"world": world, "N": n, "rate": rate, "seed": seed, "step": row["step"], "samples": row["samples"],
                   "cpu_seconds": float(spent[row["step"]]), "pass@1": row["eval/pass@1"],
                   "pass@16": row["eval/pass@16"]}  # fmt: skip


def best_rate(rows: list[dict]) -> float:
    """The rate of the highest pass@1 at the end, with seed 0; where that is level, at the evaluation before it."""
    arms = by([row for row in rows if row["seed"] == 0], "rate")
    return max(arms.values(), key=lambda arm: [row["pass@1"] for row in reversed(arm)])[0]["rate"]


# ---------------------------------------------------------------------------------------- predicted beside found


class Result(NamedTuple):
    """An N of a world at its best rate. Scores: of each seed, where all arms have spent as much."""

    n: int
    rate: float
    at_time: list[float]
    at_samples: list[float]
    breadth: list[float]  # pass@16 at equal time
    predicted: dict  # the row of price_predicted.csv


def results(world: str, rows: list[dict], predicted: list[dict]) -> tuple[list[Result], dict[str, float]]:
    """Every N that was run; and what all of its arms have spent at least: processor seconds, samples."""
    rows = [row for row in rows if row["world"] == world]
    rates = {n: best_rate(of_n) for (n,), of_n in by(rows, "N").items()}
    arms = {n: list(by([row for row in rows if (row["N"], row["rate"]) == (n, rate)], "seed").values())
            for n, rate in rates.items()}  # fmt: skip
    spent = {axis: min(run[-1][axis] for runs in arms.values() for run in runs) for axis in ("cpu_seconds", "samples")}

    def scores(n: int, axis: str, name: str = "pass@1") -> list[float]:
        return [at(run, axis, spent[axis], name) for run in arms[n]]

    found = [
        Result(row["N"], rates[row["N"]], scores(row["N"], "cpu_seconds"), scores(row["N"], "samples"),
               scores(row["N"], "cpu_seconds", "pass@16"), row)
        for row in predicted if row["world"] == world and row["N"] in rates
    ]  # fmt: skip
    return found, spent


def tables(rows: list[dict], predicted: list[dict]) -> None:
    for world in dict.fromkeys(row["world"] for row in rows):
        found, spent = results(world, rows, predicted)
        one = found[0].predicted
        print(f"\n{world}: prompts of {WORLDS[world].about}. A prompt costs {one['prompt_cost']:.0f} rollouts, "
              f"V_w / V_b is {one['ratio_start']:.0f} at the start, {one['ratio_along']:.0f} along a run. Equal time: "
              f"{spent['cpu_seconds']:.0f} s, equal samples: {spent['samples']:,.0f}\n")  # fmt: skip
        header("N", "B", "best rate", "seeds", "noise at equal time: start", "along", "pass@1", "pass@16",
               "noise at equal samples: along", "pass@1")  # fmt: skip
        for x in found:
            noise = [f"{x.predicted[f'noise_{y}']:.2f}" for y in ("time_start", "time_along", "samples_along")]
            line(x.n, x.predicted["B"], f"{x.rate:g}", len(x.at_time), *noise[:2], shown(x.at_time, ".3f"),
                 shown(x.breadth, ".3f"), noise[2], shown(x.at_samples, ".3f"))  # fmt: skip


def picture(rows: list[dict], predicted: list[dict]) -> None:
    """Noise predicted, over the least of the world; the rise of the score, over the largest of the world."""
    figure, ((time, samples),) = panels(1, 2, 12, 4.8)
    styles = zip(WORLDS, ("tab:blue", "tab:red", "tab:cyan", "tab:orange"), "osDv", strict=True)
    for world, color, marker in styles:
        if not (own := [row for row in rows if row["world"] == world]):
            continue
        found, start = results(world, rows, predicted)[0], own[0]["pass@1"]
        for axis, by_what in ((time, "time"), (samples, "samples")):
            scores = [getattr(x, f"at_{by_what}") for x in found]
            most = max(fmean(x) for x in scores) - start
            noise = [x.predicted[f"noise_{by_what}_along"] for x in found]
            rise = [[(y - start) / most for y in x] for x in scores]
            error = [interval(x)[1] if len(x) > 2 else 0.0 for x in rise]
            label = f"{world} (a prompt costs {found[0].predicted['prompt_cost']:.0f} rollouts)"
            axis.errorbar(noise, [fmean(x) for x in rise], error, fmt=marker, color=color, label=label, capsize=2)
            for x, place, y in zip(found, noise, rise, strict=True):
                axis.annotate(f" {x.n}", (place, fmean(y)), color=color, fontsize=9)
    countdown(samples)
    for axis, by_what in ((time, "time"), (samples, "samples")):
        axis.set(xscale="log", xlabel="noise of a step, predicted, over the least of the world",
                 ylabel="rise of pass@1, over the largest of the world", title=f"at equal {by_what}")  # fmt: skip
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    save(figure, PICTURE, "Less noise predicted, more learned? A point is an N, its number beside it")


def countdown(axis) -> None:
    """law.csv: the embedded policy, each N at its best rate."""
    rows = load(EVIDENCE / "law.csv")
    ratio, start = measured_ratio(rows), 0.192
    best = {n: max(fmean(r["q_pos"] for r in x) for x in by(of_n, "rate").values()) - start
            for (n,), of_n in by(rows, "N").items()}  # fmt: skip
    noise = {n: noise_at_equal_cost(n, ratio) for n in best}
    places = [noise[n] / min(noise.values()) for n in best]
    rise = [x / max(best.values()) for x in best.values()]
    axis.plot(places, rise, "k^", label="countdown, the embedded policy")
    for n, x, y in zip(best, places, rise, strict=True):
        axis.annotate(f" {n}", (x, y), fontsize=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("make", "predict", "run", "collect", "draw"), default="draw")
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; none: all")
    parser.add_argument("--smollm", type=Path, default=Path("smollm"), help="of make: the folder of the real model")
    args = parser.parse_args()
    worlds = args.worlds or list(WORLDS)
    for world in worlds:
        if args.what == "make":
            make(world, args.smollm)
        elif args.what == "run":
            run(world)
    if args.what == "predict":
        rows = [row for row in (load(PREDICTED) if PREDICTED.exists() else []) if row["world"] not in worlds]
        write(PREDICTED, rows + [row for world in worlds for row in predict(world)])
    elif args.what == "collect":
        write(FOUND, [row for world in WORLDS for row in rows_of(world)])
    elif args.what == "draw":
        rows, predicted = load(FOUND), load(PREDICTED)
        tables(rows, predicted)
        picture(rows, predicted)


if __name__ == "__main__":
    main()
