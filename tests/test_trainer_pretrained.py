"""trainer/pretrained.py: folders that are no model, weights of another model."""

import json
import logging
import shutil

import pytest
import torch
from helpers import TINY, loaded, settings

from trainer.data import load_data
from trainer.pretrained import load_model, load_tokenizer
from trainer.process import Refusal
from trainer.text import stop_tokens


@pytest.mark.parametrize("make, named", [
    (lambda f: f.rmdir(), "no such folder"), (lambda f: None, "config.json"),
    (lambda f: (f / "metrics.jsonl").write_text(""), "is a run"),
    (lambda f: shutil.copy(TINY / "policy/config.json", f), "tokenizer"),
    (lambda f: [(f / "config.json").write_text('{"model_type": "nonsense"}'), (f / "tokenizer.json").write_text("{}")],
     "--model"),
])  # fmt: skip
def test_folders_that_are_no_model_are_refused(tmp_path, make, named):
    """Makes impossible: a traceback of transformers for a wrong folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    with pytest.raises(Refusal, match=named):
        load_data(*settings(tmp_path, model=str(folder), max_response_tokens=12))
    assert not logging.getLogger("huggingface_hub").isEnabledFor(logging.WARNING)  # it warns before each of its retries


@pytest.mark.parametrize("change, named", [
    (lambda w: {f"_orig_mod.{name}": x for name, x in w.items()}, "lack .*model.embed_tokens.weight.* and .* more"),
    (lambda w: {name: x for name, x in w.items() if ".layers.1." not in name}, "lack model.layers.1"),
    (lambda w: w | {"score.weight": torch.zeros(2, 64)}, "does not, score.weight"),
    (lambda w: w | {"model.norm.weight": torch.zeros(3)}, "in another shape model.norm.weight"),
])  # fmt: skip
def test_weights_that_are_not_the_models_are_refused(tmp_path, change, named):
    """Makes impossible: random values in place of weights that the files lack, trained without a word."""
    shutil.copytree(TINY / "policy", tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    weights = loaded()[0].state_dict()
    del weights["lm_head.weight"]  # tied
    torch.save(change(weights), tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(Refusal, match=named):
        load_model(str(tmp_path / "model"))
    assert load_model(str(TINY / "policy")).config.tie_word_embeddings  # a tied head is not missing


def test_a_folder_of_adapters_is_refused(tmp_path):
    """Makes impossible: the advice to copy weights again for a folder that never had them."""
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(Refusal, match="merge"):
        load_model(str(tmp_path))


def strange_model(folder, file, **changes) -> str:
    """The tiny policy with other values in one of its files, or all of it replaced."""
    shutil.copytree(TINY / "policy", folder / "strange")
    path = folder / "strange" / file
    path.write_text(json.dumps(changes.get("all", json.loads(path.read_text()) | changes)))
    return str(folder / "strange")


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"all": 3}), ("config.json", {"all": None}), ("config.json", {"vocab_size": "x"}),
        ("config.json", {"vocab_size": None}), ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"num_key_value_heads": 0}), ("config.json", {"text_config": 3}),
        ("config.json", {"layer_types": 3}), ("config.json", {"quantization_config": 3}),
        ("config.json", {"attn_implementation": 5}), ("config.json", {"num_hidden_layers": "two"}),
        ("tokenizer_config.json", {"all": []}), ("tokenizer.json", {"all": []}),
        ("generation_config.json", {"all": []}), ("generation_config.json", {"eos_token_id": "x"}),
        ("generation_config.json", {"eos_token_id": {"a": 1}}),
    ],
)  # fmt: skip
def test_a_malformed_model_folder_is_refused_in_a_sentence(tmp_path, file, changes):
    """Makes impossible: a traceback of transformers about a file that a stranger wrote."""
    folder = strange_model(tmp_path, file, **changes)
    with pytest.raises(Refusal, match="--model"):
        tokenizer, _ = load_tokenizer(folder)
        stop_tokens(tokenizer, load_model(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"_attn_implementation": "x/evil"}, {"attn_implementation": {"": "x/evil"}},
        {"attn_implementation": "paged|x/evil"}, {"_experts_implementation": "x/evil"},
    ],
)  # fmt: skip
def test_a_model_folder_loads_no_code(tmp_path, changes):
    """Makes impossible: a config that has transformers fetch a kernel of the hub, and run it."""
    folder = strange_model(tmp_path, "config.json", **changes)
    with pytest.raises(Refusal, match="x/evil"):
        load_tokenizer(folder)
