"""The small steps between products in Triton: input embeddings, activations, LoRA's addition.

Each rounds where the model's own modules round.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import wait_for_inputs


@triton.jit
def embed_kernel(
    tokens, undecided, states, residual, table, out,
    ALPHA: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, RESIDUAL: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Program t: out[t] = table[tokens[t]], plus ALPHA * residual[t] where t is undecided and its
    block has taken a step (states[2] > 0)."""
    wait_for_inputs(AHEAD)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    token = tl.load(tokens + row)
    embedding = tl.load(table + token * SIZE + columns, mask=inside, other=0.0)
    if RESIDUAL:
        takes = (tl.load(undecided + row) != 0) & (tl.load(states + 2) > 0)
        term = tl.load(residual + row * SIZE + columns, mask=inside & takes, other=0.0)
        term = (term.to(tl.float32) * ALPHA).to(embedding.dtype).to(tl.float32)
        embedding = (embedding.to(tl.float32) + term).to(embedding.dtype)
    tl.store(out + row * SIZE + columns, embedding, mask=inside)


@triton.jit
def activate_kernel(
    gate, up, out, gate_row, up_row,
    KIND: tl.constexpr, GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (t, columns): out[t] = act(gate[t]) * up[t], or with no gate act(up[t])."""
    wait_for_inputs(AHEAD)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < SIZE
    dtype = out.dtype.element_ty
    second = tl.load(up + row * up_row + columns, mask=inside, other=0.0).to(tl.float32)
    first = second
    if GATED:
        first = tl.load(gate + row * gate_row + columns, mask=inside, other=0.0).to(tl.float32)
    if KIND == "silu":
        first = first / (1.0 + tl.exp(-first))
    elif KIND == "relu":
        first = tl.maximum(first, 0.0)
    elif KIND == "gelu":
        first = 0.5 * first * (1.0 + tl.erf(first * 0.7071067811865476))
    result = first.to(dtype)
    if GATED:
        result = (result.to(tl.float32) * second).to(dtype)
    tl.store(out + row * SIZE + columns, result, mask=inside)


@triton.jit
def add_scaled_kernel(
    total, term, SCALE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr
):
    """total += SCALE * term, the product rounded first."""
    wait_for_inputs(AHEAD)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < COUNT
    dtype = total.dtype.element_ty
    scaled = (tl.load(term + at, mask=inside, other=0.0).to(tl.float32) * SCALE).to(dtype)
    old = tl.load(total + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(total + at, (old + scaled.to(tl.float32)).to(dtype), mask=inside)


def embed_launch(
    tokens: Tensor, table: Tensor, out: Tensor, *, undecided: Tensor, states: Tensor,
    residual: Tensor | None, alpha: float,
) -> Launch:  # fmt: skip
    """Input embeddings out [T, d] of tokens [T] int64; residual [T, d] enters where undecided int32
    [T] is not 0, once the block of states int64 [5] has taken a step."""
    size = table.shape[1]
    assert table.is_contiguous()
    arguments: dict[str, Any] = {
        "tokens": tokens, "undecided": undecided, "states": states,
        "residual": out if residual is None else residual, "table": table, "out": out,
    }  # fmt: skip
    constants = {
        "ALPHA": alpha, "SIZE": size, "BLOCK": triton.next_power_of_2(size),
        "RESIDUAL": residual is not None,
    }  # fmt: skip
    return Launch("embed", embed_kernel, (tokens.numel(),), arguments, constants)


def activate_launch(gate: Tensor | None, up: Tensor, out: Tensor, kind: str) -> Launch:
    """out [T, n] = act(gate) * up, or act(up); gate and up [T, n] may be columns of wider rows.
    `kind` is silu, gelu, relu or none."""
    rows, size = out.shape
    first = up if gate is None else gate
    assert first.stride(1) == up.stride(1) == 1
    assert out.is_contiguous()
    block = min(triton.next_power_of_2(size), 1024)
    arguments: dict[str, Any] = {
        "gate": first, "up": up, "out": out, "gate_row": first.stride(0), "up_row": up.stride(0)
    }  # fmt: skip
    constants = {"KIND": kind, "GATED": gate is not None, "SIZE": size, "BLOCK": block}
    grid = (rows, triton.cdiv(size, block))
    return Launch("activate", activate_kernel, grid, arguments, constants)


def add_scaled_launch(total: Tensor, term: Tensor, scale: float) -> Launch:
    """total += scale * term, in place; both contiguous, of one shape and dtype."""
    assert total.is_contiguous()
    assert term.is_contiguous()
    count = total.numel()
    constants = {"SCALE": scale, "COUNT": count, "BLOCK": 1024}
    arguments = {"total": total, "term": term}
    return Launch(
        "add_scaled", add_scaled_kernel, (triton.cdiv(count, 1024),), arguments, constants
    )
