"""What stands around a problem's own prompt, --system_prompt and --examples (train.py, stage 1).

    the problem's prompt     what the model is asked, with either of the two
    text                     [system], question, solution, ..., user: the text
    [user, ...]              [system], question, solution, ..., its turns
    [its system, user, ...]  its system, question, solution, ..., its other turns

Questions and solutions are the turns of the examples: problems of --data, in an order drawn by --seed alone, so that
every process, a resumed run and an evaluation with the same --data and --seed show the same. A run keeps them beside
its model, in evaluation.json, and an evaluation of this model shows these. Worked solutions come
first, then gold answers without a way to them. Without the two settings a prompt is what it is.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

from jinja2 import TemplateError

from trainer.checks import EVALUATION_FILE
from trainer.processes import from_main
from trainer.settings import Config
from verify import Problem, Solved, solution_of, verify_batch

Messages = list[dict[str, str]]


class Example(NamedTuple):
    """A problem that is shown solved."""

    number: int  # of the problem in --data, from 1
    problem: Problem
    question: str
    solution: str


class Frame(NamedTuple):
    """What every prompt of a run is put into. chat: text too becomes a chat."""

    chat: bool = False
    system: str = ""
    examples: tuple[Example, ...] = ()

    def prompt(self, problem: Problem) -> str | Messages:
        """What the model is asked for this problem."""
        if not self.chat:
            return problem.prompt
        turns = problem.prompt if isinstance(problem.prompt, list) else [turn("user", problem.prompt)]
        system = [turn("system", self.system)] if self.system else []
        if turns[0]["role"] == "system":
            system, turns = turns[:1], turns[1:]
        solved = [x for e in self.examples for x in (turn("user", e.question), turn("assistant", e.solution))]
        return [*system, *solved, *turns]

    def example_of(self, problem: Problem) -> Example | None:
        """The example that has the question with which this problem ends, if there is one."""
        last = problem.prompt if isinstance(problem.prompt, str) else problem.prompt[-1]["content"]
        return next((example for example in self.examples if example.question.strip() == last.strip()), None)


PLAIN = Frame()


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def text_of(prompt: str | Messages) -> str:
    """All that a prompt says, without its roles."""
    return prompt if isinstance(prompt, str) else "".join(message["content"] for message in prompt)


def question_of(problem: Problem) -> str | None:
    """A prompt of one question, which is text, or a chat of one user's turn; a system message may stand before it."""
    if isinstance(problem.prompt, str):
        return problem.prompt
    turns = problem.prompt[problem.prompt[0]["role"] == "system" :]
    return turns[0]["content"] if [turn["role"] for turn in turns] == ["user"] else None


def examples_of_model(model: str) -> tuple[Example, ...]:
    """Those that the run which trained this model showed, from its evaluation.json."""
    rows = json.loads((Path(model) / EVALUATION_FILE).read_text())["examples"]
    return tuple(Example(number, Problem(*problem), *turns) for number, problem, *turns in rows)


def choose(problems: list[Problem], count: int, seed: int) -> tuple[Example, ...]:
    """So many problems to be shown solved, no question twice, those with a worked solution first.

    Raises ValueError where there are too few.
    """
    order = list(range(len(problems)))
    random.Random(f"{seed}/examples").shuffle(order)
    order.sort(key=lambda i: not isinstance(problems[i], Solved))
    found: dict[str, Example] = {}
    for i in order:
        if len(found) >= count:
            break
        question, solution = question_of(problems[i]), solution_of(problems[i])
        if question is not None and solution is not None:
            found.setdefault(question.strip(), Example(i + 1, problems[i], question, solution))
    if len(found) < count:
        without = [f"problem {i}" for i, x in enumerate(problems, 1) if not (question_of(x) and solution_of(x))]
        why = f"; {without[0]} has no solution, or is a chat of several turns" if without else ""
        raise ValueError(
            f"--examples {count}: of the problems of --data {len(found)} can be shown solved{why}. Lower it, or write "
            'a "solution" beside each "reference", a response that is right'
        )
    return tuple(found.values())


def check_template(frame: Frame, tokenizer, model: str) -> None:
    """Raises ValueError where the model's chat template refuses the frame, or leaves a part of it out."""
    if not frame.chat:
        return
    asked = frame.prompt(Problem("1 + 1?", "math", "2"))
    try:
        text = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    except TemplateError as refusal:
        raise ValueError(
            f"the chat template of --model {model} does not take --system_prompt and --examples as they are: {refusal}"
        ) from None
    parts = [("--system_prompt", frame.system)]
    parts += [("--examples", part) for example in frame.examples for part in (example.question, example.solution)]
    for setting, part in parts:
        if part.strip() not in text:
            raise ValueError(
                f"{setting}: the chat template of --model {model} leaves out a part of {part[:100]!r}: change it, or "
                "do without it"
            )


def check_examples(frame: Frame, config: Config) -> None:
    """Raises ValueError for an example whose solution is not right by its own verifier."""
    if not frame.examples:
        return
    items = [(example.problem.kind, example.solution, example.problem.reference) for example in frame.examples]
    verdicts = from_main(lambda: verify_batch(items, **config.judging))
    for example, verdict in zip(frame.examples, verdicts, strict=True):
        if verdict.reward != 1:
            raise ValueError(
                f"--examples: the solution of problem {example.number} of --data is judged {verdict.reason}, with a "
                f"reward of {verdict.reward:g}: correct it, or choose another --seed"
            )


def describe_prompts(frame: Frame, config: Config, prompts: list[list[int]]) -> str:
    """What a whole prompt looks like, for the start of a run; nothing where it is the problem's alone."""
    if not frame.chat:
        return ""
    lengths = sorted(map(len, prompts))
    shown = ", ".join(str(example.number) for example in frame.examples)
    return (
        f"{config.chat_style}, {lengths[0]:,} to {lengths[-1]:,} tokens, the first has {len(prompts[0]):,}"
        + f"; the examples are number {shown} of --data" * bool(shown)
    )
