"""y = sum_k weight_k * down_k(silu(gate_k x) * up_k x): the routed experts, in any form of weights.

Four launches: the slot list (and the input rounded to NVFP4), gate and up with SwiGLU, down, the
sum; in a layer's list the router makes the first and the next norm the last one. Every pair (token,
expert) has a row of its own in memory until the sum reads a token's K rows in the router's order:
nothing is added by atomics, so equal input gives equal output, bit for bit.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.expert_memory import (
    Beside,
    Buffers,
    ExpertWeights,
    PlainExpert,
    SharedExpert,
    between,
)
from engine.kernels.launch import Launch
from engine.kernels.plans import Plan
from engine.kernels.tiling import Layout, Tile
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_expert_parts import plain_down, plain_gate_up, swiglu
from engine.kernels.triton_product import product, worth
from engine.kernels.triton_round import store_rounded
from engine.kernels.triton_slots import slots_launch


@triton.jit
def expert_gate_up_kernel(
    x, x_codes_scales, w, w_scales, alpha, x_scale, h_scale,
    expert, filled, pairs, total, h, h_codes_scales,
    shared, shared_scales, shared_second, shared_second_scales,
    plain_x, plain_gate, plain_up, plain_h,
    MATRIX: tl.constexpr, SCALE_MATRIX: tl.constexpr, UP: tl.constexpr, SCALE_UP: tl.constexpr,
    I: tl.constexpr, K: tl.constexpr, TOP_K: tl.constexpr,
    TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr, DTYPE: tl.constexpr,
    TOGETHER: tl.constexpr, EXPERTS: tl.constexpr, SHARED: tl.constexpr,
    PLAIN: tl.constexpr, PLAIN_BK: tl.constexpr, PLAIN_EVEN: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """h[p] = silu(gate_e x[p // TOP_K]) * up_e x[p // TOP_K] for the pairs p of a slot; program
    (n, s) computes columns n BN.. of slot s. With SCALED h is rounded to NVFP4, as x has been.

    With SHARED, expert number EXPERTS is one that lies elsewhere: `shared` and the others say
    where, in elements from w and w_scales; its h has a scale of its own, h_scale[1]. With PLAIN
    it is of x's own dtype (`triton_expert_parts.plain_gate_up`), and h is plain_h [T, I].
    """
    wait_for_inputs(AHEAD)
    slot = tl.program_id(1)
    if slot >= tl.load(total):
        return
    tile = tl.program_id(0)
    e = tl.load(expert + slot).to(tl.int64)
    row = tl.arange(0, BM)
    live = row < tl.load(filled + slot)
    pair = tl.load(pairs + slot * BM + row, mask=live, other=0).to(tl.int64)
    if PLAIN:  # noqa: SIM102 - decided when compiling; what is in it, when running
        if e == EXPERTS:
            plain_gate_up(
                plain_x, plain_gate, plain_up, plain_h, pair // TOP_K, live, tile,
                I, K, BM, BN, PLAIN_BK, PLAIN_EVEN, TOGETHER, DTYPE,
            )  # fmt: skip
            return
    n = tile * BN + tl.arange(0, BN)
    first, first_scales = e * MATRIX, e * SCALE_MATRIX
    second, second_scales = first + UP, first_scales + SCALE_UP
    if SHARED:
        other = e == EXPERTS
        first = tl.where(other, shared, first)
        first_scales = tl.where(other, shared_scales, first_scales)
        second = tl.where(other, shared_second, second)
        second_scales = tl.where(other, shared_second_scales, second_scales)
        h_scale += other.to(tl.int32)
    gate, gate_scales = w + first + tile * TILE, w_scales + first_scales + tile * SCALE_TILE
    up, up_scales = w + second + tile * TILE, w_scales + second_scales + tile * SCALE_TILE
    g, u = product(
        x, x_codes_scales, pair // TOP_K, live, gate, gate_scales, up, up_scales, n < I,
        K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, TOGETHER,
    )  # fmt: skip
    if not TOGETHER:
        u, _ = product(
            x, x_codes_scales, pair // TOP_K, live, up, up_scales, gate, gate_scales, n < I,
            K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, False,
        )  # fmt: skip
    g = g * worth(alpha + 2 * e, x_scale, FORM, SCALED)
    u = u * worth(alpha + 2 * e + 1, x_scale, FORM, SCALED)
    act = swiglu(g, u, DTYPE)
    if SCALED:
        at = pair * I + tile * BN
        store_rounded(
            act.to(tl.float32).T, tl.load(h_scale), h, h_codes_scales, at, live, I - tile * BN,
            BM, BN, FORM == "w4a4",
        )  # fmt: skip
    else:
        tl.store(h + pair[None, :] * I + n[:, None], act, mask=live[None, :] & (n < I)[:, None])


@triton.jit
def expert_down_kernel(
    h, h_codes_scales, w, w_scales, alpha, h_scale, expert, filled, pairs, total, out,
    shared, shared_scales, plain_h, plain_down_proj,
    MATRIX: tl.constexpr, SCALE_MATRIX: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, ROW: tl.constexpr, STEP: tl.constexpr,
    SCALE_TILE: tl.constexpr, SCALE_ROW: tl.constexpr, SCALE_STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr,
    TOP_K: tl.constexpr, EXPERTS: tl.constexpr, SHARED: tl.constexpr,
    PLAIN: tl.constexpr, PLAIN_BK: tl.constexpr, PLAIN_EVEN: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """out[p] = down_e h[p] for the pairs p of a slot; program (n, s) as in gate and up."""
    wait_for_inputs(AHEAD)
    slot = tl.program_id(1)
    if slot >= tl.load(total):
        return
    tile = tl.program_id(0)
    e = tl.load(expert + slot).to(tl.int64)
    row = tl.arange(0, BM)
    live = row < tl.load(filled + slot)
    pair = tl.load(pairs + slot * BM + row, mask=live, other=0).to(tl.int64)
    if PLAIN:  # noqa: SIM102 - decided when compiling; what is in it, when running
        if e == EXPERTS:
            plain_down(
                plain_h, plain_down_proj, out, pair // TOP_K, pair, live, tile,
                N, K, BM, BN, PLAIN_BK, PLAIN_EVEN,
            )  # fmt: skip
            return
    n = tile * BN + tl.arange(0, BN)
    matrix, scale_matrix = e * MATRIX, e * SCALE_MATRIX
    if SHARED:
        other = e == EXPERTS
        matrix = tl.where(other, shared, matrix)
        scale_matrix = tl.where(other, shared_scales, scale_matrix)
        h_scale += other.to(tl.int32)
    first = w + matrix + tile * TILE
    scales = w_scales + scale_matrix + tile * SCALE_TILE
    acc, _ = product(
        h, h_codes_scales, pair, live, first, scales, first, scales, n < N,
        K, ROW, STEP, SCALE_ROW, SCALE_STEP, BM, BN, BK, EVEN, FORM, False,
    )  # fmt: skip
    acc = (acc * worth(alpha + e, h_scale, FORM, SCALED)).to(out.dtype.element_ty)
    tl.store(out + pair[None, :] * N + n[:, None], acc, mask=live[None, :] & (n < N)[:, None])


@triton.jit
def expert_sum_kernel(
    rows, weights, out, N: tl.constexpr, TOP_K: tl.constexpr, BN: tl.constexpr, AHEAD: tl.constexpr
):
    """out[t] = sum_k weights[t, k] * rows[t TOP_K + k] in float32, k upwards; program (t, n)."""
    wait_for_inputs(AHEAD)
    token = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(TOP_K):
        pair = token * TOP_K + k
        value = tl.load(rows + pair * N + n, mask=n < N, other=0).to(tl.float32)
        acc += value * tl.load(weights + pair)
    tl.store(out + token * N + n, acc.to(out.dtype.element_ty), mask=n < N)


_DTYPES = {torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
PLAIN_COLUMNS = {torch.bfloat16: 64, torch.float32: 32}
"""Of a plain shared expert's tile, whose rows are as many as the packed ones'."""


def expert_launches(
    x: Tensor, gate_up: ExpertWeights, down: ExpertWeights, plan: Plan, buffers: Buffers, *,
    packed: bool, width: int, x_scale: Tensor | None = None, h_scale: Tensor | None = None,
    beside: Beside | None = None,
) -> list[Launch]:  # fmt: skip
    """What computes `buffers.rows`, every pair's output, from x [T, d], with `buffers.slots` (and
    what x is rounded to) filled; the arguments are those of either reference."""
    assert x.dtype in _DTYPES
    assert (x_scale is None) == (h_scale is None)
    stack, top_k = gate_up.codes.shape[0], buffers.rows.shape[0] // x.shape[0]
    scaled = x_scale is not None
    form = plan.form(packed=packed, scaled=scaled)
    slots = buffers.slots
    seen, seen_scales = (x, x) if buffers.x is None else buffers.x.operand(x)
    hidden, hidden_scales = buffers.h.operand(x)
    shared = {
        "expert": slots.expert, "filled": slots.filled, "pairs": slots.pairs, "total": slots.total,
        "h": hidden, "h_codes_scales": hidden_scales, "h_scale": x if h_scale is None else h_scale,
        "plain_h": x if buffers.plain_h is None else buffers.plain_h,
    }  # fmt: skip
    columns = PLAIN_COLUMNS[x.dtype]
    plain = isinstance(beside, PlainExpert)
    common = {
        "BM": slots.rows, "FORM": form, "SCALED": scaled, "EXPERTS": stack, "TOP_K": top_k,
        "SHARED": isinstance(beside, SharedExpert), "PLAIN": plain, "PLAIN_BK": columns,
    }  # fmt: skip
    gates, places = _places(x, gate_up, down, beside)
    codes, scales = gate_up.layouts(plan, packed=packed)
    tile = codes.tile
    first = Launch(
        f"expert_gate_up_{form}", expert_gate_up_kernel,
        (triton.cdiv(width, tile.rows), slots.capacity),
        {
            "x": seen, "x_codes_scales": seen_scales, "w": gate_up.codes,
            "w_scales": gate_up.scales, "alpha": gate_up.alpha,
            "x_scale": x if x_scale is None else x_scale, **shared, **gates,
        },
        {
            **constants(codes, scales), **common, "UP": codes.offset(width),
            "SCALE_UP": scales.offset(width), "I": width, "K": x.shape[1],
            "PLAIN_EVEN": Tile(tile.rows, columns).divides(width, x.shape[1]),
            "EVEN": tile.divides(width, x.shape[1]), "DTYPE": _DTYPES[x.dtype],
            "TOGETHER": not plan.tcgen05,
        },
        plan.warps, plan.stages_for(x.dtype),
    )  # fmt: skip
    codes, scales = down.layouts(plan, packed=packed)
    tile = codes.tile
    second = Launch(
        f"expert_down_{form}", expert_down_kernel,
        (triton.cdiv(x.shape[1], tile.rows), slots.capacity),
        {
            **shared, "w": down.codes, "w_scales": down.scales, "alpha": down.alpha,
            "out": buffers.rows, **places,
        },
        {
            **constants(codes, scales), **common, "N": x.shape[1], "K": width,
            "PLAIN_EVEN": Tile(tile.rows, columns).divides(x.shape[1], width),
            "EVEN": tile.divides(x.shape[1], width),
        },
        plan.warps, plan.stages_for(x.dtype),
    )  # fmt: skip
    return [first, second]


def _places(
    x: Tensor, gate_up: ExpertWeights, down: ExpertWeights, beside: Beside | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where a shared expert lies, for gate and up and for down; x stands for what is not read."""
    places: dict[str, Any] = dict.fromkeys(("shared", "shared_scales"), 0)
    gates = places | dict.fromkeys(("shared_second", "shared_second_scales"), 0)
    gates |= {"plain_x": x, "plain_gate": x, "plain_up": x}
    places |= {"plain_down_proj": x}
    if isinstance(beside, PlainExpert):
        gates |= {"plain_gate": beside.gate, "plain_up": beside.up}
        places |= {"plain_down_proj": beside.down}
    elif beside is not None:
        gates |= {
            "shared": between(gate_up.codes, beside.gate),
            "shared_scales": between(gate_up.scales, beside.gate_scales),
            "shared_second": between(gate_up.codes, beside.up),
            "shared_second_scales": between(gate_up.scales, beside.up_scales),
        }
        places |= {
            "shared": between(down.codes, beside.down),
            "shared_scales": between(down.scales, beside.down_scales),
        }
    return gates, places


def _sum_launch(rows: Tensor, weights: Tensor, out: Tensor) -> Launch:
    tokens, size = out.shape
    chunk = min(triton.next_power_of_2(size), 1024)
    return Launch(
        "expert_sum", expert_sum_kernel, (tokens, triton.cdiv(size, chunk)),
        {"rows": rows, "weights": weights, "out": out},
        {"N": size, "TOP_K": weights.shape[1], "BN": chunk},
    )  # fmt: skip


def constants(codes: Layout, scales: Layout) -> dict[str, int]:
    """How kernels walk over a stack of weights."""
    return {
        "MATRIX": codes.matrix, "TILE": codes.row_step, "ROW": codes.row,
        "STEP": codes.column_step, "SCALE_MATRIX": scales.matrix, "SCALE_TILE": scales.row_step,
        "SCALE_ROW": scales.row, "SCALE_STEP": scales.column_step,
        "BN": codes.tile.rows, "BK": codes.tile.columns,
    }  # fmt: skip


def run_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: ExpertWeights, down: ExpertWeights,
    plan: Plan, *, width: int, x_scale: Tensor | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The slots of `ids`, `expert_launches` and the sum by `weights`, into a new tensor [T, d]."""
    out = torch.empty_like(x)
    if x.shape[0]:
        experts, scaled = gate_up.codes.shape[0], x_scale is not None
        buffers = Buffers.empty(x, ids.shape[1], experts, width, plan, scaled=scaled)
        slots_launch(ids, buffers.slots, experts, x, x_scale, buffers.x).run()
        for launch in expert_launches(
            x, gate_up, down, plan, buffers, width=width, x_scale=x_scale, **options
        ):
            launch.run()
        _sum_launch(buffers.rows, weights, out).run()
    return out
