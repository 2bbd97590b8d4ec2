"""Runs train.py on an emulated GPU. Prints the operations that a GPU would refuse, as one line of JSON.

    python tests/emulated_gpu.py --max_steps 2 ...        the settings of train.py, with --engine torch

An emulated tensor says that it is on "cuda:0" and holds a CPU tensor. Every operation on it is computed on the CPU.
Autograd and autocast take it for a GPU's. An operation on tensors of both devices, which CUDA refuses (except for a CPU
tensor without dimensions), is counted by file:line of this project. Not emulated: values, rounding, memory, time, vLLM,
NCCL.
"""

import collections
import contextlib
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# torch asks for a device guard when it indexes, and for an accelerator in the backward pass: these do nothing.
HOOKS = """
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
using c10::Device, c10::DeviceIndex, c10::Stream;
struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  static Stream only() { return Stream(Stream::DEFAULT, Device(c10::DeviceType::CUDA, 0)); }
  Stream getStream(Device) const noexcept override { return only(); }
  Stream getNewStream(Device, int) const override { return only(); }
  Stream exchangeStream(Stream) const noexcept override { return only(); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
static Guard guard;
static c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);
namespace at {
struct CUDAHooks : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  const Generator& getDefaultGenerator(DeviceIndex) const override { return detail::getDefaultCPUGenerator(); }
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks);
}
"""


def register_hooks() -> None:
    """Compile and load HOOKS, before torch is imported: torch asks for its hooks once."""
    specification = importlib.util.find_spec("torch")
    folder, torch_folder = tempfile.mkdtemp(), Path(specification.origin).parent
    Path(folder, "hooks.cpp").write_text(HOOKS)
    command = f"g++ -std=c++20 -shared -fPIC -I{torch_folder}/include hooks.cpp -o hooks.so -L{torch_folder}/lib"
    command += f" -Wl,--no-as-needed,-rpath,{torch_folder}/lib -lc10 -ltorch_cpu"
    subprocess.run(command.split(), cwd=folder, check=True)
    ctypes.CDLL(f"{folder}/hooks.so")


if __name__ == "__main__":
    register_hooks()

import torch
import torch._dynamo  # its import asks for a real GPU: before torch.cuda is patched
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CARD = torch.device("cuda:0")
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
mixed: collections.Counter = collections.Counter()


def record_mixed(what: str) -> None:
    """Count a refused operation under the line of the project that caused it."""
    frame = sys._getframe(1)
    while frame and (not frame.f_code.co_filename.startswith(f"{ROOT}/") or frame.f_code.co_filename == __file__):
        frame = frame.f_back  # none in the thread of the backward pass
    line = f"{os.path.relpath(frame.f_code.co_filename, ROOT)}:{frame.f_lineno}" if frame else "backward pass"
    mixed[f"{line}  {what}"] += 1


class Emulated(torch.Tensor):
    """A tensor "on cuda:0" that holds a CPU tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "dtype": held.dtype, "device": CARD}
        tensor = torch.Tensor._make_wrapper_subclass(cls, held.size(), **layout)
        tensor.held = held
        return tensor

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = Emulated(self.held.clone()).requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                memo[id(self)]._is_param = True
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


def compute(operation, args, kwargs):
    """Run an operation on the CPU tensors that its arguments hold. Its results are emulated, unless it copies back."""
    name, device = operation._schema.name.split("::")[1], kwargs.get("device")
    to_card = device is not None and torch.device(device).type == "cuda"
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    emulated = {id(x.held): x for x in tensors if isinstance(x, Emulated)}
    if not emulated and not to_card:
        return operation(*args, **kwargs)
    on_cpu = [x for x in tensors if not isinstance(x, Emulated)]
    held_args, held_kwargs = tree_map(lambda x: x.held if isinstance(x, Emulated) else x, (args, kwargs))
    held_kwargs |= {"device": torch.device("cpu")} if device is not None else {}
    held_kwargs.pop("pin_memory", None)
    if operation is torch.ops.aten.mm.dtype:  # bfloat16 in, float32 out: a CPU has no such product
        result = held_args[0].float() @ held_args[1].float()
    else:
        result = operation(*held_args, **held_kwargs)

    if (name == "_to_copy" and device is not None and not to_card) or (name == "copy_" and held_args[0] is args[0]):
        return result  # a copy to the CPU
    allowed = name in ("_to_copy", "copy_") or (name in INDEXING and isinstance(args[0], Emulated))
    if emulated and not allowed and any(x.dim() for x in on_cpu):
        record_mixed(str(operation))

    def wrapped(x):
        if not isinstance(x, torch.Tensor):
            return x
        return emulated[id(x)] if id(x) in emulated else Emulated(x)  # in-place operations return their argument

    return tree_map(wrapped, result)


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


class Calls(TorchFunctionMode):
    """What torch does in C++ before it dispatches."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def with_index(x):
            return CARD if isinstance(x, torch.device) and x.type == "cuda" else x

        args, kwargs = tuple(map(with_index, args)), {name: with_index(x) for name, x in (kwargs or {}).items()}
        device = kwargs.get("device")
        if function in (torch.tensor, torch.as_tensor) and device == CARD and not isinstance(args[0], torch.Tensor):
            return function(*args, **kwargs | {"device": None}).to(CARD)
        if function is torch.Tensor.pin_memory:  # needs a real GPU
            return args[0]
        if function is torch.Tensor.tolist and isinstance(args[0], Emulated):
            return args[0].cpu().tolist()
        if function is torch.Tensor.numpy and isinstance(args[0], Emulated):
            record_mixed("numpy of a GPU's tensor")
            return args[0].held.numpy()
        return function(*args, **kwargs)


@contextlib.contextmanager
def emulated_gpu():
    """One GPU of 79 GiB with native bfloat16."""
    import torch.distributed.checkpoint.filesystem as files

    properties = mock.Mock(major=9, minor=0, total_memory=79 << 30, multi_processor_count=132)
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "memory_allocated": 0, "is_initialized": True,
        "max_memory_allocated": 3 << 30, "max_memory_reserved": 4 << 30,
        "mem_get_info": (70 << 30, 79 << 30), "get_device_properties": properties, "get_device_capability": (9, 0),
        "is_bf16_supported": True, "is_current_stream_capturing": False, "get_device_name": "emulated",
    }  # fmt: skip
    nothing = "_lazy_init", "set_device", "synchronize", "empty_cache", "manual_seed_all", "reset_peak_memory_stats"
    answers |= dict.fromkeys(nothing)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") copies where the mode sees it
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # of another class: cannot be set in place

    def to(module, *args, move=torch.nn.Module.to, **kwargs):  # a second call keeps the weights, which an optimizer has
        return module if isinstance(next(module.parameters(), None), Emulated) else move(module, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *a, answer=answer, **k: answer))
        stack.enter_context(mock.patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False))
        serial = lambda resolve, **_: files._SerialCpuLoader(resolve)  # noqa: E731  the other one has a real stream
        stack.enter_context(mock.patch.object(files, "_OverlappingCpuLoader", serial))
        stack.enter_context(mock.patch.object(torch.nn.Module, "to", to))
        stack.enter_context(Calls())
        stack.enter_context(Operations())
        yield


def main() -> None:
    import train

    with emulated_gpu():
        config, origins = train.read_settings("", sys.argv[1:])
        accelerator = train.start_accelerator(config)
        setup = train.set_up(config, accelerator, origins)
        train.train(config, accelerator, setup)
    print(json.dumps({"device": str(setup.policy.model.device), "mixed": mixed}), flush=True)
    os._exit(0)  # torch would ask the emulated GPU to shut down


if __name__ == "__main__":
    main()
