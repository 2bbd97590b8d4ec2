"""Does tools/step_cost.py predict the seconds of a step? Predicted and measured, for prompts of several lengths.

    python -m tools.check_seconds OUT.csv                         the embedded policy, a few minutes
    python -m tools.check_seconds OUT.csv --smollm smollm         SmolLM2 (a folder of tools.smollm) too, under an hour

A case takes N = 4, 16, 64 and 256 with B = 8. train.py makes a step of each N at a learning rate of 1e-12. The embedded
policy makes three, and the last one counts. Then the rates are measured as tools.which_n does, with groups of at most
64 rollouts. They predict the seconds of each step from the numbers of its rounds and of the prompts that it drew and
kept. Use an idle machine. A case that OUT.csv has is left out.

The prompts of most cases are digits. A response is right if the sum of its character codes is a multiple of 4, so most
groups have right and wrong responses. smollm, 114 tokens: the task of docs/real_model.md.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tools.runs import append, rows_of
from tools.which_n import Sample
from trainer.settings import read_settings
from trainer.start import set_up, start_accelerator

ROOT = Path(__file__).resolve().parent.parent
SIZES = (4, 16, 64, 256)  # N
MINUTES = 4.0  # for the rates
EMBEDDED, SMOLLM = (9, 124), (30, 114, 499)  # tokens of a prompt
REWARD = "KINDS = {'lottery': lambda response, reference: sum(map(ord, response)) % 4 == 0}\n"
LAPS = {"roll_out": ("roll_out", "judge"), "score": ("score",), "update": ("update",)}  # of timing.jsonl: stages
COLUMNS = (
    "model", "prompt_tokens", "n", "drawn", "kept", "rounds",
    "roll_out_predicted", "roll_out_measured", "score_predicted", "score_measured", "update_predicted",
    "update_measured", "predicted", "measured", "ratio", "minutes",
)  # fmt: skip


def flags_of(model: str, tokens: int, folder: Path) -> list[str]:
    """The settings of a case. Writes its problems."""
    flags = ["--prompts_per_step=8", "--learning_rate=1e-12", f"--output_dir={folder}", "--eval_problems=1"]
    flags += ["--eval_samples=1", "--eval_every=1000", "--save_every=1000"]
    if model != "embedded":
        flags += [f"--model={model}", "--max_tokens_per_micro_batch=4096", "--updates_per_step=4"]
        flags += ["--max_response_tokens=12", "--eval_max_response_tokens=12"]
    if (model, tokens) == ("embedded", 9):
        return flags
    if tokens == 114:
        return [*flags, f"--data={model}/largest.jsonl", f"--eval_data={model}/largest_test.jsonl"]
    rng = random.Random(0)
    prompts = ["".join(rng.choices("0123456789", k=tokens)) for _ in range(256)]
    rows = [json.dumps({"prompt": prompt, "kind": "lottery", "reference": ""}) + "\n" for prompt in prompts]
    (folder / "digits.jsonl").write_text("".join(rows))
    (folder / "rewards.py").write_text(REWARD)
    return [
        *flags,
        f"--data={folder}/digits.jsonl",
        f"--eval_data={folder}/digits.jsonl",
        f"--rewards={folder}/rewards.py",
    ]


def measured(flags: list[str], n: int, folder: Path) -> dict[str, float] | None:
    """Make steps with train.py. Returns the seconds of the last one, and its rounds, drawn and kept prompts.

    None, with a message, if train.py fails: a large N can need more memory than the machine has.
    """
    steps = 1 if any(flag.startswith("--model=") for flag in flags) else 3  # a fast first step is not typical
    command = [sys.executable, "train.py", *flags, f"--rollouts_per_prompt={n}", f"--max_steps={steps}", f"--name=n{n}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"N = {n} is left out: train.py ended with {done.returncode}\n{done.stderr[-3000:]}", file=sys.stderr)
        return None
    metrics, timing = (
        json.loads((folder / f"n{n}" / name).read_text().splitlines()[-1]) for name in ("metrics.jsonl", "timing.jsonl")
    )
    kept = metrics["prompts"]
    if not kept:
        print(f"N = {n} is left out: its step kept no prompt, so it trained nothing", file=sys.stderr)
        return None
    counts = {"kept": kept, "drawn": round(kept / metrics["pass_rate"]), "rounds": metrics["rounds"]}
    return {lap: timing[lap] for lap in LAPS} | counts


def case(model: str, tokens: int) -> list[dict[str, Any]]:
    """Measure and predict a case. Returns a row per N."""
    name = Path(model).name
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        flags = flags_of(model, tokens, folder)
        steps = {n: measured(flags, n, folder) for n in tqdm(SIZES, desc=f"{name}, {tokens} tokens")}
        own = argparse.Namespace(began=time.perf_counter(), max_minutes=MINUTES, sample_prompts=32)
        config, sources = read_settings("", [*flags, "--name=rates"], any_size=True)
        accelerator = start_accelerator(config)
        with redirect_stdout(StringIO()):
            setup = set_up(config, accelerator, sources)
        sample = Sample(config, accelerator, setup, own)
        minutes = (time.perf_counter() - own.began) / 60
        cost = sample.cost()
        setup.close(accelerator)
    rows = []
    for n, step in steps.items():
        if step is None:
            continue
        found = cost.seconds(n, step["drawn"], step["kept"], step["rounds"])
        predicted = {lap: sum(found[stage] for stage in stages) for lap, stages in LAPS.items()}
        seconds = {"predicted": sum(predicted.values()), "measured": sum(step[lap] for lap in LAPS), "minutes": minutes}
        seconds |= {f"{lap}_predicted": x for lap, x in predicted.items()} | {
            f"{lap}_measured": step[lap] for lap in LAPS
        }
        seconds |= {"ratio": seconds["predicted"] / seconds["measured"]}
        row = {"model": name, "prompt_tokens": tokens, "n": n} | {x: step[x] for x in ("drawn", "kept", "rounds")}
        rows.append(row | {column: round(x, 3) for column, x in seconds.items()})
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.csv", help="where the rows go")
    parser.add_argument("--smollm", metavar="FOLDER", help="SmolLM2, written by tools.smollm")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "TOKENS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        model, tokens = given.one
        print("\n" + json.dumps(case(model, int(tokens))))
        return
    cases = [("embedded", tokens) for tokens in EMBEDDED]
    cases += [(str(Path(given.smollm).resolve()), tokens) for tokens in SMOLLM] if given.smollm else []
    done = {(row["model"], int(row["prompt_tokens"])) for row in rows_of(given.out)}
    for model, tokens in cases:
        if (Path(model).name, tokens) in done:
            continue
        command = [sys.executable, "-m", "tools.check_seconds", str(given.out), "--one", model, str(tokens)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        rows = json.loads(printed.splitlines()[-1])
        append(given.out, COLUMNS, rows)
        for row in rows:
            seconds = f"{row['predicted']} s predicted, {row['measured']} s measured"
            print(f"{row['model']}, {tokens} tokens, N = {row['n']}: {seconds}")


if __name__ == "__main__":
    main()
