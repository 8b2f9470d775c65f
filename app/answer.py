"""One answer's engine events as protocol messages, and its figures as `ask --json` prints them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from app.protocol import Block, Done, Step
from app.steps import Picture, changes
from engine.events import (
    PROTECTED,
    UNDECIDED,
    BlockEvent,
    BlockStats,
    Event,
    FinishEvent,
    Stats,
    StepEvent,
)

Told = tuple[float, Done | Callable[[], Step] | Callable[[], Block]]

NO_STATS = Stats(
    tokens=0, forwards=0, steps=0, commits=0, fused=0, edits=0, waste_tokens=0, prefill_tokens=0,
    cached_tokens=0, prefill_seconds=0.0, decode_seconds=0.0, whole_seconds=0.0,
    first_block_seconds=0.0,
)  # fmt: skip
"""The figures of an answer that was stopped before its first forward."""


class TokenTexts(Protocol):
    """What a narrator needs of a tokenizer."""

    def token_text(self, id: int) -> str: ...


@dataclass(frozen=True)
class Conditions:
    """What a figure was measured under: it goes beside every one of them."""

    model: str
    device: str
    preset: str


def answer_figures(text: str, reason: str, stats: Stats, conditions: Conditions) -> dict[str, Any]:
    """The object that `ask --json` prints; `engine.events` defines the numbers."""
    return {
        "text": text,
        "finish_reason": reason,
        "tokens": stats.tokens,
        "steps": stats.steps,
        "commits": stats.commits,
        "forwards": stats.forwards,
        "tpf": stats.tpf,
        "tpf_steps": stats.tpf_steps,
        "tokens_per_second": stats.tokens_per_second,
        "tokens_per_second_whole": stats.tokens_per_second_whole,
        "prefill_tokens": stats.prefill_tokens,
        "prefill_seconds": stats.prefill_seconds,
        "decode_seconds": stats.decode_seconds,
        "waste_tokens": stats.waste_tokens,
        "edits": stats.edits,
        "model": conditions.model,
        "device": conditions.device,
        "preset": conditions.preset,
        "seed": stats.seed,
        "blocks": [_block_figures(block) for block in stats.blocks],
    }


def inspected_figures(stats: Stats) -> dict[str, Any]:
    """What the Speed tab wants beside those: each block's steps, and where the time went (None
    where it was not measured)."""
    return {
        "model_seconds": stats.model_seconds,
        "pick_seconds": stats.pick_seconds,
        "commit_seconds": stats.commit_seconds,
        "blocks": [
            _block_figures(block)
            | {
                "unmasked_per_step": list(block.unmasked_per_step),
                "edits_per_step": list(block.edits_per_step),
            }
            for block in stats.blocks
        ],
    }


class Narrator:
    """Tells one answer, event by event. `slowed` goes up for good when slow motion was used."""

    def __init__(self, id: str, tokenizer: TokenTexts, conditions: Conditions) -> None:
        self.slowed = False
        self._id = id
        self._tokenizer = tokenizer
        self._conditions = conditions
        self._finished_tokens = 0
        self._open: list[StepEvent] = []

    def tell(self, event: Event) -> Told:
        """When it happened (seconds since the request), and the message or how to make it."""
        if isinstance(event, StepEvent):
            self._open.append(event)
            return event.seconds, self.step(event)
        if isinstance(event, BlockEvent):
            return event.seconds, self.block(event)
        return event.stats.whole_seconds, self.done(event)

    def step(self, event: StepEvent) -> Callable[[], Step]:
        """How to make the message: most steps are never sent, and slots are the costly part."""
        before, measured = self._finished_tokens, not self.slowed

        def make() -> Step:
            decided = sum(state not in (UNDECIDED, PROTECTED) for state in event.states)
            return Step(
                id=self._id,
                block=event.block,
                step=event.step,
                slots=self._slots(event),
                unmasked=event.unmasked,
                edited=event.edited,
                tokens=before + decided,
                forwards=event.forwards,
                seconds=event.seconds,
                measured=measured,
            )

        return make

    def block(self, event: BlockEvent) -> Callable[[], Block]:
        """How to make the message of a final block; telling its steps is the costly part, which
        is not the engine's to wait for."""
        self._finished_tokens += len(event.token_ids)
        mine = [step for step in self._open if step.block == event.block]
        self._open = [step for step in self._open if step.block > event.block]
        stats, measured = event.stats, not self.slowed

        def make() -> Block:
            pictures = [Picture(step.seconds, step.forwards, _rows(step)) for step in mine]
            return Block(
                id=self._id,
                index=event.block,
                text=event.text,
                tokens=stats.tokens,
                steps=stats.steps,
                forwards=stats.forwards,
                commits=stats.commits,
                seconds=stats.seconds,
                elapsed=event.seconds,
                unmasked_per_step=list(stats.unmasked_per_step),
                edits_per_step=list(stats.edits_per_step),
                measured=measured,
                positions=len(mine[0].states) if mine else 0,
                changes=changes(pictures, lambda slot: self._tokenizer.token_text(slot[0])),
            )

        return make

    def done(self, event: FinishEvent) -> Done:
        """The message that ends the answer."""
        figures = answer_figures(event.text, event.reason, event.stats, self._conditions)
        return Done(
            self._id,
            event.reason,
            event.text,
            figures,
            measured=not self.slowed,
            inspected=inspected_figures(event.stats),
        )

    def stopped_early(self) -> Done:
        """The end of an answer that was stopped before it began."""
        return self.done(FinishEvent((), "", "stopped", NO_STATS))

    def _slots(self, event: StepEvent) -> list[list[Any]]:
        """One [token id, text, confidence, state] a position; undecided positions have no text."""
        rows = _rows(event)
        for row in rows:
            if row[3] != UNDECIDED:
                row[1] = self._tokenizer.token_text(row[0])
        return rows


def _rows(event: StepEvent) -> list[list[Any]]:
    """The slots of a step without their texts."""
    return [
        [token, "", round(confidence, 4) if math.isfinite(confidence) else 0.0, state]
        for token, confidence, state in zip(
            event.token_ids, event.confidences, event.states, strict=True
        )
    ]


def _block_figures(block: BlockStats) -> dict[str, Any]:
    return {
        "tokens": block.tokens,
        "steps": block.steps,
        "forwards": block.forwards,
        "seconds": block.seconds,
    }
