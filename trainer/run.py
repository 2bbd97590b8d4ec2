"""Stage 9: the folder of a run, its logs and checkpoints, the console, and the run's progress.

    config.json      the settings, the launch, digests of problems, tokenizer and reward files
    metrics.jsonl    one line per step, without a clock: equal runs write equal bytes (docs/evaluation.md)
    timing.jsonl     seconds per stage
    eval.jsonl       one line per evaluation: how many of k responses were correct, problem by problem
    samples.jsonl    some responses of each step and evaluation
    checkpoints/     step_00000010: weights, AdamW's moments, the reference, progress
    model/           the policy at the end, for transformers and vLLM, with recipe.json; curves.png

A checkpoint needs no random state: every draw derives from the seed and a position.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import gather_object
from filelock import FileLock, Timeout
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

import brorl
import loss as L
from rollout import whole_tensors
from trainer.data import Data
from trainer.policy import fsdp_requested
from trainer.report import draw_curves, score_sources
from trainer.rollouts import FAILED, Outcomes, Rollout, seed_of
from trainer.settings import Config, Refusal, check_same_run, refusing
from verify import REASONS, Problem

warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a checkpoint of one process is meant
LOGS = "metrics.jsonl", "timing.jsonl", "eval.jsonl", "samples.jsonl"
KEEP_CHECKPOINTS = 2
DECAY = 0.8  # per step, of the counts that estimate the share of informative prompts
MOST_UNJUDGED = 3  # steps in a row without a verdict


@dataclass
class Progress:
    """The state of a run, apart from weights and moments. A checkpoint has all of it."""

    step: int = 0
    position: int = 0  # of the next problem, in an endless order of problems
    samples: int = 0  # rollouts generated
    seconds: float = 0.0  # of the slowest rank
    tried: float = 0.0  # prompts of the last steps, decayed
    informative: float = 0.0  # informative ones among them, decayed
    unjudged: int = 0  # steps in a row without a verdict

    @classmethod
    def read(cls, checkpoint: Path) -> Progress:
        """Read the progress of a checkpoint. Raises Refusal if the file is damaged."""
        try:
            progress = cls(**json.loads((checkpoint / "progress.json").read_text()))
            for name, value in asdict(progress).items():
                if type(value) not in (int, type(getattr(cls, name))) or not 0 <= value < math.inf:
                    raise ValueError(f"{name} is {value!r}")
        except (OSError, ValueError, TypeError, RecursionError) as failure:
            raise Refusal(f"--resume: {checkpoint} cannot be read, delete it (progress.json: {failure})") from failure
        return progress

    def steps(self, config: Config):
        """Count the steps until the budget is spent."""
        while not self.spent(config):
            self.step += 1
            yield self.step

    def spent(self, config: Config) -> bool:
        """Whether --max_steps or --max_hours is reached. `seconds` is equal on all ranks, so they agree."""
        hours = config.max_hours or math.inf
        return self.step >= (config.max_steps or math.inf) or self.seconds >= 3600 * hours

    def due(self, every: int, config: Config) -> bool:
        """Return True if an action is due that happens every `every` steps and at the end of the run."""
        return self.spent(config) or (every > 0 and self.step % every == 0)

    def next_problems(self, problems: list[Problem], count: int, seed: int) -> tuple[list[Problem], list[int]]:
        """Return the next `count` problems and the seeds of their rollouts.

        The order is one permutation of the problems after another, fixed by the seed. It only moves forward.
        """
        positions, size = range(self.position, self.position + count), len(problems)
        self.position += count
        epochs = {epoch: list(problems) for epoch in {i // size for i in positions}}
        for epoch, order in epochs.items():
            random.Random(f"{seed}/{epoch}").shuffle(order)
        return [epochs[i // size][i % size] for i in positions], [seed_of(seed, self.step, i) for i in positions]

    def end_step(self, outcomes: Outcomes, seconds: float) -> None:
        """Count the step's rollouts. seconds: of the run."""
        self.samples += outcomes.reward.numel()
        self.tried = DECAY * self.tried + len(outcomes)
        self.informative = DECAY * self.informative + int(L.informative(outcomes.correct).sum())
        self.unjudged = self.unjudged + 1 if outcomes.unjudged else 0
        self.seconds = seconds

    def check(self) -> None:
        """Raise Refusal if the run cannot learn any more."""
        if self.unjudged >= MOST_UNJUDGED:
            raise Refusal(f"{self.unjudged} steps had no verdict: test --rewards, or raise --verify_timeout (--resume)")


class Run:
    """The folder and the console of a run. Only the main process writes, except for sharded checkpoints."""

    def __init__(self, config: Config, accelerator: Accelerator, data: Data):
        """Check that the folder is free, or the same run's on --resume. Raises Refusal."""
        self.config, self.accelerator, self.main = config, accelerator, accelerator.is_main_process
        self.folder, self.data, self.headed = Path(config.output_dir) / config.name, data, False
        self.launch = {"precision": accelerator.mixed_precision, "sharded": fsdp_requested()}
        if config.resume:
            check_same_run(config, self.launch, data.digests)
            self.end_if_complete()
        elif (self.folder / "config.json").exists():
            raise Refusal(f"{self.folder} exists: choose another --name, delete the folder, or --resume the run")
        self.started = self.began = self.lapped = time.perf_counter()
        self.laps: dict[str, float] = {}

    def open(self) -> None:
        """Make the folder and keep other processes out of it. Raises Refusal if one of them is using it."""
        if self.main:
            with refusing("--output_dir: "):
                self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = FileLock(self.folder / "lock")
            try:
                self.lock.acquire(timeout=0)
            except Timeout:
                raise Refusal(f"{self.folder} is in use by another process: choose another --name") from None
            settings = asdict(self.config) | self.launch | {"processes": self.accelerator.num_processes}
            write(self.folder / "config.json", json.dumps(settings | {"digests": self.data.digests}, indent=2) + "\n")
        if self.config.report_to:
            self.accelerator.project_configuration.set_directories(str(self.folder / "tensorboard"))
            self.accelerator.log_with = [self.config.report_to]  # type: ignore[list-item]
            names = {"wandb": {"name": self.config.name, "dir": str(self.folder)}}
            self.accelerator.init_trackers("brorl", {k: str(v) for k, v in asdict(self.config).items()}, names)
        self.accelerator.wait_for_everyone()

    def say(self, text: str) -> None:
        if self.main:
            print(text, flush=True)

    def say_scores(self, name: str, scores: dict[str, float]) -> None:
        """A row of scores, below the head of the table for the first one."""
        ks = [k for k in scores if k.startswith("pass@") and k not in ("pass@1", "pass@1_se")]
        if not self.headed:
            self.say(f"{'':14}pass@1 ± standard error" + "".join(f"{k:>9}" for k in ks) + "   tokens truncated")
            self.headed = True
        others = "".join(f"{scores[k]:9.3f}" for k in ks)
        self.say(
            f"{name:14}{scores['pass@1']:.3f} ± {scores['pass@1_se']:.3f}          {others}"
            f"{scores['response_tokens']:9.1f}{scores['truncated']:10.1%}"
        )

    def say_step(self, metrics: dict[str, float], outcomes: Outcomes) -> None:
        """The line of a step, and warnings."""
        of = f"/{self.config.max_steps}" if self.config.max_steps else ""
        names = ("reward", "pass_rate", "entropy", "kl_ref", "grad_norm", "response_tokens")
        facts = "  ".join(f"{name} {metrics[name]:.3g}" for name in names if name in metrics)
        self.say(f"step {metrics['step']}{of}  {facts}  {time.perf_counter() - self.began:.1f} s")
        for sentence in warnings_of(metrics, outcomes, self.config):
            self.say(f"step {metrics['step']}: {sentence}")

    def begin_step(self) -> None:
        self.began = self.lapped = time.perf_counter()
        self.laps = {}

    def seconds(self) -> float:
        """Return the run's seconds, with the time before a resume. All ranks get the value of the slowest rank."""
        return max(gather_object([time.perf_counter() - self.started]))

    def lap(self, stage: str) -> None:
        """Add the seconds since the last lap to a stage of timing.jsonl."""
        now = time.perf_counter()
        self.laps[stage] = self.laps.get(stage, 0.0) + now - self.lapped
        self.lapped = now

    def append(self, file: str, row: dict) -> None:
        if self.main:
            with (self.folder / file).open("a") as log:
                log.write(json.dumps(row) + "\n")

    def log(self, metrics: dict[str, float], progress: Progress) -> None:
        """The line of a step in metrics.jsonl and in timing.jsonl, and in the tracker."""
        rate = metrics["samples"] / progress.seconds if progress.seconds else 0.0
        self.append("metrics.jsonl", metrics)
        timing = {"step": metrics["step"], "seconds": progress.seconds, "samples_per_second": rate}
        self.append("timing.jsonl", timing | self.laps)
        if self.config.report_to:
            values = {name: x for name, x in metrics.items() if name != "step"}
            seconds = {f"seconds/{stage}": x for stage, x in self.laps.items()}
            self.accelerator.log(values | seconds, step=int(metrics["step"]))

    def sample(self, rollouts: list[Rollout], kept: torch.Tensor, step: int) -> None:
        """Two responses each to the first prompt that is kept and to the first that is dropped: the best, the worst."""
        for is_kept in (True, False):
            first = next((r.prompt_index for r in rollouts if bool(kept[r.prompt_index]) == is_kept), None)
            group = [r for r in rollouts if r.prompt_index == first]
            group.sort(key=lambda r: r.verdict.reward, reverse=True)  # type: ignore[union-attr]
            for r in group[:1] + group[1:][-1:]:
                self.append("samples.jsonl", {"step": step, "kept": is_kept} | described(r))

    def evaluated(self, outcomes: Outcomes, rollouts: list[Rollout], progress: Progress) -> dict[str, float]:
        """Log an evaluation and print it, with a row per source if there are several. Returns the scores."""
        *sources, (name, scores) = score_sources(outcomes, self.data.sources).items()
        row: dict[str, Any] = {"step": progress.step, "samples": progress.samples, "k": outcomes.reward.shape[1]}
        row |= {"problems": self.data.digests["the held-out problems"], "sources": self.data.sources}
        row |= {name: getattr(outcomes, name).sum(-1).tolist() for name in ("correct", "truncated")}  # counts of k
        row |= {"response_tokens": outcomes.length.double().mean(-1).tolist()}
        self.append("eval.jsonl", row | {"reward": outcomes.reward.mean(-1).tolist()})
        for r in [r for r in rollouts if r.number == 0][:4]:
            self.append("samples.jsonl", {"step": progress.step, "evaluation": True} | described(r))
        for source, part in sources:
            self.say_scores(source[-13:], part)
        self.say_scores(name[-13:] if self.config.eval_only else f"step {progress.step}", scores)
        if self.config.eval_only:
            self.say(f"wrote {self.folder}/: eval.jsonl, samples.jsonl, config.json")
        return {f"eval/{key}": value for key, value in scores.items()}

    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("step_" + "[0-9]" * 8))

    def save(self, progress: Progress, policy, optimizer, reference) -> None:
        """Write a checkpoint aside, then rename it: it is complete, or not there. Keep the newest two."""
        folder = self.folder / "checkpoints" / f"step_{progress.step:08d}"
        aside = folder.with_name("unfinished")
        if self.main:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        with unwrapped():
            dcp.save(state_of(policy, optimizer, reference), checkpoint_id=aside, no_dist=not dist.is_initialized())
        self.accelerator.wait_for_everyone()
        if self.main:
            write(aside / "progress.json", json.dumps(asdict(progress)))
            os.replace(aside, folder)
            for old in self.checkpoints()[:-KEEP_CHECKPOINTS]:
                shutil.rmtree(old)
        self.accelerator.wait_for_everyone()

    def end_if_complete(self) -> None:
        """End the process if the run has spent its budget and has written its model."""
        newest = next(reversed(self.checkpoints()), None)
        if newest and (newest / "complete").exists():
            progress = Progress.read(newest)
            if progress.spent(self.config):
                self.say(f"{self.folder} is complete at step {progress.step}: a higher --max_steps continues it")
                self.accelerator.end_training()
                sys.exit()

    def restore(self, progress: Progress, policy, optimizer, reference) -> None:
        """Load the newest checkpoint and remove later lines from the logs. Without a checkpoint the run starts over."""
        newest = next(reversed(self.checkpoints()), None)
        if newest:
            progress.__dict__.update(Progress.read(newest).__dict__)
            try:
                state = state_of(policy, optimizer, reference)
                read_state(newest, state)
            except Exception as failure:  # torch, pickle and the disk have many kinds
                raise Refusal(f"--resume: {newest} cannot be read, delete it ({failure!r:.200})") from failure
            set_state_dict(policy, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            if reference is not None:
                set_model_state_dict(reference, state["reference"])
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate
        for path in [self.folder / name for name in LOGS if self.main and (self.folder / name).exists()]:
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            write(path, "".join(line for line in lines if newest and json.loads(line)["step"] <= progress.step))
        self.started = time.perf_counter() - progress.seconds
        self.say(f"resuming after step {progress.step}" if newest else "no checkpoint yet: starting over")

    def finish(self, model, tokenizer) -> None:
        """Write model/ and curves.png, and mark the run as complete. All ranks call it: a sharded model is gathered."""
        weights = {name: tensor.cpu() for name, tensor in whole_tensors(model) if self.main}
        if not self.main:
            return
        aside = self.folder / "model.unfinished"
        shutil.rmtree(aside, ignore_errors=True)
        model.save_pretrained(aside, state_dict=weights)
        tokenizer.save_pretrained(aside)
        source = f"as in the run {self.config.name}"
        values = {name: getattr(self.config, name, None) for name in brorl.RECIPES[self.config.recipe]}
        settings = {name: {"value": x, "source": source} for name, x in values.items() if x is not None}
        recipes = {recipe: {name: settings[name] for name in brorl.EVALUATION} for recipe in brorl.RECIPES}
        recipes[self.config.recipe] = settings
        write(aside / "recipe.json", json.dumps(recipes, indent=2) + "\n")
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        os.replace(aside, self.folder / "model")
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        if not any("loss" in row for row in rows):
            self.say("nothing was trained: no update had a response to train on; samples.jsonl has some responses")
        title = f"{self.config.name}: N = {self.config.rollouts_per_prompt}, B = {self.config.prompts_per_step}"
        draw_curves(rows, self.folder / "curves.png", title)
        write(self.checkpoints()[-1] / "complete", "")
        self.say(f"wrote {self.folder}/: model/, curves.png, checkpoints/, {', '.join(LOGS)}")


def state_of(policy, optimizer, reference) -> dict[str, Any]:
    """Return the tensors of a checkpoint. Sharded ones stay sharded."""
    model, moments = get_state_dict(policy, optimizer)
    state: dict[str, Any] = {"model": model, "optimizer": moments}
    return state if reference is None else state | {"reference": get_model_state_dict(reference)}


def read_state(folder: Path, state: dict[str, Any]) -> None:
    """Fill the tensors of `state` from a checkpoint."""
    with unwrapped():
        dcp.load(state, checkpoint_id=folder, no_dist=not dist.is_initialized())


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the exception that torch wraps into its CheckpointException: Ctrl-C is a KeyboardInterrupt again."""
    try:
        yield
    except CheckpointException as failure:
        cause, _ = next(iter(failure.failures.values()))
        raise cause from failure


def described(r: Rollout) -> dict[str, Any]:
    return {"prompt": r.problem.prompt, "response": r.text} | r.verdict._asdict()  # type: ignore[union-attr]


def write(path: Path, text: str) -> None:
    """Replace a file: it has the old text or the new one, never a part."""
    aside = path.with_name(path.name + ".unfinished")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


# ------------------------------------------------------------------------------------------------------- metrics


def step_metrics(progress: Progress, outcomes: Outcomes) -> dict[str, float]:
    """Metrics over all rollouts that a step generated, informative or not (docs/evaluation.md)."""
    metrics = {
        "step": progress.step,
        "samples": progress.samples,
        "prompts": int(L.informative(outcomes.correct).sum()),
        "pass_rate": float(L.informative(outcomes.correct).double().mean()),
        "rounds": outcomes.rounds,
        "reward": float(outcomes.reward.mean()),
        "correct": float(outcomes.correct.double().mean()),
        "response_tokens": float(outcomes.length.double().mean()),
        "truncated": float(outcomes.truncated.double().mean()),
    }
    counts = outcomes.reason.flatten().bincount(minlength=len(REASONS)).tolist()
    metrics |= {f"reason/{x}": n for x, n in zip(REASONS, counts, strict=True) if n}
    for kind in sorted(set(outcomes.kinds)):
        rewards = outcomes.reward[[x == kind for x in outcomes.kinds]]
        metrics |= {f"reward/{kind}": float(rewards.mean()), f"rollouts/{kind}": rewards.numel()}
    return metrics


class Sums:
    """Metrics of a step's updates: sums over the tokens of all ranks, and extremes (names with _max or _min)."""

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.values: defaultdict[str, list[Any]] = defaultdict(list)
        self.updates = self.tokens = 0  # of all ranks

    def add(self, metrics: dict[str, Any]) -> None:
        for name, x in metrics.items():
            self.values[name].append(x)

    def result(self) -> dict[str, float]:
        """Means over the step's tokens; over its updates for loss and grad_norm; counts and extremes unchanged."""
        pick = {"max": max, "min": min}
        ranks = gather_object([{k: pick.get(k[-3:], math.fsum)(map(float, xs)) for k, xs in self.values.items()}])
        if not self.updates:
            return {}
        world, skipped = len(ranks), ranks[0]["updates_skipped"]
        # Ranks share the loss and the sums over tokens; each of them counts every update.
        divisor = {"loss": self.updates, "grad_norm": world * (self.updates - skipped or 1), "updates_skipped": world}
        result: dict[str, float] = {"tokens": self.tokens}
        for name in sorted(set().union(*ranks)):
            values = [rank[name] for rank in ranks if name in rank]
            extreme = pick.get(name[-3:])
            result[name] = extreme(values) if extreme else math.fsum(values) / divisor.get(name, self.tokens)
        return result


def warnings_of(metrics: dict[str, float], outcomes: Outcomes, config: Config) -> list[str]:
    """Sentences about a step that the user should not overlook."""
    found, count = [], {x: int(metrics.get(f"reason/{x}", 0)) for x in REASONS}
    verdicts = ", ".join(f"{n:,} {x}" for x, n in count.items() if n)
    failed = sum(count[REASONS[i]] for i in FAILED)
    cause = "" if failed else what_all_share(outcomes)
    if metrics["prompts"] < config.prompts_per_step:
        found.append(
            f"informative prompts: {metrics['prompts']} of {len(outcomes)}, --prompts_per_step asks for "
            f"{config.prompts_per_step}; verdicts: {verdicts}"
        )
    if cause:
        found.append(cause)
    if failed:
        found.append(f"responses that could not be judged: {failed:,} ({verdicts}); see --verify_timeout")
    if skipped := metrics.get("updates_skipped"):
        found.append(f"updates skipped for a gradient that is not finite: {skipped:.0f} of {config.updates_per_step}")
    return found


def what_all_share(outcomes: Outcomes) -> str:
    """Say why a step cannot teach anything if one reason holds for all of its responses; else return ""."""
    reward = outcomes.reward
    if outcomes.truncated.all():
        return "every response reached --max_response_tokens: raise it"
    if not outcomes.correct.any():
        return "no response was correct: read samples.jsonl; prompts must ask for the form that their kind reads"
    if outcomes.correct.all():
        return "every response was correct: choose harder problems for --data"
    if (reward == reward[0, 0]).all():
        return f"correct and wrong responses have the same reward, {reward[0, 0]:g}: correct the function of --rewards"
    return ""
