"""Every knob of a finetuning run: frozen, checked when made, and written into the run's folder.

No torch here: the terminal reads recipes before anything heavy is loaded.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, get_args

from engine.config import DecodeConfig

Train = Literal["lora", "adapter", "full"]
"""What is trained beside the residual adapter: LoRA matrices, nothing, or every weight."""

CHUNK_VALUES = 1 << 25
"""Logits that are in memory at once while learning: 128 MiB of float32, a few times over."""


@dataclass(frozen=True)
class FinetuneConfig:
    """One run's recipe. Rates and weights not said otherwise follow `recipe`.

    Attributes:
        train: what is trained beside the residual adapter.
        updates: optimizer steps.
        prompts_per_update, answers_per_prompt: the rollouts of one update; with temperature 0
            further answers would be the same, so one is made.
        threshold, editing_threshold, temperature, max_new_tokens: how rollouts decode.
        rows: answers decoded together.
        row_tokens: tokens of a packed row, which is one forward and backward.
        states_per_answer: most denoising states trained of one answer.
        lora_rank, lora_alpha: LoRA's size, and its weight times its size.
        residual: train (and decode with) a residual adapter.
        adapter_width: its inner width; None is the hidden size.
        lr, adapter_lr: of the trunk and of the residual pathway, which needs a smaller one.
        warmup: updates until the full rate; from there it falls linearly to 0.
        clip: largest gradient norm.
        gate: confidence from which a position is anchored instead of predicted.
        aec_weight, rho: adjacent entropy contraction, and how much a step should contract.
        anchor_weight, anchor_cap: reverse KL to the start, and its most per position, in nats.
        held_out: prompts set aside for checks.
        check_every: updates between two checks, each of which saves a checkpoint.
        patience: so many times `check_every` updates without a better check end a run early.
        keep: checkpoints kept beside the best.
        seed: of everything random.
    """

    train: Train = "lora"
    updates: int = 100
    prompts_per_update: int = 32
    answers_per_prompt: int = 1
    threshold: float = 0.9
    editing_threshold: float | None = 0.9
    temperature: float = 0.0
    max_new_tokens: int = 256
    rows: int = 32
    row_tokens: int = 4096
    states_per_answer: int = 12
    lora_rank: int = 8
    lora_alpha: float = 16.0
    residual: bool = True
    adapter_width: int | None = None
    lr: float = 2e-3
    adapter_lr: float = 5e-4
    warmup: int = 5
    clip: float = 1.0
    gate: float = 0.9
    aec_weight: float = 1.0
    rho: float = 0.25
    anchor_weight: float = 0.5
    anchor_cap: float = 1.0
    held_out: int = 32
    check_every: int = 10
    patience: int = 4
    keep: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train not in get_args(Train):
            raise ValueError(f"train must be one of {', '.join(get_args(Train))}")
        if self.train == "adapter" and not self.residual:
            raise ValueError("without a residual adapter there would be nothing to train")
        for name in _COUNTS:
            _check_count(name, getattr(self, name), _LEAST.get(name, 1))
        if self.adapter_width is not None:
            _check_count("adapter_width", self.adapter_width, 1)
        for name, (low, high) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high)
        self.decode()  # checks its own fields

    def decode(self) -> DecodeConfig:
        """How rollouts decode. Without overlap: it changes neither tokens nor states."""
        return DecodeConfig(
            max_new_tokens=self.max_new_tokens,
            threshold=self.threshold,
            editing_threshold=self.editing_threshold,
            temperature=self.temperature,
            overlap=False,
        )

    @property
    def answers(self) -> int:
        """Answers that are made per prompt."""
        return self.answers_per_prompt if self.temperature > 0 else 1

    def rate(self, update: int) -> float:
        """Share of the learning rates in update 0, 1, ...: linear warm-up, linear decay to 0."""
        rising = (update + 1) / max(self.warmup, 1)
        falling = (self.updates - update) / max(self.updates - self.warmup + 1, 1)
        return min(1.0, rising, falling)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for a name that this version does not know, or a bad value."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(
                f"the recipe sets {', '.join(unknown)}, unknown to this version of orl-chat"
            )
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(f"the recipe cannot be used: {error}") from error


_COUNTS = (
    "updates", "prompts_per_update", "answers_per_prompt", "max_new_tokens", "rows", "row_tokens",
    "states_per_answer", "lora_rank", "warmup", "held_out", "check_every", "patience", "keep",
    "seed",
)  # fmt: skip
_LEAST = {"warmup": 0, "held_out": 0, "keep": 0, "seed": 0, "states_per_answer": 2}
_RANGES = {
    "lora_alpha": (0.0, math.inf),
    "lr": (0.0, 1.0),
    "adapter_lr": (0.0, 1.0),
    "clip": (0.0, math.inf),
    "gate": (0.0, 1.0),
    "aec_weight": (0.0, math.inf),
    "rho": (0.0, 1.0),
    "anchor_weight": (0.0, math.inf),
    "anchor_cap": (0.0, math.inf),
}

RECIPES: dict[str, dict[str, Any]] = {
    "quick": {"updates": 30, "check_every": 5},
    "normal": {"updates": 100, "check_every": 10, "prompts_per_update": 64},
    "long": {"updates": 300, "check_every": 25, "prompts_per_update": 64},
}
"""Recipe name to what it sets. A small set of prompts overfits: quick is the one for it."""
_ANCHORS: dict[Train, tuple[tuple[float, float], tuple[float, float]]] = {
    "lora": ((4.0, 4.0), (2.0, 4.0)),
    "full": ((2.0, 4.0), (0.5, 1.0)),
    "adapter": ((2.0, 4.0), (0.5, 1.0)),
}
"""Weight and cap of the anchor, in quick and in the longer recipes: what kept the accuracy of the
start, on sets of 64 and with fresh prompts, for some of the speed."""

_TUNED_WIDTH = 128
_RATES: dict[Train, tuple[float, float]] = {
    "lora": (1e-3, 3e-4),
    "full": (2e-4, 1e-4),
    "adapter": (0.0, 5e-3),
}

SMALL = 50_000_000
"""Weights up to which all are trained unless one asks for less: with gradients, moments and the
start's copy 20 bytes each, a gigabyte. It was faster than LoRA, and kept more of the accuracy."""


def usual_train(weights: int, *, packed: bool) -> Train:
    """What is trained of a model with so many weights unless one says; `packed`: NVFP4 ones, which
    cannot be."""
    return "lora" if packed or weights > SMALL else "full"


def recipe(name: str, train: Train, hidden_size: int, **changes: Any) -> FinetuneConfig:
    """The named recipe for a model of this width, with any field given by keyword.

    Learning rates were tuned at width 128 and fall with the width, as a step's effect on a sum of
    more terms grows with their number (muP, arXiv 2203.03466); untried on large models.

    Raises:
        ValueError: no such recipe, or a value that is not allowed.
    """
    if name not in RECIPES:
        raise ValueError(f"the recipe must be one of {', '.join(RECIPES)}, got {name!r}")
    lr, adapter_lr = (rate * min(1.0, _TUNED_WIDTH / hidden_size) for rate in _RATES[train])
    quick, longer = _ANCHORS[train]
    weight, cap = quick if name == "quick" else longer
    base = FinetuneConfig(
        train=train, lr=lr, adapter_lr=adapter_lr, anchor_weight=weight, anchor_cap=cap
    )
    return replace(base, **{**RECIPES[name], **changes})


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")


def _check_range(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= value <= high):
        limit = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {limit}, got {value!r}")
