"""The router in Triton: float32 scores, then group-limited top-k, the lowest id first among equals,
and the slot list of the experts' kernels.

One launch. The product of tokens and gate is made in parts along the hidden size, so that few
tokens still fill the device; the last program of TOKENS tokens to be done (`triton_arrival.py`)
chooses for them, and the last of those lists the slots. The scores cannot be the norm's work before
it: each of 32 programs would read the gate, 1 MB in bf16, at the 100 GB/s or so that one processor
gets, ten microseconds instead of the two of a launch. The products are exact and summed in float32
whatever the model's dtype: a rounded score sends a token to another expert. Where both are bf16,
the matrix units do just that.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import prefetch_rows, wait_for_inputs
from engine.kernels.triton_arrival import is_last, new_counters
from engine.kernels.triton_slots import Slots, bins_for, list_slots

PARTS = 8
"""Parts of the hidden size that have programs of their own, summed in their order."""
TOKENS = 8
"""Tokens that a program scores, and that one chooses for: as many bits of `members`. Choosing is
what takes long, and with twice as many or half the warps takes twice as long."""
COLUMNS = 64
"""Experts that a program scores."""
STEP = 256
"""Of the hidden size that is loaded at once: all of LLaDA2.1-mini's part."""


@triton.jit
def _score(
    hidden, gate, parts, tokens, row, expert, part,
    SIZE: tl.constexpr, EXPERTS: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Part `part` of hidden [tokens, d] times gate [E, d]^T, of some rows and experts."""
    length: tl.constexpr = (SIZE + PARTS * STEP - 1) // (PARTS * STEP) * STEP
    total = tl.zeros((COLUMNS, ROWS), tl.float32)
    for k in range(0, length, STEP):
        at = part * length + k + tl.arange(0, STEP)
        inside = at < SIZE
        x = tl.load(
            hidden + row.to(tl.int64)[:, None] * SIZE + at[None, :],
            mask=(row < tokens)[:, None] & inside[None, :],
            other=0.0,
        )
        w = tl.load(
            gate + expert[:, None] * SIZE + at[None, :],
            mask=(expert < EXPERTS)[:, None] & inside[None, :],
            other=0.0,
        )
        if x.dtype != w.dtype:
            x, w = x.to(tl.float32), w.to(tl.float32)
        total = tl.dot(w, tl.trans(x), total, input_precision="ieee")
    place = (part * tokens + row).to(tl.int64)[None, :] * EXPERTS + expert[:, None]
    tl.store(parts + place, total, mask=(row < tokens)[None, :] & (expert < EXPERTS)[:, None])


@triton.jit
def _prefetch_gate(
    gate, expert, part, SIZE: tl.constexpr, EXPERTS: tl.constexpr, PARTS: tl.constexpr,
    STEP: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Ask for what `_score` loads first of the gate."""
    length: tl.constexpr = (SIZE + PARTS * STEP - 1) // (PARTS * STEP) * STEP
    at = tl.minimum(part * length, SIZE - 1)
    prefetch_rows(gate + tl.minimum(expert, EXPERTS - 1) * SIZE + at, SIZE - at, STEP, AHEAD)


@triton.jit
def _allowed(
    biased, ROWS: tl.constexpr, GROUPS: tl.constexpr, KEPT: tl.constexpr,
    GROUPS_BLOCK: tl.constexpr, SIZE_BLOCK: tl.constexpr,
):  # fmt: skip
    """Which of biased [ROWS, GROUPS_BLOCK * SIZE_BLOCK] are in the KEPT groups whose two largest
    sum highest."""
    grouped = tl.reshape(biased, (ROWS, GROUPS_BLOCK, SIZE_BLOCK))
    first, place = tl.max(grouped, 2, return_indices=True)
    # The second is what is left beside one place of the first.
    elsewhere = tl.arange(0, SIZE_BLOCK)[None, None, :] != place[:, :, None]
    second = tl.max(tl.where(elsewhere, grouped, float("-inf")), 2)
    group = tl.arange(0, GROUPS_BLOCK)[None, :]
    total = tl.where(group < GROUPS, first + second, float("-inf"))
    kept = tl.zeros((ROWS, GROUPS_BLOCK), tl.int1)
    for _ in tl.static_range(KEPT):
        best = tl.argmax(tl.where(kept, float("-inf"), total), 1)
        kept = kept | (group == best[:, None])
    every = tl.broadcast_to(kept[:, :, None], (ROWS, GROUPS_BLOCK, SIZE_BLOCK))
    return tl.reshape(every, (ROWS, GROUPS_BLOCK * SIZE_BLOCK))


@triton.jit
def _choose(
    parts, bias, ids, weights, members, row, tokens,
    SCALE: tl.constexpr, EXPERTS: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr,
    KEPT: tl.constexpr, TOP_K: tl.constexpr, GROUPS_BLOCK: tl.constexpr, SIZE_BLOCK: tl.constexpr,
    TOP_BLOCK: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """ids and weights of ROWS rows; with LISTED, in members[e] a bit for each row that is e's."""
    size: tl.constexpr = EXPERTS // GROUPS
    column = tl.arange(0, GROUPS_BLOCK * SIZE_BLOCK)
    expert = column // SIZE_BLOCK * size + column % SIZE_BLOCK
    real = (column // SIZE_BLOCK < GROUPS) & (column % SIZE_BLOCK < size)
    live = row < tokens
    logit = tl.zeros((ROWS, GROUPS_BLOCK * SIZE_BLOCK), tl.float32)
    for part in tl.static_range(PARTS):
        at = (part * tokens + row).to(tl.int64)[:, None] * EXPERTS + expert[None, :]
        logit += tl.load(parts + at, mask=live[:, None] & real[None, :], other=0.0)
    score = tl.where(real[None, :], 1.0 / (1.0 + tl.exp(-logit)), 0.0)
    added = tl.load(bias + expert, mask=real, other=float("-inf")).to(tl.float32)
    left = score + added[None, :]
    allowed = _allowed(left, ROWS, GROUPS, KEPT, GROUPS_BLOCK, SIZE_BLOCK)
    left = tl.where(allowed, left, float("-inf"))
    lane = tl.arange(0, TOP_BLOCK)[None, :]
    chosen_ids = tl.zeros((ROWS, TOP_BLOCK), tl.int32)
    chosen = tl.zeros((ROWS, TOP_BLOCK), tl.float32)
    bits = tl.zeros((ROWS, GROUPS_BLOCK * SIZE_BLOCK), tl.int32)
    bit = tl.where(live, 1 << tl.arange(0, ROWS), 0)[:, None]
    for k in tl.static_range(TOP_K):
        best = tl.argmax(left, 1)
        # Where scores are not numbers it may be no expert's, and an id beyond the last one must
        # never reach memory.
        id = tl.minimum(best // SIZE_BLOCK * size + best % SIZE_BLOCK, EXPERTS - 1)[:, None]
        own = (expert[None, :] == id) & real[None, :]
        value = tl.sum(tl.where(own, score, 0.0), 1)[:, None]
        chosen_ids = tl.where(lane == k, id, chosen_ids)
        chosen = tl.where(lane == k, value, chosen)
        left = tl.where(own, float("-inf"), left)
        if LISTED:
            bits = tl.where(own, bit, bits)
    share = chosen / (tl.sum(chosen, 1) + 1e-20)[:, None] * SCALE
    width: tl.constexpr = TOP_K + SHARED
    if SHARED:
        chosen_ids = tl.where(lane == TOP_K, EXPERTS, chosen_ids)
        share = tl.where(lane == TOP_K, 1.0, share)
    out = row.to(tl.int64)[:, None] * width + lane
    held = live[:, None] & (lane < width)
    tl.store(ids + out, chosen_ids.to(tl.int64), mask=held)
    tl.store(weights + out, share, mask=held)
    if LISTED:
        tl.store(members + expert, tl.sum(bits, 0), mask=real)
        if SHARED:
            tl.store(members + EXPERTS, tl.sum(bit))


@triton.jit
def router_kernel(
    hidden, gate, bias, parts, ids, weights, members, counters,
    slot_expert, slot_filled, slot_pairs, slot_total, tokens,
    SIZE: tl.constexpr, EXPERTS: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
    STEP: tl.constexpr, SCALE: tl.constexpr, GROUPS: tl.constexpr, KEPT: tl.constexpr,
    TOP_K: tl.constexpr, GROUPS_BLOCK: tl.constexpr, SIZE_BLOCK: tl.constexpr,
    TOP_BLOCK: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr, LISTED: tl.constexpr,
    BM: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (ROWS tokens, COLUMNS experts, part of d): ids int64 and weights float32 [tokens,
    TOP_K]; with SHARED one more, which is for every token expert number EXPERTS with weight 1. With
    LISTED the slots of all pairs, by way of members [tiles of tokens, BINS] int32.

    parts [PARTS, tokens, E] float32; a counter for each tile of tokens, and one for the tiles.
    """
    tile, part = tl.program_id(0), tl.program_id(2)
    row = tile * ROWS + tl.arange(0, ROWS)
    expert = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    _prefetch_gate(gate, expert, part, SIZE, EXPERTS, PARTS, STEP, AHEAD)
    wait_for_inputs(AHEAD)
    _score(
        hidden, gate, parts, tokens, row, expert, part,
        SIZE, EXPERTS, PARTS, ROWS, COLUMNS, STEP,
    )  # fmt: skip
    if is_last(counters + tile, tl.num_programs(1) * tl.num_programs(2)):
        _choose(
            parts, bias, ids, weights, members + tile * BINS, row, tokens,
            SCALE, EXPERTS, PARTS, GROUPS, KEPT, TOP_K, GROUPS_BLOCK, SIZE_BLOCK, TOP_BLOCK, SHARED,
            ROWS, LISTED,
        )  # fmt: skip
        if LISTED:
            tiles = tl.num_programs(0)
            if is_last(counters + tiles, tiles):
                list_slots(
                    ids, members, slot_expert, slot_filled, slot_pairs, slot_total, tokens, tiles,
                    EXPERTS + SHARED, TOP_K + SHARED, ROWS, BM, BINS, BLOCK,
                )  # fmt: skip


def route(
    hidden: Tensor,
    gate: Tensor,
    expert_bias: Tensor,
    *,
    n_group: int,
    topk_group: int,
    top_k: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Choose experts for hidden [T, d]: ids [T, top_k] int64 and weights [T, top_k] float32.

    s = sigmoid(hidden gate^T) in float32; s + bias decides, within the `topk_group` groups whose
    two largest s + bias sum highest; the weights are the unbiased s, normalised, times `scale`.
    Equals are chosen in their order.
    """
    tokens, device = hidden.shape[0], hidden.device
    ids = torch.empty(tokens, top_k, dtype=torch.int64, device=device)
    weights = torch.empty(tokens, top_k, device=device)
    route_launch(
        hidden.contiguous(), gate.contiguous(), expert_bias, ids, weights,
        n_group=n_group, topk_group=topk_group, scale=scale,
    ).run()  # fmt: skip
    return ids, weights


def route_launch(
    hidden: Tensor,
    gate: Tensor,
    expert_bias: Tensor,
    ids: Tensor,
    weights: Tensor,
    *,
    n_group: int,
    topk_group: int,
    scale: float,
    joined: bool = False,
    slots: Slots | None = None,
) -> Launch:
    """What fills ids and weights [T, top_k], and `slots`. `joined`: the last of a token's ids is E,
    the shared expert's, with weight 1."""
    (tokens, size), experts, device = hidden.shape, gate.shape[0], hidden.device
    tiles, bins = triton.cdiv(tokens, TOKENS), bins_for(experts + joined)
    parts = torch.empty(PARTS, tokens, experts, device=device)
    listed = slots is not None
    members = torch.empty(tiles if listed else 0, bins, dtype=torch.int32, device=device)
    held = (slots.expert, slots.filled, slots.pairs, slots.total) if slots else (members,) * 4
    names = ("slot_expert", "slot_filled", "slot_pairs", "slot_total")
    arguments: dict[str, Any] = {
        "hidden": hidden, "gate": gate, "bias": expert_bias, "parts": parts, "ids": ids,
        "weights": weights, "members": members, "counters": new_counters(tiles + 1, device),
        "tokens": tokens, **dict(zip(names, held, strict=True)),
    }  # fmt: skip
    constants = {
        "SIZE": size, "EXPERTS": experts, "PARTS": PARTS, "COLUMNS": COLUMNS, "STEP": STEP,
        "SCALE": scale, "GROUPS": n_group, "KEPT": topk_group, "TOP_K": ids.shape[1] - joined,
        "GROUPS_BLOCK": triton.next_power_of_2(n_group),
        "SIZE_BLOCK": triton.next_power_of_2(experts // n_group),
        "TOP_BLOCK": triton.next_power_of_2(ids.shape[1]), "SHARED": int(joined),
        "ROWS": TOKENS, "LISTED": listed, "BM": slots.rows if slots else 1, "BINS": bins,
        "BLOCK": triton.next_power_of_2(ids.numel()) if listed else 1,
    }  # fmt: skip
    grid = (tiles, triton.cdiv(experts, COLUMNS), PARTS)
    return Launch("router", router_kernel, grid, arguments, constants, warps=8, stages=1)
