"""From settings to all that the loop works with: data, models, engine, and every check that can be made before step 0.

`set_up` is the order of it.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, InitProcessGroupKwargs, gather_object, set_seed
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

import brorl
import loss as L
from rollout import Engine, engine_class
from trainer.batch import Batch
from trainer.checkpoint import Whole
from trainer.checks import ASKED, check, resolve, trackers
from trainer.memory import memory_estimate, memory_line, memory_now
from trainer.policy import Policy
from trainer.problems import describe, digests, load_held_out, load_training, stop_tokens
from trainer.processes import from_main, seed_of, total
from trainer.progress import Cursor, Progress
from trainer.prompts import check_examples, describe_prompts
from trainer.report import short, wrapped
from trainer.run import Run
from trainer.settings import Config, shown
from verify import Problem, WeakSandbox, failures, load_rewards, verify_batch

if TYPE_CHECKING:  # what is off by default is imported where it is asked for
    from trainer.noise import Noise
    from trainer.probe import Probe


class Setup(NamedTuple):
    """All that `train` works with; all checks have passed. --eval_only needs the first eight."""

    problems: list[Problem]
    prompts: list[list[int]]
    held_out: list[Problem]
    held_out_prompts: list[list[int]]
    tokenizer: PreTrainedTokenizerBase
    stop_tokens: list[int]  # each of them ends a response
    engine: Engine
    run: Run
    policy: torch.nn.Module = None  # type: ignore[assignment]
    reference: torch.nn.Module | None = None
    optimizer: torch.optim.Optimizer = None  # type: ignore[assignment]
    cursor: Cursor = None  # type: ignore[assignment]
    progress: Progress = None  # type: ignore[assignment]
    probe: Probe | None = None  # with --log_mass_balance
    noise: Noise | None = None  # with --log_noise
    prompt_style: str = ""  # what stands around each prompt, in words


def start_accelerator(config: Config) -> Accelerator:
    """The processes, and as many threads in each as its share of the machine's cores. Raises ValueError."""
    # The launcher ends the others where a process died; the timeout is for a machine that is lost, and for a process
    # that hangs. The longest honest wait in a collective is for process 0's disk: a checkpoint of a 7B model is 113
    # GiB, 15 minutes at 135 MB/s.
    try:
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(minutes=20))])
    except ValueError as mistake:  # a precision or a plugin that is not there
        raise ValueError(f"Accelerate cannot start as it is set: {mistake}") from None
    if accelerator.device.type == "cpu" and hasattr(os, "sched_getaffinity") and not threads_chosen():
        local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local))
    return accelerator


def threads_chosen() -> bool:
    """Did somebody set OMP_NUM_THREADS? Launchers set it to 1 where nobody did; their own environment tells."""
    launched = os.environ.keys() & {"ACCELERATE_MIXED_PRECISION", "TORCHELASTIC_RUN_ID"}
    if not launched or os.environ.get("OMP_NUM_THREADS") != "1":
        return "OMP_NUM_THREADS" in os.environ
    try:
        return b"\0OMP_NUM_THREADS=" in b"\0" + Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        return False


def set_up(
    config: Config, accelerator: Accelerator, given: set[str] | None = None, probe: type[Probe] | None = None
) -> Setup:
    """Settings, data, models, and the run's folder. Raises ValueError or OSError, with a sentence, for mistakes."""
    if not sys.stderr.isatty():  # no bars of the hub, of reading and writing weights, of data sets
        logging.disable_progress_bar()
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    sources = resolve(config, given, accelerator.device.type == "cuda")
    trackers(config.report_to)
    run = Run(config, accelerator)
    load_rewards(config.rewards or [])
    tokenizer, positions = describe(config.model)
    length = config.max_response_tokens
    kept = config.eval_only and "examples" in sources
    problems, prompts, run.frame = load_training(config, tokenizer, positions, kept)
    frame = run.frame
    run.held_out = held_out = load_held_out(
        config, tokenizer, positions, given="eval_max_response_tokens" not in sources, frame=frame
    )
    run.digests = digests(config, problems, frame, held_out, tokenizer)
    if config.resume:
        run.check_same()
    if "eval_max_response_tokens" in sources:
        sources["eval_max_response_tokens"] += held_out.cut
    check(config, len(problems), accelerator)
    check_verifiers([*problems, *held_out.problems, *(example.problem for example in frame.examples)], config)
    check_examples(frame, config)
    set_seed(config.seed)
    model = load_model(config.model).to(accelerator.device)
    lengths = [len(x) + length for x in prompts] + [len(x) + config.eval_max_response_tokens for x in held_out.prompts]
    sharded = accelerator.distributed_type == DistributedType.FSDP
    engine = make_engine(config, model, max(lengths), sharded)
    engine.sleep()
    stops = stop_tokens(tokenizer, model)
    setup = Setup(problems, prompts, held_out.problems, held_out.prompts, tokenizer, stops, engine, run)
    setup = setup._replace(prompt_style=describe_prompts(frame, config, prompts or held_out.prompts))
    if config.eval_only:
        from_main(run.hold)
        lines = [setting_line(config, name, sources[name]) for name in ASKED if name in sources]
        lines += [wrapped(f"  prompts {setup.prompt_style}", 10)] if setup.prompt_style else []
        accelerator.print("\n".join([*lines, ""]), end="")
        accelerator.print(check_engine(engine, Policy(model), stops, held_out.prompts, config, accelerator))
        return setup
    setup = set_up_training(model, setup, config, accelerator, sources)
    plain = accelerator.unwrap_model(setup.policy)
    if config.log_mass_balance:
        from trainer.probe import Probe

        setup = setup._replace(probe=(probe or Probe)(plain, config, accelerator))
    if config.log_noise:
        from trainer.noise import Noise

        setup = setup._replace(noise=Noise(setup.policy, config, accelerator))
    return setup


def set_up_training(
    model: PreTrainedModel, setup: Setup, config: Config, accelerator: Accelerator, sources: dict[str, str]
) -> Setup:
    """Policy, reference, optimizer and what a checkpoint restores; the folder is made, or opened, last."""
    sharded = accelerator.distributed_type == DistributedType.FSDP
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    policy = Policy(model)
    policy.check_head()
    sharing = policy.share(config.share_prefix)
    parts = memory_estimate(config, policy, setup.engine, max(map(len, setup.prompts)), accelerator)
    memory = memory_line(parts, memory_now(accelerator.device)[1])
    reference = copy.deepcopy(policy).requires_grad_(False) if config.kl_coef else None
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    if config.optimizer_from and not config.resume:  # a checkpoint has its own
        load_moments(optimizer, Path(config.optimizer_from))
    if sharded and accelerator.mixed_precision == "bf16":  # Accelerate would also add gradients up in bfloat16
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        accelerator.state.fsdp_plugin.mixed_precision_policy = mixed
    if reference and sharded:
        reference = fsdp2_prepare_model(accelerator, reference)
    policy, optimizer = accelerator.prepare(policy, optimizer)
    plain = accelerator.unwrap_model(policy)
    cursor, progress = Cursor(len(setup.problems), config.seed), Progress()
    accelerator.register_for_checkpointing(cursor, progress, *([Whole(reference)] if reference else []))
    accelerator.print(introduction(config, sources, setup, accelerator, sharing, memory))
    if config.trains:
        setup.run.check_disk(model, reference is not None)
    checking = setup.engine, plain, setup.stop_tokens, setup.prompts, config, accelerator
    agreed = "" if config.resume else check_engine(*checking)  # before there is a folder
    if config.preflight:
        from_main(setup.run.hold)
    else:
        setup.run.open(cursor, progress)
    if config.resume:
        setup.engine.sync(model)  # the checkpoint's weights
        agreed = check_engine(*checking)
    accelerator.print(agreed + "\n")
    return setup._replace(policy=policy, reference=reference, optimizer=optimizer, cursor=cursor, progress=progress)


def load_model(name: str) -> PreTrainedModel:
    """The policy's weights in float32, which are trained; lower precision is autocast's."""
    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    except (ValueError, OSError) as failure:  # no causal model, no weights in the folder
        raise ValueError(f"--model {short(name)} cannot be loaded: {failure}") from failure
    except Exception as failure:  # a torn file is a SafetensorError, an UnpicklingError, a RuntimeError, ...
        reason = " ".join(str(failure).split())[:300]
        raise ValueError(
            f"--model {short(name)}: its weights cannot be read ({type(failure).__name__}: {reason}). Is a file cut "
            "off, or of another model? Copy or download it again"
        ) from failure


def load_moments(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Take AdamW's moments, and how many updates they hold, from a checkpoint of another run of the same model.

    That it is the same is seen by the shapes of its weights only.
    """
    name = f"--optimizer_from {checkpoint}"
    if not (checkpoint / "optimizer.bin").is_file():
        raise ValueError(
            f"{name} has no optimizer.bin: name a checkpoint, runs/NAME/checkpoints/step_..., of a run without FSDP2"
        )
    try:
        state = torch.load(checkpoint / "optimizer.bin", map_location="cpu", weights_only=True)
    except Exception as failure:  # a torn file is a RuntimeError, an UnpicklingError, an EOFError, ...
        raise ValueError(f"{name} cannot be read ({type(failure).__name__}): name another checkpoint") from failure
    fresh = optimizer.state_dict()
    shapes = [getattr(moments.get("exp_avg"), "shape", None) for _, moments in sorted(state["state"].items())]
    if shapes != [p.shape for group in optimizer.param_groups for p in group["params"]]:
        raise ValueError(f"{name} has not the moments of these weights: name a checkpoint of the model that is trained")
    optimizer.load_state_dict({"state": state["state"], "param_groups": fresh["param_groups"]})


def make_engine(config: Config, model: PreTrainedModel, positions: int, sharded: bool = False) -> Engine:
    """The engine of --engine, for this model, which FSDP2 may shard afterwards. positions: of a prompt and response."""
    engine = engine_class(config.engine)
    if sharded and engine.decodes_with_model:  # with whole weights
        model = copy.deepcopy(model)
    return engine.from_config(model, positions, config)


def check_verifiers(problems: list[Problem], config: Config) -> None:
    """Judge a nonsense answer of each kind: what no worker can do is known now, not at the first step."""
    first = {p.kind: p.reference for p in reversed(problems)}
    nonsense = "```python\npass\n```\n<answer>0</answer> \\boxed{x + y^2}"
    try:
        verdicts = verify_batch([(kind, nonsense, reference) for kind, reference in first.items()], **config.judging)
    except WeakSandbox as weak:
        raise ValueError(f"{weak} (--allow_weak_sandbox)") from None
    except RuntimeError as failure:
        raise ValueError(f"answers cannot be judged here: {failure}") from failure
    if failed := [failures.get(kind, kind) for kind, verdict in zip(first, verdicts, strict=True)
                  if verdict.reason in ("crashed", "timeout")]:  # fmt: skip
        raise ValueError(f"a nonsense response cannot be judged: {'; '.join(failed)}. A reward is needed for any text")


def check_engine(
    engine: Engine, policy: Policy, stops: list[int], prompts, config: Config, accelerator: Accelerator
) -> str:
    """Do engine and trainer hold the same model? Compares their log-probs on a few rollouts before anything is trained.

    Small differences (bfloat16, other kernels) are what the truncated importance ratio is for; large ones mean
    that weights did not arrive or that the two compute this architecture differently. Returns a line to print;
    raises ValueError beyond --max_engine_difference or --max_engine_kl.
    """
    rank, world = accelerator.process_index, accelerator.num_processes
    mine = [prompts[i % len(prompts)] for i in range(4 * rank, 4 * rank + 4)]
    engine.wake()
    groups = engine.generate(
        mine,
        8,
        max_new_tokens=min(config.eval_max_response_tokens if config.eval_only else config.max_response_tokens, 256),
        temperature=config.temperature,
        stop_token_ids=stops,
        seed=seed_of(config.seed, 0, rank),
    )
    engine.sleep()
    batch = Batch.of(groups, torch.zeros(len(mine) * 8), accelerator.device)
    trained, _ = batch.score(policy, config.temperature, config.max_tokens_per_micro_batch, accelerator)
    inside = batch.inside(torch.arange(len(batch), device=trained.device))
    ours, theirs = trained[inside], batch.engine_logp[inside]
    tokens = total(len(ours), accelerator)
    mean = total((ours - theirs).abs().sum().item(), accelerator) / tokens
    kl = total(L.kl_k3(theirs, ours).sum().item(), accelerator) / tokens
    most = max(gather_object([(ours - theirs).abs().max().item()]))
    exact = accelerator.mixed_precision == "no" and engine.precision == "float32"
    limits = (
        config.max_engine_difference if config.max_engine_difference is not None else (1e-3 if exact else 0.1),
        config.max_engine_kl if config.max_engine_kl is not None else (1e-4 if exact else 0.05),
    )
    comparison = (
        f"|log π_trainer - log π_engine| is {mean:.1e} on average and {most:.1e} at most, KL {kl:.1e}, over "
        f"{tokens:,.0f} tokens of {32 * world} rollouts"
    )
    if not (mean <= limits[0] and kl <= limits[1]):
        raise ValueError(
            f"the engine does not sample the model that is trained: {comparison}; the limits are {limits[0]:g} and "
            f"{limits[1]:g}. Either weights do not reach the engine or the two compute this architecture differently: "
            "train with --engine torch, try --engine_dtype float32, or, if this much is expected, raise "
            "--max_engine_difference and --max_engine_kl"
        )
    return wrapped(f"  engine and trainer agree: {comparison}", 14)


def introduction(
    config: Config, sources: dict[str, str], setup: Setup, accelerator: Accelerator, sharing: str, memory: str
) -> str:
    """What the run will do, before it does it. sharing: how log-probs are computed, from `Policy.share`."""
    model, world = setup.engine.model, accelerator.num_processes
    n, b, u = config.rollouts_per_prompt, config.prompts_per_step, config.updates_per_step
    parameters = sum(p.numel() for p in model.parameters())
    precision = {"no": "float32", "bf16": "bfloat16 beside float32 weights"}[accelerator.mixed_precision]
    precision += ", sharded by FSDP2" * (accelerator.distributed_type == DistributedType.FSDP)
    rollouts = f"N = {n} rollouts = {b * n:,} samples, in {u} updates of {b * n // u:,} samples"
    budgets = {"steps": config.max_steps, "samples": config.max_samples, "hours": config.max_hours}
    known = {json.dumps(problem.prompt) for problem in setup.problems}
    both = sum(json.dumps(problem.prompt) in known for problem in setup.held_out)
    seen = f", {both:,} of them trained on too: their score is no held-out score" if both else ""
    facts = {
        "problems": f"{len(setup.problems):,} to train on"
        + f", {len(setup.held_out):,} held out{seen}" * config.trains,
        **({"prompts": setup.prompt_style} if setup.prompt_style else {}),
        "a step": f"{b} prompts x {rollouts}, responses up to {config.max_response_tokens} tokens",
        **(
            {"budget": ", ".join(f"{limit:,} {name}" for name, limit in budgets.items() if limit)}
            if config.trains
            else {}
        ),
        "decoding": setup.engine.decoding,
        "training": sharing,
        "memory": memory,
    }
    first = (
        f"BroRL, recipe {config.recipe}: {short(config.model)}, {parameters / 1e6:,.2f}M parameters, "
        f"{world} process(es) on {model.device.type}, {precision}, run {config.name}"
    )
    lines = [wrapped(first, 2), *(wrapped(f"  {name:12}{text}", 14) for name, text in facts.items())]
    lines += ["  settings"] * config.trains
    for name in (x for x in brorl.RECIPES[config.recipe] if config.trains and getattr(config, x) is not None):
        lines.append(setting_line(config, name, sources.get(name, "as given")))
    return "\n".join(lines) + "\n"


def setting_line(config: Config, name: str, source: str) -> str:
    """A line of the table of settings."""
    value = getattr(config, name)
    text = " ".join(map(short, value)) if isinstance(value, list) else shown(value)
    return wrapped(f"    {name:24} {text:>10}   {source}", 42)
