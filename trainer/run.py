"""Stage 9: the folder of a run: its logs, its checkpoints, and how a killed run continues.

config.json      the settings, the launch, digests of problems, tokenizer and reward files
metrics.jsonl    one line per step, without a clock: equal runs on one CPU machine write equal bytes
timing.jsonl     seconds and peak memory per phase (trainer/clock.py)
eval.jsonl       one line per evaluation: how many of k responses were correct, problem by problem
samples.jsonl    some responses of each step and evaluation
checkpoints/     step_00000010: trained weights, AdamW's moments, the reference, progress
model/           the policy at the end, for transformers and vLLM, with recipe.json
curves.png       at the end
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from filelock import FileLock, Timeout

from engines.model import whole_tensors
from trainer.checkpoints import read_state, state_of, write_state
from trainer.clock import Clock, largest_peaks, peak_summary
from trainer.console import Console, compare_with_start
from trainer.data import Data
from trainer.files import json_lines, read_lines, write
from trainer.launch import fsdp_requested
from trainer.metrics import score_sources
from trainer.outcomes import Outcomes, Rollout
from trainer.pretrained import save_model
from trainer.process import Refusal, refusing
from trainer.progress import Progress
from trainer.run_settings import check_same_run, input_digests, recipes_of_run
from trainer.settings import Config
from trainer.step_warnings import waited_for_judge, warnings_of

LOGS = "metrics.jsonl", "timing.jsonl", "eval.jsonl", "samples.jsonl"
FULL = 64 * 2**20  # free bytes of a disk that counts as full
SAVE_S = 300  # seconds between checkpoints without --save_every


class Run:
    """The folder of a run, its clock and console. Only the main process writes, except for sharded checkpoints."""

    def __init__(self, config: Config, accelerator: Accelerator, data: Data):
        """Check that the folder is free, or the same run's on --resume. Raises Refusal."""
        self.config, self.accelerator, self.main = config, accelerator, accelerator.is_main_process
        self.folder, self.data = Path(config.output_dir) / config.name, data
        self.console = Console(self.main)
        self.digests = input_digests(config, data)
        if config.resume:
            check_same_run(config, fsdp_requested(), self.digests)
        elif (self.folder / "config.json").exists():
            raise Refusal(f"{self.folder} exists: choose another --name, delete the folder, or --resume the run")
        self.clock = Clock(accelerator)
        self.saved = 0.0  # seconds of the run at its last checkpoint
        self.said_wait = False  # whether the console has said that a step waited for its judge

    def open(self) -> None:
        """Make the folder and keep other processes out of it. Raises Refusal if one of them is using it."""
        if self.main:
            with refusing("--output_dir: "):
                self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = FileLock(self.folder / "lock")
            try:
                self.lock.acquire(timeout=0)
            except Timeout:
                raise Refusal(
                    f"{self.folder} is in use by a running process: end it or choose another --name"
                ) from None
            launch = {"sharded": fsdp_requested(), "processes": self.accelerator.num_processes}
            settings = asdict(self.config) | launch | {"digests": self.digests}
            write(self.folder / "config.json", json.dumps(settings, indent=2) + "\n")
        if self.config.report_to:
            self.accelerator.project_configuration.set_directories(str(self.folder / "tensorboard"))
            self.accelerator.log_with = [self.config.report_to]  # type: ignore[list-item]
            names = {"wandb": {"name": self.config.name, "dir": str(self.folder)}}
            self.accelerator.init_trackers("brorl", {k: str(v) for k, v in asdict(self.config).items()}, names)
        self.accelerator.wait_for_everyone()
        self.clock.note_peak("start")

    def say_step(self, metrics: dict[str, float], outcomes: Outcomes) -> None:
        """Print the row of a step, and warnings."""
        seconds, left = self.clock.seconds_of_step(), self.clock.seconds_left(metrics, self.config)
        sentences = warnings_of(metrics, outcomes, self.config)
        wait = waited_for_judge(self.clock.laps, seconds)
        if wait and not self.said_wait:  # once: timing.jsonl has the seconds of each step
            self.said_wait = True
            sentences += wait
        self.console.say_step(metrics, seconds, left, sentences, self.config)

    def append(self, file: str, row: dict) -> None:
        if self.main:
            with (self.folder / file).open("a") as log:
                log.write(json_lines([row]))

    def log(self, metrics: dict[str, float], progress: Progress) -> None:
        """The line of a step in metrics.jsonl and in timing.jsonl, and in the tracker."""
        rate = metrics["samples"] / progress.seconds if progress.seconds else 0.0
        self.append("metrics.jsonl", metrics)
        timing = {"step": metrics["step"], "seconds": progress.seconds, "samples_per_second": rate}
        ranks = gather_object([{"peak_gib": self.clock.peaks}])
        self.append("timing.jsonl", timing | self.clock.laps | {"peak_gib": largest_peaks(ranks)})
        if self.config.report_to:
            values = {name: x for name, x in metrics.items() if name != "step"}
            seconds = {f"seconds/{phase}": x for phase, x in self.clock.laps.items()}
            self.accelerator.log(values | seconds, step=int(metrics["step"]))

    def log_samples(self, rollouts: list[Rollout], outcomes: Outcomes, kept: torch.Tensor, step: int) -> None:
        """Log the best and the worst of the N responses to the first kept prompt, and to the first dropped prompt.

        rollouts: of this rank. Every rank calls it: the two responses can be on different ranks.
        """
        for is_kept in (True, False):
            for p in (kept == is_kept).nonzero().flatten().tolist()[:1]:
                order = outcomes.reward[p].sort(descending=True, stable=True).indices.tolist()
                own = {r.number: sample_of(r) for r in rollouts if r.prompt_index == p}
                best_and_worst = [order[0], order[-1]]
                found = dict(gather_object([(k, own[k]) for k in best_and_worst if k in own]))
                for k in best_and_worst:
                    self.append("samples.jsonl", {"step": step, "kept": is_kept} | found[k])

    def log_evaluation(self, rollouts: list[Rollout], outcomes: Outcomes, progress: Progress) -> dict[str, float]:
        """Log an evaluation and print it, with a row per source if there are several. Returns the scores."""
        *sources, (name, scores) = score_sources(outcomes, self.data.held_out_counts).items()
        row: dict[str, Any] = {"step": progress.step, "samples": progress.samples, "k": outcomes.reward.shape[1]}
        row |= {"problems": self.digests["the held-out problems"], "sources": self.data.held_out_counts}
        row |= {name: getattr(outcomes, name).sum(-1).tolist() for name in ("correct", "truncated")}  # counts of k
        row |= {"response_tokens": outcomes.length.double().mean(-1).tolist()}
        self.append("eval.jsonl", row | {"reward": outcomes.reward.mean(-1).tolist()})
        for r in [r for r in rollouts if r.number == 0][:4]:
            self.append("samples.jsonl", {"step": progress.step, "evaluation": True} | sample_of(r))
        for source, part in sources:
            self.console.say_scores(source[-13:], part)
        self.console.say_scores(name[-13:] if self.config.eval_only else f"step {progress.step}", scores)
        if self.config.eval_only:
            self.console.say(peak_summary([{"step": progress.step, "peak_gib": self.clock.peaks}]))
            self.console.say(f"wrote {self.folder}/: eval.jsonl, samples.jsonl, config.json")
        return {f"eval/{key}": value for key, value in scores.items()}

    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("step_" + "[0-9]" * 8))

    def save_due(self, progress: Progress) -> bool:
        """Whether to write a checkpoint: at the end, and by steps or by time. Ranks agree: `progress` is equal."""
        if self.config.save_every:
            return progress.due(self.config.save_every, self.config)
        return progress.spent(self.config) or progress.seconds - self.saved >= SAVE_S

    def save(self, progress: Progress, policy, optimizer, ref_policy) -> None:
        """Write a checkpoint aside, then rename it: it is complete, or not there. Keep the newest ones."""
        self.clock.phase = "checkpoint"
        folder = self.folder / "checkpoints" / f"step_{progress.step:08d}"
        aside = folder.with_name("unfinished")
        if self.main:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        try:
            write_state(aside, state_of(policy, optimizer, ref_policy))
        except (OSError, RuntimeError) as failure:  # on a full disk torch says "unexpected pos 704 vs 598"
            free = shutil.disk_usage(self.folder).free
            if free > FULL:
                raise
            raise Refusal(
                f"the checkpoint of step {progress.step} does not fit the disk of {self.folder}, which has "
                f"{free / 2**20:.0f} MiB left: make room, then --resume --name {self.config.name}"
            ) from failure
        seconds = self.saved = self.clock.seconds_of_slowest()  # with the evaluation and the checkpoint after the step
        if self.main:
            write(aside / "progress.json", json.dumps(asdict(progress) | {"seconds": seconds}))
            os.replace(aside, folder)
            for old in self.checkpoints()[: -self.config.keep_checkpoints]:
                shutil.rmtree(old)
        self.accelerator.wait_for_everyone()

    def end_if_complete(self) -> None:
        """End the process if the run has spent its budget and has written its model."""
        newest = next(reversed(self.checkpoints()), None)
        if newest and (newest / "complete").exists():
            progress = Progress.read(newest)
            if progress.spent(self.config):
                limits = " and ".join(f"--{name}" for name in progress.reached(self.config))
                self.console.say(f"{self.folder} is complete at step {progress.step}: a higher {limits} continues it")
                self.accelerator.end_training()
                sys.exit()

    def restore(self, progress: Progress, policy, optimizer, ref_policy) -> None:
        """Load the newest checkpoint and remove later lines from the logs. Without a checkpoint the run starts over."""
        newest = next(reversed(self.checkpoints()), None)
        if newest:
            progress.__dict__.update(Progress.read(newest).__dict__)
            try:
                read_state(newest, state_of(policy, optimizer, ref_policy))
            except Exception as failure:  # torch, pickle and the disk have many kinds
                raise Refusal(f"--resume: {newest} cannot be read, delete it ({failure!r:.200})") from failure
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate
        for path in [self.folder / name for name in LOGS if self.main and (self.folder / name).exists()]:
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            write(path, "".join(line for line in lines if newest and json.loads(line)["step"] <= progress.step))
        self.clock.resume(progress.seconds)
        self.saved = progress.seconds
        self.console.say(f"resuming after step {progress.step}" if newest else "no checkpoint yet: starting over")

    def finish(self, model, tokenizer) -> None:
        """Write model/ and curves.png, and mark the run as complete. All ranks call it: a sharded model is gathered."""
        weights = {name: tensor.cpu() for name, tensor in whole_tensors(model) if self.main}
        if not self.main:
            return
        aside = self.folder / "model.unfinished"
        shutil.rmtree(aside, ignore_errors=True)
        save_model(aside, model, weights, tokenizer)
        write(aside / "recipe.json", json.dumps(recipes_of_run(self.config), indent=2) + "\n")
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        os.replace(aside, self.folder / "model")
        rows = read_lines(self.folder / "metrics.jsonl")
        if not any("loss" in row for row in rows):
            self.console.say(
                "nothing was trained: no update had a response to train on, and model/ is the\n  model of the start; "
                "samples.jsonl has some responses"
            )
        elif sentence := compare_with_start(rows):
            self.console.say(sentence)
        if sentence := peak_summary(read_lines(self.folder / "timing.jsonl")):
            self.console.say(textwrap.fill(sentence, 80, subsequent_indent="  "))
        from trainer.pictures import draw_curves  # matplotlib takes a second to import

        title = f"{self.config.name}: N = {self.config.rollouts_per_prompt}, B = {self.config.prompts_per_step}"
        draw_curves(rows, self.folder / "curves.png", title)
        write(self.checkpoints()[-1] / "complete", "")
        self.console.say(f"wrote {self.folder}/:\n  model/, curves.png, checkpoints/,\n  {', '.join(LOGS)}")


def sample_of(r: Rollout) -> dict[str, Any]:
    return {"prompt": r.problem.prompt, "response": r.text} | r.verdict._asdict()  # type: ignore[union-attr]
