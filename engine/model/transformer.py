"""LLaDA2: embeddings (with residual context), block-causal layers, norm, logits.

Left out on purpose: caches, masks and positions of a decoder. They come in through `attend` and
`positions`, so one forward serves decoding, whole sequences and training.
"""

import torch
from torch import Tensor, nn

from engine.config import ModelConfig, ResidualConfig
from engine.kernels import ops
from engine.model.attention import Attend, Attention
from engine.model.layers import MLP, Linear, RMSNorm
from engine.model.moe import Experts, MoE, Router
from engine.model.residual import ResidualAdapter, add_residual


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the first layers' MLP is dense."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config, index)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        dense = index < config.first_k_dense_replace
        self.mlp = MLP(config.hidden_size, config.intermediate_size) if dense else MoE(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        x = x + self.attention(self.input_layernorm(x), cos, sin, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """The tensors that the checkpoint calls `model.*`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # Not nn.Embedding(...): filling it with noise on the meta device, where a load begins,
        # makes torch import its compiler, and a start two seconds longer.
        table = torch.empty(config.vocab_size, config.hidden_size)
        self.word_embeddings = nn.Embedding.from_pretrained(table, freeze=False)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class LLaDA2Model(nn.Module):
    """The network. Parameter names are the checkpoint's, but for the stacked experts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = Linear(config.hidden_size, config.vocab_size)
        self.residual_adapter: ResidualAdapter | None = None
        self.residual = config.residual or ResidualConfig()

    @property
    def embedding_table(self) -> Tensor:
        """Input embeddings [V, d]."""
        return self.model.word_embeddings.weight

    def embed(
        self, ids: Tensor, z: Tensor | None = None, undecided: Tensor | None = None
    ) -> Tensor:
        """Input embeddings [..., T, d] of ids [..., T].

        With z [..., T, d] and undecided [..., T] bool, undecided positions also get alpha * g(z);
        without an adapter, or without z (a block's first step), none do.
        """
        embeds = self.model.word_embeddings(ids)
        if z is None or undecided is None or self.residual_adapter is None:
            return embeds
        return add_residual(embeds, self.residual_adapter(z), undecided, self.residual.alpha)

    def trunk(self, embeds: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states [..., T, d] before the final norm; positions [T] or [..., T]."""
        config = self.config
        cos, sin = ops(embeds).rotary_tables(
            positions, config.rotary_dim, config.rope_theta, embeds.dtype
        )
        for layer in self.model.layers:
            embeds = layer(embeds, cos, sin, attend)
        return embeds

    def forward(self, embeds: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Logits [..., T, V] in float32; those at a position predict the token at it."""
        return self.lm_head(self.model.norm(self.trunk(embeds, positions, attend))).float()


def initialise(model: LLaDA2Model, seed: int, *, std: float = 0.02) -> LLaDA2Model:
    """Fill every weight from N(0, std^2), norms with 1 and router biases with 0; returns model."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, RMSNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, Router):
            nn.init.normal_(module.weight, std=std, generator=generator)
            nn.init.zeros_(module.expert_bias)
        elif isinstance(module, Experts):
            nn.init.normal_(module.gate_up, std=std, generator=generator)
            nn.init.normal_(module.down, std=std, generator=generator)
        elif isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std, generator=generator)
    if model.residual_adapter is not None:
        nn.init.zeros_(model.residual_adapter.down_proj.weight)
    return model
