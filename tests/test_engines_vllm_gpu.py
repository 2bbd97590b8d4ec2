"""rollout.VLLMEngine as it works on a GPU, on vLLM's CPU build: asynchronous steps, sleep, sharded runs in bfloat16.

On a GPU a step of vLLM is in progress while the last one is read, and a sleeping engine has neither weights nor cache.
The CPU build does neither, and it has another model runner. `vllm_as_on_a_gpu` changes that, in new processes, because
it changes vLLM's classes. CUDA graphs and kernels remain untested. Needs BRORL_VLLM=1, as tests/test_engines_vllm.py.
"""

import json
import os
import re
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from accelerate.state import AcceleratorState
from helpers import arguments, contents, ended, free_port, kill, lines, start, wait_until
from test_engines_vllm import ANSWER, EOS, furthest, generate, moved, prompts, real, silent_after, unfinished, uniform

from rollout import Request, Sampling, VLLMEngine

# vLLM as on a GPU

# vLLM has two model runners; a GPU uses the second one, whose kernels are Triton's. Its interpreter runs them slowly,
# if the variable is set before Triton is imported.
SECOND_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "1", "TRITON_INTERPRET": "1"}


def vllm_as_on_a_gpu():
    """Let all engines of this process step asynchronously and sleep. Returns the list of the calls of `sleeping`."""
    if os.environ.get("TRITON_INTERPRET"):  # before vLLM's import: let it believe that Triton has a CPU backend
        from triton.backends import backends

        backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls, config):
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    for name in ("Stream", "Event", "stream", "current_stream"):
        setattr(torch.cuda, name, mock.MagicMock())
    return sleeping()


def sleeping():
    """Let all engines sleep: level 2 loses weights and cache, and nothing may use them until they wake.

    The memory that comes back has other contents. Buffers stay, because vLLM saves them. Returns the list of the calls.
    """
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.cpu_worker import CPUWorker

    calls, everything = [], {"weights", "kv_cache"}

    def sleep(worker, level):
        assert level == 2 and not worker.lost
        calls.append("sleep")
        worker.lost = everything
        with torch.no_grad():
            for p in worker.model_runner.model.parameters():
                p.fill_(torch.nan)
            for cache in worker.model_runner.kv_caches:
                cache.fill_(1e3)  # not NaN: the CPU's kernel multiplies what it masks by 0

    def wake_up(worker, tags):
        calls.extend(tags or ["all"])
        worker.lost = worker.lost - set(tags or everything)

    def needs(memory, method):
        def checked(worker, *args, **kwargs):
            assert not memory & worker.lost, f"{method.__name__} of an engine that sleeps"
            return method(worker, *args, **kwargs)

        return checked

    CpuPlatform.is_sleep_mode_available = lambda platform: True
    CPUWorker.sleep, CPUWorker.wake_up, CPUWorker.lost = sleep, wake_up, set()
    CPUWorker.reload_weights = needs({"weights"}, CPUWorker.reload_weights)
    CPUWorker.execute_model = needs(everything, CPUWorker.execute_model)
    return calls


def process(function, *arguments, **environment):
    """Start a function of this file in a new process."""
    return start([function.__name__, *map(str, arguments)], train=Path(__file__), HF_HUB_OFFLINE="1", **environment)


def whole_groups(engine, parts):
    """Groups have all of their tokens and none after the last one; each rollout counts once.

    Returns the responses to two prompts, 8 each, which one request or several for a part of them draw.
    """
    counts, n = [], 8 // parts
    requests = [Request(p, n, i, first) for i, p in enumerate(prompts(2)) for first in range(0, 8, n)]
    groups = dict(engine.generate(requests, ANSWER, counts.append))
    assert sum(counts) == 16 and sum(x > 0 for x in counts) > 2 and not any(unfinished(engine))
    assert furthest(groups.values(), uniform()) < 1e-4
    responses = [r for i in range(len(requests)) for r in groups[i].responses]
    assert all((r[-1] == EOS or len(r) == 12) and EOS not in r[:-1] for r in responses)
    assert len(set(map(tuple, responses))) > 12, "uniform over 22 tokens: only short responses are equal"
    return responses


def groups_as_they_end(engine, core):
    """A group comes while a longer one decodes."""
    engine.sync(silent_after(3))
    requests, found = [Request([4], 8, 0), Request([3], 8, 1), Request([4, 3], 4, 2)], []
    for i, group in engine.generate(requests, ANSWER):
        found.append(i)
        if i > 0:
            assert group.responses == [[EOS]] * len(group.responses)
            assert core.batch_queue and unfinished(engine)[0], "the long group decodes"
    assert found == [1, 2, 0]


def left_inside_a_group(engine, core, calls):
    """Ctrl-C comes while a step is in progress. Then the engine sleeps and wakes with other weights."""
    steps = []

    def advance(count):
        steps.append(count)
        if len(steps) == 6:
            raise KeyboardInterrupt

    engine.sync(silent_after(3))
    requests = [Request([3], 1, 0), Request([4], 32, 0)]
    found = engine.generate(requests, Sampling(120, stop_token_ids=(EOS,)), advance)
    next(found)
    assert core.batch_queue and unfinished(engine)[0] > 16, "steps are in progress"
    with pytest.raises(KeyboardInterrupt):
        next(found)
    assert not any(unfinished(engine))
    calls.clear()
    engine.sleep()
    engine.sync(moved())
    assert calls == ["sleep"], "nothing is loaded while the engine sleeps"
    assert furthest(generate(engine, prompts(2), 8), moved()) < 1e-4
    assert calls == ["sleep", "weights", "kv_cache"]


def a_small_cache():
    """A small cache drops keys and values of rollouts whose next step is in progress, and computes them again."""
    cramped = VLLMEngine(moved(), positions=64, max_num_seqs=8, kv_cache_memory_bytes=int(0.00037 * 2**30))
    scheduler = cramped.llm.llm_engine.engine_core.engine_core.scheduler
    with mock.patch.object(scheduler, "_preempt_request", wraps=scheduler._preempt_request) as preempt:
        (group,) = generate(cramped, [[3]], 8, Sampling(40))
    assert preempt.call_count and not any(unfinished(cramped))
    assert furthest([group], moved()) < 1e-4 and set(map(len, group.responses)) == {40}


def engine_as_on_a_gpu():
    calls = vllm_as_on_a_gpu()
    engine = VLLMEngine(uniform(), positions=128, kv_cache_memory_bytes=2**28)
    core = engine.llm.llm_engine.engine_core.engine_core
    assert "asynchronous" in engine.description and core.batch_queue is not None and engine.can_sleep
    assert engine.llm.llm_engine.vllm_config.use_v2_model_runner
    responses = whole_groups(engine, parts=1)
    groups_as_they_end(engine, core)
    left_inside_a_group(engine, core, calls)
    engine.sync(uniform())
    assert whole_groups(engine, parts=2) == responses, "a seed and a number fix a rollout"
    a_small_cache()


@real
def test_asynchronous_steps_stream_abort_and_sleep(tmp_path):
    """Makes impossible: on a GPU, lost or doubled tokens, a group that waits, requests or a step left by an abort."""
    ended(process(engine_as_on_a_gpu, **SECOND_RUNNER))


def as_on_a_gpu(*commands):
    """train.py with each of these command lines, one after the other in the same processes."""
    calls = vllm_as_on_a_gpu()
    import train

    kept = []  # an engine that is deleted takes vLLM's process groups with it
    for command in map(json.loads, commands[:-1]):
        config, origins = train.read_settings("", command)
        accelerator = train.start_accelerator(config)
        kept.append(train.set_up(config, accelerator, origins))
        train.train(config, accelerator, kept[-1])
        AcceleratorState._reset_state()
        calls.clear()
    sys.argv = ["train.py", *json.loads(commands[-1])]
    train.main()
    print("calls:", *calls, flush=True)


def two_ranks(*commands):
    """Start two ranks of a sharded run in bfloat16. Without a launcher, whose ranks survive its kill."""
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    group |= {"ACCELERATE_USE_FSDP": "true", "ACCELERATE_MIXED_PRECISION": "bf16"}
    commands = [json.dumps([str(x) for x in command]) for command in commands]
    return [process(as_on_a_gpu, *commands, RANK=r, LOCAL_RANK=r, **group) for r in "01"]


SETTINGS = {
    "engine": "vllm", "learning_rate": 1e-3, "max_steps": 3, "eval_every": 1,
    "rollouts_per_prompt": 8, "prompts_per_step": 2, "eval_samples": 1,
}  # fmt: skip


@real
def test_a_sharded_run_resumes_after_a_kill(tmp_path):
    """Makes impossible: rollouts of old weights or of a shard, ranks that wait for ever, an engine awake in an update,
    a resumed run whose engine has other weights than its trainer.
    """
    ranks = two_ranks(*(arguments(tmp_path, name=name, **SETTINGS) for name in ("whole", "part")))
    checkpoint = tmp_path / "part/checkpoints/step_00000001"
    wait_until(ranks[0], checkpoint.exists)
    for rank in ranks:
        kill(rank)
    sizes = [path.stat().st_size for path in checkpoint.glob("*.distcp")]
    assert len(sizes) == 2 and max(sizes) < 1.5 * min(sizes), "each rank wrote its part"
    assert not (tmp_path / "part/model").exists(), "the kill comes before the end"

    printed = [ended(rank) for rank in two_ranks(["--resume", "--name", "part", "--output_dir", tmp_path])]
    left = 3 - int(re.search(r"resuming after step (\d)", printed[0])[1])
    for said in printed:  # rollouts of the first check, and of each step and its evaluation; then the end
        calls = said.partition("calls: ")[2].replace("weights kv_cache", "wake").split()
        assert calls == ["sleep", "wake"] * (2 * left) + ["sleep", "all"]
    assert contents(tmp_path / "whole") == contents(tmp_path / "part")
    rows = lines(tmp_path / "part/metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    for row in rows[1:]:
        assert row["engine_kl"] < 1e-3 < row["kl_old"], "bfloat16 rounds; a step changes the weights much more"


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
        sys.stdout.flush()
        os._exit(0)  # without the destructors
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
