"""Problems in a file of JSON lines: read, and each one checked by its kind."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox import WeakSandbox
from sandbox.jobs import Call, Program
from verify import Problem, Verdict, kind_of, run_jobs, shown, verdict_of


def load_problems(path: str | Path) -> list[Problem]:
    """Read problems from JSON lines in UTF-8: {"prompt": ..., "kind": ..., "reference": ...} on each line.

    A prompt is text, or a list of chat messages {"role": ..., "content": ...}. Every problem is checked, and where its
    kind knows a right response, that response is judged. Raises FileNotFoundError; ValueError with the path and the
    line number for a broken line, or if there is no problem.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"no problems at {path}: name a file of JSON lines; a weight follows a colon, FILE.jsonl:0.5"
        )
    problems, line_numbers = [], []
    # Split bytes: lines of text would also end at U+2028, which JSON allows inside a string.
    for line_number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        try:
            if line.strip():
                record = json.loads(line.decode("utf-8"))
                if not isinstance(record, dict) or record.keys() != set(Problem._fields):
                    raise ValueError(f"a problem is an object with {', '.join(Problem._fields)}, got {shown(record)}")
                problems.append(Problem(**record))
                line_numbers.append(line_number)
        except (ValueError, RecursionError) as error:
            form = "Write every backslash twice" if "escape" in str(error) else "Write one JSON object a line, in UTF-8"
            raise ValueError(f"{path}, line {line_number}: {error}. {form}") from None
    if not problems:
        raise ValueError(f"{path} has no problem: write one JSON object a line")
    if broken := broken_problems(problems):
        position, sentence = next(iter(broken.items()))
        raise ValueError(f"{path}, line {line_numbers[position]}: {sentence}")
    return problems


def broken_problems(problems: list[Problem]) -> dict[int, str]:
    """Return position -> a sentence for each problem that is broken, or whose rule refuses its own answer."""
    broken: dict[int, str] = {}
    verdicts: dict[tuple, Verdict] = {}
    jobs: dict[tuple, Call] = {}
    for position, (prompt, name, reference) in enumerate(problems):
        try:
            check_prompt(prompt)
            kind = kind_of(name)
            kind.check(reference)
        except ValueError as error:
            broken[position] = str(error)
            continue
        solution = kind.solution(reference)
        if solution is not None:
            answer, key = kind.answer(solution), (name, position, solution)
            value = None if answer is None else kind.judge(answer, reference, *(0 for _ in kind.extra))
            if isinstance(value, Call):
                jobs[key] = value
            else:
                verdicts[key] = verdict_of(value)
    verdicts |= run_jobs(jobs_that_may_run(jobs), workers=None, timeout_s=60.0, allow_weak_sandbox=False)
    for (_, position, solution), verdict in verdicts.items():
        if not verdict.correct:
            broken[position] = f"its rule calls its own answer {verdict.reason}: {shown(solution)}"
    return dict(sorted(broken.items()))


def jobs_that_may_run(jobs: dict[tuple, Call]) -> dict[tuple, Call | Program]:
    """Leave out the jobs that evaluate a problem's own answer, if this machine cannot isolate them completely.

    A stranger may have written the problem. If it can, one process evaluates one answer after the other.
    """
    evaluated = [key for key, job in jobs.items() if job.evaluates]
    try:
        run_jobs({key: jobs[key] for key in evaluated[:1]}, workers=1, timeout_s=60.0, allow_weak_sandbox=False)
    except WeakSandbox:
        return {key: job for key, job in jobs.items() if key not in evaluated}
    return {key: replace(job, evaluates=False) for key, job in jobs.items()}


def check_prompt(prompt: Any) -> None:
    """Raise ValueError unless the prompt is text, or a list of chat messages {"role": ..., "content": ...}."""
    messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    if not all(isinstance(message, dict) and message.keys() == {"role", "content"} for message in messages):
        raise ValueError(f'a chat message is {{"role": text, "content": text}}, got {shown(prompt)}')
    texts = [text for message in messages for text in message.values()]
    contents = [message["content"] for message in messages]
    if not all(isinstance(text, str) for text in texts) or not any(text.strip() for text in contents):
        raise ValueError(f"`prompt` must be text or a list of chat messages, and not empty; got {shown(prompt)}")
    if lone := re.search("[\ud800-\udfff]", "".join(texts)):
        raise ValueError(f"`prompt` has {shown(lone[0])}, half of a surrogate pair, which no tokenizer can read")
