"""The start of a run, and its end by an exception: for train.py's `main` and the programs in tools/.

`set_up` builds all that a run works with. `explained` turns an exception into a sentence and an exit code.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple, NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from transformers.utils import logging

import loss as L
import trainer
from rollout import ENGINES, Engine, Sampling
from trainer.data import Data, load, load_model, stop_tokens
from trainer.policy import (
    Policy,
    agrees_with_logits,
    allocate_moments,
    fsdp_requested,
    micro_batches,
    score,
    sharded,
    shares_prompts,
)
from trainer.problems import load_rewards
from trainer.progress import Progress
from trainer.report import introduction
from trainer.rollouts import Judge, roll_out
from trainer.run import Run
from trainer.settings import Config, Refusal, refusing
from verify import JudgeFailed, NotAReward


class Setup(NamedTuple):
    """Everything that a run works with. --eval_only has no optimizer and no reference."""

    data: Data
    judge: Judge
    sampling: Sampling
    engine: Engine
    policy: Policy
    ddp_policy: torch.nn.Module  # the policy as DDP wraps it; without DDP the policy itself
    reference: Policy | None
    optimizer: torch.optim.Optimizer
    run: Run
    progress: Progress

    def close(self, accelerator: Accelerator) -> None:
        """End the engine and the process group, after the last collective operation."""
        accelerator.wait_for_everyone()
        self.engine.close()
        accelerator.end_training()


def start_accelerator() -> Accelerator:
    """Start Accelerate. Collectives time out after 3 hours: a rank may generate or write a checkpoint that long."""
    with refusing("Accelerate cannot start: "):
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=3))])
    if accelerator.distributed_type.value not in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP"):
        raise Refusal(f"Accelerate is set to {accelerator.distributed_type.value}: use one process, DDP or FSDP2")
    if accelerator.mixed_precision not in ("no", "bf16"):
        raise Refusal(f"--mixed_precision {accelerator.mixed_precision}: this loop needs bf16 or no")
    if accelerator.gradient_accumulation_steps != 1:
        raise Refusal(
            "gradient accumulation is set in Accelerate: set it to 1, --max_tokens_per_micro_batch replaces it"
        )
    return accelerator


def set_up(config: Config, accelerator: Accelerator, sources: dict[str, str]) -> Setup:
    """Build data, models, engine and folder, in this order. Raises Refusal; a new folder is made last."""
    logging.disable_progress_bar()  # bars of reading and writing weights
    with refusing("--rewards: "):
        load_rewards(config.rewards)
    data = load(config, sources)
    run, progress = Run(config, accelerator, data), Progress()
    judge = Judge(data.tokenizer, config)
    judge.check([*data.problems, *data.held_out])
    model = load_model(config.model).to(accelerator.device)
    sampling = Sampling(
        config.max_response_tokens, config.temperature, stop_token_ids=stop_tokens(data.tokenizer, model)
    )

    # The trainer allocates its memory first, and the engine takes its share of the rest.
    fsdp, engine_class = fsdp_requested(), ENGINES[config.engine]
    engine_model = copy.deepcopy(model) if fsdp and engine_class.needs_whole_model else model
    policy, reference, optimizer = Policy(model), None, None
    if not agrees_with_logits(policy):
        raise Refusal(f"{type(model).__name__} scales or caps its logits after the head: it cannot be trained here")
    if not config.eval_only:
        policy.share_prompts = shares_prompts(policy, data.prompt_lengths, config)
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        reference = copy.deepcopy(policy).requires_grad_(False) if config.kl_coef else None
        if fsdp:
            policy, reference = sharded(policy, accelerator), reference and sharded(reference, accelerator)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        allocate_moments(optimizer)
    precision = "bfloat16" if accelerator.mixed_precision == "bf16" else "float32"
    with refusing():
        engine = engine_class.from_config(engine_model, data.positions, precision, config)
    run.console.say(introduction(config, sources, data, policy, engine, accelerator))

    if config.resume:
        run.open()
        run.restore(progress, policy, optimizer, reference)
        engine.sync(policy.model)
    agreement = check_engine(engine, policy, data, sampling, judge, config, accelerator)
    run.console.say(f"  agreement   {agreement}\n")
    if not config.resume:
        run.open()
    ddp_policy = policy if fsdp else accelerator.prepare(policy)
    return Setup(data, judge, sampling, engine, policy, ddp_policy, reference, optimizer, run, progress)  # type: ignore[arg-type]


def check_engine(
    engine: Engine, policy: Policy, data: Data, sampling: Sampling, judge: Judge, config: Config,
    accelerator: Accelerator,
) -> str:  # fmt: skip
    """Compare the log-probs of engine and trainer on a few rollouts. Returns a sentence; raises Refusal.

    Small differences (bfloat16, other kernels) are what the truncated importance weight is for. Large ones mean that
    weights did not reach the engine, or that the two compute the architecture differently.
    """
    problems = (data.problems or data.held_out)[:4]
    longest = config.eval_max_response_tokens if config.eval_only else config.max_response_tokens
    short = dataclasses.replace(sampling, max_new_tokens=min(256, longest))
    engine.wake()
    rollouts, _ = roll_out(
        engine, problems, max(8, accelerator.num_processes), [*range(len(problems))], short, judge, accelerator
    )
    engine.sleep()
    some = micro_batches(rollouts, config.max_tokens_per_micro_batch, policy.share_prompts, accelerator)
    score(policy, some, "old_logp", config.temperature, accelerator)
    old, sampled = (torch.cat([getattr(batch, name) for batch in some]) for name in ("old_logp", "engine_logp"))
    sums = torch.stack([torch.ones_like(old).sum(), (old - sampled).abs().sum(), L.kl_k3(sampled, old).double().sum()])
    tokens, difference, kl = accelerator.reduce(sums, "sum").tolist()
    exact = accelerator.mixed_precision == "no" and engine.precision == "float32"
    limit = config.max_engine_kl or (1e-4 if exact else 0.05)
    sentence = (
        f"|log π_trainer - log π_engine| {difference / tokens:.1e}, KL {kl / tokens:.1e}, over {tokens:.0f} tokens"
    )
    if not kl / tokens <= limit:
        raise Refusal(
            f"the engine does not sample the model that is trained: {sentence}; the limit of the KL is {limit:g}. Use "
            "--engine torch, or raise --max_engine_kl if this much is expected"
        )
    return sentence


# ---------------------------------------------------------------------------------------- the end by an exception


@contextmanager
def explained(code: int, after_interrupt: str = "") -> Iterator[None]:
    """Print a refusal, or that the user stopped the program, without a traceback. Ends the process.

    code: exit code of a refusal: 2 before a run has begun, 1 later. Ctrl-C ends with 130, any other exception with 1.
    """
    if signal.getsignal(signal.SIGINT) is trainer.stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (Refusal, JudgeFailed, NotAReward) as refusal:
        refuse(refusal, code)
    except KeyboardInterrupt:
        leave(130, f"\nstopped{after_interrupt and f'; {after_interrupt}'}")
    except Exception as failure:
        if isinstance(failure, torch.OutOfMemoryError):
            failure.add_note("Lower --max_tokens_per_micro_batch or --gpu_memory_utilization, set "
                             "--gradient_checkpointing, or start the run with FSDP2")  # fmt: skip
        leave(1, traceback.format_exc())  # on every rank


def refuse(refusal: Exception, code: int) -> NoReturn:
    """Print a refusal on rank 0. The other ranks wait 5 seconds, so that a launcher ends them before they repeat it."""
    if rank := int(os.environ.get("RANK", 0)):
        time.sleep(5)
    leave(code, f"process {rank}: {refusal}" if rank else str(refusal))


def leave(code: int, text: str) -> NoReturn:
    """End this process without the destructors of an engine, which may wait for other ranks."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    os._exit(code)
