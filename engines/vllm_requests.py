"""vLLM's step loop, for VLLMEngine.stream: orders go in while there is room, and come out as they end.

Each prompt of an order is one request for its n rollouts, which vLLM splits into n requests. It gives
rollout i of a request the seed `seed + i`, and draws its tokens with that seed alone: what else decodes beside it
matters only as far as kernels round differently in another batch.

    stream            the loop
    Requests          what the engine decodes now: add, step, abort
    group_of          one answer of vLLM as a Group
    as_engine_error   vLLM's errors with their cause and what to change
    seeded            vLLM draws from the global generators; the trainer's are left as they were
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy
import torch

from engines.protocol import EngineError, Group, Order

OUT_OF_MEMORY = "If it ran out of memory, leave it more, or lower max_num_seqs"


def stream(
    llm: Any, orders: list[Order], on_progress: Callable[[int], None] | None, sampling: dict[str, Any]
) -> Iterator[tuple[int, list[Group]]]:
    """(the number of an order, its groups), as soon as the order's last rollout ended.

    The next order goes in while fewer than max_num_seqs rollouts decode or wait. Whatever ends this loop leaves a clean
    engine: the last order, an exception of on_progress, or a caller that closes it. sampling: of vllm.SamplingParams.
    """
    requests, waiting = Requests(llm, sampling), deque(enumerate(orders))
    try:
        while waiting or requests.open:
            while waiting and requests.have_room():
                requests.add(*waiting.popleft())
            ended, completed = requests.step()
            if on_progress:
                on_progress(ended)
            yield from completed
    finally:
        requests.abort()


class Request(NamedTuple):
    """One prompt of an order, while it decodes."""

    name: str  # vLLM's
    number: int  # of the order
    place: int  # of the prompt in it
    prompt: list[int]
    n: int


class Requests:
    """What the engine decodes now."""

    def __init__(self, llm: Any, sampling: dict[str, Any]):
        self.engine, self.sampling = llm.llm_engine, sampling
        self.limit = self.engine.vllm_config.scheduler_config.max_num_seqs
        self.open: dict[str, Request] = {}
        self.groups: dict[int, list[Any]] = {}  # of an order; None for a prompt that still decodes
        self.broken = False  # a step of the engine failed
        self.seed = 0  # seed of the next step's global generators, for a sampler that ignores a rollout's seed

    def have_room(self) -> bool:
        return self.engine.get_num_unfinished_requests() < self.limit

    def add(self, number: int, order: Order) -> None:
        from vllm.inputs import tokens_input

        self.groups[number] = [None] * len(order.prompts)
        for place, (prompt, seed) in enumerate(zip(order.prompts, order.seeds, strict=True)):
            name, seed = f"{number}:{place}", seed + order.first  # vLLM counts up from the seed, rollout by rollout
            self.seed += seed
            with as_engine_error("generate"):
                vllm_name = self.engine.add_request(name, tokens_input(list(prompt)), self._parameters(order.n, seed))
            self.open[name] = Request(vllm_name, number, place, list(prompt), order.n)

    def _parameters(self, n: int, seed: int) -> Any:
        import vllm
        from vllm.sampling_params import RequestOutputKind

        return vllm.SamplingParams(
            n=n if self.sampling["temperature"] > 0 else 1,  # greedy rollouts are equal: vLLM refuses more than one
            seed=seed % 2**62,  # vLLM counts up from it, in 64 bits
            ignore_eos=True,  # only stop_token_ids end a response
            logprobs=0,  # of the chosen token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **self.sampling,
        )

    def step(self) -> tuple[int, list[tuple[int, list[Group]]]]:
        """One step of the engine: how many rollouts ended in it, and the orders that it completed."""
        before = self.engine.get_num_unfinished_requests()
        answers = self._step()
        ended = before - self.engine.get_num_unfinished_requests()
        completed = []
        for answer in answers:
            request = self.open.pop(answer.request_id)
            ended += request.n - len(answer.outputs)  # greedy: one stands for all
            groups = self.groups[request.number]
            groups[request.place] = group_of(request.prompt, answer, request.n)
            if None not in groups:
                completed.append((request.number, self.groups.pop(request.number)))
        return ended, completed

    def _step(self) -> list[Any]:
        self.broken = True
        self.seed += 1
        with as_engine_error("generate", OUT_OF_MEMORY), seeded(self.seed % 2**63):
            answers = self.engine.step()
        self.broken = False
        return answers

    def abort(self) -> None:
        """Abort what is open, and step until vLLM has forgotten it. Only then may it sleep or load weights."""
        self.engine.abort_request([request.name for request in self.open.values()], internal=True)
        core = self.engine.engine_core.engine_core
        while not self.broken and (core.scheduler.has_requests() or core.batch_queue):
            self._step()


def group_of(prompt: list[int], answer: Any, n: int) -> Group:
    """One answer of vLLM. Raises EngineError where a rollout is missing, was aborted, or lacks log-probs."""
    if len(answer.outputs) not in (1, n):
        raise EngineError(f"vLLM returned {len(answer.outputs)} rollouts of {n}")
    group = Group(prompt, [], [], [])
    for o in answer.outputs * (n // len(answer.outputs)):  # greedy: one stands for all
        response, logprobs, reason = list(o.token_ids), list(o.logprobs.logprobs), o.finish_reason
        if reason not in ("stop", "length") or len(logprobs) != len(response):
            raise EngineError(f"vLLM ended a rollout with {reason!r} and {len(logprobs)} log-probs")
        group.add([response], [logprobs], [reason])
    return group


@contextmanager
def as_engine_error(what: str, remedy: str = ""):
    """Raise any error of vLLM (it has many kinds) as an EngineError that says what failed, why, and the remedy."""
    try:
        yield
    except EngineError:
        raise
    except Exception as cause:
        text = " ".join(str(cause).split()) or "no message"
        text = f"{type(cause).__name__}: {text if len(text) <= 600 else text[:600] + '...'}"
        raise EngineError(f"vLLM could not {what}: {text}" + (f"\n{remedy}" if remedy else "")) from cause


@contextmanager
def seeded(seed: int):
    """Set every random generator of this process to `seed`, and set it back afterwards."""
    python, arrays = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(arrays)
