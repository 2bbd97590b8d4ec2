"""trainer/deal.py: how wide a round is, who takes what, what is kept, and how all of it ends."""

import math
import random
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from helpers import loaded

import train
from rollout import Group, TorchEngine
from trainer import deal
from trainer.answers import Rolled
from trainer.deal import Drawn, Judge, Outcomes, Queue, orders_of, roll_out, round_width
from trainer.progress import Preempted, Progress
from trainer.settings import Config
from verify import Problem, Verdict, load_problems

ALONE = Accelerator(cpu=True)


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


@pytest.mark.parametrize(
    ("prompts", "n", "rows"),
    [(40, 512, 2048), (6, 512, 2048), (9, 16, 2048), (5, 512, 64), (3, 100, 64), (1, 7, 64), (2, 1, 64)],
)
@pytest.mark.parametrize("engines", [1, 4])
def test_orders_hold_every_rollout_once(prompts, n, rows, engines):
    """Mistake: a rollout that nobody decodes, or two do; an order that mixes parts of different widths."""
    orders = orders_of(prompts, n, rows, engines)
    seen = [(p.place, i) for order in orders for p in order for i in range(p.first, p.first + p.n)]
    assert seen == [(place, i) for place in range(prompts) for i in range(n)]
    assert all(len({p.n for p in order}) == 1 for order in orders)
    assert all(sum(p.n for p in order) <= max(rows, n) for order in orders)
    assert len(orders) >= min(2 if engines == 1 else 4 * engines, prompts)


def rolled(place, *right, first=0):
    verdicts = [Verdict(float(x), "correct" if x else "wrong") for x in right]
    group = Group([place], [[place, i] for i in range(len(right))], [[0.0, 0.0]] * len(right), ["stop"] * len(right))
    return Rolled(Problem(str(place), "math", "1"), group, ["text"] * len(right), verdicts, place, first)


def test_the_first_informative_ones_in_the_cursors_order():
    """Mistake: the first that ended; one too many; a cursor that skips what was drawn too much, or draws it twice."""
    problems = [Problem(str(i), "math", "1") for i in range(100)]
    prompts = [[i] for i in range(100)]
    drawn = Drawn(problems, prompts)
    rights = [(0, 1), (1, 1), (1, 0), (0, 1)]
    first = [rolled(i, *right) for i, right in enumerate(rights)]
    drawn.add([20, 21, 22, 23], first[::-1], Outcomes.of(first, 4, 2, ALONE))
    assert drawn.informative == 3 and len(drawn) == 4
    kept = drawn.first(2)
    assert drawn.used == 3 and [p.prompt for p in kept.problems] == ["20", "22"] and kept.prompts == [[20], [22]]
    assert kept.outcomes.rewards.tolist() == [[0, 1], [1, 0]]
    assert sorted((one.place, one.group.responses[0][0]) for one in kept.rolled) == [(0, 0), (1, 2)]
    second = [rolled(0, 1, first=0), rolled(0, 0, first=1), rolled(1, 0, 0)]  # a group that two parts make up
    drawn.add([24, 25], second, Outcomes.of(second, 2, 2, ALONE))
    kept = drawn.first(4)
    assert drawn.used == 5 and kept.problems[-1].prompt == "24" and drawn.rounds == 2
    assert [(one.place, one.first) for one in kept.rolled if one.place == 3] == [(3, 0), (3, 1)]
    assert len(drawn.first(9)) == 4 and drawn.used == 6
    counts = drawn.counts()
    assert counts["rollouts"] == 12 and counts["solved/to_50%"] == 4 and counts["solved/none"] == 1


class Slow(TorchEngine):
    """Tells when each order was decoded."""

    def stream(self, orders, take, share, **sampling):
        for number, groups in super().stream(orders, take, share, **sampling):
            self.done.append((number, time.monotonic()))
            yield number, groups


def setting(count=8):
    model, tokenizer = loaded()
    problems = load_problems(train.__file__.replace("train.py", "tiny/train.jsonl"))[:count]
    return model, tokenizer, problems, [tokenizer(p.prompt).input_ids for p in problems]


def test_what_is_rolled_out_does_not_depend_on_who_does():
    """Mistake: rollouts that depend on the order of decoding, on a neighbour, or on the round that a prompt is in."""
    model, tokenizer, problems, prompts = setting()
    engine = TorchEngine(model)

    def drawn(some, queue=Queue):
        judge = Judge(tokenizer, [problems[i] for i in some], {"workers": 1})
        seeds = [100 + i for i in some]
        found, outcomes = roll_out(
            engine, judge, [prompts[i] for i in some], 16, seeds, ALONE, queue=queue, max_new_tokens=12, temperature=1.0
        )
        return {some[one.place]: one.group.responses for one in found}, outcomes

    class Backwards(Queue):
        def take(self):
            number = super().take()
            return None if number is None else self.orders - 1 - number

    whole, outcomes = drawn(list(range(8)))
    backwards, same = drawn(list(range(8)), Backwards)
    assert whole == backwards and all(torch.equal(a, b) for a, b in zip(outcomes, same, strict=True))
    parts = drawn([0, 1, 2])[0] | drawn([3, 4, 5, 6, 7])[0]
    assert parts == whole and outcomes.correct.any() and len({str(x) for x in whole.values()}) == 8


def test_verdicts_come_while_others_decode(monkeypatch):
    """Mistake: a step that takes the time of decoding plus that of judging."""
    model, tokenizer, problems, prompts = setting()
    engine, judged = Slow(model), []
    engine.done, engine.order_rows = [], 16

    def slowly(items, **settings):
        time.sleep(0.3)
        judged.append(time.monotonic())
        return [Verdict(0.0, "wrong")] * len(items)

    monkeypatch.setattr(deal, "verify_batch", slowly)
    waits = engine.generate
    monkeypatch.setattr(engine, "generate", lambda *a, **k: (time.sleep(0.3), waits(*a, **k))[1])
    start = time.monotonic()
    found, _ = roll_out(
        engine, Judge(tokenizer, problems, {}), prompts, 16, [0] * 8, ALONE, max_new_tokens=3, temperature=1.0
    )
    took = time.monotonic() - start
    assert len(found) == 8 and took < 8 * 0.6
    assert judged[0] < engine.done[2][1]


def test_what_came_meanwhile_is_judged_together(monkeypatch):
    """Mistake: order after order, each of which waits for its slowest answer while the other workers are idle."""
    _, tokenizer, problems, _ = setting(6)
    asked, first = [], threading.Event()

    def counted(items, **settings):
        asked.append(len(items))
        first.wait(5)
        return [Verdict(0.0, "wrong")] * len(items)

    monkeypatch.setattr(deal, "verify_batch", counted)
    judge = Judge(tokenizer, problems, {})
    for place in range(6):
        judge.hand_in([deal.Part(place, 0, 2)], [Group([1], [[2], [3]], [[0.0]] * 2, ["stop"] * 2)])
        while not asked:
            time.sleep(0.01)
    first.set()
    assert [one.place for one in judge.all(lambda: None)] == list(range(6))
    assert asked == [2, 10]


def test_who_is_told_to_stop_does_not_wait_for_verdicts(monkeypatch):
    """Mistake: "stopped by SIGTERM", and a process that stays until the last slow program has ended."""
    model, tokenizer, problems, prompts = setting(2)
    judging, end = threading.Event(), threading.Event()
    monkeypatch.setattr(deal, "verify_batch", lambda items, **k: judging.set() or end.wait(60))
    monkeypatch.setattr(deal, "POLL", 0.05)
    judge = Judge(tokenizer, problems, {})
    with pytest.raises(Preempted):
        roll_out(
            TorchEngine(model), judge, prompts, 4, [0, 1], ALONE, told=judging.is_set, max_new_tokens=3, temperature=1.0
        )
    assert judge.thread.is_alive() and judge.thread.daemon
    end.set()


@pytest.mark.parametrize("when", ["decoding", "judging"])
def test_a_verifier_that_fails_ends_the_round(monkeypatch, when):
    """Mistake: an error on the thread of the verdicts that nobody hears of, or a step without its verdicts."""
    model, tokenizer, problems, prompts = setting()
    engine = TorchEngine(model)
    engine.order_rows = 16 if when == "decoding" else 10**6
    monkeypatch.setattr(deal, "verify_batch", lambda items, **k: 1 / 0)
    monkeypatch.setattr(deal, "ORDERS", (1, 1))
    with pytest.raises(ZeroDivisionError):
        roll_out(engine, Judge(tokenizer, problems, {}), prompts, 16, [0] * 8, ALONE, max_new_tokens=3, temperature=1.0)


def test_told_to_stop_it_stops_within_an_order():
    """Mistake: SIGTERM that waits for a group of 16,384 tokens."""
    model, tokenizer, problems, prompts = setting(1)
    steps = []
    engine = TorchEngine(model)
    with pytest.raises(Preempted):
        roll_out(
            engine, Judge(tokenizer, problems, {}), prompts, 16, [0], ALONE,
            told=lambda: len(steps) > 2 or bool(steps.append(1)), max_new_tokens=99, temperature=1.0, stop_token_ids=[],
        )  # fmt: skip
    assert len(steps) == 3


class Store(dict):
    """What Queue asks of torch's store."""

    lock = threading.Lock()

    def add(self, key, more):
        with self.lock:
            self[key] = self.get(key, 0) + more
            return self[key]


def queues(count, told=None, monkeypatch=None):
    store = Store()
    monkeypatch.setattr(deal.dist, "PrefixStore", lambda name, inner: store)
    monkeypatch.setattr(deal.dist.distributed_c10d, "_get_default_store", lambda: None)
    return [Queue(10, SimpleNamespace(num_processes=count, process_index=i), told or (lambda: False))
            for i in range(count)], store  # fmt: skip


def test_every_order_goes_to_one_process(monkeypatch):
    """Mistake: an order that two decode, or nobody; a number beyond the last."""
    (a, b, c), _ = queues(3, monkeypatch=monkeypatch)
    taken = [(a if i % 3 else b).take() for i in range(10)]
    assert taken == list(range(10)) and [x.take() for x in (a, b, c, a)] == [None] * 4


@pytest.mark.parametrize("stopping", [0, 1])
def test_all_processes_stop_or_none_does(monkeypatch, stopping):
    """Mistake: a process that goes on to a collective in which the other will never be."""
    (a, b), _ = queues(2, monkeypatch=monkeypatch)
    ends = []

    def end(queue, stop, pause):
        time.sleep(pause)
        try:
            queue.wait_for_all(stop)
            ends.append("on")
        except Preempted:
            ends.append("stopped")

    threads = [threading.Thread(target=end, args=x) for x in ((a, False, 0), (b, bool(stopping), 0.2))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert ends == [["on", "on"], ["stopped", "stopped"]][stopping]


def test_who_is_told_to_stop_does_not_wait_for_the_dead(monkeypatch):
    """Mistake: a process that waits for a dead one until the launcher kills it, and says nothing."""
    (a, _), _ = queues(2, told=lambda: True, monkeypatch=monkeypatch)
    monkeypatch.setattr(deal, "PATIENCE", 0.1)
    with pytest.raises(torch.distributed.DistError, match="gives no answer"):
        a.wait_for_all()


def test_who_waits_tells_those_who_still_decode(monkeypatch):
    """Mistake: SIGTERM to a process that is done, which the others hear of after their last long response."""
    first = threading.current_thread()
    (a, b), _ = queues(2, told=lambda: threading.current_thread() is not first, monkeypatch=monkeypatch)
    ends = []

    def end():
        with pytest.raises(Preempted):
            a.wait_for_all()
        ends.append(True)

    thread = threading.Thread(target=end)
    thread.start()
    monkeypatch.setattr(deal, "POLL", 0.05)
    with pytest.raises(Preempted):
        for _ in range(100):
            time.sleep(0.02)
            b.tick()
    with pytest.raises(Preempted):
        b.wait_for_all(stop=True)
    thread.join()
    assert ends == [True]
