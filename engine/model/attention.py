"""Grouped-query attention with QK-norm and partial rotary; what is attended is the caller's.

`Attend` is how state reaches the model without living in it: decoding passes a KV cache's, a
whole-sequence forward the block-causal one, training a masked one.
"""

from collections.abc import Callable

from torch import Tensor, nn

from engine.config import ModelConfig
from engine.kernels import ops
from engine.model.layers import RMSNorm

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [..., H, T, D], k [..., Hkv, T, D], v [..., Hkv, T, D]) -> context [..., H, T, D]."""


class Attention(nn.Module):
    """One layer's attention; attribute names are the checkpoint's tensor names."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.query_key_value = nn.Linear(config.hidden_size, config.qkv_size, bias=False)
        self.query_layernorm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.key_layernorm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.dense = nn.Linear(self.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [..., T, d]; cos and sin broadcast over heads. Returns [..., T, d]."""
        heads = self.query_key_value(x).unflatten(-1, (self.heads + 2 * self.kv_heads, -1))
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=-2)
        q = self.query_layernorm(q).transpose(-2, -3)
        k = self.key_layernorm(k).transpose(-2, -3)
        v = v.transpose(-2, -3)
        rotate = ops(x).apply_rotary
        context = attend(self.layer, rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.dense(context.transpose(-2, -3).flatten(-2))
