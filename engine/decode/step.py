"""All that a denoising step launches, at a real model's shapes and without its weights: for
compiling it offline, and for counting what it reads and multiplies.

The model lies on torch's meta device, which has shapes and no memory, and is given to the code that
launches the kernels: so what is listed is what runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import DecodeConfig, ModelConfig
from engine.decode.forward_launches import ForwardLaunches, Part, Shared
from engine.kernels.bounds import CONTEXT, TOP_K
from engine.kernels.launch import Launch
from engine.kernels.loop_state import LoopState, Mailbox
from engine.kernels.plans import Capability
from engine.kernels.triton_loop import advance_launch
from engine.kernels.triton_sampling import Sampler
from engine.kernels.triton_soft import SoftEmbedding
from engine.kernels.triton_unmask import BlockRules
from engine.model.moe import MoE
from engine.model.quantised import NVFP4Experts, NVFP4Linear, packed_modules
from engine.model.residual import ResidualAdapter
from engine.model.tiles import tile_weights
from engine.model.transformer import LLaDA2Model

_BLOCK = 32


@dataclass(frozen=True)
class Step:
    """What a forward is asked for: `tokens` positions, meeting `distinct` experts in each layer.

    `packed_linears`: attention, shared experts and dense layers are NVFP4 as the routed experts
    are; the head then too where `packed_head`. `rounded`: activations are NVFP4 as well (W4A4).
    `tiles`: packed weights lie as the kernels read them best. `z`: the residual context, "none",
    "whole" (over the vocabulary) or "top-k", with the adapter that finetuning makes.
    """

    config: ModelConfig
    capability: Capability
    tokens: int
    distinct: float
    rounded: bool
    packed_linears: bool = True
    packed_head: bool = False
    packed_experts: bool = True
    tiles: bool = True
    z: str = "none"


@dataclass(frozen=True)
class StepKernel:
    """A kernel and its part of a step: `count` launches in the `part` of a forward that they belong
    to, and all they read, write, multiply.

    `bytes` are those of weights, activations and results, each counted once a launch; `flops` are
    the useful ones of the products, two for each weight and token that meet.
    """

    part: Part
    name: str
    launch: Launch
    count: int
    bytes: float
    flops: float


def expected_distinct(config: ModelConfig, tokens: int) -> float:
    """Experts that a layer meets when every token chooses its own evenly and independently."""
    missed = (1 - config.num_experts_per_tok / config.num_experts) ** tokens
    return config.num_experts * (1 - missed)


def step_kernels(step: Step) -> list[StepKernel]:
    """Of a greedy step, in the order of their first launch: the forward, its predictions, its
    decisions, and the residual context for the next one."""
    listed: dict[tuple[Part, str], StepKernel] = {}
    for part, launch in _launches(step):
        key = part, launch.name
        one = StepKernel(
            part, launch.name, launch, 1, _moved(step, launch), _multiplied(step, launch)
        )
        before = listed.get(key)
        if before is not None:
            one = replace(
                before, count=before.count + 1, bytes=before.bytes + one.bytes,
                flops=before.flops + one.flops,
            )  # fmt: skip
        listed[key] = one
    return list(listed.values())


def _meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def blank_model(step: Step) -> LLaDA2Model:
    """The step's model without memory."""
    with torch.device("meta"):
        model = LLaDA2Model(step.config).to(torch.bfloat16)
        for layer in model.model.layers:
            mlp = layer.mlp
            if isinstance(mlp, MoE) and step.packed_experts:
                mlp.experts = NVFP4Experts(step.config, has_input_scales=step.rounded)  # type: ignore[assignment]
        for name, module in list(model.named_modules()):
            packed = step.packed_head if name == "lm_head" else step.packed_linears
            if isinstance(module, torch.nn.Linear) and packed:
                columns, rows = module.in_features, module.out_features
                parent, _, child = name.rpartition(".")
                linear = NVFP4Linear(columns, rows, has_input_scale=step.rounded)
                setattr(model.get_submodule(parent), child, linear)
    for packed_module in packed_modules(model):
        packed_module.quantize_inputs = step.rounded
    if step.tiles:
        tile_weights(model, step.capability)
    return model


def _launches(step: Step) -> Iterator[tuple[Part, Launch]]:
    config, rows = step.config, step.tokens
    blocks = -(-rows // _BLOCK)
    state = LoopState.empty(_BLOCK, torch.device("meta"))
    cache = (config.num_key_value_heads, CONTEXT + rows, config.head_dim)
    layers = range(config.num_hidden_layers)
    residual = None if step.z == "none" else _meta(_BLOCK, config.hidden_size)
    cos, sin = (_meta(CONTEXT + rows, config.rotary_dim) for _ in range(2))
    shared = Shared(
        state.tokens, state.undecided, state.states, state.flag("start"),
        [_meta(*cache) for _ in layers], [_meta(*cache) for _ in layers], cos, sin, residual,
    )  # fmt: skip
    logits = _meta(rows, config.vocab_size)
    model = blank_model(step)
    yield from ForwardLaunches(model, rows, step.capability).parts(shared, logits)
    greedy = DecodeConfig(mask_id=0)
    sampler = Sampler(greedy, rows, config.vocab_size, 0, state.states[:blocks])
    for launch in sampler.launches(logits):
        yield "once", launch
    rules = BlockRules.of(greedy, (), 0, torch.device("meta"), 8)
    mailbox = Mailbox.empty(_BLOCK, _BLOCK, pinned=False)
    yield "once", advance_launch(state, mailbox, rules, residual=residual is not None)
    if residual is not None:
        yield from _residual(step, model, residual)


def _residual(step: Step, model: LLaDA2Model, out: Tensor) -> Iterator[tuple[Part, Launch]]:
    """z for a block, and what the adapter makes of it."""
    config, table = step.config, model.embedding_table
    top_k = TOP_K if step.z == "top-k" else None
    soft = SoftEmbedding(_BLOCK, table, top_k=top_k, mask_id=0, dtype=table.dtype)
    sums = _meta(_BLOCK, dtype=torch.float32)
    with torch.device("meta"):
        adapter = ResidualAdapter(config.hidden_size, config.hidden_size, config.rms_norm_eps)
    launches = soft.launches(_meta(_BLOCK, config.vocab_size), sums, sums)
    forward = ForwardLaunches(model, _BLOCK, step.capability)
    for launch in launches + forward.adapter(adapter.to(table.dtype), soft.out, out):
        yield "residual context", launch


# Of these only rows are read or written, as many as there are tokens; by how a name begins.
_BY_ROW = {"qkv": ("keys", "values", "cos", "sin"), "embed": ("table",), "soft_gather": ("table",)}


def _moved(step: Step, launch: Launch) -> float:
    """Bytes that a launch must move: its tensors, each once; of a stack of experts those met."""
    if launch.name == "advance":
        return 0.0  # some numbers
    spared = next((own for name, own in _BY_ROW.items() if launch.name.startswith(name)), ())
    seen: dict[int, float] = {}
    for name, value in launch.arguments.items():
        if isinstance(value, Tensor) and name not in spared:
            stack = value.shape[:1] == (step.config.num_experts,) and value.dim() > 2
            met = step.distinct + launch.constants.get("SHARED", 0)
            share = met / step.config.num_experts if stack else 1.0
            seen[id(value)] = share * value.nbytes
    return sum(seen.values())


def _multiplied(step: Step, launch: Launch) -> float:
    sizes = launch.constants
    beside = sizes.get("SHARED", 0) or sizes.get("PLAIN", 0)
    pairs = step.tokens * (step.config.num_experts_per_tok + beside)
    if "linear_" in launch.name:
        return 2.0 * step.tokens * sizes["N"] * sizes["K"]
    if launch.name.startswith("expert_gate_up"):
        return 4.0 * pairs * sizes["I"] * sizes["K"]
    if launch.name.startswith("expert_down"):
        return 2.0 * pairs * sizes["N"] * sizes["K"]
    if launch.name == "router":
        return 2.0 * step.tokens * sizes["EXPERTS"] * sizes["SIZE"]
    if launch.name == "soft_mix":
        return 2.0 * _BLOCK * step.config.vocab_size * sizes["SIZE"]
    if launch.name == "attention":
        heads = step.config.num_attention_heads
        return 4.0 * heads * step.tokens * (CONTEXT + step.tokens) * step.config.head_dim
    return 0.0
