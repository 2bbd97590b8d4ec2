"""Rollouts where they pay, --rollouts_per_prompt 16:512: a prompt is rolled out in waves until one holds a success.

    wave     1    2    3    4     5     6        they double what was drawn, up to M
    n_j     16   16   32   64   128   256        its rollouts
    m_j      0   16   32   64   128   256        rollouts of the prompt before it, all of them wrong

The wave that stops a prompt, because a rollout of it is correct or because M were drawn, is the prompt's group. The
waves before it hold no success: they count as samples and are not trained on.

Why each prompt still follows ∇p. Wave j is drawn with probability (1 - p)^{m_j}, p the chance of a correct rollout;
then it is a fresh sample of n_j, whatever was drawn before. So `loss.group_mean` on it has the weight that its
docstring has. A wave that is drawn and holds no success has A = 0, so the sum over all waves drawn is the last one's.
With A = (R - R̄) / R̄ and R̄ the mean of that wave alone,

    E[(1/n_j) Σ_τ A_τ ∇log π(τ)] = Σ_j (1 - p)^{m_j} (1 - (1 - p)^{n_j - 1}) / p ∇p = w(p) ∇p
    w(p) = [1 - (1 - p)^{M-1} - p Σ_{j>=2} (1 - p)^{m_j - 1}] / p          since m_j + n_j = m_{j+1}

It is the gradient of -Σ (1 - p)^k / k over k = 1 ... M - 1 without m_2 ... m_J: the series of log p cut at order M - 1,
as of a group of all M, less one term for each wave after the first. A rare prompt weighs M - J in place of M - 1.

  * **The mean over the wave counts, (1/n_j).** A sum over rollouts would weigh a prompt by the width of its wave, so
    `loss.group_advantages` multiplies A by M / n_j.
  * **One mean over all that was drawn is biased**: the waves before are wrong because the prompt was not stopped there.
  * **Only for group_mean.** With A = R - R̄ the same waves give Σ_j (1 - p)^{m_j} (1 - 1/n_j) ∇p. That is ∇p once for
    each wave drawn: a rare prompt counts up to J times as much as an easy one, and the objective is no longer the mean
    of p. The group's std would count once for each wave too. The first wave alone would be right: that is a fixed N.
  * **Successes alone would do**: the mean of ∇log π over the wave's successes has the expectation P(found) ∇log p, the
    series of order M. What is computed is that mean minus the mean over the whole wave, which costs the J terms and
    keeps advantages around 0.
  * What all prompts of a step have in common, its whitening and its number of tokens, changes the step's length and not
    what a prompt weighs in it. Each mini-batch has its share of every group, so its tokens are common too; one of whole
    prompts would weigh those beside a wide group less, and is refused. The KL term is a mean over the rollouts that are
    trained on: there a wide wave counts for more.
  * Rewards are 0 and 1 in this proof. A wave stops at a verdict "correct"; shaped rewards only enter R̄.

Rollout i of a prompt is drawn with the prompt's seed + m_j as rollout i - m_j of its wave: the waves are parts of a
group of M (trainer/deal.py), and do not depend on which prompts are still open, nor on who decodes them. Every process
knows all verdicts, so all of them agree on what is open; a wave is a round of `roll_out` for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from trainer.answers import Rolled
from trainer.deal import Outcomes


class Wave(NamedTuple):
    """Rollouts `first` to `first + n` of a prompt; the `number`-th wave of `of`."""

    first: int  # m_j
    n: int  # n_j
    number: int
    of: int

    def __str__(self) -> str:
        return f", wave {self.number} of {self.of}" if self.of > 1 else ""


def waves(first: int | None, most: int) -> list[Wave]:
    """`first` rollouts, then as many as were drawn before, up to `most` in all; None: all at once."""
    ends = [min(first or most, most)]
    while ends[-1] < most:
        ends.append(min(2 * ends[-1], most))
    starts = [0, *ends[:-1]]
    return [Wave(start, end - start, j + 1, len(ends)) for j, (start, end) in enumerate(zip(starts, ends, strict=True))]


def in_waves(
    roll_out: Callable[[list[int], Wave], tuple[list[Rolled], Outcomes]], prompts: int, plan: list[Wave]
) -> tuple[list[Rolled], Outcomes]:
    """Wave after wave for the prompts without a success so far; what came of all of it, as of `deal.roll_out`.

    roll_out: of these places of the round, this wave. In the outcomes, (P, M), `group` is each prompt's last wave.
    """
    still_open, rolled = list(range(prompts)), []
    outcomes = Outcomes.none(prompts, plan[-1].first + plan[-1].n)
    for wave in plan:
        mine, found = roll_out(still_open, wave)
        rolled += [replace(one, place=still_open[one.place], first=wave.first + one.first) for one in mine]
        outcomes.group[still_open] = False
        for table, new in zip(outcomes, found, strict=True):
            table[still_open, wave.first : wave.first + wave.n] = new
        solved = found.correct.any(-1).tolist()
        still_open = [place for place, right in zip(still_open, solved, strict=True) if not right]
        if not still_open:
            break
    return rolled, outcomes
