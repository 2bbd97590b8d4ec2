"""sim.py's command line: its flags, what it refuses, and what it prints and writes at the end.

It imports nothing of sim.py: `parse` takes the class of its settings and its two tuples of N.
"""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from simulator import curves as report
from simulator.curves import Curves

OUT = Path("runs/sim")


def parse(argv: list[str] | None, about: str, setting: Any, figure_3: tuple, sweep: tuple) -> argparse.Namespace:
    """The flags, with a `setting` made of those that are its fields. Ends the process with a sentence if one is wrong.

    about: the head of --help. setting: a dataclass; the help of a field is in its metadata.
    """
    parser = argparse.ArgumentParser(description=about)
    for f in fields(setting):
        parser.add_argument(f"--{f.name}", type=f.type, default=f.default, help=f.metadata["help"])
    add = parser.add_argument
    ours, paper = (" ".join(map(str, x)) for x in (sweep, figure_3))
    text = f"draws in a step, one curve for each N (default: {paper}: section 4.1; with --sweep {ours}: ours)"
    add("--rollouts", type=int, nargs="+", metavar="N", help=text)
    add("--seeds", type=int, default=1, help="how many seeds, for the bands; paper silent (default: 1)")
    add("--seed", type=int, default=0, help="the first seed (default: 0)")
    add("--sweep", action="store_true", help="the second figure: equal samples, Theorem 1 and Corollary 3; ours")
    add("--samples", type=int, help="with --sweep: samples that every N draws; ours (default: those of the largest N)")
    add("--mass_balance", action="store_true", help="Theorem 1 and Corollary 3 also for Figure 3, into the CSV; ours")
    add("--csv_every", type=int, default=10, help="thins the CSV to each such step and the last (default: 10)")
    add("--out", type=Path, default=OUT, help="folder of the figure and the CSV (default: runs/sim)")
    add("--device", default="cpu", help="torch device (default: cpu)")
    text = "torch's CPU threads: a second one gains little at this size, and stalls on a busy machine (default: 1)"
    add("--threads", type=int, default=1, help=text)
    args = parser.parse_args(argv)
    args.rollouts = tuple(args.rollouts or (sweep if args.sweep else figure_3))
    try:
        args.setting = setting(**{f.name: getattr(args, f.name) for f in fields(setting)})
        check(args)
    except ValueError as error:
        parser.exit(2, f"sim.py: {error}\n")
    args.samples = args.samples or max(args.rollouts) * args.steps
    return args


def check_setting(s: Any) -> None:
    """Raises ValueError for values of sim.Setting that cannot be computed with."""
    rules = [
        (1 <= s.correct_tokens < s.vocabulary, f"correct_tokens={s.correct_tokens} of vocabulary={s.vocabulary}: "
         "choose 1 <= correct_tokens < vocabulary"),
        (s.steps >= 1, f"steps={s.steps} takes no step: use 1 or more"),
        (s.temperature > 0, f"temperature={s.temperature} gives no softmax: use a value above 0"),
    ]  # fmt: skip
    for holds, sentence in rules:
        if not holds:
            raise ValueError(sentence)


def check(args: argparse.Namespace) -> None:
    """Raises ValueError for anything that would fail later, or mislead."""
    if min(args.rollouts) < 1:
        raise ValueError(f"--rollouts has N = {min(args.rollouts)}: a step needs at least 1 draw")
    if len(set(args.rollouts)) < len(args.rollouts):
        raise ValueError(f"--rollouts {' '.join(map(str, args.rollouts))} names an N twice: name each once")
    for name in ("seeds", "csv_every", "threads", "samples"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value} is too small: use 1 or more")
    if args.samples is not None and not args.sweep:
        raise ValueError("--samples sets how far --sweep goes: add --sweep, or leave it out")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {args.out} cannot be written ({error.strerror}): name another folder") from None


def show(args: argparse.Namespace, curves: list[Curves], seconds: float) -> None:
    """Print the tables; write the picture and the CSV to --out."""
    from simulator import pictures  # here, since matplotlib takes longer to import than all else

    s, sweep = args.setting, args.sweep
    seeds = f"{args.seeds} seeds, band: least to greatest" if args.seeds > 1 else "1 seed"
    about = f"d = {s.vocabulary:,}, {s.correct_tokens:,} correct, AdamW lr {s.lr:g}, weight decay {s.weight_decay:g}"
    about = f"{about}, {seeds}"
    print(about)
    print(f"correct mass at step 0: {curves[0].values['correct_mass'][0, 0]:.4f}")
    print(report.table(curves, at_step=args.steps))
    if report.THEOREM_1[0] in curves[0].values:
        print("\nTheorem 1 as the paper states it, over η: means over the recorded steps")
        print(report.theorem_1(curves))
    if sweep:
        print("\nEqual samples: correct mass / % of the correct tokens above their start")
        print(report.table_at_equal_samples(curves, args.samples))
    picture = args.out / ("sweep.png" if sweep else "figure3.png")
    report.write_csv(picture.with_suffix(".csv"), curves, args.csv_every, dense=args.steps)
    if sweep:
        pictures.plot_sweep(picture, curves, about, args.steps, args.samples)
    else:
        pictures.plot_figure3(picture, curves, about)
    print(f"\nsimulated in {seconds:.1f} s; wrote {picture} and {picture.with_suffix('.csv')}")
