"""A model's chat template is tried before the run, in a process of its own with limits."""

from __future__ import annotations

import os
import signal
import sys

from verify import Problem

# Limits of the process that tries a chat template: processor seconds, bytes in addition to the trainer's, prompts.
TEMPLATE_S, TEMPLATE_BYTES, TEMPLATE_PROMPTS = 60, 2**31, 1_000


def template_fault(tokenizer, problems: list[Problem]) -> str:
    """Say why the model's chat template cannot be used; "" if it can, or if it raises an error, which `encode` reports.

    A template is a program of the model's author. jinja2 keeps it from files and other programs, but not from an
    endless loop or a text of gigabytes. So a fork of this process tries it first, within limits, on the first prompts.
    """
    if tokenizer.chat_template is None or sys.platform != "linux":
        return ""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = try_template(tokenizer, problems)
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGXCPU:
        return f"took more than {TEMPLATE_S} processor seconds"
    return "" if status == 0 else f"took more than {TEMPLATE_BYTES >> 20:,} MiB of memory" if status == 2 else "crashed"


def try_template(tokenizer, problems: list[Problem]) -> int:
    """Render the first chats. Returns 0, or 2 if they need too much memory; the kernel ends what takes too long."""
    import resource  # not on Windows

    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + TEMPLATE_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CPU, (TEMPLATE_S, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chats = [problem.prompt for problem in problems if not isinstance(problem.prompt, str)]
    for chat in [[{"role": "user", "content": "1"}], *chats[:TEMPLATE_PROMPTS]]:
        try:
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        except MemoryError:
            return 2
        except Exception:
            continue
    return 0
