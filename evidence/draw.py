"""The tables and pictures of docs/evidence.md, of the runs that evidence/experiments.py made.

    python -m evidence.draw                    of runs/evidence, whatever of it is finished; writes to evidence/
    python -m evidence.draw --from_csv         the same from the CSVs in evidence/, without any run
    python -m evidence.draw --only controls    some parts: figure1 ttest regimes hard table2 sweep controls
                                               objective equal_q_pos theorem1 coupling heat

    figure1.csv, .png     the arms from the saturated policy, over samples and over CPU time       figure 1, table 1
    plateau.png           the runs that saturated it, and how little of them the arms are          (of figure1.csv)
    shrinkage.png         figure 3's three panels for the arms                                     section 4.1
    equal_q_pos.csv       answers that fell, at the same Q_pos, beside a null that learns nothing
    regimes.csv           the same arms at other learning rates and batches
    heat.csv, .png        Q_pos of all these arms against η / sqrt(B)       (of regimes.csv and sweep_n.csv)
    hard.csv, .png        training on problems that the saturated policy hardly ever solves, scored on the same;
                          hard_equal_q_pos.csv: at the same Q_pos
    hard_elsewhere.csv    what that training left of the held-out problems
    table2.csv            dynamic sampling's pass rate, samples/s, correct counts, along training  table 2
    sweep_n.csv, .png     N = 16 ... 2048 with as many samples a step, and with as many prompts    appendix A
    ttest.csv             paired t-tests between the arms of figure1                               section 4.2.2
    controls.csv, .png    the arms with equal mini-batches, with the old AdamW moments, with a warm-up; null.csv, with
                          weights that moved at random
    objective.csv, .png   each --advantage with several N, from the policy of controls.csv; _start, from the embedded
                          policy; _hard, on hard problems, and objective_elsewhere.csv, what that left of the others
    theorem1.csv, .png    Theorem 1's prediction beside the change of Q_pos, a row a group, with the null q(1-q)
    coupling.csv          how far trainer/probe.py's guesses at undrawn tokens are from the exact coupling

Q_pos and pass@k are exact (tiny/exact.py). An interval is mean ± t s / sqrt(seeds), t of 97.5% with seeds - 1 degrees
of freedom: 4.3 for three seeds. Time is CPU seconds of the training process, one core, without evaluation: several runs
went on at once. "At equal time" is where the first run of a world had spent all its samples, by linear interpolation.
"At the same Q_pos" is the mean over a run's checkpoints within 0.01 of it. Crossings are of means.
Every arm starts from one saturated policy, those of controls.csv from another near its plateau: what a third would give
is not in the intervals. The compact saturating run has no CPU seconds before step 564; a t-test compares runs at their
own ends.
"""

import argparse
from pathlib import Path

from evidence.arms import figure1, t_tests
from evidence.controls import controls, equal_q_pos
from evidence.hard import hard
from evidence.heat import heat
from evidence.objective import objective
from evidence.rates import regimes
from evidence.runs import ROOT, finished
from evidence.sampling import sweep, table2
from evidence.theorem1 import coupling, theorem1

HERE, OUT = ROOT / "evidence", ROOT / "runs" / "evidence"
# Each takes the folder of the runs, or None for what the CSVs have, and the folder of the CSVs and pictures.
PARTS = {"figure1": figure1, "ttest": t_tests, "regimes": regimes, "hard": hard, "table2": table2, "sweep": sweep,
         "heat": heat, "controls": controls, "objective": objective, "equal_q_pos": equal_q_pos, "theorem1": theorem1,
         "coupling": coupling}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--runs", type=Path, default=OUT, help="what experiments.py wrote (default: runs/evidence)")
    add("--from_csv", action="store_true", help="no runs: tables and figures anew from the CSVs at --out")
    add("--only", nargs="+", choices=PARTS, default=PARTS, help="parts (default: all)")
    add("--out", type=Path, default=HERE, help="where tables and figures go (default: evidence/)")
    args = parser.parse_args()
    if args.from_csv:
        if not list(args.out.glob("*.csv")):
            parser.exit(2, f"evidence.draw: no CSVs at {args.out}: name the folder that has them with --out\n")
    elif not args.runs.is_dir():
        parser.exit(2, f"evidence.draw: no runs at {args.runs}: make them with python -m evidence.experiments, or see "
                    "what ours came to with --from_csv\n")  # fmt: skip
    elif not any(finished(args.runs, folder.name) for folder in args.runs.iterdir()):
        parser.exit(2, f"evidence.draw: no run at {args.runs} is finished: python -m evidence.experiments --list\n")
    args.out.mkdir(parents=True, exist_ok=True)
    runs = [] if args.from_csv else [folder.name for folder in sorted(args.runs.glob("*-*")) if folder.is_dir()]
    if left_out := [name for name in runs if not finished(args.runs, name)]:
        print(f"left out, not at their end or not scored yet: {', '.join(left_out)}")
    for part in args.only:
        PARTS[part](None if args.from_csv else args.runs, args.out)


if __name__ == "__main__":
    main()
