"""V_w / V_b by the length of the answer, on a real model: tasks alike but for their length (docs/which_n.md).

    python -m evidence.smollm FOLDER                 the model, once
    python -m evidence.length --model FOLDER         hours on a core; what is done already is left alone

The model goes on from "Every morning the old ship" for 8, 32, 128 or 512 tokens, at temperature 1. Three tasks ask
something of the same answers, of each prompt something else, so that about one answer in five is right:

    first   the first word begins with one of six letters, drawn for the prompt: what decides is over at once
    last    the last whole word does: all that went before has some say in it
    all     the words are long on average, or short, in turn: every token has its share

Every rollout's own ∇log π is kept, on BLOCK x BLOCK random coordinates of each layer's weights. So one backward pass
serves all tasks, and all halves of a group: V_w and V_b are the means of `trainer.noise.estimate` over SPLITS ways of
halving the groups, their errors the jackknife's over prompts. Writes length.csv.
"""

import argparse
import math
import random
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from tqdm import tqdm

from evidence.rows import HERE, ROOT, write
from trainer.noise import best_n, estimate, noise_at_equal_cost

NOUNS = """
ship baker forest king dog teacher river clock farmer garden doctor bridge cat soldier church mill sailor tree house
judge train mother horse singer village tower fisherman wolf bell writer castle father road nurse harbour shepherd
library hunter island painter boat priest market giant school queen barber bird hotel captain witch well carpenter
street monk museum tailor mountain thief theatre pilot lamp butcher kitchen
""".split()  # noqa: SIM905
SIZES = {8: (64, 96), 32: (48, 64), 128: (8, 24), 512: (4, 16)}  # tokens: prompts, rollouts of each
BLOCK, SPLITS = 16, 20
PASS = 2048  # tokens of a backward pass
WANTED = 6  # letters of the alphabet
FEW = 8  # of fewer prompts V_b is not told
EVEN = (512 - 16) / (16 / 15 - 512 / 511)  # V_w / V_b at which N = 512 and 16 are as noisy at equal samples: 7,665


class Slopes:
    """∇log π of every rollout of a batch, from one backward pass, on some coordinates of each linear layer's weight.

    A layer y = W x has the gradient Σ_t (∂ log π / ∂y_t) x_tᵀ, a sum over the rollout's own tokens t. Of a random block
    of W that takes a few columns of both; the factor makes inner products unbiased for those over all of W.
    """

    def __init__(self, model, block: int = BLOCK):
        self.model, self.found = model, dict[int, Tensor]()
        draw = torch.Generator().manual_seed(0)
        layers = [x for x in model.model.layers.modules() if isinstance(x, nn.Linear)]
        for number, layer in enumerate(layers):
            out, into = layer.weight.shape
            rows, columns = (torch.randperm(size, generator=draw)[:block] for size in (out, into))
            scale = math.sqrt(out * into / (len(rows) * len(columns)))
            layer.register_forward_hook(self.hook(number, rows, columns, scale))
        model.requires_grad_(False)
        first = model.get_input_embeddings()
        first.register_forward_hook(lambda *x: x[2].requires_grad_() if torch.is_grad_enabled() else None)

    def hook(self, number: int, rows: Tensor, columns: Tensor, scale: float) -> Callable:
        def forward(_, inputs, output):
            x = inputs[0].detach()[..., columns]

            def backward(slope):
                self.found[number] = scale * torch.einsum("ntr,ntc->nrc", slope[..., rows], x).flatten(1)

            if output.requires_grad:  # not while the engine generates
                output.register_hook(backward)

        return forward

    def of(self, prompt: list[int], responses: list[list[int]]) -> Tensor:
        """(n, coordinates): a row a rollout."""
        longest = max(map(len, responses))
        tokens = torch.zeros(len(responses), len(prompt) + longest, dtype=torch.long)
        here = torch.zeros(len(responses), longest, dtype=torch.bool)
        for i, response in enumerate(responses):
            tokens[i, : len(prompt) + len(response)] = torch.tensor(prompt + response)
            here[i, : len(response)] = True
        logits = self.model(input_ids=tokens).logits[:, len(prompt) - 1 : -1]
        logp = -nn.functional.cross_entropy(logits[here], tokens[:, len(prompt) :][here], reduction="sum")
        logp.backward()
        return torch.cat([self.found.pop(number) for number in sorted(self.found)], dim=1)


def collect(folder: Path, out: Path) -> None:
    """LENGTH-NOUN.pt for each prompt: its answers' texts, their lengths, the gradients. A file that is there stays."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rollout import TorchEngine

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    engine, slopes = TorchEngine(model, memory_gib=4), None
    out.mkdir(parents=True, exist_ok=True)
    todo = [(t, noun) for t, (prompts, _) in SIZES.items() for noun in NOUNS[:prompts]]
    for t, noun in tqdm([x for x in todo if not (out / f"{x[0]}-{x[1]}.pt").exists()], desc="prompts", disable=None):
        n, prompt = SIZES[t][1], tokenizer(f"Every morning the old {noun}").input_ids
        seed = 1000 * t + NOUNS.index(noun)
        (group,) = engine.generate([prompt], n, max_new_tokens=t, seed=seed, stop_token_ids=[tokenizer.eos_token_id])
        slopes = slopes or Slopes(model)
        size = max(1, PASS // (len(prompt) + t))
        rows = [slopes.of(prompt, group.responses[i : i + size]) for i in range(0, n, size)]
        texts = [tokenizer.decode(x, skip_special_tokens=True) for x in group.responses]
        saved = {"texts": texts, "tokens": [len(x) for x in group.responses], "slopes": torch.cat(rows)}
        torch.save(saved, out / "new")
        (out / "new").rename(out / f"{t}-{noun}.pt")


def words(text: str) -> list[str]:
    """The whole words of an answer that was cut off, small letters only; the last is left out, it may be half."""
    found = [word.strip(string.punctuation + "“”‘’—–").lower() for word in text.split()[:-1]]
    return [word for word in found if word]


def letters(text: str) -> float:
    """Letters a word."""
    found = words(text)
    return sum(map(len, found)) / len(found) if found else 0.0


def rewards(task: str, texts: list[list[str]]) -> list[Tensor]:
    """(n,) for each prompt, from its answers. The bars of `all`: one answer in five, of all prompts, is beyond them."""
    if task == "all":
        low, high = np.quantile([letters(x) for group in texts for x in group], (0.2, 0.8))
        short = [[letters(x) < low for x in group] for group in texts]
        long = [[letters(x) > high for x in group] for group in texts]
        return [torch.tensor([short, long][i % 2][i]).float() for i in range(len(texts))]
    at = 0 if task == "first" else -1
    wanted = [set(random.Random(i).sample(string.ascii_lowercase, WANTED)) for i in range(len(texts))]
    return [
        torch.tensor([float(bool(found := words(x)) and found[at][0] in some) for x in group])
        for some, group in zip(wanted, texts, strict=True)
    ]


def measured(slopes: list[Tensor], rewards: list[Tensor]) -> dict[str, float]:
    """V_w, V_b, |ḡ|², and V_b / V_w with its standard error: means over ways of halving, jackknife over prompts."""
    m, n = len(slopes), len(rewards[0]) // 2
    found, without = [], []
    draw = torch.Generator().manual_seed(0)
    for _ in range(SPLITS):
        halves = []
        for v, r in zip(slopes, rewards, strict=True):
            for rows in torch.randperm(len(r), generator=draw)[: 2 * n].view(2, n):
                halves.append((r[rows] - r[rows].mean()) @ v[rows] / (n - 1))
        gram = torch.stack(halves).double()
        gram = gram @ gram.T
        found.append(estimate(gram, m, n))
        keep = [[k for k in range(2 * m) if k // 2 != x] for x in range(m)]
        without.append([estimate(gram[k][:, k], m - 1, n) for k in keep])
    within, between, mean2 = np.mean(found, axis=0)
    left = np.mean(without, axis=0)
    errors = [math.sqrt((m - 1) / m * ((x - x.mean()) ** 2).sum()) for x in (left[:, 0], left[:, 1] / left[:, 0])]
    result = {"within": within, "within_se": errors[0], "between": between, "mean2": mean2}
    return result | {"inverse": between / within, "inverse_se": errors[1]}


def rows_of(out: Path) -> list[dict]:
    """A row for each length and task, of what `collect` left."""
    rows = []
    for t in SIZES:
        saved = [torch.load(path) for noun in NOUNS if (path := out / f"{t}-{noun}.pt").exists()]
        if len(saved) < 4:
            continue
        texts, slopes = [x["texts"] for x in saved], [x["slopes"] for x in saved]
        tokens = float(np.mean([x["tokens"] for x in saved]))
        for task in ("first", "last", "all"):
            right = rewards(task, texts)
            who: dict = {"max_tokens": t, "task": task, "tokens": tokens, "prompts": len(saved)}
            who |= {"rollouts": len(right[0]), "p": float(torch.cat(right).mean())}
            rows.append(who | measured(slopes, right))
    return rows


def interval(row: dict) -> tuple[float, float, float]:
    """V_w / V_b and its 95% interval, which is that of V_b / V_w turned round: no upper end where V_b may be 0.

    V_b is never negative, so an estimate below 0 counts as 0 for the lower end.
    """
    t = stats.t.ppf(0.975, row["prompts"] - 1)
    inverse, half = row["inverse"], t * row["inverse_se"]
    ends = (inverse, max(inverse, 0) + half, inverse - half)
    middle, low, high = (1 / x if x > 0 else math.inf for x in ends)
    return middle, low, high


def carried(rows: list[dict]) -> list[dict]:
    """`first` at each length with V_b of the shortest: ∇p is of the first word alone, so later tokens do not change it.

    Of longer answers V_w is known well, V_b is not.
    """
    shortest, *longer = [row for row in rows if row["task"] == "first"]
    known = []
    for row in longer:
        inverse = shortest["between"] / row["within"]
        errors = shortest["inverse_se"] / shortest["inverse"], row["within_se"] / row["within"]
        known.append(row | {"inverse": inverse, "inverse_se": inverse * math.hypot(*errors)})
    return known


def known(row: dict) -> tuple[str, str, str]:
    """V_w / V_b, N*, and N = 512's noise over that of 16 at equal samples, or the bounds that are known of them."""
    ratio, low, high = interval(row)
    if row["prompts"] < FEW:
        return "not seen", "", ""
    at, over, under = (ratio, "", "") if high < math.inf else (low, "over ", "under ")
    times = noise_at_equal_cost(512, at) / noise_at_equal_cost(16, at)
    ratio_known = f"{ratio:,.0f} ({low:,.0f} to {high:,.0f})" if not over else f"over {low:,.0f}"
    return ratio_known, f"{over}{best_n(at):.0f}", f"{under}{times:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "length", help="where gradients are kept")
    args = parser.parse_args()
    collect(args.model, args.out)
    write(HERE / "length.csv", rows_of(args.out))


if __name__ == "__main__":
    main()
