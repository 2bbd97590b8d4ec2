"""How the program ends: a mistake, a failure, Ctrl-C, SIGTERM or the end each have a sentence and an exit code.

0    done                        1    a failure that nobody could know of before
2    refused at the start        130  Ctrl-C                143  SIGTERM
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from accelerate import Accelerator

from rollout import Engine, EngineError
from trainer.progress import RunStopped
from trainer.report import wrapped
from trainer.run import Run
from trainer.settings import Config
from verify import NotAReward

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE)
ROOT = Path(__file__).resolve().parent.parent


def is_refusal(mistake: Exception) -> bool:
    """Is it a sentence for the user, or a file that cannot be opened? Any other is a bug, and keeps its traceback.

    A ValueError is a sentence if a `raise` of this project made it; torch and Python raise others.
    """
    if isinstance(mistake, (EngineError, torch.OutOfMemoryError)) or getattr(mistake, "filename", None):
        return True
    last = traceback.extract_tb(mistake.__traceback__)[-1]
    ours = Path(last.filename).is_relative_to(ROOT) and "site-packages" not in last.filename
    return ours and (last.line or "").startswith("raise ")


@contextmanager
def refusals_as_sentences():
    """A mistake in what was asked for, found before anything was trained: a sentence, and exit code 2."""
    try:
        yield
    except (ValueError, OSError, EngineError, torch.OutOfMemoryError) as mistake:
        if not is_refusal(mistake):
            raise
        several = int(os.environ.get("WORLD_SIZE", 1)) > 1
        where = f"process {os.environ.get('RANK', 0)}: " if several else ""
        lines = f"{where}{mistake}".splitlines()
        if sys.stderr.isatty():
            lines = [wrapped(line, 2) for line in lines]
        print("\n" + "\n".join(lines), file=sys.stderr, flush=True)
        sys.stdout.flush()
        if several:  # at once: the destructors of an engine may wait for the other processes
            os._exit(2)
        sys.exit(2)


@contextmanager
def failures_as_sentences(run: Run, config: Config, accelerator: Accelerator):
    """Whatever stops a run says what it was and how to go on. SIGTERM and Ctrl-C end it at once."""

    def end(sentence: str, code: int):
        after = "there is no checkpoint yet" if config.trains else "nothing is written before the end"
        if config.trains and (kept := run.checkpoints.all()):
            after = f"--resume --name {config.name} continues after {kept[-1].name}"
        with suppress(RuntimeError):  # a signal may come inside a print, which must not be entered again
            sys.stdout.flush()
        os.write(2, f"\n{sentence}{after}\n".encode())
        os._exit(code)  # the destructors of an engine may wait for other processes

    def stopped(number: int, _) -> None:
        if not accelerator.is_main_process:  # one sentence is enough
            os._exit(128 + number)
        end(f"stopped{' by SIGTERM' * (number == signal.SIGTERM)}; ", 128 + number)

    before = {number: signal.signal(number, stopped) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except Exception as failure:
        end(f"process {accelerator.process_index}: {sentence_of(failure, accelerator)}\n", 1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def sentence_of(failure: Exception, accelerator: Accelerator) -> str:
    """A sentence on what ended a run. What nobody foresaw comes with its traceback."""
    text = str(failure)
    if isinstance(failure, (EngineError, NotAReward, RunStopped)):
        return text
    if isinstance(failure, OSError) and failure.errno in DISK_ERRORS:
        return (
            f"{failure.filename or 'a file'} could not be written: {failure.strerror or text}. Make room, or name "
            "another --output_dir; what is on the disk is whole"
        )
    if isinstance(failure, torch.OutOfMemoryError) or "can't allocate memory" in text:
        return (
            f"out of memory: {text.splitlines()[0]} Lower --max_tokens_per_micro_batch, or set --gradient_checkpointing"
        )
    if accelerator.num_processes > 1 and ("gloo" in text or isinstance(failure, torch.distributed.DistError)):
        return (
            "another process has ended: its own message, if it had time for one, says why. This one cannot go on alone"
        )
    return "".join(traceback.format_exception(failure))


def shut_down(engine: Engine, accelerator: Accelerator) -> None:
    """All is done and written: wait for the other processes, and go."""
    accelerator.wait_for_everyone()
    engine.close()
    accelerator.end_training()
    if accelerator.num_processes > 1:  # torch's threads may abort a process that Python takes apart
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
