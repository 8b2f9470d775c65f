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

from engine.decode.expert_stacks import expert_stacks, joined_shared
from engine.kernels import triton_attention, triton_norm, triton_qkv, triton_router
from engine.kernels.expert_memory import Buffers, SharedExpert
from engine.kernels.launch import Launch
from engine.kernels.plans import Capability, expert_plan, joins_shared, linear_plan
from engine.kernels.triton_experts import expert_launches
from engine.kernels.triton_linear import linear_launches
from engine.kernels.triton_norm import Pairs
from engine.kernels.triton_pointwise import activate_launch, add_scaled_launch, embed_launch
from engine.kernels.triton_round import round_launch
from engine.model.layers import MLP, RMSNorm
from engine.model.lora import LoRALinear
from engine.model.moe import MoE
from engine.model.quantised import NVFP4Experts, NVFP4Linear
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
            yield part, self._norm(layer.input_layernorm, x, normed, added)
            for launch in self._attention(layer, index, shared, scratch, normed, context):
                yield part, launch
            yield part, self._norm(layer.post_attention_layernorm, x, normed, (context,))
            added, own = self._mlp(layer.mlp, normed)
            for launch in own:
                yield part, launch
        yield "once", self._norm(model.model.norm, x, normed, added)
        for launch in self._linear("head", model.lm_head, normed, logits):
            yield "once", launch

    def adapter(self, module: ResidualAdapter, z: Tensor, out: Tensor) -> list[Launch]:
        """g(z) of z [rows, d] in the model's dtype."""
        launches, x = [], z
        if module.norm is not None:
            x = self._new(z.shape[1])
            launches.append(self._norm(module.norm, z, x, ()))
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

    def _norm(self, module: RMSNorm, x: Tensor, out: Tensor, added: tuple[Added, ...]) -> Launch:
        """The norm of x + added, and the sum back into x."""
        first, second = (*added, None, None)[:2]
        assert not isinstance(second, Pairs)
        total = None if first is None else x
        return triton_norm.norm_launch(
            x, module.weight, module.eps, out, added=first, also=second, total=total
        )

    def _attention(
        self, layer: Layer, index: int, shared: Shared, scratch: triton_attention.Scratch,
        x: Tensor, out: Tensor,
    ) -> Iterator[Launch]:  # fmt: skip
        module, config = layer.attention, self._config
        heads, size = config.num_attention_heads, config.head_dim
        qkv, mixed = self._new(config.qkv_size), self._new(heads * size)
        q = mixed.new_empty(heads, self._rows, size)
        keys, values = shared.keys[index], shared.values[index]
        *before, product = self._linear("qkv", module.query_key_value, x, qkv)
        store = triton_qkv.store_launch(
            qkv, module.query_layernorm.weight, module.key_layernorm.weight, shared.cos, shared.sin,
            shared.start, keys, values, q, eps=module.eps,
        )  # fmt: skip
        yield from before
        yield from triton_qkv.split_linear_launches(product, store)
        yield triton_attention.open_launch(
            q, keys, values, shared.start, scratch, mixed, block_length=shared.tokens.shape[1]
        )
        yield from self._linear("attention_dense", module.dense, mixed, out)

    def _mlp(self, module: nn.Module, x: Tensor) -> tuple[tuple[Added, ...], list[Launch]]:
        """What is to be added to the hidden state (their sum is), and what computes it."""
        if isinstance(module, MLP):
            out = self._new(x.shape[1])
            return (out,), list(self._dense("mlp", module, x, out))
        assert isinstance(module, MoE)
        experts: nn.Module = module.experts
        rounded = isinstance(experts, NVFP4Experts) and experts.quantize_inputs
        joins = joins_shared(self._capability, rounded=rounded)
        beside = joined_shared(module) if joins else None
        pairs, launches = self._routed(module, x, beside)
        if module.shared_experts is None or beside is not None:
            return (pairs,), launches
        out = self._new(x.shape[1])
        return (pairs, out), launches + list(self._dense("shared", module.shared_experts, x, out))

    def _dense(self, label: str, module: MLP, x: Tensor, out: Tensor) -> Iterator[Launch]:
        width = _outputs(module.gate_proj)
        gate, up, hidden = (self._new(width) for _ in range(3))
        yield from self._linear(f"{label}_gate", module.gate_proj, x, gate)
        yield from self._linear(f"{label}_up", module.up_proj, x, up)
        yield activate_launch(gate, up, hidden, "silu")
        yield from self._linear(f"{label}_down", module.down_proj, hidden, out)

    def _routed(
        self, module: MoE, x: Tensor, beside: SharedExpert | None
    ) -> tuple[Pairs, list[Launch]]:
        """The router, and its experts' products (with those of the shared one, where it is laid
        out beside them), not yet summed."""
        config = self._config
        top_k = config.num_experts_per_tok + (beside is not None)
        ids = self._new(top_k, dtype=torch.int64)
        weights = self._new(top_k, dtype=torch.float32)
        stacks = expert_stacks(module, joined=beside is not None)
        scaled, width = stacks.x_scale is not None, config.moe_intermediate_size
        plan = expert_plan(
            self._capability, None if stacks.packed else self._dtype, self._rows * top_k,
            config.num_experts, rounded=scaled,
        )  # fmt: skip
        experts = config.num_experts + (beside is not None)
        buffers = Buffers.empty(x, top_k, experts, width, plan, scaled=scaled)
        route = triton_router.route_launch(
            x, module.gate.weight, module.gate.expert_bias, ids, weights, n_group=config.n_group,
            topk_group=config.topk_group, scale=config.routed_scaling_factor,
            joined=beside is not None, slots=buffers.slots,
        )  # fmt: skip
        launches = [route]
        if stacks.x_scale is not None and buffers.x is not None:
            launches.append(round_launch(x, stacks.x_scale, buffers.x))
        launches += expert_launches(
            x, stacks.gate_up, stacks.down, plan, buffers, packed=stacks.packed, width=width,
            x_scale=stacks.x_scale, h_scale=stacks.h_scale, beside=beside,
        )  # fmt: skip
        return Pairs(buffers.rows, weights, beside is not None), launches

    def _linear(self, label: str, module: nn.Module, x: Tensor, out: Tensor) -> Iterator[Launch]:
        """out = module(x), for any linear layer there is; `label` goes before the names."""
        if isinstance(module, LoRALinear):
            yield from self._linear(label, module.base, x, out)
            low, term = self._new(module.lora_A.out_features), self._new(out.shape[1])
            yield from self._linear(f"{label}_lora_a", module.lora_A, x, low)
            yield from self._linear(f"{label}_lora_b", module.lora_B, low, term)
            yield add_scaled_launch(out, term, module.scale)
            return
        rows = out.shape[1]
        if isinstance(module, NVFP4Linear):
            scale = module.input_scale if module.quantize_inputs else None
            plan = linear_plan(self._capability, None, self._rows, rows, rounded=scale is not None)
            launches = linear_launches(
                x, module.packed, plan, out, scales=module.scales.view(torch.uint8),
                alpha=module.alpha, x_scale=scale,
            )  # fmt: skip
        else:
            assert isinstance(module, nn.Linear)
            plan = linear_plan(self._capability, self._dtype, self._rows, rows)
            launches = linear_launches(x, module.weight, plan, out)
        for launch in launches:
            yield replace(launch, name=f"{label}_{launch.name}")


def _outputs(module: nn.Module) -> int:
    base = module.base if isinstance(module, LoRALinear) else module
    assert isinstance(base, nn.Linear | NVFP4Linear)
    return base.out_features
