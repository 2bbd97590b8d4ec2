"""What a run prints on the terminal: its first lines, a row per step and per evaluation, its last sentence."""

from __future__ import annotations

import json
import os
import textwrap

import torch
from accelerate import Accelerator

from trainer.adapters import trainable
from trainer.data import Data
from trainer.settings import GIVEN, Config, formatted
from trainer.text import appends_eos, starts_with_two_bos, turn_end


def introduction(config: Config, origins: dict[str, str], data: Data, policy, engine, accelerator: Accelerator) -> str:
    """The first lines of a run: what it will do, the settings that the user set, the learning rate, and remarks."""
    n, b, u = config.rollouts_per_prompt, config.prompts_per_step, config.updates_per_step
    size = sum(p.numel() for p in policy.model.parameters()) / 1e6
    lora = config.lora_rank and not config.eval_only
    weights = "also the frozen weights; adapters in float32" if lora else "weights in float32"
    precision = config.precision.replace("bfloat16", f"bfloat16, {weights}")
    adapters = sum(p.numel() for p in trainable(policy)) / 1e6
    share = f"; adapters of rank {config.lora_rank} are {adapters:,.2f}M of them" if lora else ""
    limits = {"steps": config.max_steps, "hours": config.max_hours, "samples": config.max_samples}
    facts = {
        "model": f"{short(config.model)}, {size:,.2f}M parameters{share}",
        "processes": f"{accelerator.num_processes} on {accelerator.device.type}, {precision}",
        "problems": f"{len(data.problems):,} to train on, {count_held_out(data)} held out",
        "a step": f"B x N = {b} x {n}, responses of up to {config.max_response_tokens:,} tokens, U = {u}",
        "budget": ", ".join(f"{limit:,.10g} {name}" for name, limit in limits.items() if limit),
        "engine": engine.description,
    }
    left_out = ("a step", "budget") if config.eval_only else ()
    lines = [f"BroRL, recipe {config.recipe}, run {config.name}"]
    lines += [f"  {name:11} {text}" for name, text in facts.items() if name not in left_out]
    used = {
        name: getattr(config, name)
        for name in origins
        if getattr(config, name) is not None and (name.startswith("eval_") or not config.eval_only)
    }
    shown = {name: x for name, x in used.items() if name == "learning_rate" or origins[name] == GIVEN}
    for name, x in shown.items():
        line = f"    {name:24} {formatted(x):>9}  {origins[name]}"
        lines.append(textwrap.fill(line, 80, subsequent_indent=" " * 40))
    if len(used) > len(shown):
        more = "as the run began" if config.resume else "as in the recipe"
        lines.append(f"  {'settings':11} {len(used) - len(shown)} more {more}: config.json of the run, --help")
    notes = [*remarks_on_rate(config, origins), *remarks(config, data)]
    return "\n".join([*lines, *(f"  note: {remark}" for remark in notes)])


def count_held_out(data: Data) -> str:
    """The number of held-out problems, and of each source if --eval_problems has chosen some of them."""
    count = f"{len(data.held_out):,}"
    if len(data.held_out) == data.available:
        return count
    each = ", ".join(f"{name} {n:,}" for name, n in data.held_out_counts.items())
    return f"{count} of {data.available:,}" + (f" ({each})" if len(data.held_out_counts) > 1 else "")


def short(path: str) -> str:
    """A path as a user would type it here; a hub name stays."""
    return min(path, os.path.relpath(path), key=len) if os.path.exists(path) else path


def remarks_on_rate(config: Config, origins: dict[str, str]) -> list[str]:
    """A sentence if --lora_rank trains with the learning rate of a recipe, which is for all weights."""
    if not config.lora_rank or config.eval_only or config.resume or origins["learning_rate"] == GIVEN:
        return []
    now, higher = (formatted(factor * config.learning_rate) for factor in (1, 10))
    return [f"the learning rate {now} is one for all weights, and adapters usually need about ten times as much: try "
            f"--learning_rate {higher} (docs/memory.md)"]  # fmt: skip


def remarks(config: Config, data: Data) -> list[str]:
    """Sentences for the start of a run about its problems, if there is something that the user should know."""
    found = []
    texts = {p.prompt for p in [*data.problems, *data.held_out] if isinstance(p.prompt, str)}
    if texts and data.tokenizer.chat_template is not None:
        found.append("the chat template is not used for prompts that are text: write messages or set --system_prompt")
    bos = data.tokenizer.bos_token
    rendered = [text for text in texts if bos and text.startswith(bos)]
    if any(starts_with_two_bos(data.tokenizer, data.tokenizer(text).input_ids) for text in rendered):
        found.append(f"text prompts start with {bos}, and the tokenizer adds another one: the model sees one of them")
    tokenizer = data.tokenizer
    if any(appends_eos(tokenizer, text, tokenizer(text).input_ids) for text in list(texts)[:1]):
        found.append(f"the tokenizer appends {tokenizer.eos_token} to text: it is left out of the prompts")
    if len(texts) < len(data.problems) and (end := turn_end(tokenizer)) not in (None, tokenizer.eos_token_id):
        mark = tokenizer.convert_ids_to_tokens(end)
        found.append(f"a response also ends with {mark}, which ends a turn of the chat template")
    if config.engine == "torch" and torch.cuda.is_available():
        found.append(
            "the torch engine on a GPU is for checks and for models that vLLM does not support: we expect vLLM to be "
            "faster (pip install -r requirements-gpu.txt)"
        )
    prompts = {json.dumps(problem.prompt) for problem in data.problems}
    if repeated := len(data.problems) - len(prompts):
        found.append(f"training problems that repeat the prompt of another one: {repeated:,}")
    if seen := sum(json.dumps(problem.prompt) in prompts for problem in data.held_out):
        found.append(f"held-out prompts that are training prompts too: {seen:,}; their score is not a held-out score")
    return found


STEP_COLUMNS = {"reward": 8, "pass_rate": 6, "entropy": 9, "kl_ref": 10, "grad_norm": 11}  # metric -> width
TITLES = {"pass_rate": "kept"}  # share of prompts that are kept; elsewhere a pass rate is the chance to be right


class Console:
    """The output of a run on the terminal. Only the main process writes."""

    ROWS = 20  # of a table; then its header comes again

    def __init__(self, main: bool):
        self.main, self.header, self.rows = main, "", 0

    def say(self, text: str) -> None:
        """Print text."""
        if self.main:
            print(text, flush=True)

    def say_row(self, header: str, row: str) -> None:
        """Print a row of a table, below its header if the last row was of another table, or every ROWS rows."""
        if header != self.header or self.rows == self.ROWS:
            self.say(header)
            self.header, self.rows = header, 0
        self.say(row)
        self.rows += 1

    def say_scores(self, name: str, scores: dict[str, float]) -> None:
        """Print a row of scores."""
        ks = [k for k in scores if k.startswith("pass@") and k not in ("pass@1", "pass@1_se")]
        error = f"± {scores['pass@1_se']:.3f}" if "pass@1_se" in scores else "one problem"
        header = f"{'held out':14}{'pass@1 ± SE':19}" + "".join(f"{k:>9}" for k in ks) + "   tokens truncated"
        others = "".join(f"{scores[k]:9.3f}" for k in ks)
        row = f"{name:14}{scores['pass@1']:.3f} {error:13}{others}"
        self.say_row(header, row + f"{scores['response_tokens']:9.1f}{scores['truncated']:10.1%}")

    def say_step(
        self, metrics: dict[str, float], seconds: float, left: float | None, warnings: list[str], config: Config
    ) -> None:
        """Print the row of a step, and its warnings. left: seconds until the end of the run, if it is known."""
        step = f"{metrics['step']}/{config.max_steps}" if config.max_steps else str(metrics["step"])
        row = f"{step:>9}"
        for name, width in STEP_COLUMNS.items():
            row += f"{metrics[name]:{width}.3g}" if name in metrics else f"{'-':>{width}}"
        row += f"{metrics['response_tokens']:8.1f}{seconds:9.1f}{'' if left is None else duration(left):>8}"
        header = f"{'step':>9}" + "".join(f"{TITLES.get(name, name):>{width}}" for name, width in STEP_COLUMNS.items())
        self.say_row(f"{header}{'tokens':>8}{'seconds':>9}{'left':>8}", row)
        for sentence in warnings:
            self.say(textwrap.fill(f"step {metrics['step']}: {sentence}", 80, subsequent_indent=" " * 9))


def compare_with_start(rows: list[dict]) -> str:
    """Compare the last evaluation of a run with its first by the rule of docs/symptoms.md; "" without two of them."""
    scores = [(row["eval/pass@1"], row["eval/pass@1_se"]) for row in rows if "eval/pass@1_se" in row]
    if len(scores) < 2:
        return ""
    (first, error), (last, last_error) = scores[0], scores[-1]
    limit = 3 * max(error, last_error)
    if first == last:
        return f"held-out pass@1 is {last:.3f}, as at the start"
    word, decided = "rose" if last > first else "fell", "more" if abs(last - first) > limit else "not more"
    return f"held-out pass@1 {word} from {first:.3f} to {last:.3f}, by {decided} than 3 standard errors ({limit:.3f})"


def duration(seconds: float) -> str:
    """Write seconds as a person would: 0.5 s, 12 s, 3 min, 7 h, 40 days."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
