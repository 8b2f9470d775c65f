"""The kernels of one forward of a model at its real shapes, without its weights: for compiling
them offline, and for counting what they read and multiply.

Shapes are tensors on torch's meta device, given to the code that launches the kernels. Listed are
the matrix products and what belongs to them: the kernels that this program has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.kernels import tiling
from engine.kernels.launch import Launch
from engine.kernels.plans import Capability, Plan, expert_plan, linear_plan
from engine.kernels.tiling import PER_BYTE, PER_SCALE
from engine.kernels.triton_experts import ExpertWeights, expert_launches
from engine.kernels.triton_linear import linear_launches


@dataclass(frozen=True)
class Step:
    """What a forward is asked for: `tokens` positions, meeting `distinct` experts in each layer.

    `packed_linears`: attention, shared experts and dense layers are NVFP4 as the routed experts
    are; the head then too where `packed_head`. `rounded`: activations are NVFP4 as well (W4A4).
    """

    config: ModelConfig
    capability: Capability
    tokens: int
    distinct: float
    rounded: bool
    packed_linears: bool = True
    packed_head: bool = False
    packed_experts: bool = True


@dataclass(frozen=True)
class StepKernel:
    """A kernel and its part of a forward: `count` launches, and all they read, write, multiply.

    `bytes` are those of weights, activations and results, each counted once a launch; `flops` are
    the useful ones, two for each weight and token that meet.
    """

    name: str
    launch: Launch
    count: int
    bytes: float
    flops: float


def expected_distinct(config: ModelConfig, tokens: int) -> float:
    """Experts that a layer meets when every token chooses its own evenly and independently."""
    missed = (1 - config.num_experts_per_tok / config.num_experts) ** tokens
    return config.num_experts * (1 - missed)


def step_kernels(step: Step) -> Iterator[StepKernel]:
    """Of a forward, in no order."""
    config = step.config
    size = config.hidden_size
    moe = config.num_hidden_layers - config.first_k_dense_replace
    yield from _experts(step, moe)
    dense, shared = (
        config.intermediate_size,
        config.num_shared_experts * config.moe_intermediate_size,
    )
    heads = config.num_attention_heads * config.head_dim
    shapes = [
        ("qkv", config.qkv_size, size, config.num_hidden_layers),
        ("attention_dense", size, heads, config.num_hidden_layers),
        ("mlp_up", dense, size, 2 * config.first_k_dense_replace),
        ("mlp_down", size, dense, config.first_k_dense_replace),
        ("shared_up", shared, size, 2 * moe),
        ("shared_down", size, shared, moe),
    ]
    for name, rows, columns, count in shapes:
        if count and rows and columns:
            yield from _linear(step, name, rows, columns, count, packed=step.packed_linears)
    yield from _linear(step, "head", config.vocab_size, size, 1, packed=step.packed_head)


def _meta(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _packed(plan: Plan, *shape: int, parts: int = 1) -> tuple[Tensor, Tensor]:
    """Codes and scales of a weight of this shape, tiled."""
    *lead, columns = shape
    codes, scales = (
        tiling.tiled(
            _meta(*lead, columns // per, dtype=torch.uint8),
            plan.tile, per_element=per, parts=parts,
        )
        for per in (PER_BYTE, PER_SCALE)
    )  # fmt: skip
    return codes, scales


def _stack(step: Step, plan: Plan, rows: int, columns: int, parts: int) -> ExpertWeights:
    experts = step.config.num_experts
    if not step.packed_experts:
        weight = _meta(experts, rows, columns, dtype=torch.bfloat16)
        return ExpertWeights.plain(tiling.tiled(weight, plan.tile, parts=parts))
    codes, scales = _packed(plan, experts, rows, columns, parts=parts)
    return ExpertWeights(codes, scales, _meta(experts, parts, dtype=torch.float32))


def _experts(step: Step, layers: int) -> Iterator[StepKernel]:
    config, tokens = step.config, step.tokens
    size, width, top_k = (
        config.hidden_size,
        config.moe_intermediate_size,
        config.num_experts_per_tok,
    )
    pairs = tokens * top_k
    dtype = None if step.packed_experts else torch.bfloat16
    rounded = step.rounded and step.packed_experts
    plan = expert_plan(step.capability, dtype, pairs, config.num_experts, rounded=rounded)
    scale = _meta(dtype=torch.float32) if rounded else None
    x = _meta(tokens, size, dtype=torch.bfloat16)
    launches = expert_launches(
        x, _meta(tokens, top_k, dtype=torch.int64), _meta(tokens, top_k, dtype=torch.float32),
        _stack(step, plan, 2 * width, size, 2), _stack(step, plan, size, width, 1), plan,
        torch.empty_like(x), packed=step.packed_experts, width=width, x_scale=scale, h_scale=scale,
    )  # fmt: skip
    weight = tiling.NVFP4_BYTES if step.packed_experts else 2.0
    narrow = tiling.NVFP4_BYTES if rounded and plan.native else 2.0
    matrix = size * width
    moved = (
        8 * pairs + 8 * pairs + (tokens * size * (2 + narrow) if rounded else 0),
        step.distinct * 2 * matrix * weight + pairs * size * narrow + pairs * width * narrow,
        step.distinct * matrix * weight + pairs * width * narrow + pairs * size * 2,
        pairs * (size * 2 + 4) + tokens * size * 2,
    )
    useful = (0.0, 4.0 * pairs * matrix, 2.0 * pairs * matrix, 2.0 * pairs * size)
    for launch, each, flops in zip(launches, moved, useful, strict=True):
        yield StepKernel(launch.name, launch, layers, layers * each, layers * flops)


def _linear(
    step: Step, name: str, rows: int, columns: int, count: int, *, packed: bool
) -> Iterator[StepKernel]:
    tokens = step.tokens
    rounded = step.rounded and packed
    dtype = None if packed else torch.bfloat16
    plan = linear_plan(step.capability, dtype, tokens, rows, rounded=rounded)
    x = _meta(tokens, columns, dtype=torch.bfloat16)
    out = _meta(tokens, rows, dtype=torch.bfloat16)
    if packed:
        codes, scales = _packed(plan, rows, columns)
        launches = linear_launches(
            x, codes, plan, out, scales=scales, alpha=_meta(dtype=torch.float32),
            x_scale=_meta(dtype=torch.float32) if rounded else None,
        )  # fmt: skip
    else:
        weight = tiling.tiled(_meta(rows, columns, dtype=torch.bfloat16), plan.tile)
        launches = linear_launches(x, weight, plan, out)
    narrow = tiling.NVFP4_BYTES if rounded and plan.native else 2.0
    *before, product = launches
    for launch in before:
        moved = count * tokens * columns * (2 + narrow)
        yield StepKernel(f"{name}_{launch.name}", launch, count, moved, 0.0)
    moved = rows * columns * (tiling.NVFP4_BYTES if packed else 2.0)
    moved += tokens * (columns * narrow + rows * 2)
    flops = 2.0 * tokens * rows * columns
    yield StepKernel(f"{name}_{product.name}", product, count, count * moved, count * flops)
