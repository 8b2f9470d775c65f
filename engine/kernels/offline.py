"""Kernels compiled for a card that is not there, and what the compiler says of each.

Needs triton, which brings NVIDIA's assembler, and neither a driver nor a GPU.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.kernels.launch import Launch
from engine.kernels.plans import Capability

ARCHITECTURES: dict[str, Capability] = {
    "sm_80": (8, 0),
    "sm_86": (8, 6),
    "sm_89": (8, 9),
    "sm_90": (9, 0),
    "sm_100": (10, 0),
    "sm_120": (12, 0),
}
"""What kernels are compiled and tested for, by the name CUDA gives it."""

SHARED_LIMIT: dict[str, int] = {
    "sm_80": 163 << 10,
    "sm_86": 99 << 10,
    "sm_89": 99 << 10,
    "sm_90": 227 << 10,
    "sm_100": 227 << 10,
    "sm_120": 99 << 10,
}
"""Bytes of shared memory that a program may have (CUDA programming guide, "Compute
Capabilities")."""

_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
_PRODUCTS = re.compile(r"(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*")
# The assembler's word on a kernel: registers, and bytes of stack and of spills.
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Compiled:
    """A kernel's machine code in figures.

    Attributes:
        instruction: the PTX mnemonic of its matrix products; "" when it has none.
        registers: of a thread.
        spills: bytes of spill stores and loads, stack: bytes, both of a thread.
        shared: bytes of shared memory of a program.
    """

    instruction: str
    registers: int
    spills: int
    stack: int
    shared: int


def signature(launch: Launch) -> tuple[dict[str, str], dict[tuple[int], Any]]:
    """Argument types as Triton's front end wants them, and which are multiples of 16: pointers,
    since torch aligns what it allocates, and the numbers that are."""
    types, divisible = {}, {}
    names = launch.kernel.arg_names
    for index, name in enumerate(names):
        if name in launch.all_constants:
            types[name] = "constexpr"
            continue
        value = launch.arguments[name]
        types[name] = _type(value)
        if isinstance(value, Tensor) or value % 16 == 0:
            divisible[(index,)] = [["tt.divisibility", 16]]
    return types, divisible


def _type(value: Any) -> str:
    if isinstance(value, Tensor):
        return _TYPES[value.dtype]
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"


def compile_launch(launch: Launch, arch: str) -> Compiled:
    """Compile `launch` for `arch` (a key of ARCHITECTURES). Raises what Triton raises."""
    ptx, shared = compile_ptx(launch, arch)
    products = sorted({name.replace(".aligned", "") for name in _PRODUCTS.findall(ptx)})
    registers, spills, stack = assemble(ptx, arch)
    return Compiled(" ".join(products), registers, spills, stack, shared)


def compile_ptx(launch: Launch, arch: str) -> tuple[str, int]:
    """A launch's PTX for `arch`, and the bytes of shared memory of a program."""
    major, minor = ARCHITECTURES[arch]
    types, divisible = signature(launch)
    source = ASTSource(
        fn=launch.kernel, signature=types, constexprs=launch.all_constants, attrs=divisible
    )
    result = triton.compile(source, GPUTarget("cuda", 10 * major + minor, 32), launch.options)
    return result.asm["ptx"], result.metadata.shared


def assemble(ptx: str, arch: str) -> tuple[int, int, int]:
    """Registers, bytes of spills and bytes of stack that the assembler reports for `ptx`."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    major, minor = ARCHITECTURES[arch]
    program = get_ptxas(10 * major + minor)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        report = subprocess.run(
            [
                program.path, "-v", "--fmad=false",
                f"--gpu-name={sm_arch_from_capability(10 * major + minor)}",
                str(source), "-o", str(Path(folder) / "kernel.cubin"),
            ],
            capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
    registers, frame = _REGISTERS.search(report), _STACK.search(report)
    assert registers is not None, report
    assert frame is not None, report
    stack, stores, loads = map(int, frame.groups())
    return int(registers[1]), stores + loads, stack


def compile_distinct(launches: Iterable[Launch], arch: str) -> list[Compiled]:
    """The figures of each launch's kernel; those whose code is the same are compiled once."""
    done: dict[tuple[Any, ...], Compiled] = {}
    figures = []
    for launch in launches:
        key = _code(launch)
        if key not in done:
            done[key] = compile_launch(launch, arch)
        figures.append(done[key])
    return figures


def _code(launch: Launch) -> tuple[Any, ...]:
    types, divisible = signature(launch)
    constants = tuple((name, str(value)) for name, value in launch.all_constants.items())
    kernel = launch.kernel.fn.__name__
    return kernel, launch.warps, launch.stages, constants, tuple(types.items()), tuple(divisible)
