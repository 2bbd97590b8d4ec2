"""A random model in Qwen2.5's shape with problems and rewards, made without a download, to try a card with.

    python -m tools.random_model FOLDER [--size tiny]

Writes a folder for --model, with train.jsonl, test.jsonl and rewards.py. Its tokenizer has a token for each letter, and
invented ones for the rest of the vocabulary. A prompt is 256 random letters, and half of all responses are right.
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import random
import string
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from trainer.files import json_lines, write
from trainer.process import explained


def qwen(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool):
    return Qwen2Config(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocabulary, tie_word_embeddings=tied,
    )  # fmt: skip


QWEN = {  # Qwen2.5-Instruct; the paper's 1.5B model has the architecture of the second
    "0.5B": qwen(896, 4864, 24, 14, 2, 151_936, True),
    "1.5B": qwen(1536, 8960, 28, 12, 2, 151_936, True),
    "3B": qwen(2048, 11_008, 36, 16, 2, 151_936, True),
    "7B": qwen(3584, 18_944, 28, 28, 4, 152_064, False),
}
SHAPES = {"1.5B": QWEN["1.5B"], "tiny": qwen(64, 128, 2, 2, 1, 2000, True)}  # of --size
PROMPT_TOKENS = 256
# Half of all responses are right, whatever the model: every step has informative prompts.
REWARDS = """import zlib


def coin(response, reference):
    return float(zlib.crc32(response.encode()) % 2)


KINDS = {"coin": coin}
"""


def write_model(folder: Path, size: str) -> None:
    """Write random weights, a tokenizer, problems with prompts of random letters, rewards.py. size: of SHAPES."""
    config = SHAPES[size]
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    model.save_pretrained(folder)
    letters = dict(zip(string.ascii_lowercase, range(2, 28), strict=True))
    vocabulary = {"<eos>": 0, "<unk>": 1} | letters | {f"t{i}": i for i in range(28, config.vocab_size)}
    special = {"eos_token": "<eos>", "pad_token": "<eos>", "unk_token": "<unk>"}
    Qwen2Tokenizer(vocab=vocabulary, merges=[], **special).save_pretrained(folder)
    rng = random.Random(0)
    for name, count in (("train", 512), ("test", 16)):
        prompts = ["".join(rng.choices(string.ascii_lowercase, k=PROMPT_TOKENS)) for _ in range(count)]
        rows = [{"prompt": prompt, "kind": "coin", "reference": ""} for prompt in prompts]
        write(folder / f"{name}.jsonl", json_lines(rows))
    (folder / "rewards.py").write_text(REWARDS)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:,.1f}M random weights")


def folder_and_size(description: str | None, folder_help: str | None = None) -> tuple[Path, str]:
    """Parse the command line of this program or of vllm_speed: FOLDER and --size."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help=folder_help)
    parser.add_argument("--size", choices=SHAPES, default="1.5B")
    args = parser.parse_args()
    return args.folder, args.size


if __name__ == "__main__":
    with explained(code=2):
        write_model(*folder_and_size(__doc__, "its files are written or replaced"))
