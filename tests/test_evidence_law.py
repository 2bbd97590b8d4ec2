"""evidence/noise.py, law_simulated.py, length.py: what docs/which_n.md rests on; and the tables of the pages."""

import random
import string
from unittest import mock

import pytest
import torch
from helpers import ROOT
from transformers import LlamaConfig, LlamaForCausalLM

from evidence import law_simulated, length, noise
from evidence.rows import at, by, load, seeds_of
from tiny import exact
from trainer.checks import TINY
from verify import load_data


def test_enumerated_gradients_are_those_of_q_pos():
    """Makes impossible: an answer left out, or weighed by another probability than its own: autograd of Σ_i p_i."""
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


@pytest.mark.parametrize("n", [2, 8])
def test_the_simulated_noise_is_what_the_sums_say(n):
    """Makes impossible: V_w, V_b or the exact variance of another scale than the steps that are taken."""
    with mock.patch.object(law_simulated, "PROMPTS", 64):
        world = law_simulated.World(6, 2)
        start = torch.zeros(law_simulated.D, dtype=torch.float64)
        g = torch.Generator().manual_seed(1)
        steps = torch.stack([world.step(start, n, g) for _ in range(3000)])
        found = world.exact(start, n)
    assert float(steps.var(0).sum()) == pytest.approx(found["exact"] * n / law_simulated.SAMPLES, rel=0.06)
    law_of = (found["V_b"] + found["V_w"] / (n - 1)) / found["exact"]
    assert law_of == pytest.approx(1, rel=0.35 if n == 2 else 0.1)


def test_the_tables_of_the_page_are_of_its_files():
    """Makes impossible: a page whose numbers are older than its CSVs."""
    page = (ROOT / "docs/which_n.md").read_text()
    rows = load(ROOT / "evidence/noise.csv")
    for n, head in (("", "| enumerated |"), (16, "| N = 16 |"), (512, "| N = 512 |")):
        own = [row for row in rows if row["N"] == n and row["policy"] == "tiny/policy"]
        within, between = (sum(row[name] for row in own) / len(own) for name in ("within", "between"))
        (line,) = [x for x in page.splitlines() if x.startswith(head) and f"| {within / between:.1f} |" in x]
        assert line.split("|")[2].strip().startswith(f"{within:.0f}")


def test_the_objectives_and_lengths_of_the_pages_are_of_their_files():
    """Makes impossible: a table of docs/evidence.md or docs/which_n.md that is older than its CSV."""
    page = (ROOT / "docs/evidence.md").read_text()
    for (_,), rows in by(load(ROOT / "evidence/objective.csv"), "where").items():
        groups = seeds_of(rows, "advantage", "N")
        samples = min(run[-1]["samples"] for group in groups.values() for run in group)
        assert f"After {samples:,} samples" in page
        after = page.split(f"After {samples:,} samples")[1].split("\n\n")[1].splitlines()
        heads = [x.strip() for x in after[0].split("|")]
        names = {"Q_pos": "q_pos", "answers that fell": "fell"}
        for (kind, n), group in groups.items():
            own = [x for x in after if x.startswith(f"| `{kind}` | {n} | {len(group)} |")]
            shown = [name for name in heads if name == "Q_pos" or "pass@" in name or "fell" in name]
            assert len(shown) > 3
            for name in shown:
                mean = sum(at(run, "samples", samples, names.get(name, name)) for run in group) / len(group)
                assert own[0].split("|")[heads.index(name)].split()[0] == f"{mean:.3f}"
    page = (ROOT / "docs/which_n.md").read_text()
    for row in load(ROOT / "evidence/length.csv"):
        cells = f"{row['within']:,.0f} ± {row['within_se']:,.0f} | {length.known(row)[0]} |"
        assert f"| {row['prompts']} x {row['rollouts']} | {row['p']:.2f} | {cells}" in page


def test_slopes_of_each_rollout_are_those_of_autograd():
    """Makes impossible: a rollout's gradient with another's tokens in it, of another layer, or of padding."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=31, num_key_value_heads=1, **size)).eval()
    layers = [x for x in model.model.layers.modules() if isinstance(x, torch.nn.Linear)]
    prompt, responses = [1, 2, 3], [[4, 5, 6, 7], [8, 9], [10, 11, 12]]
    want = []
    for response in responses:
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        logp = logits.gather(-1, torch.tensor(response)[:, None]).sum()
        want.append(torch.autograd.grad(logp, [x.weight for x in layers]))
    slopes = length.Slopes(model, block=64)  # all of it
    found = slopes.of(prompt, responses)
    at = torch.Generator().manual_seed(0)
    start = 0
    for number, layer in enumerate(layers):
        rows, columns = (torch.randperm(x, generator=at) for x in layer.weight.shape)
        own = torch.stack([one[number][rows][:, columns].flatten() for one in want])
        torch.testing.assert_close(found[:, start : start + own.shape[1]], own, rtol=1e-4, atol=1e-6)
        start += own.shape[1]
    assert start == found.shape[1]


def test_an_answer_is_right_by_its_first_last_or_all_words():
    """Makes impossible: half a word at an answer's end that decides, a bar of another share than one in five."""
    assert length.words("was “Tall,” - and too") == ["was", "tall", "and"]
    letters = [sorted(random.Random(i).sample(string.ascii_lowercase, 6)) for i in range(2)]
    other = [min(set(string.ascii_lowercase) - set(x)) for x in letters]
    texts = [[f"{a}x {b}x {c}" for a in (x[0], y) for b in (x[5], y) for c in (x[0], y)] for x, y in
             zip(letters, other, strict=True)]  # fmt: skip
    assert [x.tolist() for x in length.rewards("first", texts)] == [[1, 1, 1, 1, 0, 0, 0, 0]] * 2
    assert [x.tolist() for x in length.rewards("last", texts)] == [[1, 1, 0, 0, 1, 1, 0, 0]] * 2
    assert length.rewards("last", [["", "x"]])[0].tolist() == [0, 0]
    many = [["a" * n + " b" for n in range(k, 101, 2)] for k in (1, 2)]
    short, long = length.rewards("all", many)
    assert short.tolist() == [1] * 10 + [0] * 40 and long.tolist() == [0] * 40 + [1] * 10


def test_length_measures_what_the_estimator_does():
    """Makes impossible: V_b and V_w of other halves than those of a prompt's own rollouts."""
    g = torch.Generator().manual_seed(0)
    prompts = [torch.randn(40, 300, generator=g) for _ in range(24)]
    right = [(torch.rand(40, generator=g) < 0.3).float() for _ in range(24)]
    signs = torch.randn(24, 300, generator=g)
    slopes = [v + 4 * r[:, None] * s for v, r, s in zip(prompts, right, signs, strict=True)]  # ∇p = 4 p (1 - p) s
    found = length.measured(slopes, right)
    p = torch.stack(right).mean(1)
    between = float(((4 * p * (1 - p)) ** 2).mean()) * 300
    assert found["between"] == pytest.approx(between, rel=0.15)
    assert found["inverse"] == pytest.approx(found["between"] / found["within"]) and 0 < found["inverse_se"] < 0.3
