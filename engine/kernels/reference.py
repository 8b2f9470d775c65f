"""The forward pass's operations in plain torch: the CPU path, and the oracle for every kernel.

All of them are differentiable, so that training runs on the same code. Leading batch dimensions
are written `...`; T is tokens, d the hidden size, D a head's size, E experts, I their width.
Formulas: the LLaDA2 reference forward (LLaDA2.0 report, arXiv 2512.15745, section 2).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in x's dtype.

    The mean is float32; as in the reference the normalised value is rounded to x's dtype before
    the weight multiplies it.
    """
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T for x [..., in] and weight [out, in]; returns [..., out].

    On a CPU a product of few rows with a weight that exceeds the cache is bound by reading the
    weight, and the BLAS reads its second operand twice (to pack it): so the weight goes first, in
    parts whose products stay in the cache until they are turned.
    """
    rows = x.numel() // x.shape[-1]
    if not _weights_first(rows, x, weight):
        return F.linear(x, weight)
    parts = weight.split(_PART)
    groups = [
        torch.cat([(part @ columns).mT for part in parts], dim=-1)
        for columns in _columns(x.reshape(rows, -1))
    ]
    return _joined(groups)[:rows].view(*x.shape[:-1], -1)


def _weights_first(rows: int, x: Tensor, weight: Tensor) -> bool:
    fits = 0 < rows <= _FEW_ROWS and weight.numel() >= _LARGE_WEIGHT
    return fits and x.device.type == "cpu" and x.dtype == torch.float32


def _columns(x: Tensor) -> tuple[Tensor, ...]:
    """x [rows, in] as columns [in, n], padded with zeros: groups of 4 for the fewest rows, else one
    group in whole vectors of 8. Other widths cost some BLAS two to three times as much."""
    rows = x.shape[0]
    group = 4 if rows <= _FEWEST_ROWS else 8
    padded = F.pad(x, (0, 0, 0, -rows % group)) if rows % group else x
    return tuple(part.mT for part in (padded.split(4) if group == 4 else (padded,)))


def _joined(groups: list[Tensor]) -> Tensor:
    """The groups' rows one after the other; a lone group is not copied."""
    return groups[0] if len(groups) == 1 else torch.cat(groups)


# Where the swapped product overtakes (tests/benchmarks/README.md): at up to 64 rows, for weights
# from 1 MB on.
_FEW_ROWS = 64
_FEWEST_ROWS = 12
_LARGE_WEIGHT = 1 << 18
_PART = 2048


def rotary_tables(
    positions: Tensor, rotary_dim: int, theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin [..., T, rotary_dim] for positions [..., T]; the two halves are equal."""
    exponent = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device=positions.device)
    inverse = 1.0 / (theta ** (exponent / rotary_dim))
    angles = positions[..., None].float() * inverse
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first cos.shape[-1] dimensions of x [..., heads, T, D]; the rest passes through.

    Pairs are (j, j + half): out = r * cos + (-r2, r1) * sin.
    """
    size = cos.shape[-1]
    rotated, passed = x[..., :size], x[..., size:]
    first, second = rotated.chunk(2, dim=-1)
    turned = rotated * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, passed), dim=-1)


def split_qkv(
    qkv: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    heads: int,
    kv_heads: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of query_key_value to q [..., H, T, D], k and v [..., Hkv, T, D].

    qkv [..., T, (H + 2 Hkv) D] holds the Q heads, then K, then V. Q and K are RMS-normed over D
    with their weights [D], then rotated by cos and sin [..., T, R]; V is left as it is.
    """
    every = qkv.unflatten(-1, (heads + 2 * kv_heads, -1)).transpose(-2, -3)
    qk, v = every.split((heads + kv_heads, kv_heads), dim=-3)
    # One norm and one rotation for both, each head with its own weight.
    size = query_weight.shape[0]
    weight = torch.cat((query_weight.expand(heads, size), key_weight.expand(kv_heads, size)))
    normed = rms_norm(qk, weight[:, None], eps)
    qk = apply_rotary(normed, cos[..., None, :, :], sin[..., None, :, :])
    q, k = qk.split((heads, kv_heads), dim=-3)
    return q, k, v


def attention(q: Tensor, k: Tensor, v: Tensor, *, start: int, block_length: int) -> Tensor:
    """Block-causal grouped-query attention; returns [..., H, T, D].

    q [..., H, T, D] stands at positions start .. start+T-1 (`start` on a block border); k and v
    [..., Hkv, start+T, D] begin at position 0. A query sees its own block and all blocks before
    it. Each block of queries is one product over the keys it sees, so that nothing is masked
    and nothing hidden is computed.
    """
    tokens, reach = q.shape[-2], k.shape[-2]
    assert start % block_length == 0
    assert reach == start + tokens
    parts = []
    for first in range(0, tokens, block_length):
        last = min(first + block_length, tokens)
        seen = start + last
        parts.append(_full_attention(q[..., first:last, :], k[..., :seen, :], v[..., :seen, :]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def _full_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every query sees every key. The heads of a group are laid out as further queries of their
    key head, which needs no repeated keys."""
    *batch, heads, tokens, size = q.shape
    kv_heads = k.shape[-3]
    grouped = q.reshape(-1, kv_heads, heads // kv_heads * tokens, size)
    keys, values = (t.reshape(-1, kv_heads, *t.shape[-2:]) for t in (k, v))
    return F.scaled_dot_product_attention(grouped, keys, values).view(*batch, heads, tokens, size)


def prefix_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Grouped-query attention of n rows with prefixes of their own; returns [n, H, T, D].

    q [n, H, T, D], k and v [n, Hkv, S, D]; every query of row i sees the first lengths[i] (>= 1)
    keys of that row.
    """
    rows, heads, tokens, size = q.shape
    seen = torch.arange(k.shape[-2], device=q.device) < lengths[:, None]
    grouped = q.reshape(rows, k.shape[1], heads // k.shape[1] * tokens, size)
    mask = seen[:, None, None, :]
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view_as(q)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Grouped-query attention under a boolean mask [..., T, T] (True: may see), for training on
    packed rows. q [..., H, T, D], k and v [..., Hkv, T, D]; returns [..., H, T, D]."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


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
    """
    scores = F.linear(hidden.float(), gate.float()).sigmoid()
    biased = scores + expert_bias.float()
    groups = biased.unflatten(-1, (n_group, -1))
    group_score = groups.topk(2, dim=-1).values.sum(-1)
    kept = group_score.topk(topk_group, dim=-1, sorted=False).indices
    allowed = torch.zeros_like(group_score, dtype=torch.bool).scatter(-1, kept, True)
    biased = groups.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
    ids = biased.topk(top_k, dim=-1).indices
    chosen = scores.gather(-1, ids)
    weights = chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * scale
    return ids, weights


def expert_mlp(
    hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    """sum over k of weights[t, k] * expert_{ids[t, k]}(hidden[t]), in hidden's dtype.

    hidden [T, d], ids and weights [T, K], gate_up [E, 2I, d] (gate rows first), down [E, d, I].
    """

    def run(rows: Tensor, counts: list[int]) -> Tensor:
        # Few experts, all in use and about equally: one batched product costs fewer calls than it
        # wastes on padding (measured in tests/benchmarks/README.md).
        even = min(counts) > 0 and max(counts) * len(counts) <= 2 * sum(counts)
        return (_padded_experts if even else _each_expert)(rows, counts, gate_up, down)

    return grouped_experts(hidden, ids, weights, gate_up.shape[0], run)


def grouped_experts(
    hidden: Tensor,
    ids: Tensor,
    weights: Tensor,
    experts: int,
    run: Callable[[Tensor, list[int]], Tensor],
) -> Tensor:
    """sum over k of weights[t, k] * run(hidden[t], as expert ids[t, k]), in hidden's dtype.

    Tokens are grouped by expert, so that each used expert's weights are read once and unused ones
    never; the counts come to the host in one transfer. `run` maps rows [T K, d], sorted by expert,
    and how many of them are each expert's, to outputs [T K, d]. The K outputs of a token are
    summed in float32 in the router's order, as the reference does.
    """
    tokens, top_k = ids.shape
    order = ids.flatten().argsort(stable=True)
    counts = torch.bincount(ids.flatten(), minlength=experts).tolist()
    outputs = run(hidden.index_select(0, order // top_k), counts)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel(), device=order.device)
    pairs = outputs.index_select(0, back).view(tokens, top_k, -1).float()
    return (pairs * weights[..., None]).sum(dim=1).to(hidden.dtype)


def _each_expert(rows: Tensor, counts: list[int], gate_up: Tensor, down: Tensor) -> Tensor:
    """rows [P, d] sorted by expert, counts[e] of them for expert e, each through its own."""
    outputs = []
    first = 0
    # Not by index: the gradient of every index is as large as the whole stack.
    for count, gates, downs in zip(counts, gate_up.unbind(0), down.unbind(0), strict=True):
        if count:
            outputs.append(_one_expert(rows[first : first + count], gates, downs))
            first += count
    return torch.cat(outputs)


def _one_expert(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """down (silu(gate x) * up x) for x [rows, d]; as columns throughout where `linear` swaps."""
    if not _weights_first(x.shape[0], x, gate_up):
        gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, down)
    groups = _columns(x)
    halves = [(gate_up @ columns).chunk(2, dim=0) for columns in groups]
    inner = [F.silu(gate) * up for gate, up in halves]
    if x.shape[0] <= _FEWEST_ROWS:  # as columns of a row-major tensor, which is what is fast there
        inner = [part.mT.contiguous().mT for part in inner]
    return _joined([(down @ part).mT for part in inner])[: x.shape[0]]


def _padded_experts(rows: Tensor, counts: list[int], gate_up: Tensor, down: Tensor) -> Tensor:
    """As `_each_expert`, with every expert's rows padded to the longest group's count."""
    experts, most = len(counts), max(counts)
    slots = torch.tensor(
        [expert * most + row for expert, count in enumerate(counts) for row in range(count)],
        device=rows.device,
    )
    padded = rows.new_zeros(experts * most, rows.shape[-1]).index_copy(0, slots, rows)
    # Weights first, as in `linear`; the tokens stay columns until the end.
    gate, up = (gate_up @ padded.view(experts, most, -1).mT).chunk(2, dim=-2)
    return (down @ (F.silu(gate) * up)).mT.flatten(0, 1)[slots]


def soft_embedding(
    logits: Tensor, table: Tensor, *, temperature: float = 1.0, top_k: int | None = None
) -> Tensor:
    """z = sum_v softmax(logits / temperature)_v table[v]: the expected input embedding.

    logits [..., V] float32 (the mask token's already -inf), table [V, d]; returns [..., d] in
    float32. With `top_k` only that many tokens count, renormalised.
    """
    if top_k is not None and top_k < logits.shape[-1]:
        values, ids = logits.topk(top_k, dim=-1)
        probabilities = (values / temperature).softmax(-1)
        return (probabilities[..., None, :] @ table[ids].float()).squeeze(-2)
    probabilities = (logits / temperature).softmax(-1)
    return (probabilities.to(table.dtype) @ table).float()
