"""Theorem 1 on a policy: its sum beside the exact change of Q_pos and a null, and the coupling by each guess."""

import csv
import math
from pathlib import Path

import numpy as np
from scipy import stats

from evidence.report import LOOKS, header, line, look, panels, save
from evidence.runs import ARMS, found, load, numbers, write

TERMS = ("sampled_correct", "sampled_incorrect", "unsampled_coupling")
PLACES = ("first_token", "tree")
RESAMPLED = 1000  # times, for an interval
NULL = "q(1-q)"  # how much a prompt can change: knows no theorem


def probed(folder: Path) -> list[dict]:
    """The rows that exact_probe.py wrote, a row a group."""
    return [numbers(row) for row in csv.DictReader((folder / "mass_balance.csv").open())]


def theorem1(out: Path | None, here: Path) -> None:
    """theorem1.csv, .png, theorem1_null.csv: Theorem 1's sum beside the exact change, and beside it the null q(1-q)."""
    table = load(here / "theorem1.csv") if not out else []
    for (_, arm, where), folder in found(out, "theorem-*-*"):
        table += [{"arm": arm, "from": where} | {k: float(v) for k, v in row.items()} for row in probed(folder)]
    if not table:
        return
    for row in table:  # a CSV may have them already
        row.setdefault(NULL, row["q_pos"] * (1 - row["q_pos"]))
        for place in PLACES:
            row.setdefault(f"{place}/total", sum(row[f"{place}/{x}"] for x in TERMS))
    write(here / "theorem1.csv", table)
    print()
    header("from", "N", "groups", "mean ΔQ_pos, exact", "estimated", "Q_pos rose", "predicted by", "sign right",
           "right where it rose / fell", "rank correlation (95%, over steps)", "of q(1-q)",
           "of the sum, given q(1-q)", "coupling of all terms")  # fmt: skip
    kinds = sorted({(r["from"], r["arm"]) for r in table}, key=lambda x: (x[0] != "start", x[1] != "prorl"))
    figure, axes = panels(1, len(kinds), 4.2 * len(kinds), 4, sharex=True, sharey=True)
    summary = []
    for axis, (where, arm) in zip(axes[0], kinds, strict=True):
        rows = [r for r in table if (r["from"], r["arm"]) == (where, arm)]
        ranks = {place: correlations(rows, place) for place in PLACES}
        for place, rank in ranks.items():
            print_row(where, arm, rows, place, rank)
            who = {"from": where, "arm": arm, "predicted_by": place, "groups": len(rows)}
            ends = {f"{k}{end}": x for k, v in rank.items() for end, x in zip(("", "_low", "_high"), v, strict=True)}
            summary.append(who | ends)
        draw(axis, where, arm, rows, said(ranks["tree"]["rank_correlation"]))
    write(here / "theorem1_null.csv", summary)
    save(figure, here / "theorem1.png")


def column(rows: list[dict], name: str) -> np.ndarray:
    return np.array([r[name] for r in rows])


def correlations(rows: list[dict], place: str) -> dict[str, tuple[float, float, float]]:
    """With the exact change: the theorem's sum, the null, and the sum freed of the null; each with its interval."""
    steps, total, change, null = (column(rows, name) for name in ("step", f"{place}/total", "change", NULL))
    return {
        "rank_correlation": interval_over_steps(steps, spearman, total, change),
        "of_q(1-q)": interval_over_steps(steps, spearman, null, change),
        "given_q(1-q)": interval_over_steps(steps, partial, total, change, null),
    }


def print_row(where: str, arm: str, rows: list[dict], place: str, rank: dict) -> None:
    change, total = column(rows, "change"), column(rows, f"{place}/total")
    rose = change > 0
    right = (total > 0) == rose
    terms = np.abs([[r[f"{place}/{x}"] for x in TERMS] for r in rows])
    line(where, n_of(arm), len(rows), f"{change.mean():+.4f}", f"{column(rows, 'estimated_change').mean():+.4f}",
         f"{rose.mean():.1%}", place.replace("_", " "), f"{right.mean():.1%}",
         f"{right[rose].mean():.0%} / {right[~rose].mean():.0%}", *map(said, rank.values()),
         f"{terms[:, 2].sum() / terms.sum():.1%}")  # fmt: skip


def n_of(arm: str) -> str:
    return ARMS[arm].split(",")[0].removeprefix("N = ")


def draw(axis, where: str, arm: str, rows: list[dict], rank: str) -> None:
    change = column(rows, "change")
    axis.scatter(column(rows, "tree/total"), change, s=4, alpha=0.4, color=look(*LOOKS[arm])["color"])
    axis.axhline(0, color="gray", lw=0.8)
    axis.axvline(0, color="gray", lw=0.8)
    title = f"N = {n_of(arm)}, from the {where}" + " policy" * (where == "saturated")
    axis.set(
        title=f"{title}\nrank correlation {rank}; of q(1-q): {spearman(column(rows, NULL), change):.2f}",
        xlabel="Theorem 1 along the tree (without η/N)",
        ylabel="ΔQ_pos of the step, exact",
    )
    axis.title.set_fontsize(9)
    axis.set_xscale("symlog", linthresh=1e-4)
    axis.set_yscale("symlog", linthresh=1e-3)
    axis.set_xticks([-0.01, -0.001, 0, 0.001, 0.01, 0.1])


def coupling(out: Path | None, here: Path) -> None:
    """coupling.csv: how far each guess at undrawn tokens takes the unsampled coupling from its exact value."""
    table = load(here / "coupling.csv") if not out else []
    for (_, arm, where), folder in found(out, "theorem-*-*"):
        rows = probed(folder)
        for place, guess in [name.split("/") for name in rows[0] if "/coupling_undrawn_" in name]:
            exactly, guessed = (column(rows, f"{place}/{x}") for x in ("unsampled_coupling", guess))
            table.append({"from": where, "arm": arm, "at": place, "undrawn": guess.removeprefix("coupling_undrawn_"),
                          "groups": len(rows), "exact_mean": exactly.mean(), "guessed_mean": guessed.mean(),
                          "exact_size": np.abs(exactly).mean(), "error": np.abs(guessed - exactly).mean(),
                          "negative_exact": (exactly < 0).mean(), "negative_guessed": (guessed < 0).mean(),
                          "rank_correlation": spearman(guessed, exactly)})  # fmt: skip
    if not table:
        return
    table.sort(key=lambda r: (r["from"] != "start", list(ARMS).index(r["arm"])))
    write(here / "coupling.csv", table)
    print("\nthe unsampled coupling, with each guess at the value of a token that nobody drew")
    header("from", "N", "at", "undrawn", "groups", "mean, exact", "mean, guessed", "mean error / mean size",
           "negative, exact", "guessed", "rank correlation")  # fmt: skip
    for r in table:
        line(r["from"], n_of(r["arm"]), r["at"].replace("_", " "), r["undrawn"],
             r["groups"], f"{r['exact_mean']:.1e}", f"{r['guessed_mean']:.1e}", f"{r['error'] / r['exact_size']:.2f}",
             f"{r['negative_exact']:.0%}", f"{r['negative_guessed']:.0%}", f"{r['rank_correlation']:.2f}")  # fmt: skip


# ------------------------------------------------------------------------------------------------ ranks


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(stats.spearmanr(x, y).statistic)


def partial(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman's correlation of x and y that is left when both are freed of `given`, by ranks."""
    xy, xg, yg = spearman(x, y), spearman(x, given), spearman(y, given)
    return (xy - xg * yg) / math.sqrt((1 - xg**2) * (1 - yg**2))


def interval_over_steps(steps: np.ndarray, statistic, *columns: np.ndarray) -> tuple[float, float, float]:
    """The statistic, with a bootstrap interval of 95% over steps: groups of a step share its update."""
    rng, members = np.random.default_rng(0), [np.flatnonzero(steps == s) for s in np.unique(steps)]
    drawn = [np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
             for _ in range(RESAMPLED)]  # fmt: skip
    low, high = np.percentile([statistic(*(x[i] for x in columns)) for i in drawn], [2.5, 97.5])
    return statistic(*columns), float(low), float(high)


def said(rank: tuple[float, float, float]) -> str:
    return f"{rank[0]:.2f} ({rank[1]:.2f} to {rank[2]:.2f})"
