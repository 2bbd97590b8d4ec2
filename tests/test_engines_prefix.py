"""engines/prefix.py: attention to one copy of a prompt, against attention over prompt and response in one piece."""

import pytest
import torch
from small_models import PROMPTS, make
from torch.nn.functional import scaled_dot_product_attention

from engines import prefix
from engines.prefix import PrefixDecoder, bytes_per_row, bytes_per_token, check_attention, inference, prefix_attention
from rollout import Request, Sampling, TorchEngine

LENGTHS = [5, 2, 4]


class Layer(torch.nn.Module):
    layer_idx = 0


def decoder_of(keys, values, lengths, response_keys=None, response_values=None):
    """A decoder with one layer, after T - 1 response tokens; its model is never called."""
    made = PrefixDecoder.__new__(PrefixDecoder)
    made.lengths, made.prompt_keys, made.prompt_values = torch.tensor(lengths), [keys], [values]
    padding = torch.arange(keys.shape[2]) < keys.shape[2] - made.lengths[:, None]
    made.padding = padding if padding.any() else None
    made.capacity, made.t, made.keys, made.values = 4, 1, {}, {}
    made._assign_slots(torch.arange(len(lengths)))
    return made


@pytest.mark.parametrize("window", [None, 3])
def test_every_row_attends_to_its_own_prompt_and_response(window):
    """Makes impossible: a row under another prompt or another row's response, as rows split and end in unequal groups.

    Two query heads on each of two key heads; three prompts of 5, 2 and 4 tokens, padded on the left.
    """
    torch.manual_seed(0)
    keys, values = torch.randn(2, 3, 2, 5, 8)
    decoder, prompt = decoder_of(keys, values, LENGTHS), torch.tensor([0, 1, 2])
    k, v = torch.zeros(2, 3, 2, 0, 8)  # the whole response of each row
    for parent in ([0, 0, 0, 1, 2, 2], [0, 2, 2, 4, 5], [0, 1, 2], [1]):  # of the former rows
        decoder._select(torch.tensor(parent))
        prompt = prompt[parent]
        q, (new_k, new_v) = torch.randn(len(parent), 4, 1, 8), torch.randn(2, len(parent), 2, 1, 8)
        k, v = torch.cat([k[parent], new_k], 2), torch.cat([v[parent], new_v], 2)
        got, _ = prefix_attention(Layer(), q, new_k, new_v, None, sliding_window=window, decoder=decoder)
        for r, p in enumerate(prompt.tolist()):
            whole = [torch.cat([x[p, :, 5 - LENGTHS[p] :], y[r]], 1) for x, y in ((keys, k), (values, v))]
            whole = [x[None, :, -window:] if window else x[None] for x in whole]
            want = scaled_dot_product_attention(q[r : r + 1], *whole, enable_gqa=True)
            torch.testing.assert_close(got[r], want[0].transpose(0, 1))
        decoder.t += 1
    assert prompt.tolist() == [0], "two prompts have left"
    assert decoder.prompt_keys[0].shape[0] == 1


@pytest.mark.parametrize("name", ["s_aux", "position_bias"])
def test_attention_refuses_arguments_that_it_ignores(name):
    """Makes impossible: attention sinks or position biases left out in silence."""
    x = torch.zeros(1, 1, 1, 4)
    decoder = decoder_of(x, x, [1])
    prefix_attention(Layer(), x, x, x, None, decoder=decoder)
    with pytest.raises(ValueError, match=name):
        prefix_attention(Layer(), x, x, x, None, decoder=decoder, **{name: x})
    with pytest.raises(ValueError, match="keyword arguments"):
        prefix_attention(Layer(), x, x, x, None)


def test_attention_scales_and_caps_its_scores():
    """Makes impossible: no scale for a model that leaves it to its attention; a cap on half of the scores."""
    torch.manual_seed(0)
    q, k, v, pk, pv = (torch.randn(1, 1, n, 4) for n in (1, 1, 1, 3, 3))
    for scaling, cap in ((None, None), (0.3, None), (3.0, 1.5)):
        got, _ = prefix_attention(Layer(), q, k, v, None, scaling=scaling, softcap=cap, decoder=decoder_of(pk, pv, [3]))
        scores = (q @ torch.cat([pk, k], 2).transpose(2, 3)) * (scaling or 0.5)
        scores = cap * torch.tanh(scores / cap) if cap else scores
        torch.testing.assert_close(got, (scores.softmax(-1) @ torch.cat([pv, v], 2)).transpose(1, 2))


# The check


@pytest.mark.parametrize("wrong", ["larger", "other prompt", "no position"])
def test_the_check_sees_a_wrong_decoder(wrong, monkeypatch):
    """Makes impossible: an attention that is wrong on some model and used there."""
    right = prefix.prefix_attention

    def attention(*args, decoder=None, **kwargs):
        if wrong == "other prompt":
            decoder.prompt_keys = [x.flip(0) for x in decoder.prompt_keys]
        out, weights = right(*args, decoder=decoder, **kwargs)
        return out * (1.05 if wrong == "larger" else 1), weights

    monkeypatch.setitem(prefix.ALL_ATTENTION_FUNCTIONS._global_mapping, "prefix", attention)
    if wrong == "no position":
        step = PrefixDecoder._step

        def unmoved(self, token):
            self.lengths = self.lengths * 0
            return step(self, token)

        monkeypatch.setattr(PrefixDecoder, "_step", unmoved)
    with pytest.raises(ValueError, match="--engine vllm"):
        check_attention(make())


# Precision and memory


def test_inference_computes_in_the_precision_that_it_is_given():
    """Makes impossible: rollouts in bfloat16 within a trainer's autocast although the engine says float32."""
    model, x = make(), torch.tensor([[3, 4]])
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).logits.dtype == torch.bfloat16
        with inference(model, "float32"):
            assert model(x).logits.dtype == torch.float32 and not model.training and not torch.is_grad_enabled()
    inner, head = [], model.get_output_embeddings()
    model.model.layers[0].mlp.register_forward_hook(lambda module, args, out: inner.append(out.dtype))
    with inference(model, "bfloat16"):
        assert model(x).logits.dtype == torch.float32, "as in the trainer"
    assert inner == [torch.bfloat16] and "forward" not in vars(head)
    assert model.training and torch.is_grad_enabled() and model(x).logits.dtype == torch.float32


def test_bytes_by_hand():
    """Makes impossible: a cache without its values or layers, a prompt counted N times or not at all.

    Two layers, four heads, two key heads of width 8, hidden 32, 13 tokens, float32; prompts of 10, responses of 5.
    """
    token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, key heads, width, bytes
    assert bytes_per_token(make(), 4) == token and bytes_per_token(make(), 2) == token / 2
    prompt = 10 * (token + 12 * 32 * 4)
    row = 5 * (token * 1.5 + 12) + 3 * 4 * 15 * 4 + 6 * 13 * 4
    assert bytes_per_row(make(), 512, 10, 5) == pytest.approx(row + prompt / 512)
    assert bytes_per_row(make(), 1, 10, 5) == pytest.approx(row + prompt)


@pytest.mark.parametrize("n", [3, 40])
def test_a_batch_holds_no_more_than_estimated(n, monkeypatch):
    """Makes impossible: response caches alone that are larger than the estimate for all, during a split or after it."""
    most, select = [0], PrefixDecoder._select

    def size(tensors):
        return sum({x.data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values())

    def watched(self, parent):
        before = [*self.keys.values(), *self.values.values()]
        layer = size(list(self.keys.values())[:1])  # a split copies one layer of keys or values at a time
        select(self, parent)
        after = [*self.keys.values(), *self.values.values()]
        most.append(max(size(before), size(after)) + layer)

    model = make()
    engine = TorchEngine(model)
    monkeypatch.setattr(PrefixDecoder, "_select", watched)
    list(engine.generate([Request(p, n, i) for i, p in enumerate(PROMPTS)], Sampling(12)))
    estimated = len(PROMPTS) * n * bytes_per_row(model, n, max(map(len, PROMPTS)), 12)
    assert estimated / 4 < max(most) < estimated
