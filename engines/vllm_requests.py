"""vLLM's own step loop for rollout.py's VLLMEngine.stream: orders go in while there is room, and come out as they end.

A prompt of an order is one request for its n rollouts, which vLLM decodes as n requests of its own. vLLM gives
rollout i of a request the seed `seed + i`, and draws its tokens with that seed alone: what else decodes beside it
matters only as far as kernels round differently in another batch. In reading order:

    settled         what is checked before anything runs
    stream          the loop
    Requests        what one engine decodes now: add, step, leave
    rollouts        one answer of vLLM
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformers import PreTrainedModel

from engines.settle import settle
from engines.vllm import EngineError, saying, seeded

OUT_OF_MEMORY = "If it ran out of memory, leave it more, or lower max_num_seqs"


def settled(
    model: PreTrainedModel,
    positions: int | None,
    orders: Sequence[Any],
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    stop_token_ids: list[int] | None = None,
) -> dict[str, Any]:
    """The sampling of these orders, what was not given from the model. Raises ValueError for what could not work."""
    prompts, n = [p for order in orders for p in order.prompts], min((order.n for order in orders), default=1)
    max_new_tokens, stop_token_ids = settle(
        model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids, positions
    )
    if temperature and not 0.01 <= temperature <= 2:
        raise ValueError(f"temperature={temperature}: vLLM takes 0, or 0.01 to 2; the torch engine takes any")
    return {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": max_new_tokens,
        "stop_token_ids": list(stop_token_ids),
    }


def stream(
    llm: Any,
    orders: Sequence[Any],
    group: Callable[..., Any],
    on_progress: Callable[[int], None] | None,
    sampling: dict[str, Any],
) -> Iterator[tuple[int, list[Any]]]:
    """(an order's number, what `group` makes of each of its prompts), as soon as the order's last rollout ended.

    The next order goes in while fewer than max_num_seqs rollouts decode or wait. Whatever ends this loop leaves a clean
    engine: the last order, an exception of on_progress, or a caller that closes it. sampling: what `settled` returned.
    """
    requests, waiting = Requests(llm, sampling), deque(enumerate(orders))
    try:
        while waiting or requests.open:
            while waiting and requests.have_room():
                requests.add(*waiting.popleft())
            ended, whole = requests.step()
            if on_progress:
                on_progress(ended)
            for number, found in whole:
                prompts = orders[number].prompts
                yield number, [group(list(prompt), *each) for prompt, each in zip(prompts, found, strict=True)]
    finally:
        requests.leave()


class Requests:
    """What one engine decodes now."""

    def __init__(self, llm: Any, sampling: dict[str, Any]):
        self.engine, self.sampling = llm.llm_engine, sampling
        self.limit = self.engine.vllm_config.scheduler_config.max_num_seqs
        self.open: dict[str, tuple[str, int, int, int]] = {}  # our name -> vLLM's, the order, the prompt's place, n
        self.found: dict[int, list] = {}  # order -> a prompt's rollouts, None until they are there
        self.whole = True  # no step of the engine was broken off
        self.seed = 0  # seed of the next step's global generators, for a sampler that does not use a rollout's own

    def have_room(self) -> bool:
        return self.engine.get_num_unfinished_requests() < self.limit

    def add(self, number: int, order: Any) -> None:
        from vllm.inputs import tokens_input

        self.found[number] = [None] * len(order.prompts)
        for place, (prompt, seed) in enumerate(zip(order.prompts, order.seeds, strict=True)):
            name, seed = f"{number}:{place}", seed + order.first  # vLLM counts up from the seed, rollout by rollout
            self.seed += seed
            with saying("generate"):
                theirs = self.engine.add_request(name, tokens_input(list(prompt)), self._asked(order.n, seed))
            self.open[name] = theirs, number, place, order.n

    def _asked(self, n: int, seed: int) -> Any:
        import vllm
        from vllm.sampling_params import RequestOutputKind

        return vllm.SamplingParams(
            n=n if self.sampling["temperature"] > 0 else 1,  # greedy rollouts are equal: one is drawn, more refused
            seed=seed % 2**62,  # vLLM counts up from it, in 64 bits
            ignore_eos=True,  # only stop_token_ids end a response
            logprobs=0,  # of the chosen token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **self.sampling,
        )

    def step(self) -> tuple[int, list[tuple[int, list]]]:
        """One step of the engine: how many rollouts ended in it, and the orders of which the last one did."""
        before = self.engine.get_num_unfinished_requests()
        answers = self._step()
        ended = before - self.engine.get_num_unfinished_requests()
        whole = []
        for answer in answers:
            _, number, place, n = self.open.pop(answer.request_id)
            ended += n - len(answer.outputs)  # greedy: one stands for all
            self.found[number][place] = rollouts(answer, n)
            if None not in self.found[number]:
                whole.append((number, self.found.pop(number)))
        return ended, whole

    def _step(self) -> list[Any]:
        self.whole = False
        self.seed += 1
        with saying("generate", OUT_OF_MEMORY), seeded(self.seed % 2**63):
            answers = self.engine.step()
        self.whole = True
        return answers

    def leave(self) -> None:
        """Abort what is open. Then step until vLLM has forgotten it: before that it must neither sleep nor load."""
        self.engine.abort_request([theirs for theirs, *_ in self.open.values()], internal=True)
        core = self.engine.engine_core.engine_core
        while self.whole and (core.scheduler.has_requests() or core.batch_queue):
            self._step()


def rollouts(answer: Any, n: int) -> tuple[list[list[int]], list[list[float]], list[str]]:
    """Responses, log-probs and finish reasons of one answer; a response holds its stop token, as in a Group.

    Raises EngineError where a rollout is missing, was aborted, or has not a log-prob for every token.
    """
    if len(answer.outputs) not in (1, n):
        raise EngineError(f"vLLM returned {len(answer.outputs)} rollouts of {n}")
    responses, logprobs, reasons = [], [], []
    for o in answer.outputs * (n // len(answer.outputs)):  # greedy: one stands for all
        responses.append(list(o.token_ids))
        logprobs.append(list(o.logprobs.logprobs))
        reasons.append(o.finish_reason)
        if o.finish_reason not in ("stop", "length") or len(logprobs[-1]) != len(o.token_ids):
            raise EngineError(f"vLLM ended a rollout with {o.finish_reason!r} and {len(logprobs[-1])} log-probs")
    return responses, logprobs, reasons
