"""tools/fit.py: the flags for a card, and a run beside its prediction."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers import lines

from tools.fit import check, flags
from trainer.card_memory import Needs
from trainer.process import Refusal


@pytest.mark.parametrize(
    "card, says", [(80, "no flag needed"), (24, "--max_tokens_per_micro_batch 2048"), (14, "no: "), (9, "no: ")]
)  # fmt: skip
def test_flags_by_hand(card, says):
    """Makes impossible: an advice whose parts exceed the card. 8 GiB stay, vLLM needs 2, an update 3, 9 or 19; 3 GiB
    are free and CUDA graphs take 1.
    """
    n = Needs(2, 2, 4, 2, 5, 0.5, 0.1, 1, {(32768, False): 19, (2048, False): 9, (2048, True): 3}, {})
    assert flags(n, card, 2048).startswith(says)
    assert flags(n, 16, 2048).endswith("--gradient_checkpointing")
    assert flags(n, 80, 40_000).startswith("no: ")  # no micro-batch is as long as a rollout
    assert flags(replace(n, start=100), card, 2048) == "no: the start needs 100.0 GiB"
    assert replace(n, keeps_gradients=True).held() == n.held() + 2  # DDP


def test_a_run_beside_its_prediction(finished, tmp_path):
    """Makes impossible: a prediction for other settings than the run's, a phase that is left out, a traceback for a
    folder without memory.
    """
    folder = finished / "run"
    said = check(folder).splitlines()
    longest = max(row.get("tokens", 0) for row in lines(folder / "metrics.jsonl")) // 2  # two updates
    assert said[0] == f"{folder}: GiB, micro-batches of {longest} response tokens"
    table = {phase: (float(x), float(y)) for phase, x, y in map(str.split, said[2:7])}
    assert said[1].split() == ["phase", "predicted", "process"]
    assert list(table) == ["start", "evaluate", "roll_out", "score", "update"]
    predicted = [x for x, _ in table.values()]
    assert predicted == sorted(predicted) and predicted[0] > 0 and predicted[-1] < table["update"][1]
    shutil.copytree(folder, tmp_path / "card", ignore=shutil.ignore_patterns("checkpoints", "model"))
    on_card = {"step": 1, "peak_gib": {"update": {"allocated": 2.0, "reserved": 2.5, "vllm": 30.0}}}
    (tmp_path / "card/timing.jsonl").write_text(json.dumps(on_card) + "\n")
    *_, row, _, vllm = check(tmp_path / "card", 80.0).splitlines()
    assert row.split()[2:] == ["2.000", "2.500"] and vllm.endswith("30.00; its share of the card: 40.00")
    (tmp_path / "card/timing.jsonl").write_text('{"step": 0}\n')
    for path, reason in ((tmp_path / "card", "has no memory"), (tmp_path, "config.json")):
        with pytest.raises(Refusal, match=f"--check: .*{reason}"):
            check(path)
