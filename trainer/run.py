"""The folder of a run, runs/NAME: its settings, its logs, its checkpoints and what it leaves (train.py, stage 9).

    config.json      the settings, how the run was launched, and digests of problems, tokenizer and rewards
    metrics.jsonl    a line a step, the same for the same settings: docs/metrics.md
    timing.jsonl     whatever a clock says of the step
    eval.jsonl       a line an evaluation, problem by problem
    samples.jsonl    some responses of every step and evaluation, with their verdicts
    checkpoints/     step_00000010: weights, optimizer, reference, cursor, progress, random states
    model/           the policy at the end, by save_pretrained, with recipe.json and evaluation.json
    curves.png
    lock             held by the process that writes the folder
    saved            empty; made with the first checkpoint, so that --resume notices where all were deleted

An evaluation alone has config.json, eval.jsonl, samples.jsonl, scores.csv and lock. Checkpoints and model/ are never
half there; a torn last line of a log goes when resuming.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
from dataclasses import asdict, fields
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
from filelock import FileLock, Timeout

import brorl
from rollout import whole_tensors
from trainer.checkpoint import Checkpoints
from trainer.checks import EVALUATION_FILE, RECIPE_FILE, started_with, trackers
from trainer.metrics import Answers, score_sources
from trainer.problems import HeldOut
from trainer.processes import from_main
from trainer.progress import Cursor, Progress
from trainer.prompts import PLAIN, Frame
from trainer.report import before_and_after, curves, protocol, short, size, table, wrapped
from trainer.rollouts import Rolled, StepRollouts
from trainer.settings import Config

LOCK = "lock"
FREE = {"processes", *(f.name for f in fields(Config) if f.metadata["free"])}  # may change when a run is resumed


class Run:
    """One run's folder."""

    held_out: HeldOut  # set when they are loaded
    frame: Frame = PLAIN  # the same

    def __init__(self, config: Config, accelerator: Accelerator):
        self.config, self.accelerator = config, accelerator
        self.folder = Path(config.output_dir) / config.name
        self.logs = {name: self.folder / f"{name}.jsonl" for name in ("metrics", "timing", "samples", "eval")}
        self.metrics, self.timing, self.samples, self.answers = self.logs.values()
        self.checkpoints = Checkpoints(self.folder, accelerator)
        self.check_place()
        self.digests: dict[str, str] = {}  # of problems, tokenizer and rewards, when they are loaded
        if config.resume:
            self.check_same()
        self.lock = FileLock(self.folder / LOCK, is_singleton=True)  # a process may open its own run again

    # --- before there is a folder

    def check_place(self) -> None:
        """Raises ValueError where the run would go over something else, or nowhere."""
        config, folder = self.config, self.folder
        exists = self.is_there()
        if Path(config.name).name != config.name or config.name in (".", ".."):
            raise ValueError(f"--name {config.name} must be the plain name of a folder; --output_dir says where it is")
        if folder.exists() and not exists and (not folder.is_dir() or any(x.name != LOCK for x in folder.iterdir())):
            raise ValueError(f"{folder} is there and is no run: choose another --name, or move it away")
        if not config.trains and (self.metrics.exists() or (folder / "checkpoints").exists()):
            raise ValueError(
                f"{folder} is a training run, which --eval_only and --preflight do not replace: choose another --name "
                f"(for what was trained there: --model {folder}/model)"
            )
        if not config.trains and exists and not config.overwrite:
            raise ValueError(
                f"an evaluation or a preflight exists at {folder}: choose another --name, or --overwrite it, which "
                "deletes it"
            )
        if exists and not (config.resume or config.overwrite):
            raise ValueError(
                f"a run exists at {folder}: choose another --name, --resume it, or --overwrite it, which deletes it"
            )
        parent = next(p for p in folder.absolute().parents if p.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ValueError(f"--output_dir {config.output_dir}: {parent} cannot be written to, name another")

    def is_there(self) -> bool:
        """Is the folder a run or an evaluation? A config.json alone may be a model's, which is not to be deleted."""
        config = self.folder / "config.json"
        known = any(path.exists() for path in (self.metrics, self.answers, self.folder / "checkpoints"))
        return config.exists() and (known or '"rollouts_per_prompt"' in config.read_text(errors="replace"))

    def check_same(self) -> None:
        """Raises ValueError if --resume would go on with other settings, problems, rewards or another tokenizer."""
        now = self.settings()
        before = asdict(Config()) | {"precision": "no", "sharded": False} | started_with(self.config)
        differs = [name for name in now if name not in FREE and before.get(name) != now[name]]
        changed = [f"{name}: {before.get(name)} -> {now[name]}" for name in differs if name != "digests"]
        was = before.get("digests", {})
        changed += [name for name, digest in self.digests.items() if was.get(name) != digest]
        if changed:
            raise ValueError("--resume would continue another run; these differ: " + "; ".join(changed))

    def settings(self) -> dict:
        """What makes a run this run: its settings, how it was launched, and digests of its data."""
        accelerator = self.accelerator
        sharded = accelerator.distributed_type == DistributedType.FSDP
        launch = {"processes": accelerator.num_processes, "precision": accelerator.mixed_precision, "sharded": sharded}
        return asdict(self.config) | launch | {"digests": self.digests}

    def check_disk(self, model, with_reference: bool) -> None:
        """Room for all checkpoints that will be kept, the one being written, and model/. Raises ValueError if not."""
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        checkpoints = 1 if self.config.resume else self.config.keep_checkpoints + 1
        needed = weights * ((3 + with_reference) * checkpoints + 2)
        parent = next(p for p in [self.folder.absolute(), *self.folder.absolute().parents] if p.exists())
        if (free := shutil.disk_usage(parent).free) < needed:
            raise ValueError(
                f"--output_dir {self.config.output_dir} has {size(free)} free; {checkpoints} checkpoint(s) and the "
                f"model need {size(needed)}: make room, name another, or lower --keep_checkpoints"
            )

    # --- begin, or go on

    def open(self, cursor: Cursor, progress: Progress) -> None:
        """Make the folder, or go back to the newest checkpoint in it."""
        self.cursor, self.progress = cursor, progress
        main = self.accelerator.is_main_process
        from_main(self.make)
        if self.config.resume:
            newest = from_main(self.checkpoints.newest)
            if newest is None:
                self.accelerator.print("no checkpoint yet: starting over")
            else:
                self.checkpoints.load(newest)
                self.accelerator.print(f"resuming after step {progress.step}")
            if main:
                for path in self.logs.values():
                    kept = [row for row in rows_of(path) if progress.step and row["step"] <= progress.step]
                    write(path, "".join(json.dumps(row) + "\n" for row in kept))
            if progress.spent(self.config):
                self.accelerator.print(
                    f"the budget is spent: {progress.step} steps, {progress.samples:,} samples, "
                    f"{progress.seconds / 3600:.2f} hours are done. Nothing is trained; raise --max_steps, "
                    "--max_samples or --max_hours to go on"
                )
        if self.config.report_to:
            self.accelerator.project_configuration.set_directories(str(self.folder / "tensorboard"))
            self.accelerator.log_with = trackers(self.config.report_to)  # type: ignore[assignment]
            settings = {name: str(value) for name, value in asdict(self.config).items()}
            wandb = {"wandb": {"name": self.config.name, "dir": str(self.folder)}}
            self.accelerator.init_trackers("brorl", settings, wandb)
        self.accelerator.wait_for_everyone()

    def hold(self) -> None:
        """Keep other processes out of the folder until this one ends, however it ends. ValueError if another does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            who = (self.folder / LOCK).read_text()
            raise ValueError(f"{self.folder} is in use by {who}: wait for its end, or choose another --name") from None
        (self.folder / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}")
        self.check_place()  # another run may have come and gone meanwhile

    def make(self) -> None:
        """The folder, with config.json in it and, with --overwrite, nothing else but the lock."""
        self.hold()
        for path in self.folder.iterdir() if self.config.overwrite else ():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        write(self.folder / "config.json", json.dumps(self.settings(), indent=2) + "\n")

    # --- logs

    def log(self, metrics: dict, timing: dict, answers: Answers | None = None) -> None:
        """A step's lines."""
        if self.accelerator.is_main_process:
            if answers:
                self.keep(metrics["step"], metrics["samples"], answers)
            append(self.metrics, metrics)
            if timing:
                append(self.timing, timing)
        if self.config.report_to:
            seconds = {f"timing/{name}": value for name, value in timing.items() if name != "step"}
            self.accelerator.log({k: v for k, v in metrics.items() if k != "step"} | seconds, metrics["step"])
        self.accelerator.wait_for_everyone()

    def keep(self, step: int, samples: int, answers: Answers) -> None:
        which = {"problems": self.held_out.digest, "sources": self.held_out.sources}
        append(self.answers, {"step": step, "samples": samples} | which | answers._asdict())

    def sample(self, step: int, drawn: StepRollouts) -> None:
        """Some rollouts of a step: best and worst ones of its first informative prompt and of its first dropped one."""
        count, informative, wanted = self.config.samples_per_step, drawn.outcomes.informative, []
        first = [
            (kept, int(which.nonzero()[0]))
            for kept, which in ((True, informative), (False, ~informative))
            if any(which)
        ]
        for share, (kept, place) in zip((count - count // 2, count // 2), first, strict=False):
            best = drawn.outcomes.rewards[place].argsort(descending=True, stable=True).tolist()
            share = min(share if len(first) > 1 else count, len(best))
            rows = [*best[: share - share // 2], *best[len(best) - share // 2 :]]
            wanted += [({"step": step, "kept": kept}, place, row) for row in rows]
        self.write_samples(self.gathered(wanted, drawn.rolled))

    def sample_evaluation(self, step: int, rolled: list[Rolled]) -> list[dict]:
        """The first response to each of the first held-out problems, as lines of samples.jsonl."""
        count = min(self.config.samples_per_step, len(self.held_out.problems))
        wanted = [({"step": step, "evaluation": True}, place, 0) for place in range(count)]
        return self.gathered(wanted, rolled)

    def gathered(self, wanted: list[tuple[dict, int, int]], rolled: list[Rolled]) -> list[dict]:
        """Lines for rollouts of these places and numbers. Some process has each of them among its `rolled`."""
        rows, held = {(place, row) for _, place, row in wanted}, {}
        for part in rolled:
            for place, row in rows:
                if part.place == place and 0 <= (i := row - part.first) < len(part.texts):
                    sentence = {"prompt": part.problem.prompt, "response": part.texts[i]}
                    held[place, row] = sentence | part.verdicts[i]._asdict()
        found = dict(item for part in gather_object([list(held.items())]) for item in part)
        return [where | found[place, row] for where, place, row in wanted]

    def write_samples(self, lines: list[dict]) -> None:
        if self.accelerator.is_main_process:
            for line in lines:
                append(self.samples, line)

    def evaluations(self) -> dict[str, dict[str, float]]:
        """Every evaluation's scores so far, by step."""
        rows = [row for row in rows_of(self.metrics) if "eval/pass@1" in row]
        return {
            f"step {row['step']}": {k.removeprefix("eval/"): v for k, v in row.items() if k.startswith("eval/")}
            for row in rows
        }

    # --- the end

    def report(self, answers: Answers, rolled: list[Rolled]) -> None:
        """--eval_only: print a row for each source, and write the folder, which was not there until now."""
        samples = self.sample_evaluation(0, rolled)
        if not self.accelerator.is_main_process:
            return
        config = self.config
        rows = score_sources(answers, self.held_out.sources)
        what = f"{short(config.model)}: {protocol(config, answers.correct, self.held_out.cut)}"
        print(f"{wrapped(what, 0)}\n{table(rows)}")
        if len(rows) > 1:
            print(wrapped("mean: every source counts the same, whatever its size, as in the paper's tables", 0))
        self.make()
        self.keep(0, 0, answers)
        self.write_samples(samples)
        with (self.folder / "scores.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["source", *next(iter(rows.values()))], lineterminator="\n")
            writer.writeheader()
            writer.writerows({"source": name} | row for name, row in rows.items())
        files = (
            "scores.csv (these numbers), eval.jsonl (problem by problem), samples.jsonl (some responses), config.json"
        )
        print(wrapped(f"wrote {self.folder}/: {files}", 0))

    def finish(self, model, tokenizer) -> None:
        """Save the policy, draw the curves, print before and after."""
        main = self.accelerator.is_main_process
        weights = {name: x.cpu() for name, x in whole_tensors(model) if main}
        if not main:
            return
        aside = self.folder / "model.unfinished"
        shutil.rmtree(aside, ignore_errors=True)
        model.save_pretrained(aside, state_dict=weights)
        tokenizer.save_pretrained(aside)
        write(aside / RECIPE_FILE, json.dumps(self.recipe(), indent=2) + "\n")
        write(aside / EVALUATION_FILE, json.dumps(self.evaluation(), indent=2) + "\n")
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        os.replace(aside, self.folder / "model")
        title = f"{self.config.name}: {short(self.config.model)}, N = {self.config.rollouts_per_prompt}"
        rows = rows_of(self.metrics)
        curves(rows, self.folder / "curves.png", title)
        what = protocol(self.config, self.held_out.problems, self.held_out.cut)
        print(f"\n{wrapped(what, 0)}\n{before_and_after(self.evaluations(), rows_of(self.answers))}")
        if not any("loss" in row for row in rows):
            sentence = "Nothing was trained: no prompt had right answers and wrong ones (samples.jsonl has some)"
            print(wrapped(sentence, 0))
        if self.config.log_noise:
            from trainer.noise import conclusion

            print("\n" + wrapped(conclusion(rows, rows_of(self.timing), self.config.rollouts_per_prompt), 0))
        logs = ", ".join(path.name for path in self.logs.values())
        print("\n" + wrapped(f"wrote {self.folder}/: model/, curves.png, {logs}, checkpoints/", 0))

    def evaluation(self) -> dict:
        """What `--eval_only` of model/ takes from the run (checks.settings_of_scored_run); the examples are whole."""
        c = self.config
        held_out = {"eval_data": c.eval_data, "eval_seed": c.eval_seed, "rewards": c.rewards}
        return {"run": c.name, "system_prompt": c.system_prompt, "examples": self.frame.examples} | held_out

    def recipe(self) -> dict:
        """This run's settings as a recipe.json: its evaluation under every recipe, the others under its own.

        What else the model's own recipe.json had still holds.
        """
        start = Path(self.config.model) / RECIPE_FILE
        recipes = json.loads(start.read_text()) if start.is_file() else {}
        for recipe, settings in brorl.RECIPES.items():
            named = settings if recipe == self.config.recipe else brorl.EVALUATION
            ours = {name: x for name in named if (x := getattr(self.config, name)) is not None}
            source = f"as in the run {self.config.name}"
            recipes[recipe] = recipes.get(recipe, {}) | {k: {"value": x, "source": source} for k, x in ours.items()}
        return recipes


# ------------------------------------------------------------------------------------------------------------- files


def write(path: Path, text: str) -> None:
    """Replace a file whole."""
    aside = path.with_suffix(".unfinished")
    aside.write_text(text)
    os.replace(aside, path)


def append(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict]:
    """A file's lines without a last one that was torn. Raises ValueError for one that no run wrote."""
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else [], 1):
        if line.endswith(b"\n"):
            try:
                rows.append(dict(json.loads(line)))
                rows[-1]["step"]
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path}, line {number}, is damaged: delete it, or --overwrite the run") from None
    return rows
