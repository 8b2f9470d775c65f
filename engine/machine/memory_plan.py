"""What chat with a model will take of a device's memory, part by part, from its config alone.

So that "it does not fit" is said before a weight is read, and so that it says which part to cut.
Counted are the parameters as the model lays them out; the workspace is a bound on what the plain
torch forward allocates. A 1,500-token prompt with LLaDA2.1-mini's widths and vocabulary took 250 MB
beside the weights greedily and 470 MB sampling, on a processor.
"""

from dataclasses import dataclass
from typing import Literal

from engine.config import ModelConfig

Kind = Literal[
    "routed experts", "shared experts", "dense layers", "attention", "embeddings", "output head",
    "routers", "norms",
]  # fmt: skip

UNQUANTISED: frozenset[Kind] = frozenset()
EXPERTS: frozenset[Kind] = frozenset({"routed experts"})
LINEARS: frozenset[Kind] = EXPERTS | {"shared experts", "dense layers", "attention"}
"""What a checkpoint may hold in NVFP4. Embeddings, head, routers and norms never are."""

MINI = ModelConfig(
    vocab_size=157184,
    hidden_size=2048,
    num_hidden_layers=20,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=128,
    intermediate_size=5120,
    moe_intermediate_size=512,
    num_experts=256,
    num_experts_per_tok=8,
    num_shared_experts=1,
    first_k_dense_replace=1,
    n_group=8,
    topk_group=4,
    routed_scaling_factor=2.5,
    partial_rotary_factor=0.5,
    rope_theta=600000.0,
    rms_norm_eps=1e-6,
    max_position_embeddings=32768,
)
"""LLaDA2.1-mini, for what has to be said of it before it is on this machine."""

CONTEXT = 8192
"""Tokens a plan counts a KV cache for when nobody asks for another number."""

SHORT_CONTEXT = 1024
"""Tokens without which chat is not worth a load."""

CPU_RUNTIME = 400 << 20
"""Bytes of an interpreter with torch imported."""

_NVFP4_BYTES = 0.5 + 1 / 16  # a 4-bit code, and an 8-bit scale for 16 of them
_BLOCKS = 64  # positions of a fused forward: two blocks
_LOGITS = 14  # copies of float32 logits in flight: model, mask, filters, 64-bit noise, z
_PREFILL = 512  # tokens of one prompt forward
_GROWTH = 0.25  # of the KV cache: old keys beside new ones while it grows
_CUDA_RUNTIME = 600 << 20  # the context and the libraries' workspaces


@dataclass(frozen=True)
class Part:
    """One share of the memory, in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part; `per_token` is what each further token of context takes."""

    parts: tuple[Part, ...]
    context_length: int
    per_token: float

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(part.bytes for part in self.parts)

    def context_within(self, free: int, longest: int) -> int:
        """Tokens of context that fit into `free` bytes, at most `longest`; 0 when none do."""
        rest = free - self.total + self.context_length * self.per_token
        return min(max(int(rest / self.per_token), 0), longest)


@dataclass(frozen=True)
class Fit:
    """A plan held against a device: `free` bytes there are (None: unknown), `longest` tokens of
    context at most."""

    plan: MemoryPlan
    free: int | None
    longest: int

    @property
    def fits(self) -> bool:
        """Whether it will go well; an unknown amount counts as enough."""
        return self.free is None or self.plan.total <= self.free

    @property
    def usable(self) -> bool:
        """Whether at least a short chat fits."""
        return self.context >= min(SHORT_CONTEXT, self.longest)

    @property
    def missing(self) -> int:
        """Bytes too few."""
        return 0 if self.free is None else max(self.plan.total - self.free, 0)

    @property
    def context(self) -> int:
        """Tokens of context that fit."""
        if self.free is None:
            return self.longest
        return self.plan.context_within(self.free, self.longest)


def weight_bytes(
    config: ModelConfig, quantised: frozenset[Kind] = UNQUANTISED, *, width: int = 2
) -> dict[Kind, int]:
    """Bytes of the weights by kind: `quantised` ones in NVFP4, the rest `width` bytes each."""
    counts = parameters(config)
    sizes = {
        kind: round(count * (_NVFP4_BYTES if kind in quantised else width))
        for kind, count in counts.items()
    }
    moe = config.num_hidden_layers - min(config.first_k_dense_replace, config.num_hidden_layers)
    sizes["routers"] += moe * config.num_experts * 4  # biases are float32 whatever the model
    return sizes


def parameters(config: ModelConfig) -> dict[Kind, int]:
    """How many weights there are by kind (the routers' biases, which are buffers, apart)."""
    hidden, layers, head = config.hidden_size, config.num_hidden_layers, config.head_dim
    dense = min(config.first_k_dense_replace, layers)
    moe = layers - dense
    expert = 3 * hidden * config.moe_intermediate_size
    attended = config.num_attention_heads * head
    return {
        "routed experts": moe * config.num_experts * expert,
        "shared experts": moe * config.num_shared_experts * expert,
        "dense layers": dense * 3 * hidden * config.intermediate_size,
        "attention": layers * hidden * (config.qkv_size + attended),
        "embeddings": config.vocab_size * hidden,
        "output head": config.vocab_size * hidden,
        "routers": moe * config.num_experts * hidden,
        "norms": layers * 2 * (hidden + head) + hidden,
    }


def memory_plan(
    config: ModelConfig,
    quantised: frozenset[Kind] = UNQUANTISED,
    *,
    device: str = "cuda",
    width: int | None = None,
    context_length: int = CONTEXT,
    running: bool = False,
) -> MemoryPlan:
    """What chat takes on `device` ("cpu", else a card): weights, KV cache, workspace, runtime.

    `width` is bytes of a weight that is not quantised and of an activation; None is what the
    engine chooses, 2 (bfloat16) on a card and 4 (float32) on a processor. With `running` the
    runtime (torch, or CUDA's context) is there already and does not count.
    """
    on_cpu = device == "cpu"
    width = width or (4 if on_cpu else 2)
    context = min(context_length, config.max_position_embeddings)
    weights = weight_bytes(config, quantised, width=width)
    kv = kv_bytes_per_token(config, width)
    experts = weights["routed experts"]
    tables = weights["embeddings"] + weights["output head"]
    parts = (
        Part("experts", experts),
        Part("other layers", sum(weights.values()) - experts - tables),
        Part("embeddings and head", tables),
        Part("KV cache", context * kv),
        Part("workspace", _workspace(config, width) + round(context * kv * _GROWTH)),
    )
    runtime = Part("torch", CPU_RUNTIME) if on_cpu else Part("CUDA", _CUDA_RUNTIME)
    return MemoryPlan((*parts, *(() if running else (runtime,))), context, kv * (1 + _GROWTH))


def kv_bytes_per_token(config: ModelConfig, width: int) -> int:
    """Bytes that a token's keys and values take."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * width


def _workspace(config: ModelConfig, width: int) -> int:
    """A bound on what a forward holds beside the weights: a prefill's activations, or two blocks'
    logits in the copies that decisions are made from."""
    hidden, pairs = config.hidden_size, _PREFILL * config.num_experts_per_tok
    routed = pairs * (2 * hidden + 3 * config.moe_intermediate_size) * width + pairs * hidden * 8
    attended = _PREFILL * (4 * config.qkv_size + 6 * hidden) * width
    dense = 3 * _PREFILL * config.intermediate_size * width
    logits = _LOGITS * _BLOCKS * config.vocab_size * 4
    return max(routed + attended, attended + dense, logits)
