"""The start of a run, for train.py's `main` and tools/: `set_up` builds all that a run works with."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from transformers.utils import logging

import loss as L
from engines.vllm import check_compiler
from kinds.users import load_rewards
from rollout import ENGINES, Engine, Sampling
from trainer.adapters import ALPHA, add_adapters, copy_sharing_frozen, trainable
from trainer.autocast import dither_under_autocast
from trainer.console import Console, introduction
from trainer.data import Data, load_data
from trainer.launch import fsdp_requested
from trainer.objectives import load_objective
from trainer.offload import OffloadedAdamW, allocate_moments, to_host
from trainer.policy import Policy, recompute_layers
from trainer.pretrained import load_model, try_to_save
from trainer.process import Refusal, refusing
from trainer.progress import Progress
from trainer.rollouts import Judge
from trainer.run import Run
from trainer.settings import Config
from trainer.sharding import copy_from_rank_0, copy_sharing_weights, shard
from trainer.text import stop_tokens
from trainer.trial import agreement, has_unused_parameters, logits_fault, shares_prompts


class Setup(NamedTuple):
    """Everything that a run works with. --eval_only has no optimizer and no reference policy."""

    data: Data
    judge: Judge
    objective: L.Objective
    sampling: Sampling
    engine: Engine
    policy: Policy
    wrapped: torch.nn.Module  # the policy as DDP or FSDP2 wraps it; on one process the policy itself
    ref_policy: Policy | None
    optimizer: torch.optim.Optimizer
    run: Run
    progress: Progress

    def close(self, accelerator: Accelerator) -> None:
        """End the engine and the process group, after the last collective operation.

        The objects of the run stay until the process ends. If they were freed right after a barrier, the destructor of
        gloo's process group, which DDP holds, could wait for ever: it joins a thread that waits for Python's lock.
        """
        accelerator.wait_for_everyone()
        self.engine.close()
        accelerator.end_training()
        ENDED.append(self)


WEIGHT_DECAY = 0.01  # of AdamW; not in the paper: torch's default
ENDED: list[Setup] = []  # of the runs that have ended: see Setup.close


def set_up(config: Config, accelerator: Accelerator, origins: dict[str, str]) -> Setup:
    """Build data, models, engine and folder, in this order. Raises Refusal; a new folder is made last.

    With --resume it ends the process if the run is complete.
    """
    logging.disable_progress_bar()  # bars of reading and writing weights
    say = Console(accelerator.is_main_process).say
    where = f"{accelerator.num_processes} x {accelerator.device.type} in {config.precision}"
    say(f"starting {config.name} on {where}: reading problems and model ...")
    if accelerator.device.type == "cuda" and config.engine == "vllm":
        with refusing():
            check_compiler()
    if config.offload and fsdp_requested():
        raise Refusal("--offload is for one GPU or DDP, and FSDP2 divides moments and reference anyway: leave it out")
    with refusing("--rewards: "):
        load_rewards(config.rewards)
    data = load_data(config, origins)
    run, progress = Run(config, accelerator, data), Progress()
    if config.resume:
        run.end_if_complete()
    objective = load_objective(config.objective)
    judge = Judge(data.tokenizer, config, objective)
    judge.check_kinds([*data.problems, *data.held_out])

    # The trainer allocates its memory first, and the engine takes its share of the rest.
    policy, ref_policy, engine_model = build_models(config, accelerator, data)
    sampling = Sampling(
        config.max_response_tokens, config.temperature, stop_token_ids=stop_tokens(data.tokenizer, policy.model)
    )
    optimizer, repair = None, ""
    if not config.eval_only:
        repair = try_to_save(policy.model, data.tokenizer)
        # One weight at a time, which costs milliseconds. torch's default on a GPU holds one more copy of all weights.
        adamw = OffloadedAdamW if config.offload else torch.optim.AdamW
        optimizer = adamw(trainable(policy), lr=config.learning_rate, weight_decay=WEIGHT_DECAY, foreach=False)
        allocate_moments(optimizer)
    if config.engine == "vllm":
        say("waiting for vLLM: on a GPU its first start compiles and captures kernels, which takes minutes ...")
    with refusing():
        engine = ENGINES[config.engine].from_config(engine_model, data.positions, config.precision, config)
    note = f"\n  note: {repair}" if repair else ""
    say(introduction(config, origins, data, policy, engine, accelerator) + note)

    if config.resume:
        run.open()
        run.restore(progress, policy, optimizer, ref_policy)
        engine.sync(policy.model)
    run.console.say(f"  agreement   {agreement(engine, policy, data, sampling, judge, config, accelerator)}\n")
    if not config.resume:
        run.open()
    if accelerator.ddp_handler and accelerator.num_processes > 1 and not fsdp_requested():
        accelerator.ddp_handler.find_unused_parameters = has_unused_parameters(policy)
    return Setup(
        data=data, judge=judge, objective=objective, sampling=sampling, engine=engine,
        policy=policy, wrapped=policy if fsdp_requested() else accelerator.prepare(policy),
        ref_policy=ref_policy, optimizer=optimizer,  # type: ignore[arg-type]
        run=run, progress=progress,
    )  # fmt: skip


def build_models(config: Config, accelerator: Accelerator, data: Data) -> tuple[Policy, Policy | None, Any]:
    """Return policy, reference policy and the model of the engine, on this rank's device. Raises Refusal.

    With FSDP2 only rank 0 reads the weights, into its host memory, and `shard` gives every rank its part. The engine
    gets a whole copy then, if it needs one. With --lora_rank the checks run on the host, in float32: the weights go to
    the device when they are frozen in the run's precision.
    """
    fsdp, device, lora = fsdp_requested(), accelerator.device, config.lora_rank > 0 and not config.eval_only
    has_weights = not fsdp or accelerator.is_main_process
    model = load_model(config.model, without_weights=not has_weights)
    if not fsdp and not lora:
        model.to(device)
    policy = Policy(model)
    fault = logits_fault(policy) if has_weights else ""
    share = has_weights and not fault and not config.eval_only and shares_prompts(policy, data.prompt_lengths, config)
    fault, policy.share_prompts = broadcast_object_list([fault, share])  # rank 0's answers
    if fault:
        raise Refusal(f"--model {config.model}: {type(model).__name__} cannot be trained here: {fault}")
    if config.gradient_checkpointing and not config.eval_only:
        recompute_layers(model)
    if lora:
        add_adapters(model, config.lora_rank, ALPHA, getattr(torch, config.precision))
    if lora and not fsdp:
        model.to(device)
    if config.precision == "bfloat16":
        dither_under_autocast(model)
    engine_model = copy_sharing_weights(model) if fsdp and ENGINES[config.engine].needs_whole_model else model
    ref_policy = None
    if config.kl_coef and not config.eval_only:
        ref_policy = copy_sharing_weights(policy) if fsdp else copy_sharing_frozen(policy)
    if fsdp:
        policy = shard(policy, accelerator)
        ref_policy = shard(ref_policy, accelerator) if ref_policy else None
        if engine_model is not model:
            copy_from_rank_0(engine_model, device)
    if ref_policy and config.offload:
        to_host(ref_policy)
    return policy, ref_policy.requires_grad_(False) if ref_policy else None, engine_model
