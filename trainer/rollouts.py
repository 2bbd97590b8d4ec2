"""Stages 2 and 3: N rollouts of each prompt, and a thread, the `Judge`, that judges them while others decode.

Rank r of W draws the rollouts r·N/W to (r+1)·N/W of every prompt. With N < W it draws one rollout of every W/N-th
prompt. Prompt seed and rollout number fix the torch engine's tokens, so its steps are the same on any number of ranks,
up to rounding.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

from loss import OBJECTIVES, Objective
from rollout import Engine, Group, Request, Sampling
from sandbox import WeakSandbox
from trainer.outcomes import FAILED, Outcomes, Rollout
from trainer.process import Refusal, refusing
from trainer.settings import Config
from trainer.text import encode, ends_with_assistant, tokens_left_out
from verify import Problem, Response, Verdict, verify_batch


def roll_out(
    engine: Engine, problems: list[Problem], n: int, seeds: list[int], sampling: Sampling, judge: Judge,
    accelerator: Accelerator, prompts_before: int = 0,
) -> tuple[list[Rollout], Outcomes]:  # fmt: skip
    """Draw N rollouts of each of P problems and judge them. Returns this rank's rollouts and the outcomes of all ranks.

    prompts_before: number of prompts that earlier rounds of the step drew.
    """
    requests = requests_of_rank(
        [encode(judge.tokenizer, problem) for problem in problems], n, seeds, accelerator.process_index,
        accelerator.num_processes,
    )  # fmt: skip
    with tqdm(total=sum(r.n for _, r in requests), desc="rollouts", leave=False, delay=5, disable=None) as bar:
        for i, group in engine.generate([request for _, request in requests], sampling, bar.update):
            p, request = requests[i]
            judge.put(rollouts_of(group, problems[p], prompts_before + p, request.first))
        rollouts = judge.result()
    rollouts.sort(key=lambda r: (r.prompt_index, r.number))
    return rollouts, Outcomes.of(rollouts, prompts_before, problems, n, accelerator, judge.objective.mask_truncated)


def requests_of_rank(
    prompts: list[list[int]], n: int, seeds: list[int], rank: int, world: int
) -> list[tuple[int, Request]]:
    """(index of the prompt, the request) for this rank's rollouts of each prompt; no request for an empty share."""
    requests = []
    for p, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        if n >= world:
            low, high = rank * n // world, (rank + 1) * n // world
        else:  # the prompts take turns: n of the ranks draw one rollout each
            low = (rank - p * n) % world
            high = min(low + 1, n)
        if high > low:
            requests.append((p, Request(prompt, high - low, seed, low)))
    return requests


def rollouts_of(group: Group, problem: Problem, prompt_index: int, first: int) -> list[Rollout]:
    """The responses of a group as rollouts. first: number of the group's first rollout."""
    prompt = torch.tensor(group.prompt, dtype=torch.int32)
    return [
        Rollout(problem, prompt_index, first + i, prompt, group.tokens[i, :end], group.logp[i, :end], truncated)
        for i, (end, truncated) in enumerate(zip(group.lengths.tolist(), group.truncated.tolist(), strict=True))
    ]


class Judge:
    """A thread that turns responses into text and fills in their verdicts, while stage 2 goes on.

    laps, in seconds: "judge" is the time of judging, "wait_for_judge" its part after this rank's last rollout, when the
    run waits. train.py clears them when a step begins, and `Clock.lap` adds them to the numbers of timing.jsonl.
    """

    def __init__(self, tokenizer, config: Config, objective: Objective = OBJECTIVES["brorl"]):
        self.tokenizer = tokenizer
        self.timeout_s, self.allow_weak_sandbox = config.verify_timeout, config.allow_weak_sandbox
        self.objective = objective
        self.thread = ThreadPoolExecutor(1)
        self.waiting: deque[list[Rollout]] = deque()
        self.calls: list[Future[list[Rollout]]] = []
        self.laps: dict[str, float] = defaultdict(float)

    def put(self, rollouts: list[Rollout]) -> None:
        """Judge these rollouts in the thread. Raises its exception if it failed on earlier ones."""
        for call in self.calls:
            if call.done():
                call.result()
        self.waiting.append(rollouts)
        self.calls.append(self.thread.submit(self.judge_waiting))

    def judge_waiting(self) -> list[Rollout]:
        """Judge all waiting groups together, so that slow answers of several groups share the workers."""
        rollouts: list[Rollout] = []
        while self.waiting:
            rollouts += self.waiting.popleft()
        if rollouts:  # none if an earlier call took them
            began = time.perf_counter()
            self.fill_in(rollouts)
            self.laps["judge"] += time.perf_counter() - began
        return rollouts

    def result(self) -> list[Rollout]:
        """Wait for the last verdict and return all rollouts. Raises the exception of the thread, if there was one."""
        calls, self.calls = self.calls, []
        began = time.perf_counter()
        rollouts = [r for call in calls for r in call.result()]
        self.laps["wait_for_judge"] += time.perf_counter() - began
        return rollouts

    def fill_in(self, rollouts: list[Rollout]) -> None:
        """Fill in text and verdict.

        If the prompt already has the start of the response (<think>, an assistant message), the text begins with it.
        """
        left_out = torch.tensor(sorted(tokens_left_out(self.tokenizer)), dtype=torch.int32)
        starts = {r.prompt_index: (r.problem, r.prompt) for r in rollouts}
        written = {index: self.written_by_the_prompt(*start) for index, start in starts.items()}
        # A response that was not cut ends with its stop token.
        tokens = [r.response if r.truncated else r.response[:-1] for r in rollouts]
        visible = [x[~torch.isin(x, left_out)].tolist() for x in tokens]
        for r, text in zip(rollouts, self.tokenizer.batch_decode(visible), strict=True):
            r.text = written[r.prompt_index] + text
        items = [(r.problem, r.text, len(r.response), r.truncated) for r in rollouts]
        for r, verdict in zip(rollouts, self.verdicts(items), strict=True):
            r.verdict = verdict

    def written_by_the_prompt(self, problem: Problem, prompt: Tensor) -> str:
        """The start of the response that is in the prompt: an assistant message, or a <think> of the chat template."""
        if ends_with_assistant(problem):
            return problem.prompt[-1]["content"]  # type: ignore[index]
        return "<think>" if self.tokenizer.decode(prompt).rstrip().endswith("<think>") else ""

    def verdicts(self, items: list[tuple[Problem, str, int, bool]]) -> list[Verdict]:
        """The verdicts on (problem, text of the response, its tokens, whether it was truncated)."""
        return verify_batch(
            [(p.kind, Response(text, tokens, truncated), p.reference) for p, text, tokens, truncated in items],
            timeout_s=self.timeout_s, allow_weak_sandbox=self.allow_weak_sandbox,
        )  # fmt: skip

    def check_kinds(self, problems: list[Problem]) -> None:
        """Judge a nonsense response of each kind: a broken reward function is refused now, not at the first step."""
        example = {problem.kind: problem for problem in reversed(problems)}
        nonsense = "```python\npass\n```\n<answer>0</answer> \\boxed{x + y^2}"
        try:
            verdicts = self.verdicts([(problem, nonsense, 1, False) for problem in example.values()])
        except WeakSandbox as weak:
            raise Refusal(f"{weak} (--allow_weak_sandbox)") from weak
        for kind, verdict in zip(example, verdicts, strict=True):
            if verdict.reason in FAILED:
                raise Refusal(
                    f"kind {kind} failed on a nonsense response (its error is above): check its function, its "
                    f"parameters (response, reference; no prompt), and the reference {example[kind].reference!r:.100}, "
                    f"of type {type(example[kind].reference).__name__}"
                )
            with refusing(f"kind {kind} pays {verdict.reward:g} for nonsense: --objective "):
                self.objective.advantages(torch.tensor([[verdict.reward, 1.0]]))
