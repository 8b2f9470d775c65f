"""What generation yields, and the counts that every speed figure is made of.

No torch here: the terminal process imports this module. Each number is defined once, below, and
shown to users with this definition:

* N, `tokens`: tokens the user sees. The end token is not counted, nor anything after it.
* `forwards`: model calls after prefill. `steps`: decisions made for a block (the settling step
  included). `commits`: calls or halves of calls made only to store a block's keys and values.
  `fused`: accepted forwards that ended one block and opened the next.
  forwards = steps + commits - fused.
* TPF = N / forwards (the headline); `tpf_steps` = N / steps, which does not depend on overlap.
* tokens per second (decode) = N / (end - end of prefill); (whole) = N / (end - request), where
  end is the last block's final forward.
* `waste_tokens`: tokens computed past the end token or the budget; never speed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from engine.decode.trajectory import Trajectory

Reason = Literal["end", "length", "context", "stopped", "error"]

UNDECIDED, NEW, SET, EDITED, PROTECTED = "u", "n", "s", "e", "p"
"""Position states after a step: undecided, unmasked in this step, decided earlier, edited in this
step, and prompt tokens that share the first block."""


@dataclass(frozen=True)
class BlockStats:
    """One block of an answer. A fused forward and its time belong to the block it opens.

    `unmasked_per_step` and `edits_per_step` have one entry a step; `seconds` is decode time.
    """

    tokens: int
    steps: int
    forwards: int
    commits: int
    seconds: float
    unmasked_per_step: tuple[int, ...] = ()
    edits_per_step: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stats:
    """The counts and times of one answer; see the module for the definitions."""

    tokens: int
    forwards: int
    steps: int
    commits: int
    fused: int
    edits: int
    waste_tokens: int
    prefill_tokens: int
    cached_tokens: int
    prefill_seconds: float
    decode_seconds: float
    whole_seconds: float
    first_block_seconds: float
    seed: int | None = None
    blocks: tuple[BlockStats, ...] = field(default=())
    model_seconds: float | None = None
    pick_seconds: float | None = None
    commit_seconds: float | None = None
    """Parts of the decode time: model calls, decisions, calls that only store a block. None where
    they were not measured: inside a graph, or on a device that works behind the host's back."""

    @property
    def tpf(self) -> float:
        """Tokens per forward, commits included."""
        return self.tokens / self.forwards if self.forwards else 0.0

    @property
    def tpf_steps(self) -> float:
        """Tokens per denoising step, the figure that papers give."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Visible tokens over decode time."""
        return self.tokens / self.decode_seconds if self.decode_seconds > 0 else 0.0

    @property
    def tokens_per_second_whole(self) -> float:
        """Visible tokens over the time since the request, prefill included."""
        return self.tokens / self.whole_seconds if self.whole_seconds > 0 else 0.0

    @property
    def forwards_per_second(self) -> float:
        """Model calls over decode time."""
        return self.forwards / self.decode_seconds if self.decode_seconds > 0 else 0.0


@dataclass(frozen=True)
class StepEvent:
    """One denoising step of the open block, as it stands after the step.

    `block` counts the answer's blocks from 0, `step` a block's steps from 1. `token_ids`,
    `confidences` and `states` have one entry a position; an undecided position holds the mask id
    and the confidence of its best candidate. `seconds` is the time since the request; `forwards`
    counts the answer's forwards so far. `fused` says that the forward also ended the block before.
    """

    block: int
    step: int
    token_ids: tuple[int, ...]
    confidences: tuple[float, ...]
    states: str
    unmasked: int
    edited: int
    forwards: int
    fused: bool
    seconds: float


@dataclass(frozen=True)
class BlockEvent:
    """A block that is final: its visible tokens (cut at the end) and the text they add.

    `text` may lag behind `token_ids` while a character is incomplete; "" without a tokenizer.
    """

    block: int
    token_ids: tuple[int, ...]
    text: str
    stats: BlockStats
    seconds: float


@dataclass(frozen=True)
class FinishEvent:
    """The answer as a whole. `token_ids` leave out the stop token; `trajectory` is recorded on
    request; `error` is a sentence when `reason` is "error"."""

    token_ids: tuple[int, ...]
    text: str
    reason: Reason
    stats: Stats
    trajectory: Trajectory | None = None
    error: str | None = None


Event = StepEvent | BlockEvent | FinishEvent
