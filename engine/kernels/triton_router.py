"""The router in Triton: float32 scores, then group-limited top-k, the lowest id first among equals.

Two launches: the product of tokens and gate in parts along the hidden size, so that few tokens
still fill the device, and the choice, one program a token. The product is IEEE float32 whatever the
model's dtype: a rounded score sends a token to another expert.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch

PARTS = 4
"""Parts of the hidden size that have programs of their own, summed in their order."""


@triton.jit
def score_kernel(
    hidden, gate, parts, tokens,
    SIZE: tl.constexpr, EXPERTS: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """parts [PARTS, tokens, E] float32: each part of hidden [tokens, d] times gate [E, d]^T."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    expert = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(2)
    length: tl.constexpr = (SIZE + PARTS * STEP - 1) // (PARTS * STEP) * STEP
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
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
        total = tl.dot(x.to(tl.float32), tl.trans(w.to(tl.float32)), total, input_precision="ieee")
    place = (part * tokens + row).to(tl.int64)[:, None] * EXPERTS + expert[None, :]
    tl.store(parts + place, total, mask=(row < tokens)[:, None] & (expert < EXPERTS)[None, :])


@triton.jit
def choose_kernel(
    parts, bias, ids, weights, tokens,
    SCALE: tl.constexpr, EXPERTS: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr,
    KEPT: tl.constexpr, TOP_K: tl.constexpr, GROUPS_BLOCK: tl.constexpr, SIZE_BLOCK: tl.constexpr,
    TOP_BLOCK: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Program token: ids int64 and weights float32 [tokens, TOP_K]; with SHARED one more, which is
    for every token expert number EXPERTS with weight 1."""
    token = tl.program_id(0)
    size: tl.constexpr = EXPERTS // GROUPS
    group, member = tl.arange(0, GROUPS_BLOCK), tl.arange(0, SIZE_BLOCK)
    real = (group < GROUPS)[:, None] & (member < size)[None, :]
    expert = group[:, None] * size + member[None, :]
    logit = tl.zeros((GROUPS_BLOCK, SIZE_BLOCK), tl.float32)
    for part in tl.static_range(PARTS):
        line = (part * tokens + token).to(tl.int64) * EXPERTS
        logit += tl.load(parts + line + expert, mask=real, other=0.0)
    score = 1.0 / (1.0 + tl.exp(-logit))
    added = tl.load(bias + expert, mask=real, other=0.0).to(tl.float32)
    biased = tl.where(real, score + added, float("-inf"))
    # The two largest of each group; the second is what is left beside one place of the first.
    first = tl.max(biased, 1)
    place = tl.argmax(biased, 1)
    rest = tl.where(member[None, :] == place[:, None], float("-inf"), biased)
    group_score = tl.where(group < GROUPS, first + tl.max(rest, 1), float("-inf"))
    allowed = group < 0
    for _ in tl.static_range(KEPT):
        best = tl.argmax(tl.where(allowed, float("-inf"), group_score), 0)
        allowed = allowed | (group == best)
    left = tl.where(allowed[:, None] & real, biased, float("-inf"))
    lane = tl.arange(0, TOP_BLOCK)
    chosen_ids = tl.zeros((TOP_BLOCK,), tl.int32)
    chosen = tl.zeros((TOP_BLOCK,), tl.float32)
    for k in tl.static_range(TOP_K):
        best = tl.max(tl.max(left, 1), 0)
        # The lowest id of the largest; where a score is not a number there may be none, and an id
        # beyond the last expert must never reach memory.
        id = tl.min(tl.min(tl.where((left == best) & real, expert, EXPERTS - 1), 1), 0)
        value = tl.sum(tl.sum(tl.where(expert == id, tl.where(real, score, 0.0), 0.0), 1), 0)
        chosen_ids = tl.where(lane == k, id, chosen_ids)
        chosen = tl.where(lane == k, value, chosen)
        left = tl.where(expert == id, float("-inf"), left)
    share = chosen / (tl.sum(chosen, 0) + 1e-20) * SCALE
    width: tl.constexpr = TOP_K + SHARED
    out = token.to(tl.int64) * width + lane
    if SHARED:
        chosen_ids = tl.where(lane == TOP_K, EXPERTS, chosen_ids)
        share = tl.where(lane == TOP_K, 1.0, share)
    tl.store(ids + out, chosen_ids.to(tl.int64), mask=lane < width)
    tl.store(weights + out, share, mask=lane < width)


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
    parts = torch.empty(PARTS, tokens, gate.shape[0], device=device)
    ids = torch.empty(tokens, top_k, dtype=torch.int64, device=device)
    weights = torch.empty(tokens, top_k, device=device)
    launches = route_launches(
        hidden.contiguous(), gate.contiguous(), expert_bias, parts, ids, weights,
        n_group=n_group, topk_group=topk_group, scale=scale,
    )  # fmt: skip
    for launch in launches:
        launch.run()
    return ids, weights


def route_launches(
    hidden: Tensor,
    gate: Tensor,
    expert_bias: Tensor,
    parts: Tensor,
    ids: Tensor,
    weights: Tensor,
    *,
    n_group: int,
    topk_group: int,
    scale: float,
    joined: bool = False,
) -> list[Launch]:
    """What fills ids and weights [T, top_k], by way of parts [PARTS, T, E] float32. `joined`: the
    last of a token's ids is E, the shared expert's, with weight 1."""
    (tokens, size), experts = hidden.shape, gate.shape[0]
    shared = {"EXPERTS": experts, "PARTS": PARTS}
    score = Launch(
        "router_scores", score_kernel, (triton.cdiv(tokens, 16), triton.cdiv(experts, 16), PARTS),
        {"hidden": hidden, "gate": gate, "parts": parts, "tokens": tokens},
        shared | {"SIZE": size, "ROWS": 16, "COLUMNS": 16, "STEP": 64},
        warps=2, stages=2,
    )  # fmt: skip
    top_k = ids.shape[1] - joined
    constants = {
        "SCALE": scale, "GROUPS": n_group, "KEPT": topk_group, "TOP_K": top_k,
        "GROUPS_BLOCK": triton.next_power_of_2(n_group),
        "SIZE_BLOCK": triton.next_power_of_2(experts // n_group),
        "TOP_BLOCK": triton.next_power_of_2(ids.shape[1]), "SHARED": int(joined),
    }  # fmt: skip
    arguments: dict[str, Any] = {
        "parts": parts, "bias": expert_bias, "ids": ids, "weights": weights, "tokens": tokens
    }  # fmt: skip
    choose = Launch(
        "router_choice", choose_kernel, (tokens,), arguments, shared | constants, warps=1
    )
    return [score, choose]
