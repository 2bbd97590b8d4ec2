"""--objective: the name of an objective, or FILE.py:NAME, and values for its parameters."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

import torch

import loss as L

VARIANTS = Path(__file__).resolve().parent.parent / "lab" / "variants.py"


def load_objective(words: list[str]) -> L.Objective:
    """Return the objective that --objective names, after a try on a small example.

    words: NAME of loss.py or lab/variants.py, or FILE.py:NAME of a file with OBJECTIVES = {NAME: Objective(...)}; then
    PARAMETER=VALUE. Raises ValueError or OSError with a sentence.
    """
    spec, *values = words
    file, name = file_of(words), spec.rpartition(":")[2]
    path = Path(file or (L.__file__ if name in L.OBJECTIVES else VARIANTS))
    found = objectives_of(path)
    if name not in found:
        known = [*found] if file else [*L.OBJECTIVES, *found]
        raise ValueError(f"{spec}: there is no such objective; {path.name} has {', '.join(known) or 'no OBJECTIVES'}")
    try:
        pairs = [value.partition("=") for value in values]
        objective = found[name].having(**{parameter: float(x) for parameter, _, x in pairs})
    except ValueError as mistake:
        raise ValueError(f"{spec} {' '.join(values)}: {mistake}; values have the form PARAMETER=NUMBER") from None
    try:
        try_on_example(objective)
    except Exception as mistake:  # a user's function can fail in any way
        raise ValueError(f"{spec} fails on an example of two prompts: {type(mistake).__name__}: {mistake}") from mistake
    return objective


def file_of(words: list[str]) -> str:
    """FILE.py of FILE.py:NAME; "" for a name."""
    return words[0].rpartition(":")[0]


@cache
def objectives_of(path: Path) -> dict[str, L.Objective]:
    """The OBJECTIVES of a file, which runs once. Raises ValueError or OSError with a sentence."""
    if path == Path(L.__file__):
        return L.OBJECTIVES
    try:
        return runpy.run_path(str(path)).get("OBJECTIVES", {})
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file") from None
    except OSError:
        raise
    except Exception as mistake:
        raise ValueError(f"{path} cannot be run: {type(mistake).__name__}: {mistake}") from mistake


def try_on_example(objective: L.Objective) -> None:
    """Compute advantages and loss of an example. Raises an exception if a shape is wrong or a number is not finite."""
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 1.0, 0.0]])  # (P, N)
    advantages = objective.advantages(rewards)
    if advantages.shape != rewards.shape:
        raise ValueError(f"advantages returned the shape {tuple(advantages.shape)} for rewards of shape (2, 4)")
    logp = torch.linspace(-2.0, -0.5, 5).requires_grad_()  # (T,) of two responses
    old_logp = logp.detach()
    b = L.Tokens(logp, old_logp, old_logp - 0.01, old_logp - 0.02, torch.tensor([0.5, -0.5]), torch.tensor([2, 3]))
    shape, wanted = tuple(objective.maximise(b).shape), (2,) if objective.per_response else (5,)
    if shape != wanted:
        raise ValueError(f"maximise returned the shape {shape} for 2 responses with 5 tokens: it must be {wanted}")
    value, _ = L.policy_loss(b, tokens=5, responses=2, objective=objective, kl_coef=0.1)
    value.backward()
    if not (value.isfinite() and logp.grad is not None and logp.grad.isfinite().all()):
        raise ValueError("its loss or its gradient is not finite")
