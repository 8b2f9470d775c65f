"""Small kernels for tests of the emulator, written as PTX by hand."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.ptx.library import Grid, Kernel

LANES = 32
BITS = {torch.int16: 16, torch.int32: 32, torch.int64: 64}
HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
"""


def kernel(body: str, parameters: int) -> Kernel:
    """`body` with the pointers %d0, %d1, ... that it is launched with, its thread's number in
    %tid and that of its program in %program; further registers are %p, %h, %r and %d."""
    names = [f"p{i}" for i in range(parameters)]
    listed = ", ".join(f".param .u64 {name}" for name in names)
    loads = "\n".join(f"ld.param.b64 %d{i}, [{name}];" for i, name in enumerate(names))
    return Kernel(
        f"{HEAD}.visible .entry test({listed})\n{{\n"
        ".reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<64>;\n.reg .b64 %d<32>;\n"
        ".reg .b32 %tid, %program;\nmov.u32 %tid, %tid.x;\nmov.u32 %program, %ctaid.x;\n"
        f"{loads}\n{body}\nret;\n}}\n"
    )


def launch(body: str, *tensors: Tensor, programs: int = 1, warps: int = 1, seed: int = 0) -> None:
    """Run it on tensors, with a kilobyte of shared memory."""
    parts = [
        (t.untyped_storage().data_ptr(), t.untyped_storage().data_ptr() + t.nbytes) for t in tensors
    ]
    grid = Grid((programs, 1, 1), warps, shared=1024, seed=seed)
    kernel(body, len(tensors)).run(grid, [t.data_ptr() for t in tensors], parts)


def lanewise(instruction: str, *inputs: Tensor, out: torch.dtype = torch.int32) -> Tensor:
    """What an instruction makes of %a, %b, %c, %e in %out, for up to 32 values of each."""
    names = "abce"[: len(inputs)]
    count = len(inputs[0])
    result = torch.zeros(LANES, dtype=out)
    padded = [torch.cat((x, x[:1].expand(LANES - count))).contiguous() for x in inputs]
    lines = [f".reg .b{BITS[out]} %out;"]
    for i, (name, x) in enumerate(zip(names, padded, strict=True)):
        lines += [f".reg .b{BITS[x.dtype]} %{name};", *_address(f"%d{i}", x.itemsize, i)]
        lines.append(f"ld.global.b{BITS[x.dtype]} %{name}, [%d{16 + i}];")
    last = len(inputs)
    lines += [instruction, *_address(f"%d{last}", result.itemsize, last)]
    lines.append(f"st.global.b{BITS[out]} [%d{16 + last}], %out;")
    launch("\n".join(lines), *padded, result)
    return result[:count]


def _address(base: str, size: int, index: int) -> list[str]:
    """The lane's place in an array, in %d16 and following."""
    return [f"mad.wide.u32 %d{16 + index}, %tid, {size}, {base};"]


def integers(values: Sequence[int], dtype: torch.dtype = torch.int32) -> Tensor:
    """Also of numbers that only fit without a sign."""
    bits = BITS[dtype]
    return torch.tensor([(v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for v in values]).to(
        dtype
    )
