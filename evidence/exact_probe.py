"""train.py with --log_mass_balance made exact for countdown problems: same arguments, same run folder.

    python -m evidence.exact_probe --recipe prorl --log_mass_balance --max_steps 20

Theorem 1 asks what tokens lead to, and says how Q_pos changes. trainer/probe.py takes both from the rollouts; here both
are summed over all answers of the problem (tiny/exact.py): a token's value is the probability of a correct answer after
it, whether it was drawn or not, and the change of Q_pos is that of the sum, before and after the step's updates, with
clipping, KL and AdamW in place and every other prompt of the step pulling too. A row a group goes to mass_balance.csv
in the run's folder: the terms at the first token and along the tree, Q_pos before, its change, the share of correct
rollouts; and the unsampled coupling again with each of its guesses at the value of an undrawn token. Only the
rewards are the rollouts' own. More groups a step than train.py looks at: GROUPS. One process.
"""

import csv
import sys
from pathlib import Path

import torch

import train
from brorl import MassBalance
from evidence.rows import PLACES
from tiny import exact
from trainer.probe import UNDRAWN, Probe
from trainer.problems import describe

GROUPS = 32


class ExactProbe(Probe):
    """Theorem 1 with the exact values of the tokens, and the exact change of Q_pos."""

    def __init__(self, policy, config, accelerator):
        super().__init__(policy, config, accelerator)
        self.tokenizer, _ = describe(config.model)
        self.path = Path(config.output_dir) / config.name / "mass_balance.csv"
        self.most = GROUPS

    def answers(self, rolled) -> dict[tuple[int, ...], float]:
        """Every correct answer of the problem, as tokens, and its probability now."""
        policy, problem = self.policy, rolled.problem
        code, (stop,) = exact.alphabet(self.tokenizer), exact.one_stop_token(self.tokenizer, policy.model)
        responses = [(*(code[c] for c in text), stop) for text in exact.answers_of(problem)]
        temperature = self.config.temperature
        logp = exact.response_log_probs(policy, [rolled.group.prompt], [[list(r) for r in responses]], temperature)[0]
        return dict(zip(responses, logp.exp().tolist(), strict=True))

    def mass_balance(self, rolled):
        """With exact values; into `guessed` goes the coupling that train.py would log by each of its guesses."""
        tree = self.tree(rolled)
        self.guessed.append(
            [tree.terms(tree.values(guess))[place].unsampled_coupling for place in PLACES for guess in UNDRAWN]
        )
        return tree.terms(self.values(rolled, tree))

    def predict(self, kept) -> None:
        self.guessed: list[list] = []  # a row a group: the coupling at both places, by each guess
        super().predict(kept)

    def values(self, rolled, tree):
        """v = P(correct answer | prefix, token): the mass of the answers that begin so, over π(prefix) p(token)."""
        value = torch.zeros_like(tree.p)
        mass = {}
        for answer, probability in self.answers(rolled).items():
            for d in range(1, len(answer) + 1):
                mass[answer[:d]] = mass.get(answer[:d], 0.0) + probability
        at = {prefix: h for h, prefix in enumerate(tree.reach)}
        for prefix, m in mass.items():
            if (h := at.get(prefix[:-1])) is None:
                continue
            if (arrives := tree.reach[prefix[:-1]] * float(tree.p[h, prefix[-1]])) > 0:
                value[h, prefix[-1]] = m / arrives
        return value.clamp(max=1)

    def q_pos(self, rolled) -> float:
        return sum(self.answers(rolled).values())

    def compare(self, batch, step: int) -> dict[str, float]:
        result = super().compare(batch, step)
        written = list(csv.reader(self.path.open()))[1:] if self.path.exists() else []
        with self.path.open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            names = [f"{where}/{name}" for where in PLACES for name in MassBalance._fields]
            names += [f"{where}/coupling_undrawn_{guess}" for where in PLACES for guess in UNDRAWN]
            rows.writerow(["step", "q_pos", "change", "estimated_change", "correct_share", *names])
            rows.writerows(row for row in written if int(row[0]) < step)  # without what a killed run did and does again
            found = zip(self.groups, self.before, self.changes, self.estimated, self.terms, self.guessed, strict=True)
            for rolled, before, change, estimated, terms, guessed in found:
                numbers = [before, change, estimated, rolled.correct.float().mean()]
                numbers += [x for where in PLACES for x in terms[where]] + guessed
                rows.writerow([step, *(f"{float(x):.6g}" for x in numbers)])
        return result


def main() -> None:
    if "--log_mass_balance" not in sys.argv:
        sys.argv.append("--log_mass_balance")
    train.main(probe=ExactProbe)


if __name__ == "__main__":
    main()
