"""A model's forward over one or two open blocks as a list of launches on memory that stays.

What `engine/model` computes with modules, said again for a loop in which nothing may be allocated:
every tensor a launch names is made here, once. The two must agree, which a test holds them to.

Left out: adapters that are wider than the model (in training); `supported` says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from engine.decode.expert_stacks import expert_stacks, joined_shared, same_scale
from engine.kernels import triton_attention, triton_norm, triton_qkv, triton_router
from engine.kernels.expert_memory import Beside, Buffers, PlainExpert, SharedExpert
from engine.kernels.launch import Launch
from engine.kernels.plans import (
    Capability,
    expert_plan,
    has_fp4_units,
    linear_plan,
)
from engine.kernels.tiling import PER_SCALE
from engine.kernels.triton_experts import expert_launches
from engine.kernels.triton_linear import linear_launch
from engine.kernels.triton_norm import Pairs
from engine.kernels.triton_pointwise import activate_launch, add_scaled_launch, embed_launch
from engine.kernels.triton_round import Rounded, Rounding, round_launch
from engine.model.layers import MLP, RMSNorm
from engine.model.lora import LoRALinear
from engine.model.moe import MoE
from engine.model.quantised import NVFP4Linear
from engine.model.residual import ResidualAdapter
from engine.model.transformer import Layer, LLaDA2Model

Part = Literal["once", "dense layer", "expert layer", "residual context"]
"""What of a step a launch belongs to."""

Added = Tensor | Pairs

_DTYPES = (torch.bfloat16, torch.float32)


def supported(model: LLaDA2Model) -> bool:
    """Whether every part of `model` has launches: all its floating weights are of one dtype."""
    routers = {id(p) for n, p in model.named_parameters() if n.endswith("mlp.gate.weight")}
    kinds = {p.dtype for p in model.parameters() if id(p) not in routers}
    return len(kinds) == 1 and kinds <= set(_DTYPES)


@dataclass(frozen=True)
class Shared:
    """What both widths of forward use: the open blocks' rows (`LoopState`), position of the first
    on the device (`start` int32 [1]), keys and values per layer, rotary tables [capacity, R], and
    the residual context [B, d] where the model has an adapter."""

    tokens: Tensor
    undecided: Tensor
    states: Tensor
    start: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    cos: Tensor
    sin: Tensor
    residual: Tensor | None


class ForwardLaunches:
    """Builds the launches for `rows` positions of `model` on cards of `capability`."""

    def __init__(self, model: LLaDA2Model, rows: int, capability: Capability) -> None:
        self._model, self._rows, self._capability = model, rows, capability
        self._config = model.config
        table = model.embedding_table
        self._dtype, self._device = table.dtype, table.device

    def forward(self, shared: Shared, logits: Tensor) -> list[Launch]:
        """From the blocks' tokens to logits [rows, V], in the model's dtype."""
        return [launch for _, launch in self.parts(shared, logits)]

    def parts(self, shared: Shared, logits: Tensor) -> Iterator[tuple[Part, Launch]]:
        """The same, each with what it belongs to."""
        model, size = self._model, self._config.hidden_size
        x, normed, context = (self._new(size) for _ in range(3))
        narrow = self._rows == shared.tokens.shape[1]
        embed = embed_launch(
            shared.tokens.flatten()[: self._rows], model.embedding_table, x,
            undecided=shared.undecided.flatten()[: self._rows], states=shared.states.flatten(),
            residual=shared.residual if narrow else None, alpha=model.residual.alpha,
        )  # fmt: skip
        yield "once", embed
        added: tuple[Added, ...] = ()
        scratch = triton_attention.Scratch(
            self._config.num_attention_heads * self._rows, self._config.head_dim, self._device
        )
        for index, layer in enumerate(model.model.layers):
            assert isinstance(layer, Layer)
            part: Part = "expert layer" if isinstance(layer.mlp, MoE) else "dense layer"
            rounding, launches = self._attention(layer, index, shared, scratch, normed, context)
            yield part, self._norm(layer.input_layernorm, x, normed, added, rounding)
            for launch in launches:
                yield part, launch
            added, rounding, launches = self._mlp(layer.mlp, normed)
            norm = layer.post_attention_layernorm
            # The router reads what is not rounded.
            yield part, self._norm(norm, x, normed, (context,), rounding, keep=True)
            for launch in launches:
                yield part, launch
        rounding = self._rounding(model.lm_head, x)
        yield "once", self._norm(model.model.norm, x, normed, added, rounding)
        for launch in self._linear("head", model.lm_head, normed, logits, rounding):
            yield "once", launch

    def adapter(self, module: ResidualAdapter, z: Tensor, out: Tensor) -> list[Launch]:
        """g(z) of z [rows, d] in the model's dtype."""
        launches, x = [], z
        if module.norm is not None:
            x = self._new(z.shape[1])
            launches.append(self._norm(module.norm, z, x, (), None))
        if module.up_proj is not None:
            width = module.up_proj.weight.shape[0]
            up, hidden, gate = self._new(width), self._new(width), None
            launches += self._linear("adapter_up", module.up_proj, x, up)
            if module.gate_proj is not None:
                gate = self._new(width)
                launches += self._linear("adapter_gate", module.gate_proj, x, gate)
            launches.append(activate_launch(gate, up, hidden, module.activation))
            x = hidden
        return launches + list(self._linear("adapter_down", module.down_proj, x, out))

    def _new(self, *columns: int, dtype: torch.dtype | None = None) -> Tensor:
        kind = self._dtype if dtype is None else dtype
        return torch.empty(self._rows, *columns, dtype=kind, device=self._device)

    def _norm(
        self, module: RMSNorm, x: Tensor, out: Tensor, added: tuple[Added, ...],
        rounding: Rounding | None, *, keep: bool = False,
    ) -> Launch:  # fmt: skip
        """The norm of x + added, and the sum back into x. What is rounded is not written to `out`
        unless `keep`."""
        first, second = (*added, None, None)[:2]
        assert not isinstance(second, Pairs)
        total = None if first is None else x
        return triton_norm.norm_launch(
            x, module.weight, module.eps, out, added=first, also=second, total=total,
            rounding=rounding, keep=keep or rounding is None,
        )  # fmt: skip

    def _rounding(self, module: nn.Module, like: Tensor) -> Rounding | None:
        """To what the input of a linear layer is to be rounded, if it is, by what makes it."""
        if not isinstance(module, NVFP4Linear) or not module.quantize_inputs:
            return None
        if module.input_scale is None:
            return None
        native = has_fp4_units(self._capability)
        into = Rounded.empty(self._rows, module.in_features, like, native=native)
        return Rounding(module.input_scale, into)

    def _attention(
        self, layer: Layer, index: int, shared: Shared, scratch: triton_attention.Scratch,
        x: Tensor, out: Tensor,
    ) -> tuple[Rounding | None, list[Launch]]:  # fmt: skip
        """To what x is to be rounded, and what computes out."""
        module, config = layer.attention, self._config
        heads, size = config.num_attention_heads, config.head_dim
        qkv, mixed = self._new(config.qkv_size), self._new(heads * size)
        q = mixed.new_empty(heads, self._rows, size)
        keys, values = shared.keys[index], shared.values[index]
        rounding = self._rounding(module.query_key_value, x)
        *launches, product = self._linear("qkv", module.query_key_value, x, qkv, rounding)
        store = triton_qkv.store_launch(
            qkv, module.query_layernorm.weight, module.key_layernorm.weight, shared.cos, shared.sin,
            shared.start, keys, values, q, eps=module.eps,
        )  # fmt: skip
        launches += triton_qkv.split_linear_launches(product, store)
        # A scale's codes must not be of two heads.
        narrow = self._rounding(module.dense, x) if size % PER_SCALE == 0 else None
        attention = triton_attention.open_launch(
            q, keys, values, shared.start, scratch, mixed, block_length=shared.tokens.shape[1],
            rounding=narrow,
        )  # fmt: skip
        dense = self._linear("attention_dense", module.dense, mixed, out, narrow)
        return rounding, [*launches, attention, *dense]

    def _mlp(
        self, module: nn.Module, x: Tensor
    ) -> tuple[tuple[Added, ...], Rounding | None, list[Launch]]:
        """What is to be added to the hidden state (their sum is), to what x is to be rounded, and
        what computes it."""
        if isinstance(module, MLP):
            out = self._new(x.shape[1])
            gate, up = module.gate_proj, module.up_proj
            rounding, other = self._rounding(gate, x), self._rounding(up, x)
            if rounding and (not other or not same_scale(rounding.scale, other.scale)):
                rounding = None
            return (out,), rounding, list(self._dense("mlp", module, x, out, rounding))
        assert isinstance(module, MoE)
        beside = joined_shared(module)
        pairs, rounding, launches = self._routed(module, x, beside)
        if module.shared_experts is None or beside is not None:
            return (pairs,), rounding, launches
        out = self._new(x.shape[1])
        launches += self._dense("shared", module.shared_experts, x, out)
        return (pairs, out), rounding, launches

    def _dense(
        self, label: str, module: MLP, x: Tensor, out: Tensor, rounding: Rounding | None = None
    ) -> Iterator[Launch]:
        """With `rounding`, to which x has been rounded for gate and up."""
        width = _outputs(module.gate_proj)
        gate, up, hidden = (self._new(width) for _ in range(3))
        yield from self._linear(f"{label}_gate", module.gate_proj, x, gate, rounding)
        yield from self._linear(f"{label}_up", module.up_proj, x, up, rounding)
        yield activate_launch(gate, up, hidden, "silu")
        yield from self._linear(f"{label}_down", module.down_proj, hidden, out)

    def _routed(
        self, module: MoE, x: Tensor, beside: Beside | None
    ) -> tuple[Pairs, Rounding | None, list[Launch]]:
        """The router, and its experts' products (with those of the shared one, where it is laid
        out beside them), not yet summed; x is to be rounded as is said."""
        config = self._config
        top_k = config.num_experts_per_tok + (beside is not None)
        ids = self._new(top_k, dtype=torch.int64)
        weights = self._new(top_k, dtype=torch.float32)
        stacks = expert_stacks(module, joined=beside is not None)
        scaled, width = stacks.x_scale is not None, config.moe_intermediate_size
        plan = expert_plan(
            self._capability, None if stacks.packed else self._dtype, self._rows * top_k,
            config.num_experts, rounded=scaled, joined=isinstance(beside, SharedExpert),
        )  # fmt: skip
        experts = config.num_experts + (beside is not None)
        plain = isinstance(beside, PlainExpert)
        buffers = Buffers.empty(x, top_k, experts, width, plan, scaled=scaled, plain=plain)
        route = triton_router.route_launch(
            x, module.gate.weight, module.gate.expert_bias, ids, weights, n_group=config.n_group,
            topk_group=config.topk_group, scale=config.routed_scaling_factor,
            joined=beside is not None, slots=buffers.slots,
        )  # fmt: skip
        products = expert_launches(
            x, stacks.gate_up, stacks.down, plan, buffers, packed=stacks.packed, width=width,
            x_scale=stacks.x_scale, h_scale=stacks.h_scale, beside=beside,
        )  # fmt: skip
        rounding = None
        if stacks.x_scale is not None and buffers.x is not None:
            rounding = Rounding(stacks.x_scale, buffers.x)
        return Pairs(buffers.rows, weights, beside is not None), rounding, [route, *products]

    def _linear(
        self, label: str, module: nn.Module, x: Tensor, out: Tensor,
        rounding: Rounding | None = None,
    ) -> Iterator[Launch]:  # fmt: skip
        """out = module(x), for any linear layer there is; `label` goes before the names. With
        `rounding`, to which x has been rounded before."""
        if isinstance(module, LoRALinear):
            yield from self._linear(label, module.base, x, out)
            low, term = self._new(module.lora_A.out_features), self._new(out.shape[1])
            yield from self._linear(f"{label}_lora_a", module.lora_A, x, low)
            yield from self._linear(f"{label}_lora_b", module.lora_B, low, term)
            yield add_scaled_launch(out, term, module.scale)
            return
        rows = out.shape[1]
        if isinstance(module, NVFP4Linear):
            own = rounding or self._rounding(module, x)
            plan = linear_plan(self._capability, None, self._rows, rows, rounded=own is not None)
            if own is not None and rounding is None:
                yield replace(round_launch(x, own.scale, own.into), name=f"{label}_round")
            product = linear_launch(
                x, module.packed, plan, out, scales=module.scales.view(torch.uint8),
                alpha=module.alpha, rounding=own,
            )  # fmt: skip
        else:
            assert isinstance(module, nn.Linear)
            plan = linear_plan(self._capability, self._dtype, self._rows, rows)
            product = linear_launch(x, module.weight, plan, out)
        yield replace(product, name=f"{label}_{product.name}")


def _outputs(module: nn.Module) -> int:
    base = module.base if isinstance(module, LoRALinear) else module
    assert isinstance(base, nn.Linear | NVFP4Linear)
    return base.out_features
