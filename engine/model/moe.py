"""The mixture of experts: a router, stacked routed experts, one shared expert beside them."""

import torch
from torch import Tensor, nn

from engine.config import ModelConfig
from engine.kernels import ops
from engine.model.layers import MLP


class Router(nn.Module):
    """Which experts a token goes to; float32 whatever the model's dtype."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        # A buffer: it steers the choice only, so no gradient reaches it.
        self.register_buffer("expert_bias", torch.zeros(config.num_experts, dtype=torch.float32))
        self.expert_bias: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, d] to expert ids [T, K] int64 and weights [T, K] float32."""
        return ops(x).route(
            x,
            self.weight,
            self.expert_bias,
            n_group=self.config.n_group,
            topk_group=self.config.topk_group,
            top_k=self.config.num_experts_per_tok,
            scale=self.config.routed_scaling_factor,
        )


class Experts(nn.Module):
    """The routed experts, stacked: gate_up [E, 2I, d] (gate rows first), down [E, d, I]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, width, hidden = (
            config.num_experts, config.moe_intermediate_size, config.hidden_size
        )  # fmt: skip
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * width, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, width))

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """x [T, d] through its experts, weighted and summed: [T, d]."""
        return ops(x).expert_mlp(x, ids, weights, self.gate_up, self.down)


class MoE(nn.Module):
    """y = sum of the weighted routed experts + shared expert; x [..., T, d]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config)
        shared = config.num_shared_experts * config.moe_intermediate_size
        self.shared_experts = MLP(config.hidden_size, shared) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        routed = self.experts(flat, *self.gate(flat)).view_as(x)
        return routed if self.shared_experts is None else routed + self.shared_experts(x)
