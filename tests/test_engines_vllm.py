"""engines/vllm.py, vllm_workarounds.py, rollout.VLLMEngine with the real vLLM: against the torch engine and a plain
forward pass.

The first tests need no vLLM. The others run where vLLM's CPU build is installed and BRORL_VLLM=1 is set (`.ci/run` does
both). float32 and the tiny policy, unless a test says otherwise. On a GPU only the test of its memory runs; it was
never run.
"""

import copy
import json
import math
import os
from itertools import chain
from types import SimpleNamespace

import numpy
import pytest
import torch
from helpers import TINY
from small_models import full_logprobs, make
from transformers import AutoModelForCausalLM, AutoTokenizer, Olmo2Config, PhiConfig, Qwen2Config, Qwen3MoeConfig

from engines import vllm
from engines.memory import max_seqs
from engines.model import whole_tensors
from engines.vllm import check_compiler, import_vllm, load_weights, start_llm
from engines.vllm_workarounds import keep_threads
from rollout import Request, Sampling, TorchEngine, VLLMEngine
from trainer.adapters import Adapted, add_adapters

EOS = 0
KEPT = []  # vLLM's process groups go with the first engine that is deleted, for all engines of a process
ANSWER = Sampling(12, stop_token_ids=(EOS,))
SMALL = {"kv_cache_memory_bytes": 2**27}  # for a second engine next to the first

without_vllm = pytest.mark.skipif(not os.environ.get("BRORL_VLLM"), reason="needs vLLM: .ci/run installs it")


def real(test):
    """Mark a test that needs the real vLLM."""
    return pytest.mark.slow(without_vllm(test))


def test_experts_are_refused_before_vllm_starts():
    """Makes impossible: a start of minutes, then a traceback about names, or experts that keep random weights."""
    shape = {"vocab_size": 13, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 8,
             "num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 16}  # fmt: skip
    model = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**shape, num_experts=2, num_experts_per_tok=1))
    with pytest.raises(ValueError, match=r"experts.*--engine torch"):
        start_llm(model, "float32", 0.5, {})


@pytest.mark.parametrize(
    ("dtype", "gib", "tokens", "n", "rollouts"),
    [
        ("float32", "1", 2**16, 16, 128),  # 1 GiB holds 128 rollouts of 2^15 tokens
        ("bfloat16", "1", 2**16, 16, 256),
        ("float32", None, 2**16, 16, 256),  # 2 GiB
        ("float32", "1", 64, 16, 512),  # short responses
        ("float32", "1", 64, 1000, 1000),  # a group of more than 512
        ("float32", "1", 2**24, 16, 8),  # too little memory: vLLM will say so
    ],
)
def test_the_rollouts_that_the_cache_holds_by_hand(dtype, gib, tokens, n, rollouts, monkeypatch):
    """Makes impossible: 512 rollouts of 16k tokens in a cache for 170; vLLM's variable for a CPU without effect.

    A token of `make()` takes 256 bytes: keys and values, two layers, two key heads of width 8, float32.
    """
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    if gib:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", gib)
    config = SimpleNamespace(max_response_tokens=tokens, rollouts_per_prompt=n)
    assert max_seqs(make(), dtype, config) == rollouts


def test_the_rollouts_that_a_gpu_holds_by_hand(monkeypatch):
    """Makes impossible: weights that count as cache, a share of what is free, a share without effect."""
    model = make()
    weights = 4 * sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 2**30 + 4 * weights))
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    config = SimpleNamespace(max_response_tokens=2**16, rollouts_per_prompt=16, gpu_memory_utilization=0.25)
    assert max_seqs(model, "float32", config) == 32  # 256 MiB hold 32 rollouts of 2^15 tokens
    config.gpu_memory_utilization = 0.5
    assert max_seqs(model, "float32", config) == 64


def test_a_machine_without_a_compiler_is_refused(monkeypatch, tmp_path):
    """Makes impossible: a run that ends in Triton, which finds no C compiler or no header of Python."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(vllm.shutil, "which", lambda name: name == "gcc")
    monkeypatch.setattr(vllm.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(ValueError, match="needs Python's headers"):
        check_compiler()
    (tmp_path / "Python.h").touch()
    check_compiler()
    monkeypatch.setenv("CC", "nowhere")
    with pytest.raises(ValueError, match=r"a C compiler \(nowhere\): apt-get install gcc"):
        check_compiler()


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


def test_threads_and_their_setter_come_back(monkeypatch):
    """Makes impossible: a trainer on one thread because vLLM took the others and the setter away."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    setter(2)
    with pytest.raises(RuntimeError), keep_threads():
        setter(1)
        monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
        raise RuntimeError
    assert torch.set_num_threads is setter and torch.get_num_threads() == 2
    setter(threads)


def test_only_whole_groups_are_taken():
    """Makes impossible: an aborted rollout, or a group that lost some."""

    def answer(reason="stop", count=2):
        one = SimpleNamespace(token_ids=(5, 0), finish_reason=reason, logprobs=SimpleNamespace(logprobs=(-1.0, -2.0)))
        return SimpleNamespace(outputs=[one] * count)

    request = Request([3], 4, 0)
    for count, greedy in ((1, True), (4, False)):  # one greedy rollout stands for n
        group = VLLMEngine.group(request, answer(count=count), greedy)
        assert group.responses == [[5, 0]] * 4 and group.logprobs == [[-1.0, -2.0]] * 4
        assert group.prompt == [3] and not group.truncated.any()
    for broken in (answer("abort", 4), answer(None, 4), answer(count=3), answer(count=2), answer(count=0)):
        with pytest.raises(RuntimeError):
            VLLMEngine.group(request, broken, greedy=False)


def test_without_vllm_the_refusal_says_how_to_install_it(monkeypatch):
    """Makes impossible: an ImportError in the middle of the start of a run."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="requirements-gpu"):
        VLLMEngine(make())


def policy():
    return AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float32).eval()


def prompts(count):
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    rows = [json.loads(line) for line in (TINY / "train.jsonl").read_text().splitlines()[:count]]
    return [tokenizer(row["prompt"]).input_ids for row in rows]


def moved(scale=0.05, seed=0):
    """Another policy of the same shape."""
    other, generator = policy(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p += scale * torch.randn(p.shape, generator=generator)
    return other


def uniform():
    """A policy that gives every token the same probability."""
    blank = policy()
    with torch.no_grad():
        for p in blank.parameters():
            p.zero_()
    return blank


def silent_after(token):
    """A policy that ends a response after this token, and is uniform after any other."""
    model = uniform()
    with torch.no_grad():  # the final state is the prompt's embedding, normalised: it points to EOS's long row
        model.model.norm.weight.fill_(1.0)
        model.get_input_embeddings().weight[token] = 1.0
        model.get_input_embeddings().weight[EOS] = 10.0
    return model


def random_model(kind, **changes):
    """A model of a size that vLLM's kernels take, with random weights."""
    torch.manual_seed(0)
    small = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    small |= {"max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    return AutoModelForCausalLM.from_config(kind(**small | changes), dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def engine():
    """One engine for most tests, because a start takes seconds. Each test begins with the policy's weights."""
    if torch.cuda.is_available():
        pytest.skip("for vLLM's CPU build")
    return VLLMEngine(policy(), positions=128, disable_log_stats=False)


@pytest.fixture(autouse=True)
def fresh(request):
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").sync(policy())


def generate(engine, asked, n, sampling=ANSWER, seed=0, **more):
    """The groups in the order of the prompts."""
    requests = [Request(p, n, seed * 1000 + i) for i, p in enumerate(asked)]
    found = dict(engine.generate(requests, sampling, **more))
    return [found[i] for i in range(len(requests))]


def differences(groups, model, **settings):
    """|log π_engine - log π_trainer| of every token; the trainer's by one plain forward pass per response."""
    return [
        abs(x - y)
        for g in groups
        for response, theirs in zip(g.responses, g.logprobs, strict=True)
        for x, y in zip(theirs, full_logprobs(model, g.prompt, response, **settings), strict=True)
    ]


def furthest(groups, model, **settings):
    """The largest difference, NaN if there is one."""
    found = differences(groups, model, **settings)
    return math.nan if any(map(math.isnan, found)) else max(found)  # max() passes over a NaN


def unfinished(engine):
    """The number of rollouts that decode, and what other parts of vLLM still know."""
    llm, core = engine.llm.llm_engine, engine.llm.llm_engine.engine_core.engine_core
    others = core.scheduler.has_requests(), bool(core.batch_queue), len(core.scheduler.requests)
    return llm.get_num_unfinished_requests(), *others


@real
def test_greedy_equals_the_torch_engine_token_for_token(engine):
    """Makes impossible: other weights, positions, masks or stop rules than the torch engine's; a group under another
    prompt, of prompts of many lengths.
    """
    asked = prompts(32) + [p[:k] for p, k in zip(prompts(40), [1, 3, 8, 2, 5] * 8, strict=True)]
    greedy = Sampling(12, temperature=0.0, stop_token_ids=(EOS,))
    ours, ended = generate(TorchEngine(policy()), asked, 2, greedy), []
    for a, b in zip(ours, generate(engine, asked, 2, greedy, on_progress=ended.append), strict=True):
        assert (a.prompt, a.responses, a.truncated.tolist()) == (b.prompt, b.responses, b.truncated.tolist())
        assert numpy.allclose(list(chain(*a.logprobs)), list(chain(*b.logprobs)), atol=1e-4)
    assert sum(ended) == 2 * len(asked)
    assert list(engine.generate([], ANSWER)) == []
    [(_, largest)] = engine.generate([Request(asked[0], 4, 2**62)], ANSWER)  # the largest seed
    assert len(largest.responses) == 4


@real
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.6, "top_p": 0.95}, {"temperature": 1.3, "top_k": 5}])
def test_sampled_logprobs_equal_the_trainers(engine, settings):
    """Makes impossible: log-probs before the temperature or the cut, or of another token than the sampled one."""
    groups = generate(engine, prompts(4), 64, Sampling(12, **settings, stop_token_ids=(EOS,)))
    assert furthest(groups, policy(), **settings) < 1e-4
    assert {len(g.responses) for g in groups} == {64}


@real
def test_a_group_with_more_prompt_tokens_than_one_pass_takes(engine):
    """Makes impossible: a group that vLLM's CPU build cannot begin: it would reset the seeds of a chunked prompt."""
    (group,) = generate(engine, [prompts(1)[0] * 11], 512, Sampling(4))
    assert len(group.prompt) * 512 > engine.llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens
    assert len(group.responses) == 512 and furthest([group], policy()) < 1e-4


@real
def test_sync_merges_adapters(engine):
    """Makes impossible: rollouts of --lora_rank from the frozen weights, or from a wrongly scaled adapter."""
    model = policy()
    add_adapters(model, rank=4, alpha=8.0, dtype=torch.float32)
    engine.sync(model)  # B is 0: the model itself
    assert furthest(generate(engine, prompts(2), 16), policy()) < 1e-4
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Adapted):
                module.B.normal_(0, 0.05, generator=torch.Generator().manual_seed(0))
    assert furthest(generate(engine, prompts(1), 32), model) > 0.1, "the adapters must matter for this to show anything"
    engine.sync(model)
    assert furthest(generate(engine, prompts(4), 32, seed=1), model) < 1e-4


@real
def test_a_model_that_vllm_runs_with_the_class_of_transformers(engine):
    """Makes impossible: an engine that breaks the trainer's model, whose class vLLM changes, or another engine."""
    model = random_model(Olmo2Config, vocab_size=40)
    reference = copy.deepcopy(model)  # made before vLLM marks the class, as a run's reference is
    other = VLLMEngine(model, positions=64, **SMALL)
    KEPT.append(other)
    groups = generate(other, [[1, 2, 3], [9] * 20], 16, Sampling(40, 1.5, stop_token_ids=(0,)))
    assert furthest(groups, model, temperature=1.5) < 1e-4
    copy.deepcopy(model)(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert reference(torch.tensor([[1, 2]])).logits.equal(model(torch.tensor([[1, 2]])).logits)
    assert furthest(generate(engine, prompts(1), 8), policy()) < 1e-4, "the first engine still works"


@real
def test_a_head_whose_bias_vllm_loses_is_refused(engine):
    """Makes impossible: a traceback about `bias` with advice about memory, or logits without the bias."""
    model = random_model(PhiConfig, vocab_size=40)
    assert model.lm_head.bias is not None
    KEPT.append(start_llm(model, "float32", 0.5, {"max_model_len": 64} | SMALL))
    with pytest.raises(ValueError, match=r"head with a bias.*--engine torch"):
        load_weights(KEPT[-1], model)


@real
@pytest.mark.parametrize("dtype, tied", [("float32", False), ("bfloat16", True)])
def test_logits_are_float32(dtype, tied):
    """Makes impossible: logits rounded to bfloat16, which the trainer does not do; a head that no sync reaches."""
    model = random_model(Qwen2Config, vocab_size=3000, num_key_value_heads=1, tie_word_embeddings=tied)
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.2)
    other, found = VLLMEngine(model, 64, dtype=dtype, **SMALL), set()
    KEPT.append(other)

    def watch(theirs):
        theirs.logits_processor.register_forward_hook(lambda module, args, out: found.add(out.dtype))

    other.llm.apply_model(watch)
    groups = generate(other, [[1, 2, 3]], 32, Sampling(20))
    assert found == {torch.float32}
    for _ in range(2):
        assert numpy.mean(differences(groups, model)) < (1e-5 if dtype == "float32" else 0.05)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.1 * torch.randn(p.shape)
        assert numpy.mean(differences(groups, model)) > 1, "the weights must differ for this to show anything"
        other.sync(model)
        groups = generate(other, [[1, 2, 3]], 32, Sampling(20))


@real
def test_float32_attention_does_not_round_to_tf32(monkeypatch):
    """Makes impossible: float32 on a GPU with attention scores of 10 bits."""
    for dtype, kind in (("bfloat16", None), ("float32", "ieee")):
        monkeypatch.delenv("TRITON_F32_DEFAULT", raising=False)
        import_vllm("cpu", dtype)
        assert os.environ.get("TRITON_F32_DEFAULT") == kind


@real
def test_the_engine_of_a_run(engine, monkeypatch):
    """Makes impossible: a setting of the run that the engine ignores; vLLM's own limits."""
    settings = engine.llm.llm_engine.vllm_config
    assert settings.model_config.max_model_len == engine.positions == 128 and "512" in engine.description
    assert settings.scheduler_config.max_num_seqs == 512 and settings.cache_config.enable_prefix_caching
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    config = SimpleNamespace(gpu_memory_utilization=0.5, rollouts_per_prompt=16, max_response_tokens=2**15)
    made = VLLMEngine.from_config(policy(), 96, "bfloat16", config)
    KEPT.append(made)
    settings = made.llm.llm_engine.vllm_config
    assert made.precision == "bfloat16" and settings.model_config.dtype == torch.bfloat16
    assert settings.scheduler_config.max_num_seqs == max_seqs(policy(), "bfloat16", config) < 512
    assert made.positions == 96 and settings.cache_config.kv_cache_memory_bytes == 2**30


@real
def test_the_prefix_cache_is_on_and_forgets_old_weights(engine):
    """Makes impossible: computing a long prompt N times; keys and values of old weights under new ones."""
    prompt = (prompts(8) * 2)[0] * 12  # 96 tokens, three blocks
    before = cache_counts(engine)
    generate(engine, [prompt], 64)
    asked, hit = (b - a for a, b in zip(before, cache_counts(engine), strict=True))
    assert hit / asked > 0.6
    engine.sync(moved())
    assert furthest(generate(engine, [prompt], 16), moved()) < 1e-4


def cache_counts(engine):
    counters = {m.name: m.value for m in engine.llm.get_metrics() if hasattr(m, "value")}
    return counters["vllm:prefix_cache_queries"], counters["vllm:prefix_cache_hits"]


@real
@pytest.mark.skipif(not torch.cuda.is_available(), reason="vLLM cannot sleep on a CPU")
def test_sleep_frees_the_gpu():
    """Makes impossible: a sleeping engine that keeps the trainer's memory, or wakes with other weights."""
    engine = VLLMEngine(policy().cuda(), positions=128, dtype="float32")
    awake = torch.cuda.mem_get_info()[0]
    for _ in range(2):
        engine.sleep()
        assert torch.cuda.mem_get_info()[0] > awake + 2**30
        assert furthest(generate(engine, prompts(4), 64), policy()) < 1e-2
    engine.sleep()
    engine.close()


@real
def test_a_group_of_512(engine):
    """Makes impossible: rollouts that repeat one seed; lengths, log-probs and reasons of different rollouts; a bar that
    counts prompts, counts twice, or waits for a whole group.
    """
    engine.sync(uniform())  # over 22 tokens: the rollouts end one after the other
    ended = []
    groups = generate(engine, prompts(3), 512, Sampling(20, stop_token_ids=(EOS,)), on_progress=ended.append)
    assert sum(ended) == 3 * 512 and sum(x > 0 for x in ended) > 6
    assert [g.prompt for g in groups] == prompts(3)
    long = [tuple(r) for group in groups for r in group.responses if len(r) > 10]
    assert len(set(long)) == len(long) > 600, "uniform over 22 tokens: no two long ones are equal, with seeds 0, 1, 2"
    for group in groups:
        assert len(group) == len(group.logp) == len(group.truncated) == 512
        for response, logprobs, truncated in zip(group.responses, group.logprobs, group.truncated, strict=True):
            assert len(response) == len(logprobs) <= 20
            assert bool(truncated) == (response[-1] != EOS)
            assert EOS not in response[:-1]
            assert not truncated or len(response) == 20
    assert any(r[-1] == EOS for group in groups for r in group.responses if len(r) == 20), "a stop at the limit"


@real
def test_only_stop_tokens_end_a_response(engine):
    """Makes impossible: vLLM adds the model's EOS, or drops the caller's stop tokens."""
    plus = AutoTokenizer.from_pretrained(TINY / "policy").convert_tokens_to_ids("+")
    (group,) = generate(engine, prompts(1), 256, Sampling(12, stop_token_ids=(plus,)))
    assert {len(r) for r, cut in zip(group.responses, group.truncated, strict=True) if cut} == {12}
    assert all(r[-1] == plus for r, cut in zip(group.responses, group.truncated, strict=True) if not cut)
    assert any(EOS in r[:-1] for r in group.responses), "EOS is not a stop token here"


@real
@pytest.mark.parametrize(
    ("request_", "sampling", "names"),
    [
        (Request([3] * 120, 1, 0), ANSWER, "request 0"),
        (Request([3], 1, 0), Sampling(12, 2.5), "temperature=2.5"),
        (Request([3], 1, 0), Sampling(12, 0.005), "temperature=0.005"),
    ],
)
def test_wrong_requests_are_refused_before_anything_runs(engine, request_, sampling, names, monkeypatch):
    """Makes impossible: vLLM cuts a response or changes a temperature silently, or fails deep inside."""
    monkeypatch.setattr(engine, "llm", None)
    with pytest.raises(ValueError, match=names):
        next(engine.generate([request_], sampling))


@real
@pytest.mark.parametrize("wrong", [{"positions": 2000}, {"kv_cache_memory_bytes": 10_000}])
def test_an_engine_that_cannot_start_says_what_to_change(engine, wrong):
    """Makes impossible: a hang, or vLLM's error without the settings that help."""
    with pytest.raises(Exception) as error:
        VLLMEngine(policy(), **{"positions": 128} | wrong)
    assert any("VLLM_CPU_KVCACHE_SPACE" in text and "--engine torch" in text for text in error.value.__notes__)
