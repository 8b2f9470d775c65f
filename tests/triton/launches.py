"""What a step of LLaDA2.1-mini launches beside the matrix products, 32 and 64 wide, and a prefill:
built from tensors on the meta device, which have shapes and no memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.kernels import (
    triton_attention,
    triton_loop,
    triton_norm,
    triton_pointwise,
    triton_qkv,
    triton_router,
)
from engine.kernels.launch import Launch
from engine.kernels.loop_state import LoopState, Mailbox
from engine.kernels.triton_sampling import Sampler
from engine.kernels.triton_slots import Slots
from engine.kernels.triton_soft import SoftEmbedding
from engine.kernels.triton_unmask import STATE, Block, BlockRules, step_launch

VOCABULARY, HIDDEN, HEADS, KV_HEADS, SIZE, CONTEXT = 157_184, 2048, 16, 4, 128, 32_768
MASK = 156_895


def blank(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def numbers(*shape: int) -> Tensor:
    return blank(*shape, dtype=torch.float32)


def ids(*shape: int) -> Tensor:
    return blank(*shape, dtype=torch.int64)


def step(width: int) -> Iterator[Launch]:
    """What a step of `width` positions launches, greedy and sampled, z whole and top-k."""
    x = blank(width, HIDDEN)
    yield triton_norm.norm_launch(x, blank(HIDDEN), 1e-6, x)
    yield triton_norm.norm_launch(x, blank(HIDDEN), 1e-6, x, added=x, also=x, total=x)
    start, q = blank(1, dtype=torch.int32), blank(HEADS, width, SIZE)
    tables, cache = blank(CONTEXT, SIZE // 2), blank(KV_HEADS, CONTEXT, SIZE)
    qkv = blank(width, (HEADS + 2 * KV_HEADS) * SIZE)
    norms = blank(SIZE)
    yield triton_qkv.store_launch(
        qkv, norms, norms, tables, tables, start, cache, cache, q, eps=1e-6
    )
    scratch = triton_attention.Scratch(HEADS * width, SIZE, q.device)
    yield triton_attention.open_launch(q, cache, cache, start, scratch, q, block_length=32)
    slots = Slots.empty(9 * width, 257, 16, q.device)
    limits: dict[str, Any] = {"n_group": 8, "topk_group": 4, "scale": 2.5}
    for top_k, joined, listed in ((8, False, None), (9, True, slots)):
        yield triton_router.route_launch(
            x, blank(256, HIDDEN), numbers(256), ids(width, top_k), numbers(width, top_k), **limits,
            joined=joined, slots=listed,
        )  # fmt: skip
    logits, states = blank(width, VOCABULARY), ids(width // 32, len(STATE))
    config = DecodeConfig(temperature=0.7, top_k=40, top_p=0.9, seed=1)
    yield from Sampler(config, width, VOCABULARY, MASK, states).launches(logits)
    for top_k in (None, 64):
        soft = SoftEmbedding(width, blank(VOCABULARY, HIDDEN), top_k=top_k, mask_id=MASK)
        yield from soft.launches(logits, numbers(width), None)


def others() -> Iterator[Launch]:
    """A block's decisions, and a prefill's attention."""
    flags = blank(32, dtype=torch.int32)
    block = Block(ids(32), flags, flags, flags, ids(len(STATE)))
    rules = BlockRules(numbers(2), ids(2), ids(2), ids(1), MASK, True)
    yield step_launch(block, ids(32), numbers(32), ids(32), numbers(32), rules)
    state = LoopState.empty(32, ids(1).device)
    box = Mailbox.empty(32, 64, pinned=False)
    yield triton_loop.advance_launch(state, box, rules, residual=True)
    x, wide = blank(32, HIDDEN), blank(32, 1024)
    yield triton_pointwise.embed_launch(
        ids(32), blank(VOCABULARY, HIDDEN), x, undecided=flags, states=ids(5), residual=x, alpha=0.5
    )
    for gate, kind in ((wide[:, :512], "silu"), (None, "gelu")):
        half = blank(32, 512)
        yield triton_pointwise.activate_launch(gate, wide[:, 512:], half, kind)
    yield triton_pointwise.add_scaled_launch(x, x, 2.0)
    q, cache = blank(HEADS, 512, SIZE), blank(KV_HEADS, 1024, SIZE)
    scratch = triton_attention.Scratch(HEADS * 512, SIZE, q.device, splits=1)
    yield triton_attention.open_launch(
        q, cache, cache, blank(1, dtype=torch.int32), scratch, q, block_length=32
    )
