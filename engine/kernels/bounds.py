"""How fast a card could be at best: its memory's speed over the bytes that a forward must read.

No triton and no GPU is needed. What is counted are the weights, each once, and the keys and values
of a context: what stays in a card's caches (activations, results) costs it no memory traffic.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.config import ModelConfig
from engine.kernels.tiling import NVFP4_BYTES

BANDWIDTH: dict[str, int] = {
    "RTX 5090": 1792,
    "RTX 5090 Laptop": 896,
    "RTX 4090": 1008,
    "H100 SXM": 3350,
    "H200": 4800,
    "B200": 8000,
}
"""GB/s of a card's memory, by NVIDIA's data sheets."""

DISTINCT = (64, 96, 128, 163, 256)
"""Experts a layer meets, for which bounds are given; 163 is what 32 independent tokens meet among
LLaDA2.1-mini's 256 (`step.expected_distinct`)."""

CONTEXT = 1024
"""Tokens whose keys and values a forward reads."""


TPF = (5.6, 8.5, 13.1)
"""Tokens a step, for which token rates are given: low, middling and high for LLaDA2.1-mini."""

GOAL = 2788
"""Tokens a second on an RTX 5090 that this program is measured by."""

REACHED = 0.85
"""Of a memory's speed: what good kernels get."""

TOP_K = 64
"""Tokens whose embeddings are read for z where it is cut off."""


@dataclass(frozen=True)
class Measure:
    """What is done to read less. `z`: "none", "whole" (the embedding table, each step) or "top-k";
    `overlap`: a block's last step and the next one's first are one forward of twice the width."""

    name: str
    packed_head: bool = False
    z: str = "whole"
    overlap: bool = False


MEASURES = (
    Measure("z whole, head bf16"),
    Measure("z whole, head NVFP4", packed_head=True),
    Measure("z top-k, head NVFP4", packed_head=True, z="top-k"),
    Measure("z top-k, head NVFP4, overlap", packed_head=True, z="top-k", overlap=True),
    Measure("no z, head NVFP4, overlap", packed_head=True, z="none", overlap=True),
)


@dataclass(frozen=True)
class Bound:
    """Forwards a second on `card` when each layer meets `distinct` experts.

    `with_z`: the embedding table is read too, for z over the whole vocabulary.
    """

    card: str
    gb_per_s: int
    distinct: int
    bytes: float
    forwards_per_s: float
    forwards_per_s_with_z: float


def forward_bytes(
    config: ModelConfig,
    distinct: float,
    *,
    packed_linears: bool = True,
    packed_head: bool = False,
    packed_experts: bool = True,
    context: int = CONTEXT,
) -> float:
    """Bytes that a forward reads; what is not packed is bf16."""
    size, layers = config.hidden_size, config.num_hidden_layers
    moe = layers - config.first_k_dense_replace
    expert = 3 * size * config.moe_intermediate_size
    linear = NVFP4_BYTES if packed_linears else 2
    attention = size * (config.qkv_size + config.num_attention_heads * config.head_dim)
    dense = 3 * size * config.intermediate_size * config.first_k_dense_replace
    shared = moe * config.num_shared_experts * expert
    keys = 2 * 2 * layers * config.num_key_value_heads * config.head_dim
    return (
        moe * distinct * expert * (NVFP4_BYTES if packed_experts else 2)
        + (layers * attention + dense + shared) * linear
        + 2 * moe * size * config.num_experts
        + size * config.vocab_size * (NVFP4_BYTES if packed_head else 2)
        + keys * context
    )


def bounds(config: ModelConfig, **packed: bool) -> Iterator[Bound]:
    """Of every card and every number of DISTINCT experts that `config` has."""
    table = 2 * config.hidden_size * config.vocab_size
    for card, speed in BANDWIDTH.items():
        for distinct in DISTINCT:
            if distinct > config.num_experts:
                continue
            read = forward_bytes(config, distinct, **packed)
            rate, with_z = (speed * 1e9 / n for n in (read, read + table))
            yield Bound(card, speed, distinct, read, rate, with_z)


def token_bytes(config: ModelConfig, distinct: float, tpf: float, measure: Measure) -> float:
    """Bytes that are read for a token, in blocks of 32, where a step yields `tpf` tokens and each
    layer of a forward over one block meets `distinct` experts.

    A forward over two blocks meets those of both, which are taken to choose independently.
    """
    steps = _BLOCK / tpf
    one = _forward(config, distinct, measure)
    if not measure.overlap:
        return steps * one / _BLOCK
    missed = 1 - distinct / config.num_experts
    two = _forward(config, config.num_experts * (1 - missed**2), measure)
    # One wide forward takes the place of the block's last step and of the next block's first.
    return (max(steps - 2, 0) * one + two) / _BLOCK


def tokens_per_s(
    config: ModelConfig, card: str, distinct: float, tpf: float, measure: Measure
) -> float:
    """Tokens a second at most, at the whole speed of the card's memory."""
    return BANDWIDTH[card] * 1e9 / token_bytes(config, distinct, tpf, measure)


def least_tpf(config: ModelConfig, card: str, distinct: float, measure: Measure) -> float | None:
    """Tokens a step from which GOAL tokens a second are possible at REACHED of the memory's speed;
    None: at no number up to a block a step."""
    for tenth in range(10, 10 * _BLOCK + 1):
        rate = REACHED * tokens_per_s(config, card, distinct, tenth / 10, measure)
        if rate >= GOAL:
            return tenth / 10
    return None


_BLOCK = 32


def _forward(config: ModelConfig, distinct: float, measure: Measure) -> float:
    read = forward_bytes(config, distinct, packed_head=measure.packed_head)
    embeddings = {"none": 0, "whole": config.vocab_size, "top-k": TOP_K * _BLOCK}[measure.z]
    return read + 2 * config.hidden_size * embeddings
