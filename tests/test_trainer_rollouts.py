"""trainer/rollouts.py, train.dynamic_sampling and train.parts_of_rank: how wide a round is, its ranks, what is kept."""

import math
import random
import threading
import time

import pytest
from accelerate import Accelerator
from helpers import loaded

import train
from rollout import Group, TorchEngine
from trainer import rollouts
from trainer.progress import Progress
from trainer.rollouts import Judge, Outcomes, Part, Rolled, StepRollouts, orders_of, roll_out, round_width
from trainer.settings import Config
from verify import Problem, Verdict, load_problems


@pytest.mark.parametrize(("missing", "rate"), [(128, 0.62), (128, 0.41), (16, 0.73), (32, 0.2), (4, 0.5), (1, 0.9)])
def test_a_round_is_enough_nine_times_in_ten(missing, rate):
    """Mistake: rounds that are refilled again and again, or draw many more than they need."""
    dice, width, tries = random.Random(0), round_width(missing, rate, 0.9), 4000
    enough = sum(sum(dice.random() < rate for _ in range(width)) >= missing for _ in range(tries)) / tries
    assert enough >= 0.87
    fewer = round_width(missing, rate, 0.5)
    assert missing <= fewer <= math.ceil(missing / rate) <= width
    assert enough <= 0.96 or width - missing <= 2


def test_a_round_where_all_or_none_are_informative():
    """Mistake: a division by 0, or fewer prompts than are missing."""
    assert round_width(7, 1.0, 0.9) == 7
    c, progress = Config(recipe="brorl"), Progress()
    assert progress.pass_rate(c) == 0.62 and Progress().pass_rate(Config(recipe="prorl")) == 0.41
    assert progress.pass_rate(c, 20, 5) == 0.25  # of the step so far
    progress.note_drawn(10, 0, 160)
    assert 0 < progress.pass_rate(c) <= 0.05 and progress.samples == 160
    for _ in range(40):
        progress.note_drawn(10, 8, 160)
    assert progress.pass_rate(c) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(("prompts", "n"), [(40, 512), (7, 5), (9, 16), (5, 100), (13, 1)])
@pytest.mark.parametrize("world", [1, 2, 3, 8, 64])
def test_every_rollout_has_one_rank_and_the_ranks_are_even(prompts, n, world):
    """Mistake: a rollout that nobody draws, or two do; a rank with more rollouts than another, or of fewer prompts."""
    ranks = [train.parts_of_rank(prompts, n, rank, world) for rank in range(world)]
    seen = sorted((p.place, i) for parts in ranks for p in parts for i in range(p.first, p.first + p.n))
    assert seen == [(place, i) for place in range(prompts) for i in range(n)]
    counts = [sum(p.n for p in parts) for parts in ranks]
    assert max(counts) - min(counts) <= 1
    assert counts == [sum((i % world) == rank for i in range(prompts * n)) for rank in range(world)]
    assert all({p.n for p in parts} <= {n // world, n // world + 1} for parts in ranks)


@pytest.mark.parametrize(
    ("prompts", "n", "rows"),
    [(40, 512, 2048), (6, 512, 2048), (9, 16, 2048), (5, 512, 64), (3, 100, 64), (1, 7, 64), (2, 1, 64)],
)
@pytest.mark.parametrize("world", [1, 3])
def test_orders_hold_every_rollout_once(prompts, n, rows, world):
    """Mistake: a rollout of a rank that it never decodes; an order of unequal parts, or wider than what fits."""
    parts = train.parts_of_rank(prompts, n, world - 1, world)
    orders = orders_of(parts, rows)
    seen = sorted((p.place, i) for order in orders for p in order for i in range(p.first, p.first + p.n))
    assert seen == [(p.place, i) for p in parts for i in range(p.first, p.first + p.n)]
    assert all(len({(p.first, p.n) for p in order}) == 1 for order in orders)
    assert all(sum(p.n for p in order) <= rows for order in orders)
    assert len(orders) >= min(2, len(parts))
    assert orders_of([], rows) == []


def rolled(place, *right, first=0):
    verdicts = [Verdict(float(x), "correct" if x else "wrong") for x in right]
    group = Group([place], [[place, i] for i in range(len(right))], [[0.0, 0.0]] * len(right), ["stop"] * len(right))
    return Rolled(Problem(str(place), "math", "1"), group, ["text"] * len(right), verdicts, place, first)


def keep(drawn, b):
    places, used = train.dynamic_sampling(drawn.outcomes.correct, b)
    return drawn.take(places), used


def test_the_first_informative_ones_in_the_cursors_order():
    """Mistake: the first that ended; one too many; a cursor that skips what was drawn too much, or draws it twice."""
    problems = [Problem(str(i), "math", "1") for i in range(100)]
    prompts = [[i] for i in range(100)]
    drawn = StepRollouts(problems, prompts)
    rights = [(0, 1), (1, 1), (1, 0), (0, 1)]
    first = [rolled(i, *right) for i, right in enumerate(rights)]
    drawn.add([20, 21, 22, 23], first[::-1], Outcomes.of(first, 4, 2, Accelerator(cpu=True)))
    assert drawn.informative == 3 and len(drawn) == 4
    kept, used = keep(drawn, 2)
    assert used == 3 and kept.prompts == [[20], [22]]
    assert kept.outcomes.rewards.tolist() == [[0, 1], [1, 0]]
    assert sorted((one.place, one.group.responses[0][0]) for one in kept.rolled) == [(0, 0), (1, 2)]
    second = [rolled(0, 1, first=0), rolled(0, 0, first=1), rolled(1, 0, 0)]  # a group that two parts make up
    drawn.add([24, 25], second, Outcomes.of(second, 2, 2, Accelerator(cpu=True)))
    kept, used = keep(drawn, 4)
    assert used == 5 and kept.prompts[-1] == [24] and len(drawn.rounds) == 2
    assert [(one.place, one.first) for one in kept.rolled if one.place == 3] == [(3, 0), (3, 1)]
    kept, used = keep(drawn, 9)
    assert len(kept) == 4 and used == 6


def setting(count=8):
    model, tokenizer = loaded()
    problems = load_problems(train.__file__.replace("train.py", "tiny/train.jsonl"))[:count]
    return model, tokenizer, problems, [tokenizer(p.prompt).input_ids for p in problems]


def test_what_is_rolled_out_does_not_depend_on_who_does():
    """Mistake: rollouts that depend on the rank, on a neighbour, on the round, or on the size of an order."""
    model, tokenizer, problems, prompts = setting()
    engine = TorchEngine(model)

    def drawn(some, rank=0, world=1):
        judge = Judge(tokenizer, [problems[i] for i in some], {"workers": 1})
        parts, seeds = train.parts_of_rank(len(some), 15, rank, world), [100 + i for i in some]
        found, _ = roll_out(
            engine, judge, [prompts[i] for i in some], 15, seeds, parts, Accelerator(cpu=True),
            max_new_tokens=20, temperature=1.0, stop_token_ids=[],
        )  # fmt: skip
        return {(some[x.place], x.first + i): r for x in found for i, r in enumerate(x.group.responses)}

    whole = drawn(list(range(8)))
    assert len(whole) == 8 * 15 and len(set(map(tuple, whole.values()))) > 100
    assert max(map(len, whole.values())) == 20  # Uniforms draws 16 at once
    ranks = [drawn(list(range(8)), rank, 4) for rank in range(4)]
    assert all(ranks) and {k: r for own in ranks for k, r in own.items()} == whole
    assert drawn([0, 1, 2]) | drawn([3, 4, 5, 6, 7]) == whole
    engine.order_rows = 4
    assert drawn(list(range(8))) == whole


class Slow(TorchEngine):
    """Tells when each order was decoded."""

    def stream(self, orders, **sampling):
        for number, groups in super().stream(orders, **sampling):
            self.done.append((number, time.monotonic()))
            yield number, groups


def test_verdicts_come_while_others_decode(monkeypatch):
    """Mistake: a step that takes the time of decoding plus that of judging."""
    model, tokenizer, problems, prompts = setting()
    engine, judged = Slow(model), []
    engine.done, engine.order_rows = [], 16

    def slowly(items, **settings):
        time.sleep(0.3)
        judged.append(time.monotonic())
        return [Verdict(0.0, "wrong")] * len(items)

    monkeypatch.setattr(rollouts, "verify_batch", slowly)
    waits = engine.generate
    monkeypatch.setattr(engine, "generate", lambda *a, **k: (time.sleep(0.3), waits(*a, **k))[1])
    parts, judge = train.parts_of_rank(8, 16, 0, 1), Judge(tokenizer, problems, {})
    found, _ = roll_out(
        engine, judge, prompts, 16, [0] * 8, parts, Accelerator(cpu=True), max_new_tokens=3, temperature=1.0
    )
    assert len(found) == 8 and judged[0] < engine.done[2][1]


def test_what_came_meanwhile_is_judged_together(monkeypatch):
    """Mistake: order after order, each of which waits for its slowest answer while the other workers are idle."""
    _, tokenizer, problems, _ = setting(6)
    asked, first = [], threading.Event()

    def counted(items, **settings):
        asked.append(len(items))
        first.wait(5)
        return [Verdict(0.0, "wrong")] * len(items)

    monkeypatch.setattr(rollouts, "verify_batch", counted)
    judge = Judge(tokenizer, problems, {})
    for place in range(6):
        judge.put([Part(place, 0, 2)], [Group([1], [[2], [3]], [[0.0]] * 2, ["stop"] * 2)])
        while not asked:
            time.sleep(0.01)
    first.set()
    assert [one.place for one in judge.all()] == list(range(6))
    assert asked == [2, 10]


@pytest.mark.parametrize("when", ["decoding", "judging"])
def test_a_verifier_that_fails_ends_the_round(monkeypatch, when):
    """Mistake: an error on the thread of the verdicts that nobody hears of, or a step without its verdicts."""
    model, tokenizer, problems, prompts = setting()
    engine = TorchEngine(model)
    engine.order_rows = 16 if when == "decoding" else 10**6
    monkeypatch.setattr(rollouts, "verify_batch", lambda items, **k: 1 / 0)
    monkeypatch.setattr(rollouts, "ORDERS", 1)
    parts, judge = train.parts_of_rank(8, 16, 0, 1), Judge(tokenizer, problems, {})
    with pytest.raises(ZeroDivisionError):
        roll_out(engine, judge, prompts, 16, [0] * 8, parts, Accelerator(cpu=True), max_new_tokens=3, temperature=1.0)
