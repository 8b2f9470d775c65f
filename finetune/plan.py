"""How much memory a run would take, part by part, from shapes alone: no weight is read.

The one place where this is counted: `orl-chat finetune --plan` shows it by part, the machine check
holds it against a card. Weights are counted as the checkpoint stores them. Everything else is what
the code allocates: trained weights with their gradients, float32 copies and moments; layer inputs
kept for the backward pass and one layer's own activations (the rest is computed again); one frozen
layer unpacked at a time, in rollouts too; logits by the chunk; the rollouts' keys and values, their
logits, and the states recorded.

Left out: the memory that the allocator loses between tensors, for which a reserve stands. No torch
here: the machine is checked where torch cannot be imported, too.
"""

from dataclasses import dataclass, replace
from typing import Any

from engine.config import ModelConfig
from engine.machine.memory_plan import (
    CPU_RUNTIME,
    LINEARS,
    Kind,
    Part,
    kv_bytes_per_token,
    parameters,
    weight_bytes,
)
from engine.machine.memory_plan import MemoryPlan as DevicePlan
from finetune.config import CHUNK_VALUES, FinetuneConfig, recipe

GIB = 2**30
RESERVE = 1.5 * GIB
"""CUDA's own context, kernels' workspaces, and gaps between tensors."""
BF16, FLOAT = 2, 4
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
    quantised: frozenset[Kind] = LINEARS,
    stored: float | None = None,
    device: str = "cuda",
) -> MemoryPlan:
    """The plan for prompts of up to `prompt_tokens` on `device` ("cpu", else a card).

    `stored` is the checkpoint's size in bytes where its files are there; else it follows from the
    shapes, with the kinds of weights in `quantised` in NVFP4.
    """
    wide = FLOAT if device == "cpu" else BF16
    answers = config.prompts_per_update * config.answers
    steps = config.max_new_tokens / 4  # a cautious guess of tokens decided a step
    length = config.decode().block_length
    reach = prompt_tokens + config.max_new_tokens + length
    width, layers = model_config.hidden_size, model_config.num_hidden_layers
    weights = sum(weight_bytes(model_config, quantised, width=wide).values())
    unpacked = _largest_layer(model_config) * wide if quantised else 0.0
    parts = {
        "weights": weights if stored is None else stored,
        "trained, with optimizer": trained_weights(model_config, config) * _trained_bytes(wide),
        "states recorded": answers * steps * length * width * FLOAT if config.residual else 0.0,
        "layer inputs kept": config.row_tokens * width * wide * layers,
        "one layer's activations": config.row_tokens * _activations(model_config) * wide,
        "one layer unpacked": unpacked,
        "logits, chunked": LOGIT_COPIES * FLOAT * CHUNK_VALUES,
        "rollout keys and values": config.rows * reach * kv_bytes_per_token(model_config, wide),
        "rollout logits": config.rows * length * model_config.vocab_size * (wide + FLOAT),
        "reserve": CPU_RUNTIME if device == "cpu" else RESERVE,
    }
    return MemoryPlan(config, parts)


def usual_run(model_config: ModelConfig, quantised: frozenset[Kind], device: str) -> DevicePlan:
    """What the recipe that nobody changed takes at its peak, in a few parts: for the check of a
    machine, where the model may not be yet."""
    config = recipe("normal", "lora", model_config.hidden_size)
    plan = memory_plan(model_config, config, quantised=quantised, device=device)
    named = {"weights": "weights", "trained, with optimizer": "adapters", "reserve": "reserve"}
    parts = [Part(label, round(plan.parts[name])) for name, label in named.items()]
    rest = round(plan.total) - sum(part.bytes for part in parts)
    per_token = config.rows * kv_bytes_per_token(model_config, BF16)
    return DevicePlan((*parts, Part("rollouts and learning", rest)), config.row_tokens, per_token)


def fitted(
    model_config: ModelConfig, config: FinetuneConfig, card: float, **options: Any
) -> MemoryPlan:
    """The plan with rows and row_tokens halved, in turn, until a card of `card` bytes holds it (or
    they are as small as is sensible)."""
    while True:
        plan = memory_plan(model_config, config, **options)
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


def trained_weights(model: ModelConfig, config: FinetuneConfig) -> int:
    """How many weights a run trains."""
    hidden = model.hidden_size
    adapter = (3 * (config.adapter_width or hidden) + 1) * hidden if config.residual else 0
    if config.train == "adapter":
        return adapter
    if config.train == "full":
        return adapter + sum(parameters(model).values())
    return adapter + config.lora_rank * _adapted_rows_and_columns(model)


def _adapted_rows_and_columns(model: ModelConfig) -> int:
    """Over every layer that gets LoRA: attention, dense MLPs, shared experts."""
    hidden, attended = model.hidden_size, model.num_attention_heads * model.head_dim
    dense = min(model.first_k_dense_replace, model.num_hidden_layers)
    moe = model.num_hidden_layers - dense
    attention = (hidden + model.qkv_size) + (attended + hidden)
    shared = model.num_shared_experts * model.moe_intermediate_size
    return (
        model.num_hidden_layers * attention
        + dense * 3 * (hidden + model.intermediate_size)
        + (moe * 3 * (hidden + shared) if shared else 0)
    )


def _trained_bytes(wide: int) -> int:
    """Of each trained weight: itself and its gradient; in float32 two moments, and where it is not
    float32 itself a copy and that one's gradient."""
    return 2 * wide + (2 if wide == FLOAT else 4) * FLOAT


def _largest_layer(config: ModelConfig) -> int:
    """Weights of the largest layer."""
    counts, layers = parameters(config), config.num_hidden_layers
    dense = min(config.first_k_dense_replace, layers)
    of_dense = counts["dense layers"] // dense if dense else 0
    experts = counts["routed experts"] + counts["shared experts"] + counts["routers"]
    of_moe = experts // (layers - dense) if layers > dense else 0
    norms = counts["norms"] - config.hidden_size  # without the last one
    return (counts["attention"] + norms) // layers + max(of_dense, of_moe)


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
