"""--objective: the name of an objective, or FILE.py:NAME, and values for its parameters."""

from __future__ import annotations

import runpy
from pathlib import Path

import loss as L

VARIANTS = Path(__file__).resolve().parent.parent / "lab" / "variants.py"


def load_objective(words: list[str]) -> tuple[L.Objective, str]:
    """Return the objective that --objective names, and the file that defines it.

    words: NAME of loss.py or lab/variants.py, or FILE.py:NAME of a file with OBJECTIVES = {NAME: Objective(...)}; then
    PARAMETER=VALUE. Raises ValueError or OSError with a sentence.
    """
    spec, *values = words
    file, _, name = spec.rpartition(":")
    path = Path(file or (L.__file__ if name in L.OBJECTIVES else VARIANTS))
    found = L.OBJECTIVES if path == Path(L.__file__) else runpy.run_path(str(path)).get("OBJECTIVES", {})
    if name not in found:
        known = [*found] if file else [*L.OBJECTIVES, *found]
        raise ValueError(f"{spec}: there is no such objective; {path.name} has {', '.join(known) or 'no OBJECTIVES'}")
    try:
        pairs = [value.partition("=") for value in values]
        return found[name].having(**{parameter: float(x) for parameter, _, x in pairs}), str(path)
    except ValueError as mistake:
        raise ValueError(f"{spec} {' '.join(values)}: {mistake}; values have the form PARAMETER=NUMBER") from None
