"""What a checkpoint is and how to decode with it: frozen settings that check themselves.

No torch here: the terminal process imports this module before anything heavy is loaded.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from engine.checks import check_int, check_range, is_int, is_number

PRESETS: dict[str, tuple[float, float | None]] = {
    "speed": (0.5, 0.0),
    "quality": (0.7, 0.5),
    "careful": (0.95, 0.9),
}
"""Preset name to (threshold, editing threshold); LLaDA2.1's S and Q modes, and its cautious one."""

RESIDUAL_FORMS = ("gated_mlp", "mlp", "linear")
RESIDUAL_ACTIVATIONS = ("silu", "gelu", "relu", "none")

# Far beyond any LLaDA2 there is: a config that exceeds one of these is damaged, and believing it
# would allocate memory before the tensors had a chance to disagree.
_LARGEST = {"num_hidden_layers": 256, "num_experts": 8192}


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the message names the file and the next move."""


class PromptTooLongError(ValueError):
    """A prompt that leaves no room for a block of answer; nothing was computed or cut."""

    def __init__(self, prompt_tokens: int, context_length: int, block_length: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length
        super().__init__(
            f"The prompt is {prompt_tokens:,} tokens, and the context of {context_length:,} must "
            f"also hold a block of {block_length}; shorten the prompt or start a new chat."
        )


@dataclass(frozen=True)
class ResidualConfig:
    """How residual context enters the next step: E(mask) + alpha * g(z).

    `temperature` divides the logits that z is the expectation under; `top_k` (None: the whole
    vocabulary) keeps that many tokens, renormalised. `form`, `norm` and `activation` say what g is
    (`engine/model/residual.py`).
    """

    form: str = "gated_mlp"
    alpha: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    norm: bool = True
    activation: str = "silu"

    def __post_init__(self) -> None:
        for name, allowed in (("form", RESIDUAL_FORMS), ("activation", RESIDUAL_ACTIVATIONS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(
                    f"residual {name} must be one of {', '.join(allowed)}, got {value!r}"
                )
        if not isinstance(self.norm, bool):
            raise ValueError(f"residual norm must be true or false, got {self.norm!r}")
        if not is_number(self.alpha):
            raise ValueError(f"residual alpha must be a number, got {self.alpha!r}")
        if not (is_number(self.temperature) and self.temperature > 0):
            raise ValueError(f"residual temperature must be above 0, got {self.temperature!r}")
        if self.top_k is not None:
            check_int("residual top_k", self.top_k, 1)


@dataclass(frozen=True)
class ModelConfig:
    """The numbers of config.json that the forward pass needs, under their names there."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    num_shared_experts: int
    first_k_dense_replace: int
    n_group: int
    topk_group: int
    routed_scaling_factor: float
    partial_rotary_factor: float
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    residual: ResidualConfig | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                least = 0 if field.name in ("first_k_dense_replace", "num_shared_experts") else 1
                most = _LARGEST.get(field.name, 1 << 24)
                if not (is_int(value) and least <= value <= most):
                    raise ValueError(
                        f"{field.name} must be a whole number from {least} to {most}, got {value!r}"
                    )
            elif field.type is float and not (is_number(value) and value > 0):
                raise ValueError(f"{field.name} must be a number above 0, got {value!r}")
        self._check_relations()

    def _check_relations(self) -> None:
        relations = {
            "num_attention_heads must be a multiple of num_key_value_heads": (
                self.num_attention_heads % self.num_key_value_heads == 0
            ),
            "num_experts must be a multiple of n_group": self.num_experts % self.n_group == 0,
            "a group needs at least two experts": self.num_experts // self.n_group >= 2,
            "topk_group must not exceed n_group": self.topk_group <= self.n_group,
            "num_experts_per_tok must fit into topk_group groups": (
                self.num_experts_per_tok <= self.topk_group * self.num_experts // self.n_group
            ),
            "partial_rotary_factor must be at most 1": self.partial_rotary_factor <= 1,
            "the rotary dimension must be even and at least 2": (
                self.rotary_dim >= 2 and self.rotary_dim % 2 == 0
            ),
            "num_hidden_layers * num_experts must be at most 65536": (
                self.num_hidden_layers * self.num_experts <= 65536
            ),
        }
        for rule, holds in relations.items():
            if not holds:
                raise ValueError(rule)

    @property
    def rotary_dim(self) -> int:
        """How many leading dimensions of a head are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def qkv_size(self) -> int:
        """Rows of query_key_value: the Q heads, then K, then V."""
        return (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> Self:
        """Read `directory`/config.json.

        Raises:
            CheckpointError: the file is missing, is not JSON, is of another architecture, lacks a
                key or holds an impossible value. Keys are required: the reference's defaults
                differ from every published file.
        """
        path = Path(directory) / "config.json"
        return cls.from_dict(read_json(path), source=str(path))

    @classmethod
    def from_dict(cls, data: dict[str, Any], *, source: str = "config.json") -> Self:
        """Build from config.json's content; errors name `source`."""
        _check_architecture(data, source)
        names = [field.name for field in fields(cls) if field.name != "residual"]
        missing = [name for name in names if data.get(name) is None]
        if missing:
            raise CheckpointError(
                f"{source} lacks {', '.join(missing)}; download the file again from its repository."
            )
        try:
            residual = data.get("residual")
            return cls(
                **{name: data[name] for name in names},
                residual=None if residual is None else ResidualConfig(**residual),
            )
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"{source} cannot be used: {error}. Compare it with the published file."
            ) from error


def _check_architecture(data: dict[str, Any], source: str) -> None:
    kind = data.get("model_type")
    if kind != "llada2_moe":
        raise CheckpointError(
            f"{source} describes a {kind!r} model; orl-chat runs 'llada2_moe' checkpoints "
            "(LLaDA2.0-mini, LLaDA2.1-mini and their finetunes)."
        )
    required = {
        "hidden_act": "silu", "score_function": "sigmoid", "norm_topk_prob": True,
        "use_qk_norm": True, "use_bias": False, "use_qkv_bias": False, "norm_head": False,
        "tie_word_embeddings": False, "rope_scaling": None, "use_sliding_window": False,
    }  # fmt: skip
    for name, value in required.items():
        if data.get(name, value) != value:
            raise CheckpointError(
                f"{source} sets {name} to {data[name]!r}; only {value!r} is supported, "
                "so this checkpoint would give wrong answers."
            )


@dataclass(frozen=True)
class DecodeConfig:
    """How one answer is decoded. Thresholds are probabilities; see `preset` for named pairs.

    Attributes:
        max_new_tokens: budget, in tokens the user may see.
        block_length: positions decoded together; blocks are aligned to position 0.
        threshold: an undecided position is unmasked when its confidence is above this.
        editing_threshold: a decided position is edited when another token's probability is above
            this; 0.0 edits every change, above 1 never fires, None switches editing (and the
            settling step) off.
        max_post_steps: most mask-free steps a block may take.
        min_unmask: positions unmasked in a step even when none passes the threshold.
        temperature: 0 is greedy; the filters below apply only above 0.
        seed: of the counter-based sampler; None draws one per answer.
        overlap: let one forward finish a block and open the next.
        stop_at_end: stop after the block that holds a stop id; off, decode the whole budget and
            cut afterwards.
        stop_ids: token ids that end an answer; None takes the checkpoint's.
        stop_strings: texts that end an answer (they switch overlap off).
        mask_id: the undecided token; None takes the checkpoint's.
    """

    max_new_tokens: int = 1024
    block_length: int = 32
    threshold: float = PRESETS["quality"][0]
    editing_threshold: float | None = PRESETS["quality"][1]
    max_post_steps: int = 16
    min_unmask: int = 1
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    overlap: bool = True
    stop_at_end: bool = True
    stop_ids: Sequence[int] | None = None
    stop_strings: Sequence[str] = ()
    mask_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "block_length", "min_unmask"):
            check_int(name, getattr(self, name), 1)
        check_int("max_post_steps", self.max_post_steps, 0)
        check_range("threshold", self.threshold, 0.0, 1.0)
        if self.editing_threshold is not None:
            check_range("editing_threshold", self.editing_threshold, 0.0, math.inf)
        check_range("temperature", self.temperature, 0.0, 100.0)
        if 0 < self.temperature < 0.001:  # logits over less could leave float32's range
            raise ValueError(f"temperature must be 0 or at least 0.001, got {self.temperature!r}")
        if self.top_k is not None:
            check_int("top_k", self.top_k, 1)
        if self.top_p is not None:
            check_range("top_p", self.top_p, 0.0, 1.0)
        if self.seed is not None and not (is_int(self.seed) and 0 <= self.seed < 1 << 64):
            raise ValueError(f"seed must be a whole number in [0, 2**64), got {self.seed!r}")
        for id in (*(self.stop_ids or ()), self.mask_id or 0):
            check_int("a stop or mask id", id, 0)
        texts = self.stop_strings
        if isinstance(texts, str) or not all(isinstance(text, str) and text for text in texts):
            raise ValueError("stop_strings must be a sequence of texts that are not empty")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The named thresholds and any other field by keyword. ValueError for another name."""
        if name not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
        threshold, editing = PRESETS[name]
        return replace(cls(threshold=threshold, editing_threshold=editing), **changes)

    @property
    def edits(self) -> bool:
        """Whether decided positions may change, which is also what makes blocks settle."""
        return self.editing_threshold is not None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's file; CheckpointError in words when there is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing; name a folder that holds a whole checkpoint."
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); download it again.") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} does not hold a JSON object; download it again.")
    return data
