"""Make the tiny policy of 0.12M parameters and its countdown problems from nothing.

    python -m tiny.make            writes tiny/policy/, tiny/train.jsonl and tiny/test.jsonl (a few minutes, CPU)

BroRL needs a policy that already finds answers (pass@64 near 1) but rarely (pass@1 near 0.2), a verifier, and training
problems that share nothing with the test set. A problem is four digits and a target, `3579:31=`. An answer is an
expression over exactly these digits whose value is the target, `3*5+7+9`.

  universe   every (multiset of four digits 1-9, target 1-99) that an expression of answers.py reaches
  order      problems are in a random order, in which a problem with more answers is likelier to come first
  held out   the first 512 problems. The next 4,096 are the training set; imitation sees all that are not held out
  imitation  next-token prediction on the response of (problem, expression) pairs. 20% of the expressions have the right
             digits but miss the target. So the policy learns the form of an answer better than the arithmetic, and
             reinforcement learning can improve it
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen2Tokenizer

from tiny.answers import expressions

EOS = "<eos>"  # also the padding token, as in many released models: masks must come from lengths
CHARACTERS = "0123456789+-*/()=:, "
BYTE_LEVEL_SPACE = "Ġ"  # a byte-level tokenizer's name for the space
RESPONSE_TOKENS = 8  # four digits, three operators, EOS
TRAINING, HELD_OUT = 4096, 512  # problems
WRONG_SHARE = 0.2  # of the imitated expressions: they miss the target


def make_tokenizer() -> Qwen2Tokenizer:
    """Make Qwen2's byte-level tokenizer without merges: one token per character. It drops all other characters."""
    vocabulary = {token: i for i, token in enumerate([EOS, "<unk>", *CHARACTERS])}
    vocabulary[BYTE_LEVEL_SPACE] = vocabulary.pop(" ")
    return Qwen2Tokenizer(
        vocab=vocabulary, merges=[], eos_token=EOS, pad_token=EOS, unk_token="<unk>", padding_side="left"
    )


def make_policy(tokenizer: Qwen2Tokenizer) -> LlamaForCausalLM:
    """Make a Llama of two layers of width 64 with four query heads, two key heads and tied embeddings."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # vLLM has no kernels for narrower heads
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=torch.float32,
    )
    policy = LlamaForCausalLM(config)
    policy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, max_new_tokens=RESPONSE_TOKENS
    )
    return policy


class Universe:
    """All problems and all answers. A problem is its index in `targets`, an expression its index in `expressions`."""

    def __init__(self) -> None:
        self.expressions: list[str] = []  # of all multisets, one multiset after the other
        self.slices: list[tuple[int, int]] = []  # (first, last + 1) of each multiset's expressions
        answers: dict[tuple[int, int], list[int]] = {}  # (multiset, target) -> expressions
        self.multisets = list(itertools.combinations_with_replacement(range(1, 10), 4))
        for i, multiset in enumerate(tqdm(self.multisets, desc="universe", leave=False, disable=None)):
            first = len(self.expressions)
            for text, value in expressions(multiset).items():
                if value is not None and value.denominator == 1 and 1 <= value <= 99:
                    answers.setdefault((i, int(value)), []).append(len(self.expressions))
                self.expressions.append(text)
            self.slices.append((first, len(self.expressions)))
        self.targets = sorted(answers)  # (multiset, target) of each problem
        self.answer_count = np.array([len(answers[x]) for x in self.targets])
        # All (problem, answer) pairs, in the order of the problems.
        self.pair_problem = np.repeat(np.arange(len(self.targets)), self.answer_count)
        self.pair_answer = np.concatenate([answers[x] for x in self.targets])

    def prompt(self, problem: int) -> tuple[str, list[int], int]:
        """Return the prompt, the numbers and the target. The numbers ascend, so a problem has one prompt."""
        i, target = self.targets[problem]
        return "".join(map(str, self.multisets[i])) + f":{target}=", list(self.multisets[i]), target


def write_problems(path: Path, universe: Universe, problems: np.ndarray) -> None:
    """Write problems as JSON lines for train.py."""
    with path.open("w") as file:
        for problem in problems:
            prompt, numbers, target = universe.prompt(problem)
            row = {"prompt": prompt, "kind": "countdown", "reference": {"numbers": numbers, "target": target}}
            file.write(json.dumps(row) + "\n")


def imitate(policy, tokenizer, universe: Universe, problems: np.ndarray, args: argparse.Namespace, rng) -> None:
    """Minimise the cross-entropy of responses to these problems, with a cosine learning rate."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=4e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    pairs = np.flatnonzero(np.isin(universe.pair_problem, problems))
    bar = tqdm(range(args.steps), desc="imitation", unit="step", disable=None)
    for step in bar:
        inputs, labels = [], []
        for pair in rng.choice(pairs, args.batch):
            problem, expression = universe.pair_problem[pair], universe.pair_answer[pair]
            if rng.random() < WRONG_SHARE:
                expression = rng.integers(*universe.slices[universe.targets[problem][0]])
            prompt, response = (
                tokenizer(x).input_ids for x in (universe.prompt(problem)[0], universe.expressions[expression] + EOS)
            )
            inputs.append([*prompt, *response])
            labels.append([*[-100] * len(prompt), *response])
        width = max(map(len, inputs))
        input_ids, mask, label_ids = (
            torch.tensor([[filler] * (width - len(row)) + row for row in rows])  # on the left: responses end together
            for rows, filler in ((inputs, tokenizer.pad_token_id), ([[1] * len(x) for x in inputs], 0), (labels, -100))
        )
        loss = policy(input_ids=input_ids, attention_mask=mask, labels=label_ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write into")
    parser.add_argument("--steps", type=int, default=4000, help="imitation steps")
    parser.add_argument("--batch", type=int, default=256, help="expressions per imitation step")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    universe = Universe()
    ordered = np.argsort(rng.exponential(size=len(universe.targets)) / universe.answer_count)
    held_out, others = ordered[:HELD_OUT], ordered[HELD_OUT:]
    write_problems(args.out / "test.jsonl", universe, held_out)
    write_problems(args.out / "train.jsonl", universe, others[:TRAINING])
    print(f"{len(universe.targets):,} problems; {TRAINING:,} to train on, {HELD_OUT:,} held out")

    tokenizer = make_tokenizer()
    policy = make_policy(tokenizer)
    print(f"policy: {sum(p.numel() for p in policy.parameters()):,} parameters, {len(tokenizer)} tokens")
    imitate(policy, tokenizer, universe, others, args, rng)
    tokenizer.save_pretrained(args.out / "policy")
    policy.save_pretrained(args.out / "policy")
    print(f"wrote {args.out / 'policy'}; `python train.py --eval_only` scores it")


if __name__ == "__main__":
    main()
