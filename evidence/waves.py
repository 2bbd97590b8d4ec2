"""What rollouts in waves cost and find: fixed N and --rollouts_per_prompt 16:512 on the training problems.

    python -m evidence.waves                                    the embedded policy
    python -m evidence.waves --model runs/evidence/near/model   one that is near its plateau

A row a scheme: rollouts a prompt, prompts with a success, prompts whose group (of waves: the last one) has both kinds,
and CPU seconds of rolling out and verifying. Prints the table and adds to waves.csv beside this file.
"""

import argparse
import math
import time
from functools import partial
from pathlib import Path

from accelerate import Accelerator

from evidence.report import header, line
from evidence.runs import load, write
from rollout import TorchEngine
from tiny import exact
from trainer.checks import TINY
from trainer.deal import Judge, roll_out
from trainer.processes import seed_of
from trainer.report import short
from trainer.waves import Wave, in_waves, waves
from verify import load_data

HERE = Path(__file__).parent
SCHEMES = {"16": (None, 16), "16:512": (16, 512), "512": (None, 512)}


def rolled(engine: TorchEngine, tokenizer, problems: list, stop: list[int], places: list[int], wave: Wave):
    """A wave of these problems, as train.py rolls it out."""
    some = [problems[place] for place in places]
    return roll_out(
        engine, Judge(tokenizer, some, {"workers": 1}), [exact.encoded(tokenizer, problem) for problem in some], wave.n,
        [seed_of(0, place) + wave.first for place in places], Accelerator(cpu=True), show=False,
        max_new_tokens=12, temperature=1.0, top_p=1.0, stop_token_ids=stop,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(TINY / "policy"))
    parser.add_argument("--problems", type=int, default=1024)
    args = parser.parse_args()
    policy, tokenizer = exact.load_policy(args.model)
    problems = load_data([str(TINY / "train.jsonl")])[: args.problems]
    stop, rows = exact.one_stop_token(tokenizer, policy.model), []
    header("scheme", "rollouts a prompt", "prompts with a success", "informative", "CPU seconds")
    for scheme, plan in SCHEMES.items():
        engine, started = TorchEngine(policy.model), time.process_time()
        mine, outcomes = in_waves(partial(rolled, engine, tokenizer, problems, stop), len(problems), waves(*plan))
        seconds, count = time.process_time() - started, len(problems)
        found, informative = (float(x.float().mean()) for x in (outcomes.correct.any(-1), outcomes.informative))
        row = {"policy": short(args.model), "problems": count, "scheme": scheme}
        row |= {"rollouts": sum(len(one.texts) for one in mine) / count, "found": found, "informative": informative}
        rows.append(row | {"cpu_seconds": seconds})
        errors = [math.sqrt(x * (1 - x) / count) for x in (found, informative)]
        shares = [f"{x:.1%} ± {e:.1%}" for x, e in zip((found, informative), errors, strict=True)]
        line(scheme, f"{rows[-1]['rollouts']:.1f}", *shares, f"{seconds:.1f}")
    write(HERE / "waves.csv", [*(r for r in load(HERE / "waves.csv") if r["policy"] != rows[0]["policy"]), *rows])


if __name__ == "__main__":
    main()
