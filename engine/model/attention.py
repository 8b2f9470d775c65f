"""Grouped-query attention with QK-norm and partial rotary; what is attended is the caller's.

`Attend` is how state reaches the model without living in it: decoding passes a KV cache's, a
whole-sequence forward the block-causal one, training a masked one.
"""

from collections.abc import Callable

from torch import Tensor, nn

from engine.config import ModelConfig
from engine.kernels import ops
from engine.model.layers import Linear, RMSNorm

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [..., H, T, D], k [..., Hkv, T, D], v [..., Hkv, T, D]) -> context [..., H, T, D]."""


class Attention(nn.Module):
    """One layer's attention; attribute names are the checkpoint's tensor names."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.eps = config.rms_norm_eps
        self.query_key_value = Linear(config.hidden_size, config.qkv_size)
        self.query_layernorm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.key_layernorm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.dense = Linear(self.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [..., T, d]; cos and sin [..., T, R]. Returns [..., T, d]."""
        q, k, v = ops(x).split_qkv(
            self.query_key_value(x),
            self.query_layernorm.weight,
            self.key_layernorm.weight,
            cos,
            sin,
            heads=self.heads,
            kv_heads=self.kv_heads,
            eps=self.eps,
        )
        context = attend(self.layer, q, k, v)
        return self.dense(context.transpose(-2, -3).flatten(-2))
