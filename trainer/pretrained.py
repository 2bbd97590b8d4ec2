"""A model and its tokenizer in the folder format of transformers: read before a run, written at its end."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from trainer.process import Refusal, refusing


def is_missing_folder(path: str) -> bool:
    """Return True if this is the path of a folder that is not there, and no name of the hub."""
    return not os.path.isdir(path) and (path.startswith((".", "/", "~")) or path.count("/") > 1)


def load_tokenizer(path: str) -> tuple[PreTrainedTokenizerBase, Any]:
    """A model's tokenizer and its text config, without its weights. Raises Refusal."""
    # Without a network the hub writes two lines for each of its retries.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if os.path.isfile(os.path.join(path, "metrics.jsonl")):
        raise Refusal(f"--model {path} is a run: its policy is {os.path.join(path, 'model')}")
    if is_missing_folder(path):
        raise Refusal(f"--model {path}: there is no such folder")
    try:
        model_config = AutoConfig.from_pretrained(path)
        refuse_code_of_the_hub(path, model_config)
        text_config = model_config.get_text_config()
        if not isinstance(text_config.vocab_size, int):
            raise ValueError(f"its vocab_size is {text_config.vocab_size!r}")
        return AutoTokenizer.from_pretrained(path), text_config
    except Refusal:
        raise
    except Exception as failure:  # malformed files raise exceptions of any kind
        said = str(failure).strip()
        if isinstance(failure, ValueError | OSError) and said:
            raise Refusal(f"--model {path} cannot be loaded: {said.splitlines()[0]}") from failure
        said = f"{type(failure).__name__}: {' '.join(said.split())}"
        raise Refusal(f"--model {path} cannot be loaded, repair its config and tokenizer ({said:.200})") from failure


def refuse_code_of_the_hub(path: str, part: Any) -> None:
    """Raise Refusal for an attention of the form OWNER/NAME: transformers would load this code from the hub."""
    for name in ("_attn_implementation", "_experts_implementation"):
        if "/" in str(value := getattr(part, name, None)):
            raise Refusal(
                f"--model {path}: {name} {value!r} in its config.json is code of the hub: remove it from the file"
            )
    for name in getattr(part, "sub_configs", {}):
        refuse_code_of_the_hub(path, getattr(part, name, None))


def load_model(path: str, without_weights: bool = False):
    """A model with its weights in float32, or with their shapes only (torch's device "meta"). Raises Refusal.

    transformers gives random values to a weight that the files do not have, and leaves out weights that the model does
    not have: both are refused. A head that is tied to the embedding is not missing.
    """
    if os.path.isfile(os.path.join(path, "adapter_config.json")):
        raise Refusal(f"--model {path} has adapters only: merge them into their model first (peft: merge_and_unload)")
    device_map = "meta" if without_weights else None
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, device_map=device_map, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except ImportError as missing:
        raise Refusal(f"--model {path} needs a package: {missing!s:.200}") from missing
    except Exception as failure:  # a file that is cut off raises exceptions of torch, pickle or safetensors
        raise Refusal(
            f"--model {path}: its weights or its config.json cannot be read, copy them again ({failure!r:.200})"
        ) from failure
    found, keys = loaded
    wrong = {
        "lack": keys["missing_keys"], "have, and the model does not,": keys["unexpected_keys"],
        "have in another shape": [name for name, *_ in keys["mismatched_keys"]],
    }  # fmt: skip
    faults = [f"{what} {first_names(names)}" for what, names in wrong.items() if names]
    if faults and not without_weights:
        raise Refusal(f"--model {path}: its files {'; they '.join(faults)}: copy a complete {type(found).__name__}")
    return found


def first_names(names: Iterable[str]) -> str:
    """The first names of many."""
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more weights" if len(names) > 3 else "")


def try_to_save(model, tokenizer) -> str:
    """Write what the end of a run writes, without weights, to a temporary folder. Raises Refusal.

    Returns a note if the generation config had to be repaired: transformers reads one that it does not write.
    """
    note = ""
    with tempfile.TemporaryDirectory() as folder, refusing("the final model could not be written: "):
        try:
            model.generation_config.save_pretrained(folder)
        except ValueError:
            model.generation_config.do_sample = True
            note = "generation_config.json has values for sampling and do_sample false; the run writes do_sample true"
        model.save_pretrained(folder, state_dict={})
        tokenizer.save_pretrained(folder)
    return note


def save_model(folder: Path, model, weights: dict[str, Tensor], tokenizer) -> None:
    """Write a model with these weights, in float32, and its tokenizer. --lora_rank has frozen weights in bfloat16."""
    weights = {name: x.float() if x.dtype == torch.bfloat16 else x for name, x in weights.items()}
    model.save_pretrained(folder, state_dict=weights)
    model.config.dtype = torch.float32  # save_pretrained writes the type of the frozen weights
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
