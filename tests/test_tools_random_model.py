"""tools/random_model.py: the shapes, and the model without a download."""

from helpers import lines
from transformers import AutoConfig, AutoTokenizer

from kinds.users import load_rewards
from sandbox.pool import end_workers
from tools.random_model import SHAPES, write_model
from verify import KINDS, verify


def test_the_model_has_the_shape_of_qwen_and_problems_with_both_rewards(tmp_path, forget_kinds):
    """Makes impossible: a tokenizer that cannot read its own tokens, prompts of another length, equal rewards."""
    write_model(tmp_path, "tiny")
    config, tokenizer = AutoConfig.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert config.architectures == ["Qwen2ForCausalLM"] and SHAPES["1.5B"].num_hidden_layers == 28
    assert len(tokenizer) == 2000 and tokenizer.decode([2, 1999]) == "at1999"
    problems = lines(tmp_path / "train.jsonl")
    prompts = {tuple(tokenizer(x["prompt"]).input_ids) for x in problems}
    assert len(prompts) == 512 and {len(x) for x in prompts} == {256} and 0 not in {i for x in prompts for i in x}
    load_rewards([str(tmp_path / "rewards.py")])
    assert "coin" in KINDS
    assert {verify("coin", f"w{i}", "").reward for i in range(8)} == {0.0, 1.0}
    end_workers()
