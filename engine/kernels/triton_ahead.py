"""Where a kernel waits for the one before it, and what it may do ahead of that.

Programmatic dependent launch (CUDA programming guide; from sm_90 on): where a graph says so
(`engine/decode/graph_edges.py`), the programs of a kernel take their places as soon as all of the
kernel before have theirs, and not when it is done. So a kernel that is launched like that (`ahead`
of its `Launch`, here AHEAD) begins with `wait_for_inputs`, in every program: it returns when the
kernel before is done and its stores are seen, and since that one has waited for its own
predecessor, all before it are done too. Nothing may be read or written ahead of it; only prefetches
may stand there, of weights, which ask for them without reading. Without AHEAD none is compiled.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LINE = tl.constexpr(128)
"""Bytes that one request brings into the second-level cache."""
MOST = tl.constexpr(32768)
"""Bytes of a weight that a program asks for ahead of time."""


@triton.jit
def wait_for_inputs(AHEAD: tl.constexpr):
    """Every kernel's first act but for prefetches; AHEAD: of a launch that may come early.

    The next kernel's programs are let in only then: so two kernels at most are in at a time.
    """
    if AHEAD:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def prefetch(lines, AHEAD: tl.constexpr):
    """Ask for the lines that these pointers point into, which must be those of a weight."""
    if AHEAD:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; // $0", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def prefetch_range(base, COUNT: tl.constexpr, AHEAD: tl.constexpr):
    """Ask for the first of COUNT elements from the pointer `base` on, MOST bytes of them."""
    size: tl.constexpr = COUNT * base.dtype.element_ty.primitive_bitwidth // 8
    if AHEAD and size >= LINE:
        lines: tl.constexpr = triton.next_power_of_2(size // LINE if size < MOST else MOST // LINE)
        at = tl.minimum(tl.arange(0, lines) * LINE, size - LINE)
        prefetch(base.to(tl.pointer_type(tl.uint8)) + at, AHEAD)


@triton.jit
def prefetch_rows(rows, left, COUNT: tl.constexpr, AHEAD: tl.constexpr):
    """Ask for the first of COUNT elements (a power of two) from each of the pointers `rows` on, of
    which `left` are there."""
    line: tl.constexpr = LINE * 8 // rows.dtype.scalar.element_ty.primitive_bitwidth
    lines: tl.constexpr = COUNT // line if line < COUNT else 1
    column = tl.minimum(tl.arange(0, lines) * line, left - 1)
    prefetch(rows[:, None] + column[None, :], AHEAD)
