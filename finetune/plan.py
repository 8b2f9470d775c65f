"""How much memory a run would take, part by part, from shapes alone: no weight is read.

Weights are counted as the checkpoint stores them. Everything else is what the code allocates:
trained weights with their gradients, float32 copies and moments; layer inputs kept for the backward
pass and one layer's own activations (the rest is computed again); one frozen layer unpacked at a
time, in rollouts too; logits by the chunk; the rollouts' keys and values, their logits, and the
states recorded.

Left out: the memory that the allocator loses between tensors, for which a reserve stands.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from engine.config import ModelConfig
from engine.model.lora import lora_parameters
from engine.model.transformer import LLaDA2Model
from finetune.adapters import add_lora
from finetune.config import FinetuneConfig
from finetune.losses import CHUNK_VALUES

GIB = 2**30
RESERVE = 1.5 * GIB
"""CUDA's own context, kernels' workspaces, and gaps between tensors."""
BF16, FLOAT = 2, 4
NVFP4 = 0.5 + 1 / 16
"""Bytes a weight: four bits, and an eight-bit scale for every 16."""
LOGIT_COPIES = 6
"""Logits, their log-softmax, probabilities, two products and a gradient."""
_LEAST_ROWS, _LEAST_ROW_TOKENS = 4, 1024


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part, in the order of the table."""

    config: FinetuneConfig
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """The peak: rollouts and learning take turns, so the larger of the two counts."""
        learning = sum(b for name, b in self.parts.items() if name in _LEARNING)
        rolling = sum(b for name, b in self.parts.items() if name in _ROLLING)
        always = sum(self.parts.values()) - learning - rolling
        return always + max(learning, rolling)

    def fits(self, card: float) -> bool:
        """Whether a card of so many bytes holds it."""
        return self.total <= card


_LEARNING = (
    "layer inputs kept",
    "one layer's activations",
    "logits, chunked",
)
_ROLLING = ("rollout keys and values", "rollout logits")


def memory_plan(
    model_config: ModelConfig,
    config: FinetuneConfig,
    *,
    prompt_tokens: int = 512,
    quantised: bool = True,
    stored: float | None = None,
) -> MemoryPlan:
    """The plan for prompts of up to `prompt_tokens`.

    `stored` is the checkpoint's size in bytes where its files are there; else it follows from the
    shapes, with the layers' linear weights `quantised` to NVFP4 or in bf16.
    """
    with torch.device("meta"):
        model = LLaDA2Model(model_config)
    answers = config.prompts_per_update * config.answers
    steps = config.max_new_tokens / 4  # a cautious guess of tokens decided a step
    length = config.decode().block_length
    reach = prompt_tokens + config.max_new_tokens + length
    width, layers = model_config.hidden_size, model_config.num_hidden_layers
    trained = trained_weights(model, config)
    parts = {
        "weights": _weights(model, quantised) if stored is None else stored,
        # The weight, its gradient, and in float32 the copy, its gradient and two moments.
        "trained, with optimizer": trained * (2 * BF16 + 4 * FLOAT),
        "states recorded": answers * steps * length * width * FLOAT if config.residual else 0.0,
        "layer inputs kept": config.row_tokens * width * BF16 * layers,
        "one layer's activations": config.row_tokens * _activations(model_config) * BF16,
        "one layer unpacked": _largest_layer(model) * BF16 if quantised else 0.0,
        "logits, chunked": LOGIT_COPIES * FLOAT * CHUNK_VALUES,
        "rollout keys and values": config.rows * reach * _cache_bytes(model_config),
        "rollout logits": config.rows * length * model_config.vocab_size * (BF16 + FLOAT),
        "reserve": RESERVE,
    }
    return MemoryPlan(config, parts)


def fitted(
    model_config: ModelConfig, config: FinetuneConfig, card: float, **options: float | None
) -> MemoryPlan:
    """The plan with rows and row_tokens halved, in turn, until a card of `card` bytes holds it (or
    they are as small as is sensible)."""
    while True:
        plan = memory_plan(model_config, config, **options)  # type: ignore[arg-type]
        smaller = _smaller(plan)
        if plan.fits(card) or smaller == config:
            return plan
        config = smaller


def _smaller(plan: MemoryPlan) -> FinetuneConfig:
    config = plan.config
    rolling = sum(plan.parts[name] for name in _ROLLING)
    learning = sum(plan.parts[name] for name in _LEARNING)
    if rolling >= learning and config.rows > _LEAST_ROWS:
        return replace(config, rows=config.rows // 2)
    if config.row_tokens > _LEAST_ROW_TOKENS:
        return replace(config, row_tokens=config.row_tokens // 2)
    return replace(config, rows=max(_LEAST_ROWS, config.rows // 2))


def trained_weights(model: LLaDA2Model, config: FinetuneConfig) -> int:
    """How many weights a run trains; `model` is on the meta device and is changed."""
    width = config.adapter_width or model.config.hidden_size
    adapter = (3 * width + 1) * model.config.hidden_size if config.residual else 0
    if config.train == "adapter":
        return adapter
    if config.train == "full":
        return adapter + sum(p.numel() for p in model.parameters())
    add_lora(model, config.lora_rank, config.lora_alpha, torch.Generator())
    return adapter + sum(p.numel() for p in lora_parameters(model).values())


def _weights(model: LLaDA2Model, quantised: bool) -> float:
    total = 0.0
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        matrix = name.startswith("model.layers.") and parameter.ndim >= 2
        packed = quantised and matrix and not name.endswith("mlp.gate.weight")
        total += parameter.numel() * (NVFP4 if packed else BF16)
    return total


def _largest_layer(model: LLaDA2Model) -> int:
    def size(layer: nn.Module) -> int:
        return sum(p.numel() for n, p in layer.named_parameters() if ".lora_" not in n)

    return max(size(layer) for layer in model.model.layers)


def _activations(config: ModelConfig) -> int:
    """Values a token keeps in one layer while its backward pass runs."""
    heads = config.num_attention_heads * config.head_dim
    attention = 4 * config.hidden_size + 3 * config.qkv_size + 2 * heads
    experts = config.num_experts_per_tok * (
        2 * config.hidden_size + 4 * config.moe_intermediate_size
    )
    shared = 4 * config.num_shared_experts * config.moe_intermediate_size
    dense = 4 * config.intermediate_size
    return attention + 4 * config.hidden_size + max(experts + shared, dense)


def _cache_bytes(config: ModelConfig) -> int:
    """Bytes of keys and values a token."""
    return 2 * BF16 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
