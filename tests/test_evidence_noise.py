"""evidence/noise.py against autograd; the tables of docs/which_n.md and docs/evidence.md against their CSVs."""

from unittest import mock

import pytest
import torch
from helpers import ROOT

from evidence import noise
from evidence.rows import at, by, load, seeds_of
from tiny import exact
from trainer.checks import TINY
from verify import load_data


def test_enumerated_gradients_are_those_of_q_pos():
    """Makes impossible: an answer left out, or weighed by the probability of another one: autograd of Σ_i p_i."""
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    problems = load_data([str(TINY / "test.jsonl")])[:2]
    with mock.patch.object(noise, "DRAWN", 16):
        found = noise.enumerated(policy, tokenizer, problems)
    slopes = []
    code, (stop,) = exact.alphabet(tokenizer), exact.one_stop_token(tokenizer, policy.model)
    for problem in problems:
        prompt, q_pos = exact.encoded(tokenizer, problem), 0.0
        for text in exact.answers_of(problem):
            tokens = torch.tensor([[*prompt, *(code[c] for c in text), stop]])
            logits = policy.model(tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            q_pos = q_pos + logits.gather(-1, tokens[0, len(prompt) :, None]).sum().exp()
        slopes.append(torch.cat([x.flatten() for x in torch.autograd.grad(q_pos, list(policy.parameters()))]))
    g2, both = sum(float(g @ g) for g in slopes) / 2, float(slopes[0] @ slopes[1])
    assert found.mean2 == pytest.approx(both, rel=1e-3) and found.between == pytest.approx(g2 - both, rel=1e-3)
    assert found.within > g2  # of one rollout; no closed form here, but for evidence/noise.csv


def test_the_noise_of_the_page_is_that_of_its_csv():
    """Makes impossible: numbers in docs/which_n.md that noise.csv does not have."""
    page = " ".join((ROOT / "docs/which_n.md").read_text().split())
    rows = load(ROOT / "evidence/noise.csv")
    mean = {}
    for n in ("", 16, 512):
        looks = [row for row in rows if row["N"] == n and row["policy"] == "tiny/policy"]
        mean[n] = [sum(row[name] for row in looks) / len(looks) for name in ("within", "between")]
    exact, n16, n512 = (f"{within / between:.1f}" for within, between in mean.values())
    assert f"is {exact} by enumeration" in page and f"give {n16} with N = 16 and {n512} with N = 512" in page
    for letter, (first, *others) in zip("wb", zip(*mean.values(), strict=True), strict=True):
        shown = page.split(f"V_{letter}: ")[1].split(", ")[:3]
        digits = len(shown[0].partition(".")[2])
        assert [x.split(" ±")[0].split("; ")[0] for x in shown] == [f"{x:.{digits}f}" for x in (first, *others)]


def test_the_objectives_and_lengths_of_the_pages_are_those_of_their_csvs():
    """Makes impossible: a table of docs/evidence.md or docs/which_n.md with numbers that its CSV does not have."""
    page = (ROOT / "docs/evidence.md").read_text()
    for (where,), rows in by(load(ROOT / "evidence/objective.csv"), "where").items():
        groups = seeds_of(rows, "advantage", "N")
        samples = min(run[-1]["samples"] for group in groups.values() for run in group)
        if where == "start":
            sentences = page.split("### From the start")[1].split("\n\n")[1]
            assert f"{samples:,} samples" in sentences
            for [run] in groups.values():
                for name in ("q_pos", "pass@64"):
                    assert f"{at(run, 'samples', samples, name):.3f}" in sentences
            continue
        assert f"After {samples:,} samples" in page
        after = page.split(f"After {samples:,} samples")[1].split("\n\n")[1].splitlines()
        heads = [x.strip() for x in after[0].split("|")]
        names = {"Q_pos": "q_pos", "answers that fell": "fell"}
        for (kind, n), group in groups.items():
            [line] = [x for x in after if x.startswith(f"| `{kind}` | {n} | {len(group)} |")]
            shown = [name for name in heads if name == "Q_pos" or "pass@" in name or "fell" in name]
            assert len(shown) > 3
            for name in shown:
                mean = sum(at(run, "samples", samples, names.get(name, name)) for run in group) / len(group)
                assert line.split("|")[heads.index(name)].split()[0] == f"{mean:.3f}"
    page = (ROOT / "docs/which_n.md").read_text()
    for row in [row for row in load(ROOT / "evidence/length.csv") if row["prompts"] > 8]:  # fewer show no ratio
        cells = f"{row['within']:,.0f} ± {row['within_se']:,.0f} |"
        assert f"| {row['prompts']} x {row['rollouts']} | {row['p']:.2f} | {cells}" in page
