"""What `graph.py` needs of a real device: the runtime's bindings, and the kernel that sets a
condition.

The setter is compiled by NVRTC, which every CUDA build of torch brings, and not by Triton, whose
version then does not matter: `cudaGraphSetConditional` stays an undefined symbol in its code, which
the driver resolves when it loads it.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.decode.graph import GraphMaker, GraphUnavailableError

LOOPS_SINCE = 12040
"""CUDA version (1000 major + 10 minor) of the first driver whose graphs can loop by themselves."""

SETTER = r"""
extern "C" __device__ __cudart_builtin__ void CUDARTAPI
cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value);

extern "C" __global__ void set_condition(cudaGraphConditionalHandle handle, const int* flag) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");  // see triton_ahead.py
#endif
    cudaGraphSetConditional(handle, *flag != 0 ? 1u : 0u);
}
"""


def make_maker(device: torch.device, *, ahead: bool = False) -> tuple[GraphMaker, bool]:
    """A maker of graphs on `device`, and whether the driver knows loops in them. `ahead`: all
    kernels wait by themselves for the one before, and may be launched ahead of time.

    Raises GraphUnavailableError, in words, where no graph can be made at all.
    """
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise GraphUnavailableError(
            "the package cuda-bindings is not installed: pip install cuda-bindings"
        ) from error
    status, version = runtime.cudaDriverGetVersion()
    if int(status):
        raise GraphUnavailableError(f"the CUDA driver does not say its version (error {status})")
    loops = version >= LOOPS_SINCE
    set_condition = _load_setter(device) if loops else _no_setter
    maker = GraphMaker(
        runtime,
        set_condition,
        lambda: torch.cuda.Stream(device),
        torch.cuda.stream,
        lambda: torch.cuda.synchronize(device),
        ahead=ahead,
    )
    return maker, loops


def _no_setter(handle: int, flag: Tensor) -> None:
    raise AssertionError("a graph without loops sets no condition")


def _load_setter(device: torch.device) -> Callable[[int, Tensor], None]:
    """The setter's launch on the current stream; its code is on the device when this returns."""
    from cuda.bindings import driver

    major, minor = torch.cuda.get_device_capability(device)
    code = _compile(f"--gpu-architecture=sm_{major}{minor}")
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # there is a context now
        module = _checked(driver.cuModuleLoadData(code))
        kernel = _checked(driver.cuModuleGetFunction(module, b"set_condition"))
        _checked(driver.cuFuncLoad(kernel))  # else the first launch would load it: in a capture

    def set_condition(handle: int, flag: Tensor) -> None:
        stream = torch.cuda.current_stream(device).cuda_stream
        values = ((handle, flag.data_ptr()), (ctypes.c_uint64, ctypes.c_void_p))
        _checked(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, 0))

    return set_condition


def _compile(architecture: str) -> bytes:
    """Machine code of the setter."""
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(SETTER.encode(), b"setter.cu", 0, [], []))
    status, *_ = nvrtc.nvrtcCompileProgram(program, 1, [architecture.encode()])
    if int(status):
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise GraphUnavailableError(f"NVRTC refuses the setter: {log.decode(errors='replace')}")
    code = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    return code


def _checked(answer: tuple[Any, ...]) -> Any:
    """What a call returned, without its status."""
    status, *values = answer
    if int(status):
        raise GraphUnavailableError(f"{status!s} ({int(status)})")
    return values[0] if values else None
