"""The policy as the loss sees it: log-probs of response tokens under the trainer (train.py, stages 6 and 7).

A causal language model of transformers without its [tokens, V] logits: hidden states at the positions that predict
response tokens, then loss.token_logprobs, a chunk of tokens at a time. Prompts are computed once for
their rollouts, and so is what responses begin with, where that saves enough (packed.py).
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding

import loss as L
from trainer.packed import distinct, holders, shared_states

# Prompts are shared in steps where the plain way computes so many times the tokens. Measured: with less, groups of one
# or two rollouts to a short prompt cost more than they save.
SHARE_FROM = {"auto": 1.5, "on": 0.0}


class Policy(torch.nn.Module):
    """A causal language model as the loss sees it: log-probs of response tokens, without [tokens, V] logits."""

    def __init__(self, model):
        super().__init__()
        self.model, self.shares = model, False
        self._no_split_modules = model._no_split_modules  # the layers, which FSDP gathers one at a time
        for module in model.modules():  # the old, the new and the engine's log-probs must be of one function
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = 0.0

    def forward(
        self,
        tokens: Tensor,
        prompt_lengths: Tensor,
        response_lengths: Tensor,
        temperature: float,
        prompts: Tensor | None = None,
    ):
        """tokens: (S, W), prompt then response, padded on the right; returns log π and the entropy, (T,) each.

        No attention mask: a causal model never looks at what stands to the right, padding included.
        prompts: (S,) numbers, equal for neighbouring rows that share their prompt; None: every row computes its own.
        """
        at, targets = L.response_positions(prompt_lengths, response_lengths, tokens.shape[1]), tokens.roll(-1, dims=1)
        head = self.model.get_output_embeddings()
        holder = None if prompts is None else holders(tokens, prompt_lengths, response_lengths, prompts)
        once, back = (at, None) if holder is None else distinct(at, holder)
        states = self.states(tokens, prompt_lengths, response_lengths, holder, once)
        parts = L.token_logprobs(states, head.weight, targets[once], temperature, getattr(head, "bias", None))
        return parts if back is None else tuple(embedding(back, x[:, None]).squeeze(1) for x in parts)

    def states(self, tokens, prompt_lengths, response_lengths, holder, at) -> Tensor:
        """The last hidden states at `at`, (T, H). holder: `packed.holders`; None: every row computes all of its own."""
        if holder is None:
            return self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state[at]
        return shared_states(self.model.base_model, tokens, prompt_lengths, response_lengths, holder, at)

    @torch.no_grad()
    def next_token(self, prompt: list[int], prefixes: list[tuple], temperature: float, budget: int) -> Tensor:
        """The softmax after the prompt and each of these prefixes of its responses, (H, V).

        A prefix needs no forward pass of its own if it begins a longer one: those are computed, within `budget` tokens.
        """
        device, head = self.model.device, self.model.get_output_embeddings()
        rows: list[tuple] = []
        place: dict[tuple, tuple[int, int]] = {}  # prefix -> the row that it begins, and how far
        for prefix in sorted(prefixes, key=len, reverse=True):
            if prefix not in place:
                rows.append(prefix)
                place |= {prefix[:d]: (len(rows) - 1, d) for d in range(len(prefix) + 1) if prefix[:d] not in place}
        width = len(prompt) + len(rows[0]) + 1
        p: dict[tuple, Tensor] = {}
        for part in range(0, len(rows), count := max(1, budget // width)):
            some = rows[part : part + count]
            tokens = torch.tensor([[*prompt, *row, *[0] * (width - len(prompt) - len(row))] for row in some])
            lengths = torch.tensor([len(row) + 1 for row in some], device=device)  # the token after it is predicted too
            prompt_lengths = torch.full_like(lengths, len(prompt))
            at = L.response_positions(prompt_lengths, lengths, width)
            tokens = tokens.to(device)
            holder = holders(tokens, prompt_lengths, lengths, torch.zeros_like(lengths)) if self.shares else None
            states = self.states(tokens, prompt_lengths, lengths, holder, at)
            first = (lengths.cumsum(0) - lengths).tolist()
            wanted = [x for x in prefixes if part <= place[x][0] < part + count]
            states = states[[first[place[x][0] - part] + place[x][1] for x in wanted]]
            logits = torch.nn.functional.linear(states, head.weight, getattr(head, "bias", None)).float()
            p |= zip(wanted, (logits / temperature).softmax(-1), strict=True)
        return torch.stack([p[x] for x in prefixes])

    @torch.no_grad()
    def check_head(self) -> None:
        """Some models scale or cap their logits after the head, which `token_logprobs` would not see."""
        settings = self.model.config.get_text_config()
        named = ("final_logit_softcapping", "logit_scale", "logits_scaling")
        changed = any(getattr(settings, name, None) not in (None, 1, 1.0) for name in named)
        tokens = torch.arange(2, 10, device=self.model.device)[None] % self.model.config.get_text_config().vocab_size
        lengths = torch.tensor([2], device=tokens.device), torch.tensor([6], device=tokens.device)
        ours, _ = self(tokens, *lengths, 1.0)
        logits = self.model(input_ids=tokens).logits[0, 1:-1].float()
        theirs = torch.log_softmax(logits, -1).gather(-1, tokens[0, 2:, None]).squeeze(-1)
        if changed or not (ours - theirs).abs().max() < 1e-3:
            raise ValueError(
                f"{type(self.model).__name__} changes its logits after the output head (scaling or soft cap): its "
                "log-probs would be wrong here, so it cannot be trained with this file"
            )

    def share(self, mode: str) -> str:
        """Prepare --share_prefix, and say in a line what came of it. Raises ValueError if it is "on" and cannot be."""
        if mode == "off":
            return "every rollout with its own prompt (--share_prefix off)"
        attention, reason = self.model.config._attn_implementation, self._why_not_shared()
        self.shares = reason is None
        if reason and attention != self.model.config._attn_implementation:
            self.model.set_attn_implementation(attention)
        if reason and mode == "on":
            raise ValueError(f"--share_prefix on: {type(self.model).__name__} cannot: {reason}; auto does without")
        if reason:
            return f"every rollout with its own prompt ({reason})"
        where = "" if mode == "on" else f" in steps where this saves enough tokens ({SHARE_FROM[mode]}x)"
        return f"each prompt computed once for its rollouts{where} (--share_prefix {mode})"

    @torch.no_grad()
    def _why_not_shared(self) -> str | None:
        """None if log-probs with shared prompts equal the plain ones on a few tokens, else the reason.

        A few tokens do not reach beyond a sliding window, so the config has to say that there is none.
        """
        model, settings = self.model, self.model.config.get_text_config()
        if model.config._attn_implementation not in ("sdpa", "packed_sdpa"):
            return f"its attention is {model.config._attn_implementation}, not sdpa"
        if not getattr(model, "_can_set_attn_implementation", lambda: True)():
            return "its attention cannot be replaced"
        partial = set(getattr(settings, "layer_types", None) or []) - {"full_attention"}
        partial |= {name for name in ("sliding_window", "attention_chunk_size") if getattr(settings, name, None)}
        if partial:
            return f"it does not attend to all that came before: {', '.join(sorted(partial))}"
        shape = torch.tensor([5, 5, 5, 3, 3]), torch.tensor([4, 1, 3, 2, 4])
        tokens = torch.randint(settings.vocab_size, (5, 9), generator=torch.Generator().manual_seed(0))
        tokens[:3, :5], tokens[3:, :3] = tokens[0, :5], tokens[3, :3]
        tokens, *lengths, prompts = (x.to(model.device) for x in (tokens, *shape, torch.tensor([0, 0, 0, 1, 1])))
        try:
            want, _ = self(tokens, *lengths, 1.0)
            model.set_attn_implementation("packed_sdpa")
            difference = (self(tokens, *lengths, 1.0, prompts)[0] - want).abs().max()
        except Exception as e:  # whatever a foreign model does with foreign arguments, the plain path remains
            return f"{type(e).__name__}: {e}"
        return None if difference < 1e-4 else f"its log-probs with shared prompts differ by {difference:.1e}"
