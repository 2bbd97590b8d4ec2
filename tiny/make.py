"""The embedded default, made from nothing: a policy of 0.12M parameters and its countdown problems.

    python -m tiny.make            writes tiny/policy/, tiny/train.jsonl and tiny/test.jsonl (a few minutes, CPU)
    python -m tiny.make --examples 7 --out long        the same problems behind seven worked examples: prompts of
                                                       about 128 tokens, and a policy that reads them

Section 4.2 in the small: BroRL needs a policy that already finds answers (pass@64 near 1) but rarely
(pass@1 near 0.2), a verifier, and training problems that the test set knows nothing of. A problem is
four digits and a target, `3579:24=`; an answer is an expression over exactly these digits, `3*5+9...`.

  universe   every (multiset of four digits 1-9, target 1-99) that some expression `a.b.c.d` reaches,
             where each dot is one of + - * / and there are no parentheses: at most 4! 4^3 = 1536
             expressions a problem, so a policy's exact Q_pos can be summed
  draw       problems are the values of random expressions: the more solutions, the likelier a problem
  split      512 problems are held out; 4,096 of the others are the training set; imitation sees all others
  cold start next-token prediction on the response of (problem, expression) pairs. A share of the
             expressions (20%) is over the right digits but misses the target: the policy learns the
             form of an answer better than how to be right, which is what reinforcement learning starts from
  examples   with --examples, a prompt is so many other problems with a solution each, then its own problem:
             `2345:14=2+3+4+5, 1248:16=..., 3579:24=`. They help nobody to the answer, they make the prompt long,
             as instructions do. Imitation learns from the answers to all problems of such a text at once
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen2Tokenizer

OPERATORS = "+-*/"
EOS = "<eos>"  # also the padding token, as in many released models: masks must come from lengths
CHARACTERS = "0123456789+-*/()=:, "
BYTE_LEVEL_SPACE = "Ġ"  # how a byte-level tokenizer writes the space in its vocabulary
BETWEEN = ", "  # worked examples
RESPONSE = 8  # four digits, three operators, EOS


def make_tokenizer() -> Qwen2Tokenizer:
    """Qwen2's byte-level tokenizer without merges: a token per character. Others than these it leaves out."""
    vocabulary = {token: i for i, token in enumerate([EOS, "<unk>", *CHARACTERS])}
    vocabulary[BYTE_LEVEL_SPACE] = vocabulary.pop(" ")
    return Qwen2Tokenizer(
        vocab=vocabulary, merges=[], eos_token=EOS, pad_token=EOS, unk_token="<unk>", padding_side="left"
    )


def make_policy(tokenizer: Qwen2Tokenizer) -> LlamaForCausalLM:
    """The Llama architecture: two layers of width 64, four query heads over two key heads, tied embeddings."""
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
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, max_new_tokens=RESPONSE
    )
    return policy


def evaluate(digits: np.ndarray, operators: tuple[int, int, int]) -> np.ndarray:
    """Values of `a.b.c.d` for rows of digits (R, 4) and three operator indices, with the usual precedence.

    Exact enough to test for an integer at 1e-9: every value is a fraction with denominator <= 729.
    """
    total, term = np.zeros(len(digits)), digits[:, 0].astype(float)
    for operator, digit in zip(operators, digits[:, 1:].T, strict=True):
        match OPERATORS[operator]:
            case "*":
                term = term * digit
            case "/":
                term = term / digit
            case sign:
                total, term = total + term, digit if sign == "+" else -digit
    return total + term


class Universe:
    """All problems, and every expression that solves each of them."""

    def __init__(self):
        multisets = list(itertools.combinations_with_replacement(range(1, 10), 4))
        digits, owner = [], []
        for i, multiset in enumerate(multisets):
            orders = sorted(set(itertools.permutations(multiset)))
            digits += orders
            owner += [i] * len(orders)
        digits, owner = np.array(digits), np.array(owner)

        values, operators = [], list(itertools.product(range(4), repeat=3))
        for triple in operators:
            values.append(evaluate(digits, triple))
        value = np.stack(values, 1).ravel()  # one row per (order of the digits, operators)
        self.digits = np.repeat(digits, len(operators), 0)
        self.operators = np.tile(np.array(operators), (len(digits), 1))
        self.owner = np.repeat(owner, len(operators))
        target = np.rint(value).astype(int)
        solves = (np.abs(value - target) < 1e-9) & (target >= 1) & (target <= 99)

        rows = np.flatnonzero(solves)
        key = self.owner[rows] * 100 + target[rows]
        self.rows = rows[np.argsort(key, kind="stable")]
        keys, self.count = np.unique(key, return_counts=True)
        self.problems = np.stack([keys // 100, keys % 100], 1)  # (problems, 2): index of the multiset, target
        self.solves = np.repeat(np.arange(len(keys)), self.count)  # which problem each of `rows` solves
        self.multisets = np.array(multisets)
        # rows of each multiset are contiguous, so a wrong expression is a draw from this slice
        self.first = np.searchsorted(self.owner, np.arange(len(multisets)))
        self.last = np.searchsorted(self.owner, np.arange(len(multisets)), side="right")

    def text(self, row: int) -> str:
        a, b, c, d = self.digits[row]
        x, y, z = (OPERATORS[i] for i in self.operators[row])
        return f"{a}{x}{b}{y}{c}{z}{d}"

    def prompt(self, problem: int) -> tuple[str, list[int], int]:
        multiset, target = self.problems[problem]
        numbers = self.multisets[multiset].tolist()  # in ascending order: a problem has one prompt
        return "".join(map(str, numbers)) + f":{target}=", numbers, int(target)

    def worked(self, pairs: np.ndarray) -> str:
        """Problems with a solution each, the text in front of a problem of one's own."""
        return "".join(f"{self.prompt(self.solves[i])[0]}{self.text(self.rows[i])}{BETWEEN}" for i in pairs)


def write_problems(path: Path, universe: Universe, problems: np.ndarray, pool: np.ndarray, examples: int, rng) -> None:
    """JSON lines for train.py, each problem behind so many worked examples from the pool."""
    pairs = np.flatnonzero(np.isin(universe.solves, pool))
    with path.open("w") as file:
        for problem in problems:
            prompt, numbers, target = universe.prompt(problem)
            others = pairs[universe.solves[pairs] != problem]
            front = universe.worked(rng.choice(others, examples)) if examples else ""
            row = {"prompt": front + prompt, "kind": "countdown", "reference": {"numbers": numbers, "target": target}}
            file.write(json.dumps(row) + "\n")


def imitate(policy, tokenizer, universe, pool, steps, batch, learning_rate, wrong, examples, rng) -> None:
    """Cross-entropy on the response tokens of random (problem, expression) pairs, cosine learning rate.

    A text is `examples` pairs and one more; all of them count, but only the last one ends with EOS.
    """
    optimizer = torch.optim.AdamW(policy.parameters(), lr=learning_rate, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pairs = np.flatnonzero(np.isin(universe.solves, pool))  # (problem, solution), none of them held out
    bar = tqdm(range(steps), desc="imitation", unit="step", disable=None)
    for step in bar:
        texts, targets = [], []
        for chosen in rng.choice(pairs, (batch // (examples + 1), examples + 1)):
            tokens, labels = [], []
            for at, pair in enumerate(chosen):
                problem, row = universe.solves[pair], universe.rows[pair]
                if rng.random() < wrong:
                    multiset = universe.problems[problem, 0]
                    row = rng.integers(universe.first[multiset], universe.last[multiset])
                prompt, response = (tokenizer(x).input_ids for x in (universe.prompt(problem)[0], universe.text(row)))
                end = tokenizer(BETWEEN if at < examples else EOS).input_ids
                tokens += [*prompt, *response, *end]
                labels += [*[-100] * len(prompt), *response, *(end if at == examples else [-100] * len(end))]
            texts.append(tokens)
            targets.append(labels)
        width = max(map(len, texts))
        inputs, mask, wanted = (
            torch.tensor([[filler] * (width - len(row)) + row for row in rows])  # on the left: responses end together
            for rows, filler in ((texts, tokenizer.pad_token_id), ([[1] * len(x) for x in texts], 0), (targets, -100))
        )
        loss = policy(input_ids=inputs, attention_mask=mask, labels=wanted).loss
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
    parser.add_argument("--learning_rate", type=float, default=4e-3, help="peak learning rate of the imitation")
    parser.add_argument("--wrong", type=float, default=0.2, help="share of expressions that miss the target")
    parser.add_argument("--examples", type=int, default=0, help="worked examples in front of each problem")
    parser.add_argument("--train", type=int, default=4096, help="training problems")
    parser.add_argument("--test", type=int, default=512, help="held-out problems")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split, the problems and the policy")
    args = parser.parse_args()
    if not 0 <= args.examples < args.batch:
        sys.exit(f"--examples {args.examples}: from 0 to one less than --batch {args.batch}, which counts them")
    args.out.mkdir(parents=True, exist_ok=True)

    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    universe = Universe()
    shuffled = np.argsort(rng.exponential(size=len(universe.count)) / universe.count)  # likelier problems come first
    held_out, pool = shuffled[: args.test], shuffled[args.test :]
    if len(pool) < args.train:
        sys.exit(f"--train {args.train} + --test {args.test} exceed the universe of {len(shuffled)} problems")
    examples = np.random.default_rng([args.seed, 1])  # of their own: the problems are the same with and without
    write_problems(args.out / "test.jsonl", universe, held_out, pool, args.examples, examples)
    write_problems(args.out / "train.jsonl", universe, pool[: args.train], pool, args.examples, examples)
    print(f"{len(shuffled):,} problems; {args.train:,} to train on, {args.test:,} held out")

    tokenizer = make_tokenizer()
    policy = make_policy(tokenizer)
    print(f"policy: {sum(p.numel() for p in policy.parameters()):,} parameters, {len(tokenizer)} tokens")
    imitate(
        policy, tokenizer, universe, pool, args.steps, args.batch, args.learning_rate, args.wrong, args.examples, rng
    )
    tokenizer.save_pretrained(args.out / "policy")
    policy.save_pretrained(args.out / "policy")
    print(f"wrote {args.out / 'policy'}; `python train.py --eval_only` scores it")


if __name__ == "__main__":
    main()
