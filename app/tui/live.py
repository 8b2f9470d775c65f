"""The figures of one answer while it is written, from the engine's messages alone.

No clock is read here: every time comes with a message, so a recorded answer gives the same figures
again. Rates are sums over the latest final blocks (tokens by seconds, tokens by forwards), over the
last half second and two blocks at least; with fewer blocks there is no rate.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.protocol import Block, Done, Prefill, Step
from app.trace import Timed
from app.tui.figures import number

WINDOW_SECONDS = 0.5
WINDOW_BLOCKS = 2
HISTORY = 40


@dataclass(frozen=True)
class Rates:
    """Means over a window of blocks. Speeds are None where they were not measured."""

    tokens_per_second: float | None
    forwards_per_second: float | None
    tpf: float | None


NO_RATES = Rates(None, None, None)


def rates(blocks: Sequence[Block]) -> Rates:
    """The window's means over `blocks`, oldest first."""
    window: list[Block] = []
    seconds = 0.0
    for block in reversed(blocks):
        if len(window) >= WINDOW_BLOCKS and seconds >= WINDOW_SECONDS:
            break
        window.append(block)
        seconds += block.seconds
    if len(window) < WINDOW_BLOCKS:
        return NO_RATES
    tokens, forwards = sum(b.tokens for b in window), sum(b.forwards for b in window)
    timed = seconds > 0 and all(b.measured for b in window)
    return Rates(
        tokens_per_second=tokens / seconds if timed else None,
        forwards_per_second=forwards / seconds if timed else None,
        tpf=tokens / forwards if forwards else None,
    )


def final_rates(stats: Mapping[str, Any]) -> Rates:
    """An answer's own rates, from its figures."""
    forwards, seconds = number(stats, "forwards"), number(stats, "decode_seconds")
    timed = bool(stats.get("measured", True)) and bool(seconds)
    return Rates(
        tokens_per_second=number(stats, "tokens_per_second") if timed else None,
        forwards_per_second=forwards / seconds if timed and forwards and seconds else None,
        tpf=number(stats, "tpf") if forwards else None,
    )


@dataclass
class Live:
    """What the Live panel shows of one answer; fed by the four messages of an answer."""

    prompt_tokens: int | None = None
    prompt_done: int = 0
    prompt_total: int = 0
    tokens: int = 0
    forwards: int = 0
    edits: int = 0
    block: int | None = None
    step: int = 0
    slots: list[list[Any]] = field(default_factory=list)
    picture: tuple[int, int] | None = None
    """Block and step that `slots` were taken at: behind `block` when the engine is fast."""
    final: bool = False
    """Whether the block of `picture` is final."""
    measured: bool = True
    first_block_seconds: float | None = None
    rates: Rates = NO_RATES
    stats: dict[str, Any] | None = None
    history: deque[Rates] = field(default_factory=lambda: deque(maxlen=HISTORY))
    blocks: list[Block] = field(default_factory=list)
    """The final blocks, each with all its steps."""
    _read: Prefill | None = None
    _done_tokens: int = 0
    _done_forwards: int = 0
    _done_edits: int = 0
    _open_edits: int = 0

    @property
    def context(self) -> int | None:
        """Tokens of the conversation so far; None before the prompt was counted."""
        return None if self.prompt_tokens is None else self.prompt_tokens + self.tokens

    @property
    def decided(self) -> int:
        """Positions of the open block that hold a token."""
        return sum(1 for slot in self.slots if len(slot) > 3 and slot[3] != "u")

    def prefill(self, message: Prefill) -> None:
        """The prompt was read, wholly or in part."""
        self._read = message
        self.prompt_tokens = max(message.prompt, message.total)
        self.prompt_total = message.total
        self.prompt_done = message.tokens + message.cached

    def advance(self, message: Step) -> None:
        """A denoising step. Sampled: edits of steps that were not sent are known at the block."""
        self.slots, self.picture = message.slots, (message.block, message.step)
        if self.blocks and message.block <= self.blocks[-1].index:
            return  # a last look at a block that is final: its counts are known
        if message.block != self.block:
            self._open_edits = 0
        self.block, self.step, self.final = message.block, message.step, False
        self._open_edits += message.edited
        self.tokens = max(self._done_tokens, message.tokens)
        self.forwards = max(self._done_forwards, message.forwards)
        self.edits = self._done_edits + self._open_edits
        self.measured = self.measured and message.measured

    def close_block(self, message: Block) -> None:
        """A block is final: exact counts replace the estimates."""
        self.blocks.append(message)
        self._done_tokens += message.tokens
        self._done_forwards += message.forwards
        self._done_edits += sum(message.edits_per_step)
        self._open_edits = 0
        self.tokens, self.forwards, self.edits = (
            self._done_tokens,
            self._done_forwards,
            self._done_edits,
        )
        self.block, self.step = message.index, message.steps
        self.final = self.picture is not None and self.picture[0] <= message.index
        self.measured = self.measured and message.measured
        if self.first_block_seconds is None and message.measured:
            self.first_block_seconds = message.elapsed
        self.rates = rates(self.blocks)
        if self.rates is not NO_RATES:
            self.history.append(self.rates)

    def finish(self, message: Done) -> None:
        """The final figures replace the running ones."""
        self.measured = self.measured and message.measured
        known = message.stats | message.inspected
        figures = {name: value for name, value in known.items() if name != "text"}
        self.stats = {**figures, "measured": self.measured, "trace": message.id}
        self.final = True
        self.tokens = int(number(message.stats, "tokens") or self.tokens)
        self.forwards = int(number(message.stats, "forwards") or self.forwards)
        edits = number(message.stats, "edits")
        self.edits = self.edits if edits is None else int(edits)
        self.rates = final_rates(self.stats)

    def counts(self) -> dict[str, Any] | None:
        """What is known of an answer that never got its final figures: exact counts, no speeds."""
        if not self.blocks:
            return None
        counts: dict[str, Any] = {"tokens": self._done_tokens, "forwards": self._done_forwards}
        counts["trace"] = self.blocks[-1].id
        if self._done_forwards:
            counts["tpf"] = self._done_tokens / self._done_forwards
        return counts

    def recorded(self, reason: str) -> list[Timed]:
        """The answer so far, as a recording holds it: steps come with their blocks."""
        if not self.blocks:
            return []
        id, end = self.blocks[-1].id, self.blocks[-1].elapsed
        read = [] if self._read is None else [Timed(self._read.seconds, self._read)]
        blocks = [Timed(block.elapsed, block) for block in self.blocks]
        text = "".join(block.text for block in self.blocks)
        done = Done(id, reason, text, self.stats or self.counts() or {}, measured=self.measured)
        return [*read, *blocks, Timed(end, done)]
