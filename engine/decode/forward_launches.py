"""A model's forward over one or two open blocks as a list of launches on memory that stays.

What `engine/model` computes with modules, said again for a loop in which nothing may be allocated:
every tensor a launch names is made here, once. The two must agree, which a test holds them to.

Left out: adapters that are wider than the model (in training); `supported` says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.kernels import triton_attention, triton_norm, triton_qkv, triton_router
from engine.kernels.launch import Launch
from engine.kernels.plans import Capability, expert_plan, linear_plan
from engine.kernels.triton_experts import Buffers, ExpertWeights, expert_launches
from engine.kernels.triton_linear import linear_launches
from engine.kernels.triton_pointwise import activate_launch, add_scaled_launch, embed_launch
from engine.model.layers import MLP, RMSNorm
from engine.model.lora import LoRALinear
from engine.model.moe import MoE
from engine.model.quantised import NVFP4Experts, NVFP4Linear
from engine.model.residual import ResidualAdapter
from engine.model.transformer import Layer, LLaDA2Model

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
        model, size = self._model, self._config.hidden_size
        x, normed, context = (self._new(size) for _ in range(3))
        narrow = self._rows == shared.tokens.shape[1]
        launches = [
            embed_launch(
                shared.tokens.flatten()[: self._rows], model.embedding_table, x,
                undecided=shared.undecided.flatten()[: self._rows], states=shared.states.flatten(),
                residual=shared.residual if narrow else None, alpha=model.residual.alpha,
            )
        ]  # fmt: skip
        added: tuple[Tensor, ...] = ()
        scratch = triton_attention.Scratch(
            self._config.num_attention_heads * self._rows, self._config.head_dim, self._device
        )
        for index, layer in enumerate(model.model.layers):
            assert isinstance(layer, Layer)
            launches.append(self._norm(layer.input_layernorm, x, normed, added))
            launches += self._attention(layer, index, shared, scratch, normed, context)
            launches.append(self._norm(layer.post_attention_layernorm, x, normed, (context,)))
            added, own = self._mlp(layer.mlp, normed)
            launches += own
        launches.append(self._norm(model.model.norm, x, normed, added))
        return launches + list(self._linear(model.lm_head, normed, logits))

    def adapter(self, module: ResidualAdapter, z: Tensor, out: Tensor) -> list[Launch]:
        """g(z) of z [rows, d] in the model's dtype."""
        launches, x = [], z
        if module.norm is not None:
            x = self._new(z.shape[1])
            launches.append(self._norm(module.norm, z, x, ()))
        if module.up_proj is not None:
            width = module.up_proj.weight.shape[0]
            up, hidden, gate = self._new(width), self._new(width), None
            launches += self._linear(module.up_proj, x, up)
            if module.gate_proj is not None:
                gate = self._new(width)
                launches += self._linear(module.gate_proj, x, gate)
            launches.append(activate_launch(gate, up, hidden, module.activation))
            x = hidden
        return launches + list(self._linear(module.down_proj, x, out))

    def _new(self, *columns: int, dtype: torch.dtype | None = None) -> Tensor:
        kind = self._dtype if dtype is None else dtype
        return torch.empty(self._rows, *columns, dtype=kind, device=self._device)

    def _norm(self, module: RMSNorm, x: Tensor, out: Tensor, added: tuple[Tensor, ...]) -> Launch:
        """The norm of x + added, and the sum back into x."""
        first, second = (*added, None, None)[:2]
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
        yield from self._linear(module.query_key_value, x, qkv)
        yield triton_qkv.store_launch(
            qkv, module.query_layernorm.weight, module.key_layernorm.weight, shared.cos, shared.sin,
            shared.start, keys, values, q, eps=module.eps,
        )  # fmt: skip
        yield from triton_attention.open_launches(
            q, keys, values, shared.start, scratch, mixed, block_length=shared.tokens.shape[1]
        )
        yield from self._linear(module.dense, mixed, out)

    def _mlp(self, module: nn.Module, x: Tensor) -> tuple[tuple[Tensor, ...], list[Launch]]:
        """What is to be added to the hidden state (their sum is), and what computes it."""
        if isinstance(module, MLP):
            out = self._new(x.shape[1])
            return (out,), list(self._dense(module, x, out))
        assert isinstance(module, MoE)
        routed = self._new(x.shape[1])
        launches = list(self._routed(module, x, routed))
        if module.shared_experts is None:
            return (routed,), launches
        beside = self._new(x.shape[1])
        return (routed, beside), launches + list(self._dense(module.shared_experts, x, beside))

    def _dense(self, module: MLP, x: Tensor, out: Tensor) -> Iterator[Launch]:
        width = _outputs(module.gate_proj)
        gate, up, hidden = (self._new(width) for _ in range(3))
        yield from self._linear(module.gate_proj, x, gate)
        yield from self._linear(module.up_proj, x, up)
        yield activate_launch(gate, up, hidden, "silu")
        yield from self._linear(module.down_proj, hidden, out)

    def _routed(self, module: MoE, x: Tensor, out: Tensor) -> Iterator[Launch]:
        config, top_k = self._config, self._config.num_experts_per_tok
        ids = self._new(top_k, dtype=torch.int64)
        weights = self._new(top_k, dtype=torch.float32)
        parts = torch.empty(
            triton_router.PARTS, self._rows, config.num_experts, device=self._device
        )
        yield from triton_router.route_launches(
            x, module.gate.weight, module.gate.expert_bias, parts, ids, weights,
            n_group=config.n_group, topk_group=config.topk_group,
            scale=config.routed_scaling_factor,
        )  # fmt: skip
        experts: nn.Module = module.experts
        packed = isinstance(experts, NVFP4Experts)
        x_scale = h_scale = None
        if isinstance(experts, NVFP4Experts):
            gate_up, down, x_scale, h_scale = _packed_stacks(experts)
        else:
            gate_up = ExpertWeights.plain(module.experts.gate_up)
            down = ExpertWeights.plain(module.experts.down)
        plan = expert_plan(
            self._capability, None if packed else self._dtype, self._rows * top_k,
            config.num_experts, rounded=x_scale is not None,
        )  # fmt: skip
        width = config.moe_intermediate_size
        buffers = Buffers.empty(
            x, top_k, config.num_experts, width, plan, scaled=x_scale is not None
        )
        yield from expert_launches(
            x, ids, weights, gate_up, down, plan, out, packed=packed, width=width,
            x_scale=x_scale, h_scale=h_scale, buffers=buffers,
        )  # fmt: skip

    def _linear(self, module: nn.Module, x: Tensor, out: Tensor) -> Iterator[Launch]:
        """out = module(x), for any linear layer there is."""
        if isinstance(module, LoRALinear):
            yield from self._linear(module.base, x, out)
            low, term = self._new(module.lora_A.out_features), self._new(out.shape[1])
            yield from self._linear(module.lora_A, x, low)
            yield from self._linear(module.lora_B, low, term)
            yield add_scaled_launch(out, term, module.scale)
        elif isinstance(module, NVFP4Linear):
            scale = module.input_scale if module.quantize_inputs else None
            plan = linear_plan(
                self._capability, None, self._rows, out.shape[1], rounded=scale is not None
            )
            yield from linear_launches(
                x, module.packed, plan, out, scales=module.scales.view(torch.uint8),
                alpha=module.alpha, x_scale=scale,
            )  # fmt: skip
        else:
            assert isinstance(module, nn.Linear)
            plan = linear_plan(self._capability, self._dtype, self._rows, out.shape[1])
            yield from linear_launches(x, module.weight, plan, out)


def _outputs(module: nn.Module) -> int:
    base = module.base if isinstance(module, LoRALinear) else module
    assert isinstance(base, nn.Linear | NVFP4Linear)
    return base.out_features


def _packed_stacks(
    experts: NVFP4Experts,
) -> tuple[ExpertWeights, ExpertWeights, Tensor | None, Tensor | None]:
    """Gate and up, down, and the scales of their inputs where those are rounded too."""
    rounds = experts.quantize_inputs
    return (
        ExpertWeights(
            experts.gate_up, experts.gate_up_scales.view(torch.uint8), experts.gate_up_alpha
        ),
        ExpertWeights(experts.down, experts.down_scales.view(torch.uint8), experts.down_alpha),
        experts.gate_up_input_scale if rounds else None,
        experts.down_input_scale if rounds else None,
    )
