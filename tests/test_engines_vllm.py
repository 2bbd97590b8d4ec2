"""engines/vllm.py with the real vLLM: against the torch engine and a plain forward pass.

Runs where vLLM's CPU build is installed (`.ci/run` installs it and sets BRORL_VLLM=1, under which nothing here is
skipped for want of it). float32 and the embedded policy, unless a test says otherwise. On a GPU only the test of its
sleep runs, and nobody has run it: what a GPU's kernels may differ by is not known here.
"""

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from scipy import stats

from engines.protocol import EngineError, Order, prompt_seeds
from engines.vllm import VLLMEngine, llm_settings, memory_taken
from rollout import TorchEngine, sampling_logprobs

if not os.environ.get("BRORL_VLLM"):
    pytest.importorskip("vllm", reason="vLLM is not installed: .ci/run tests it in an environment of its own")

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, AutoTokenizer, BloomConfig, LlamaConfig, Olmo2Config

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "tiny"
EOS = 0
KEPT = []  # a second engine that dies takes the process groups of the first with it, which is vLLM's way
ANSWER = {"max_new_tokens": 12, "stop_token_ids": [EOS]}


def policy():
    return AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float32).eval()


def prompts(count):
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    rows = [json.loads(line) for line in (TINY / "train.jsonl").read_text().splitlines()[:count]]
    return [tokenizer(row["prompt"]).input_ids for row in rows]


@pytest.fixture(scope="module")
def engine():
    """One engine for all tests of this file: making one takes seconds. Each test begins with the policy's weights."""
    if torch.cuda.is_available():
        pytest.skip("for vLLM's CPU build")
    return VLLMEngine(policy(), positions=128, disable_log_stats=False)


@pytest.fixture(autouse=True)
def fresh(request):
    if "engine" in request.fixturenames:
        e = request.getfixturevalue("engine")
        e.sync(e.model)


def trainers_logprobs(model, group, **sampling):
    """Log-probs of a group's responses by plain forward passes, one a response."""
    result = []
    for response in group.responses:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([group.prompt + response])).logits[0, len(group.prompt) - 1 : -1]
        logp = sampling_logprobs(logits, **sampling)
        result.append(logp.gather(-1, torch.tensor(response)[:, None]).squeeze(-1).tolist())
    return result


def furthest(groups, model, **sampling):
    """The largest difference between the engine's log-probs and the trainer's."""
    return max(
        abs(x - y)
        for g in groups
        for theirs, ours in zip(g.logprobs, trainers_logprobs(model, g, **sampling), strict=True)
        for x, y in zip(theirs, ours, strict=True)
    )


def moved(model, scale=0.05, seed=0):
    """Another policy of the same shape."""
    other, generator = policy(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p += scale * torch.randn(p.shape, generator=generator)
    return other


def uniform():
    """A policy of which every token is equally likely, always."""
    blank = policy()
    with torch.no_grad():
        for p in blank.parameters():
            p.zero_()
    return blank


# The same as the torch engine


def test_greedy_equals_the_torch_engine_token_for_token(engine):
    """Makes impossible: other weights, positions, masks or stop rules than the torch engine's."""
    asked = prompts(64)
    ours = TorchEngine(engine.model).generate(asked, 2, temperature=0, **ANSWER)
    theirs = engine.generate(asked, 2, temperature=0, **ANSWER)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.prompt, a.responses, a.finish_reasons) == (b.prompt, b.responses, b.finish_reasons)
        assert numpy.allclose(numpy.concatenate(a.logprobs), numpy.concatenate(b.logprobs), atol=1e-4)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.6, "top_p": 0.95}, {"temperature": 1.3, "top_k": 5}])
def test_sampled_logprobs_equal_the_trainers(engine, sampling):
    """Makes impossible: log-probs before the temperature or the cut, or of another token than the one drawn."""
    groups = engine.generate(prompts(4), 128, seed=3, **ANSWER, **sampling)
    assert furthest(groups, engine.model, **sampling) < 1e-4


def test_prompts_of_more_tokens_than_one_pass_takes(engine):
    """Makes impossible: a group that vLLM's CPU build cannot begin: of prompts in parts it sets back the seeds."""
    (group,) = engine.generate([prompts(1)[0] * 11], 512, max_new_tokens=4, stop_token_ids=[])
    assert len(group.prompt) * 512 > engine.llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens
    assert len(group.responses) == 512 and furthest([group], engine.model) < 1e-4


def test_first_tokens_follow_the_softmax(engine):
    """Makes impossible: a sampler that is biased, or whose rollouts depend on one another. Exact probabilities."""
    asked = prompts(4)
    groups = engine.generate(asked, 512, seed=5, **ANSWER)
    for prompt, group in zip(asked, groups, strict=True):
        with torch.no_grad():
            p = engine.model(input_ids=torch.tensor([prompt])).logits[0, -1].double().softmax(-1).numpy()
        count = numpy.bincount([r[0] for r in group.responses], minlength=len(p))
        common = p * 512 >= 5
        observed, expected = [*count[common], count[~common].sum()], [*p[common] * 512, p[~common].sum() * 512]
        if expected[-1] < 1:
            assert observed[-1] <= 8
            observed, expected = observed[:-1], [x * sum(observed[:-1]) / sum(expected[:-1]) for x in expected[:-1]]
        assert stats.chisquare(observed, expected).pvalue > 1e-4


# Weights in memory


@pytest.mark.parametrize("wrap", ["plain", "DDP", "FSDP2"])
def test_sync_takes_the_new_weights_from(engine, wrap):
    """Makes impossible: rollouts from old weights, from a tied head that was not repacked, or from a shard."""
    new = moved(engine.model)
    group = engine.generate(prompts(1), 32, seed=1, **ANSWER)
    assert furthest(group, new) > 0.1, "the new weights must differ for this to show anything"
    handed = moved(engine.model)
    if wrap == "DDP":
        handed = DistributedDataParallel(handed)
    if wrap == "FSDP2":
        fully_shard(handed, mesh=init_device_mesh("cpu", (1,)))
        assert hasattr(next(handed.parameters()), "full_tensor")
    for _ in range(2):  # again and again
        engine.sync(handed)
        assert furthest(engine.generate(prompts(4), 32, seed=1, **ANSWER), new) < 1e-4


ARCHITECTURES = {
    # A head that is not tied, biases, one key head.
    "llama": LlamaConfig(
        vocab_size=40, hidden_size=96, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=32, attention_bias=True, mlp_bias=True, max_position_embeddings=64,
        tie_word_embeddings=False, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    ),
    # vLLM runs it with transformers' class, which it patches.
    "olmo2": Olmo2Config(
        vocab_size=40, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, eos_token_id=0, pad_token_id=0, bos_token_id=None,
    ),
    # vLLM's Bloom has no module for the tied head.
    "bloom": BloomConfig(vocab_size=40, hidden_size=64, n_layer=2, n_head=2, eos_token_id=0, bos_token_id=None),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures(engine, name):
    """Makes impossible: an engine that knows the embedded policy only, or breaks the trainer's model or an engine."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[name], dtype=torch.float32).eval()
    if name == "llama":
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.2)
    other = VLLMEngine(model, positions=64, memory_gib=0.25)
    KEPT.append(other)
    for _ in range(2):
        groups = other.generate([[1, 2, 3], [9] * 20], 16, max_new_tokens=40, stop_token_ids=[0], temperature=1.5)
        assert furthest(groups, model, temperature=1.5) < 1e-4
        with torch.no_grad():
            for p in model.parameters():
                p += 0.05 * torch.randn(p.shape)
        other.sync(model)
    copy.deepcopy(model)(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert furthest(engine.generate(prompts(1), 8, **ANSWER), engine.model) < 1e-4, "the first engine lives on"


def test_the_engines_limits_are_those_asked_for(engine):
    """Makes impossible: vLLM's default concurrency, 256 on a CPU and 1024 on an H100, or its own idea of the length."""
    settings = engine.llm.llm_engine.vllm_config
    assert settings.scheduler_config.max_num_seqs == 512
    assert settings.model_config.max_model_len == 128
    assert settings.cache_config.enable_prefix_caching
    assert "512 rollouts at once" in engine.decoding


def test_the_cache_of_a_gpu_is_as_large_as_asked_for():
    """Makes impossible: --kv_cache_gib that vLLM never hears of, or an estimate that still counts the share."""
    settings = llm_settings("cuda", 128, 512, 2.0, 0.5, 8.0, None, True)
    assert settings["kv_cache_memory_bytes"] == 8 * 2**30 and settings["gpu_memory_utilization"] == 0.5
    model = policy().to("meta")  # not a CPU
    assert memory_taken(model, settings) == 8 * 2**30 + 2 * sum(p.numel() for p in model.parameters())
    assert "kv_cache_memory_bytes" not in llm_settings("cuda", 128, 512, 2.0, 0.5, None, None, True)
    assert memory_taken(policy(), settings) == 0


def test_what_vllm_took_the_cache_from_is_counted(engine):
    """Makes impossible: a cache that is too small, computed again and again, and nothing that says so."""
    engine.generate(prompts(1), 64, **ANSWER)
    assert engine.facts()["preemptions"] == 0
    cramped = VLLMEngine(uniform(), positions=96, memory_gib=0.003, max_num_seqs=64)
    KEPT.append(cramped)
    (group,) = cramped.generate([[3]], 256, max_new_tokens=90, stop_token_ids=[])
    assert set(map(len, group.responses)) == {90}
    assert cramped.facts()["preemptions"] > 0
    assert cramped.facts()["preemptions"] == 0, "since the last call"


def test_the_prefix_cache_is_on_and_forgets_old_weights(engine):
    """Makes impossible: computing a long prompt N times; keys and values of old weights under new ones."""
    prompt = (prompts(8) * 2)[0] * 12  # 96 tokens, three blocks
    before = cache_counts(engine)
    engine.generate([prompt], 64, **ANSWER)
    asked, hit = (b - a for a, b in zip(before, cache_counts(engine), strict=True))
    assert hit / asked > 0.6
    new = moved(engine.model)
    engine.sync(new)
    assert furthest(engine.generate([prompt], 16, **ANSWER), new) < 1e-4


def cache_counts(engine):
    counters = {m.name: m.value for m in engine.llm.get_metrics() if hasattr(m, "value")}
    return counters["vllm:prefix_cache_queries"], counters["vllm:prefix_cache_hits"]


class Recorder:
    """Stands in for vLLM where this platform has no sleep: notes what the engine asks of it, in order."""

    def __init__(self, llm):
        self.llm, self.asked = llm, []

    def __getattr__(self, name):
        if name == "llm_engine":  # which decodes
            self.asked.append((name, None))
            return self.llm.llm_engine

        def call(*args, **kwargs):
            self.asked.append((name, kwargs.get("level") or kwargs.get("tags", [None])[0]))
            return True if name in ("sleep", "wake_up") else getattr(self.llm, name)(*args, **kwargs)

        return call


def test_after_sleep_the_weights_are_the_trainers(engine, monkeypatch):
    """Makes impossible: the disk's weights after level 2, generating before they are back, syncing into nothing."""
    new, record = moved(engine.model), Recorder(engine.llm)
    monkeypatch.setattr(engine, "llm", record)
    monkeypatch.setattr(engine, "sleeps", True)
    load, cache = ("collective_rpc", None), ("reset_prefix_cache", None)
    waking = [("wake_up", "weights"), load, ("apply_model", None), cache, ("wake_up", "kv_cache")]
    engine.sleep()
    engine.sleep()
    engine.sync(new)
    assert record.asked == [("sleep", 2)], "asleep there is no memory to sync into"
    engine.wake()
    engine.wake()
    assert record.asked == [("sleep", 2), *waking]
    engine.sleep()
    record.asked.clear()
    assert furthest(engine.generate(prompts(2), 16, **ANSWER), new) < 1e-4, "generate wakes by itself"
    assert record.asked == [*waking, ("llm_engine", None)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="vLLM has no sleep on a CPU")
def test_sleep_gives_the_gpu_back():
    """Makes impossible: a sleeping engine that holds on to the trainer's memory, or wakes with other weights."""
    model = policy().cuda()
    engine = VLLMEngine(model, positions=128, dtype="float32")
    awake = torch.cuda.mem_get_info()[0]
    for _ in range(2):
        engine.sleep()
        assert torch.cuda.mem_get_info()[0] > awake + 2**30
        groups = engine.generate(prompts(4), 64, **ANSWER)
        assert furthest(groups, policy()) < 1e-2


# Groups and responses


def test_a_group_of_512(engine):
    """Makes impossible: rollouts that repeat one seed; lengths, log-probs and reasons that do not belong together."""
    engine.sync(uniform())
    groups = engine.generate(prompts(3), 512, max_new_tokens=20, stop_token_ids=[EOS], seed=1)
    assert [g.prompt for g in groups] == prompts(3)
    for group in groups:
        assert len(group.responses) == len(group.logprobs) == len(group.finish_reasons) == 512
        long = [tuple(r) for r in group.responses if len(r) > 10]
        assert len(set(long)) == len(long) > 200, "uniform over 22 tokens: no two long ones are alike"
        for response, logprobs, reason in zip(group.responses, group.logprobs, group.finish_reasons, strict=True):
            assert len(response) == len(logprobs) <= 20
            assert reason == ("stop" if response[-1] == EOS else "length")
            assert EOS not in response[:-1]
            assert reason == "stop" or len(response) == 20


def test_stop_tokens_and_nothing_else_end_a_response(engine):
    """Makes impossible: vLLM adding the model's EOS behind the caller's back, or dropping the caller's stop tokens."""
    plus = AutoTokenizer.from_pretrained(TINY / "policy").convert_tokens_to_ids("+")
    (group,) = engine.generate(prompts(1), 256, max_new_tokens=12, stop_token_ids=[plus], seed=1)
    assert {len(r) for r, f in zip(group.responses, group.finish_reasons, strict=True) if f == "length"} == {12}
    assert all(r[-1] == plus for r, f in zip(group.responses, group.finish_reasons, strict=True) if f == "stop")
    assert any(EOS in r[:-1] for r in group.responses), "EOS is not a stop token here"
    (never,) = engine.generate(prompts(1), 8, max_new_tokens=12, stop_token_ids=[])
    assert never.finish_reasons == ["length"] * 8
    (short,) = engine.generate(prompts(1), 64, max_new_tokens=8, stop_token_ids=[EOS])
    ends = {(len(r), f) for r, f in zip(short.responses, short.finish_reasons, strict=True) if r[-1] == EOS}
    assert ends == {(8, "stop")}, "a stop token at the limit is a stop"


def test_defaults_are_the_models(engine):
    """Makes impossible: a default length or stop token that is vLLM's and not the model's."""
    (group,) = engine.generate(prompts(1), 32)
    assert max(map(len, group.responses)) <= engine.model.generation_config.max_new_tokens == 8
    assert group.finish_reasons.count("stop") > 16


def test_prompts_of_many_lengths_come_back_in_order(engine):
    """Makes impossible: a group under another prompt. Greedy, because then each has one right answer."""
    asked = [p[:k] for p, k in zip(prompts(40), [1, 3, 8, 2, 5] * 8, strict=True)]
    ours = TorchEngine(engine.model).generate(asked, 1, temperature=0, **ANSWER)
    assert [g.responses for g in engine.generate(asked, 1, temperature=0, **ANSWER)] == [g.responses for g in ours]
    assert engine.generate([], 4, **ANSWER) == []


def test_progress_counts_rollouts(engine):
    """Makes impossible: a bar that counts prompts, counts twice, or stands still until a whole group ended."""
    for temperature in (1.0, 0.0):
        counts = []
        engine.generate(prompts(3), 16, on_progress=counts.append, temperature=temperature, **ANSWER)
        assert sum(counts) == 48
    engine.sync(uniform())
    counts = []
    engine.generate([[3]], 64, on_progress=counts.append, max_new_tokens=20, stop_token_ids=[EOS])
    assert sum(counts) == 64 and sum(x > 0 for x in counts) > 5, "uniform over 22 tokens: they end one after the other"


# Orders


def streamed(engine, orders, **more):
    """(number, groups) of these orders, as they come."""
    return engine.stream(orders, **ANSWER | {"temperature": 1.0} | more)


def unfinished(engine):
    return engine.llm.llm_engine.get_num_unfinished_requests()


def silent_after(token):
    """A policy that ends at once after this token, and is uniform after any other."""
    model = uniform()
    with torch.no_grad():  # the final state is the prompt's embedding, normalised: along EOS's row, which is longest
        model.model.norm.weight.fill_(1.0)
        model.get_input_embeddings().weight[token] = 1.0
        model.get_input_embeddings().weight[EOS] = 10.0
    return model


def test_a_stream_gives_the_groups_of_generate(engine):
    """Makes impossible: groups under another order or prompt; a part of a group that has not the whole's rollouts."""
    asked = prompts(4)
    whole = engine.generate(asked, 128, seed=5, **ANSWER)
    seeds = prompt_seeds(5, 4)
    assert list(streamed(engine, [Order(asked, 128, seeds)])) == [(0, whole)]
    parts = [Order([p], 64, [s], 64 * k, 128) for p, s in zip(asked, seeds, strict=True) for k in (0, 1)]
    found = dict(streamed(engine, parts))
    assert sorted(found) == list(range(8))
    for i, group in enumerate(whole):
        assert group.responses == found[2 * i][0].responses + found[2 * i + 1][0].responses
        assert group.logprobs == found[2 * i][0].logprobs + found[2 * i + 1][0].logprobs


def test_orders_come_back_as_they_end(engine):
    """Makes impossible: a short order that waits for a long one that was asked for before it."""
    engine.sync(silent_after(3))
    orders = [Order([[4]], 64, [0]), Order([[3]], 64, [1]), Order([[3], [4]], 8, [2, 3])]
    found = list(streamed(engine, orders, max_new_tokens=40))
    assert [number for number, _ in found] == [1, 2, 0]
    assert [[group.prompt for group in groups] for _, groups in found] == [[[3]], [[3], [4]], [[4]]]
    assert found[0][1][0].responses == [[EOS]] * 64


@pytest.mark.parametrize("how", ["raised", "closed"])
def test_a_stream_can_be_left_inside_a_group(engine, how):
    """Makes impossible: a failure that waits for a whole group; requests that live on and stop the next sync.

    The group takes 120 steps of the engine, it is left in the fifth.
    """
    engine.sync(silent_after(3))
    orders, steps = [Order([[4]], 512, [0]), Order([[3]], 1, [0])], []

    def advance(count):
        steps.append(count)
        if how == "raised" and len(steps) == 5:
            raise KeyboardInterrupt

    found = streamed(engine, orders[::-1], max_new_tokens=120, stop_token_ids=[EOS], on_progress=advance)
    next(found)
    assert unfinished(engine) > 256
    if how == "raised":
        with pytest.raises(KeyboardInterrupt):
            next(found)
    else:
        found.close()
    assert len(steps) <= 5
    core = engine.llm.llm_engine.engine_core.engine_core
    assert unfinished(engine) == 0 and not core.scheduler.has_requests()
    new = moved(engine.model)
    engine.sync(new)
    assert furthest(engine.generate(prompts(4), 32, **ANSWER), new) < 1e-4


def test_a_prompt_draws_the_same_in_any_company(engine):
    """Makes impossible: rollouts that depend on who decodes a prompt, or on what else is decoded beside it."""
    engine.sync(uniform())
    first, *others = prompts(8)
    long = {"max_new_tokens": 20}
    ((_, (alone,)),) = streamed(engine, [Order([first], 256, [7])], **long)
    orders = [Order([p], 100, [10**6 + i]) for i, p in enumerate(others)]
    mixed = dict(streamed(engine, [*orders[:3], Order([first], 256, [7]), *orders[3:]], **long))[3][0]
    assert sum(a == b for a, b in zip(alone.responses, mixed.responses, strict=True)) > 250
    assert len(set(map(tuple, alone.responses))) > 200, "and each has a seed of its own"


# Randomness and the trainer


def test_a_seed_repeats_and_leaves_the_trainers_generators_alone(engine):
    """Makes impossible: equal rollouts at every step; a trainer whose numbers depend on the engine's draws."""
    draws = []
    for seed in (7, 7, 8):
        torch.manual_seed(0), numpy.random.seed(0), random.seed(0)
        draws.append(engine.generate(prompts(2), 64, seed=seed, **ANSWER))
        after = torch.rand(1).item(), numpy.random.rand(), random.random()
        torch.manual_seed(0), numpy.random.seed(0), random.seed(0)
        assert after == (torch.rand(1).item(), numpy.random.rand(), random.random())
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_the_trainer_keeps_its_threads(engine):
    """Makes impossible: a trainer on one thread because vLLM's CPU build took the others away for good."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


# What cannot work


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"prompts": [[3] * 120]}, "prompt 0: 120 tokens .* exceed the engine's 128 positions"),
        ({"temperature": 2.5}, "temperature=2.5"),
        ({"temperature": 0.005}, "temperature=0.005"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(engine, arguments, says, monkeypatch):
    """Makes impossible: vLLM cutting a response silently at its own limit, or an error from deep inside it."""
    monkeypatch.setattr(engine, "llm", None)
    with pytest.raises(ValueError, match=says):
        engine.generate(**{"prompts": [[3]], "n": 1} | ANSWER | arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"positions": 2000}, "could not start: .*2000.*1024"), ({"memory_gib": 1e-5}, "could not start: .*memory")],
)
def test_an_engine_that_cannot_start_says_why(engine, arguments, says):
    """Makes impossible: a hang or a page of traceback where a sentence names the setting."""
    with pytest.raises(EngineError, match=says):
        VLLMEngine(policy(), **{"positions": 128} | arguments)


# Training


SMALL = [
    "--engine=vllm", "--rollouts_per_prompt=32", "--prompts_per_step=8", "--learning_rate=0.001", "--eval_samples=2",
    "--eval_every=0", "--save_every=1",
]  # fmt: skip
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def start(folder, *arguments, processes=1, before="", **options):
    """train.py in a session of its own, so that whatever it leaves behind can be found."""
    if before:  # statements that run before train.py's main
        begin = [sys.executable, "-c", f"{before}\nimport train\ntrain.main()"]
    elif processes > 1:
        begin = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        begin += ["train.py"]
    else:
        begin = [sys.executable, "train.py"]
    command = [*begin, *SMALL, f"--output_dir={folder}", "--name=r", *arguments]
    settings = ENVIRONMENT | ({"ACCELERATE_USE_CPU": "true"} if processes > 1 else {})
    return subprocess.Popen(
        command, cwd=ROOT, env=settings, text=True, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, **options,
    )  # fmt: skip


def finish(process, timeout=600):
    """What it printed and its exit status; a process that hangs fails the test and is killed."""
    try:
        printed, _ = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return printed, process.returncode


def metrics(folder):
    return [json.loads(line) for line in (folder / "r" / "metrics.jsonl").read_text().splitlines()]


def session(leader):
    """The processes of a session that are still there, zombies not counted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, *fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and state != "Z":
            found.append(path.parent.name)
    return found


@pytest.mark.slow
def test_preflight_draws_with_vllm(tmp_path):
    """Makes impossible: a preflight that needs the torch engine, or whose engine stays behind."""
    process = start(tmp_path, "--preflight", "--preflight_prompts=16", "--preflight_rollouts=8")
    printed, status = finish(process)
    assert status == 0 and not session(process.pid)
    assert "Advice" in printed and "Traceback" not in printed, printed
    found = json.loads((tmp_path / "r" / "preflight.json").read_text())
    assert len(found["correct"]) == 16 and found["rollouts"] == 8
    assert all(seconds["roll_out"] > 0 for seconds in found["seconds"].values())


def test_a_run_syncs_every_step_and_resumes_to_the_same_numbers(tmp_path):
    """Makes impossible: training on stale rollouts; an engine that a resumed run leaves at the old weights.

    At this learning rate the weights of the step before would give an engine_difference of 0.01 and more.
    """
    printed, status = finish(start(tmp_path / "whole", "--max_steps=4"))
    assert status == 0, printed
    assert "engine and trainer agree" in printed
    assert "Traceback" not in printed
    steps = [row for row in metrics(tmp_path / "whole") if row["step"]]
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    for row in steps:
        assert row["engine_difference"] < 1e-5 and row["engine_difference_max"] < 1e-3 and abs(row["engine_kl"]) < 1e-6
    assert max(row["kl_old"] for row in steps) > 1e-4, "the weights must have moved for this to show anything"

    assert finish(start(tmp_path / "parts", "--max_steps=2"))[1] == 0
    printed, status = finish(start(tmp_path / "parts", "--max_steps=4", "--resume"))
    assert status == 0, printed
    parts = [row for row in metrics(tmp_path / "parts") if row["step"] > 2]
    assert parts == [row for row in metrics(tmp_path / "whole") if row["step"] > 2]


def test_two_processes(tmp_path):
    """Makes impossible: engines that wait for each other, sample the same, or hold half of a model each by mistake."""
    printed, status = finish(start(tmp_path, "--max_steps=2", processes=2))
    assert status == 0, printed
    assert "Traceback" not in printed
    rows = metrics(tmp_path)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert all(row["engine_difference"] < 1e-5 for row in rows[1:])
    assert 0.1 < rows[0]["eval/pass@1"] < 0.3
    assert rows[1]["samples"] >= 8 * 32


FORGET = """
import engines.vllm
whole = engines.vllm.whole_tensors
engines.vllm.whole_tensors = lambda model: (x for x in whole(model) if "layers.1.mlp" not in x[0])
"""


def test_an_engine_of_another_model_is_refused_at_the_start(tmp_path):
    """Makes impossible: training for days with a layer that the sync never reaches."""
    printed, status = finish(start(tmp_path, "--max_steps=2", before=FORGET))
    assert status == 2, printed
    assert "the engine does not sample the model that is trained" in printed and "--max_engine_difference" in printed
    assert not (tmp_path / "r" / "metrics.jsonl").exists()


def test_an_engine_without_memory_ends_the_run_with_its_cause(tmp_path):
    """Makes impossible: a hang, or two processes of which one waits for the other's engine."""
    printed, status = finish(start(tmp_path, "--engine_memory_gib=0.00001", processes=2))
    assert status != 0
    assert "vLLM could not start" in printed and "memory" in printed


BREAK = """
import engines.vllm
class Broken(engines.vllm.VLLMEngine):
    def stream(self, *args, **kwargs):
        import torch
        if kwargs.get("on_progress") and dict(kwargs)["temperature"] == 1.25:
            self.llm.llm_engine.step = lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("no 3 GiB left"))
        return super().stream(*args, **kwargs)
engines.vllm.VLLMEngine = Broken
"""


def test_an_engine_that_fails_in_a_step_ends_the_run_with_its_cause(tmp_path):
    """Makes impossible: a run that dies without saying why, or from which one cannot go on."""
    printed, status = finish(start(tmp_path, "--temperature=1.25", before=BREAK))
    assert status == 1, printed
    assert "OutOfMemoryError: no 3 GiB left" in printed and "there is no checkpoint yet" in printed


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_run_leaves_nothing(tmp_path):
    """Makes impossible: an orphan engine that keeps the memory of the next run."""
    process = start(tmp_path, "--max_steps=50")
    seen, deadline = "", time.monotonic() + 600
    while "step 0 " not in seen:  # step 1 is rolled out next
        seen += process.stdout.read(1)
        assert process.poll() is None and time.monotonic() < deadline, seen
    process.kill()
    process.wait()
    for _ in range(50):
        if not session(process.pid):
            break
        time.sleep(0.1)
    assert session(process.pid) == []
