"""engines/protocol.py: what the engines take from a trainer. From FSDP2's shards: test_engines_vllm.py."""

import torch
from small_models import make

from engines.protocol import whole_tensors


def test_tensors_to_sync_come_once_under_their_names():
    """Makes impossible: a weight left out, a tied head under a name that vLLM's model may not have, DDP's prefix."""
    model = make()
    names = dict(whole_tensors(model))
    assert names.keys() == model.state_dict().keys() - {"lm_head.weight"}
    assert all(torch.equal(x, model.state_dict()[name]) for name, x in names.items())
    wrapped = torch.nn.Module()
    wrapped.module = model
    assert dict(whole_tensors(wrapped)).keys() == names.keys()
    untied = make("llama, one key head")
    assert dict(whole_tensors(untied)).keys() == untied.state_dict().keys()
