"""A process that falls silent ends the others within minutes (train.py on several processes).

A machine that loses its power or its network closes no connection: whoever waits for it waits for a timeout. So each
of several processes has two threads beside its own work:

    talk     writes a new number into torch.distributed's store every INTERVAL seconds, and reads the others'. One that
             stood still in all readings of LIMIT seconds is silent
    listen   counts what `talk` gets no answer to: where the machine that holds the store is gone, `talk` hangs for ever

Either prints a sentence and ends its own process, which is all that it can end. Both count, and read no clock: of
processes that were all stopped and go on (a suspended machine, a debugger) nobody counts the time between. The numbers
come from a thread, so a process whose own work hangs is not silent: the timeout of its process group ends it.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from itertools import count

import torch.distributed as dist
from accelerate import Accelerator

from trainer.settings import Config

INTERVAL = 10.0  # seconds
LIMIT = 180.0  # seconds
ENDED = b"ended"  # in place of a number: this process has left, and said why

_watch: Watch | None = None


def begin(accelerator: Accelerator, config: Config) -> None:
    """Watch the other processes, and be watched, until `stop`; nothing where there is one. All of them call it."""
    global _watch
    if accelerator.num_processes > 1:
        _watch = Watch(accelerator.process_index, accelerator.num_processes, config)


def stop() -> None:
    """This process ends and has said why, or nobody waits for another any more."""
    if _watch:
        _watch.over.set()
        _watch.talker.join(1)  # not longer: the store may be gone


class Watch:
    """The two threads of one process, and what they know of the others. config: names the run to go on with."""

    def __init__(self, rank: int, world: int, config: Config):
        self.rank, self.config = rank, config
        self.interval, self.limit = INTERVAL, round(LIMIT / INTERVAL)  # limit: in readings
        # A connection of its own: calls on the main thread's wait for each other
        self.store = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
        self.keys = [f"watch/{i}" for i in range(world)]
        self.store.set(f"machine/{rank}", socket.gethostname())
        self.store.set(self.keys[rank], "0")
        self.machines = [x.decode() for x in self.store.multi_get([f"machine/{i}" for i in range(world)])]
        self.found = self.store.multi_get(self.keys)
        self.still = [0] * world  # readings, up to the last, in which a process's number was the same
        self.unanswered, self.closed = 0, False
        self.over = threading.Event()
        self.talker = threading.Thread(target=self.talk, daemon=True)
        self.talker.start()
        threading.Thread(target=self.listen, daemon=True).start()

    def talk(self) -> None:
        """Write this process's number, read all, judge. At the end leave word that it was one."""
        own = self.keys[self.rank]
        try:
            for beat in count(1):
                if self.over.wait(self.interval):
                    break
                self.store.set(own, str(beat))
                found = self.store.multi_get(self.keys)
                self.still = [n + 1 if a == b else 0 for n, a, b in zip(self.still, self.found, found, strict=True)]
                self.found, self.unanswered = found, 0
                if max(self.still) >= self.limit:
                    self.end(self.gone())
            self.store.set(own, ENDED)
        except RuntimeError:  # torch's DistError: the store's process has ended, and its machine said so
            self.closed = True

    def listen(self) -> None:
        """End where the store gives no answer, or is closed, for as long as a process may be silent."""
        while not self.over.wait(self.interval):
            self.unanswered += 1
            if self.unanswered > self.limit:
                self.end(self.sentence([0], self.closed))

    def gone(self) -> str:
        """Who stands still; two readings more or less count as one, since each process wrote at a time of its own."""
        silent = [i for i, n in enumerate(self.still) if n >= self.limit - 2 and self.found[i] != ENDED]
        return self.sentence(silent or [i for i, x in enumerate(self.found) if x == ENDED], not silent)

    def sentence(self, ranks: list[int], ended: bool) -> str:
        machines = {self.machines[i]: [j for j in ranks if self.machines[j] == self.machines[i]] for i in ranks}
        who = " and ".join(f"{', '.join(map(str, own))} on {machine}" for machine, own in machines.items())
        who = f"processes {who} have" if len(ranks) > 1 else f"process {who} has"
        if ended:
            return f"{who} ended: its own message, if it had time for one, says why"
        return f"{who} fallen silent, no sign of life for {LIMIT:g} seconds: the machine or its network is gone"

    def end(self, sentence: str) -> None:
        """Say so and end this process; its main thread may be waiting in a call that nothing interrupts."""
        # The newest checkpoint is not looked up, as `ending` does: the disk may have been the lost machine's
        after = f"--resume --name {self.config.name or 'NAME'} goes on after the last checkpoint"
        if self.config.eval_only:
            after = "nothing is written before all is evaluated"
        said = f"\nprocess {self.rank}: {sentence}. This one cannot go on alone; {after}"
        speaker = threading.Thread(target=print, args=[said], kwargs={"file": sys.stderr, "flush": True}, daemon=True)
        if not self.over.is_set():
            speaker.start()  # a thread, since nobody may be reading
            time.sleep(2 * self.interval)  # the others come to see the same, before a store that is held here goes
            os._exit(1)
