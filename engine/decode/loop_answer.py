"""An answer whose loop runs by itself: the host starts it, reads the mailbox, and tells the story.

Events, text and counts are `answer.py`'s; the decisions come as records. What differs: a step whose
snapshot was overwritten before it was read has no event (it counts all the same), and times are
those at which the host saw a record.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.checkpoint.tokenizer import Tokenizer
from engine.decode.answer import Answer, OnPrefill
from engine.decode.canvas import Canvas
from engine.decode.denoise import BlockEnd, Denoiser, StepResult
from engine.decode.graph import GraphUnavailableError
from engine.decode.mailbox import Reader, Record
from engine.decode.plan import Plan
from engine.events import Event, Reason
from engine.kernels.loop_state import (
    A_STEP,
    CAPPED,
    DONE,
    NOT_FINITE,
    OVER,
    LoopState,
    Mailbox,
    log_lines,
)

_POLL_SECONDS = 1e-4
_LEAST_CAPACITY = 2048


class Runner(Protocol):
    """What makes rounds. `pause`: where it leaves the loop (`loop_state.NEVER` and the others)."""

    pause: int

    def start(self) -> None:
        """Enter the loop, again after a pause; may return before it is left."""

    def idle(self) -> bool:
        """Whether it has been left. Raises what the device raises."""

    def wait(self) -> None:
        """Until it has been left."""


@dataclass(frozen=True)
class AnswerLoop:
    """A loop's memory and what runs it; one answer at a time."""

    state: LoopState
    mailbox: Mailbox
    runner: Runner

    def takes(self, plan: Plan, denoiser: Denoiser) -> bool:
        """Whether the memory is large enough for the answer, and made for its blocks."""
        return self.state.length == plan.block_length and answer_fits(
            plan, denoiser, len(self.mailbox.final)
        )

    def begin(self, plan: Plan, denoiser: Denoiser) -> None:
        """Put the loop to the beginning of an answer, whose prompt is in the cache."""
        self.halt()
        self.mailbox.clear()
        _, rounds = _sizes(plan, denoiser)
        control = {
            "last_start": plan.last_start,
            "most": rounds,
            "overlap": int(denoiser.overlap),
            "stop_at_end": int(denoiser.config.stop_at_end),
            "pause": self.runner.pause,
        }
        tail = plan.prompt[plan.first_start :]
        self.state.begin(tail, plan.first_start, denoiser.mask_id, control)

    def halt(self) -> None:
        """End what may still be running: of an answer that nobody reads any more."""
        self.mailbox.stop.fill_(1)
        self.runner.wait()


def answer_fits(plan: Plan, denoiser: Denoiser, capacity: int) -> bool:
    """Whether a mailbox for `capacity` positions has room for all that an answer may write."""
    blocks, rounds = _sizes(plan, denoiser)
    # A round leaves two steps and an end at most, but no more steps than it could need alone.
    records = rounds + 2 * blocks + 2
    return blocks * plan.block_length <= capacity and records <= log_lines(capacity)


def _sizes(plan: Plan, denoiser: Denoiser) -> tuple[int, int]:
    """Blocks of an answer, and the most forwards it can need: each block is filled by as many steps
    as it has positions, settles or runs into the limit, and is committed."""
    blocks = (plan.last_start - plan.first_start) // plan.block_length + 1
    return blocks, blocks * (plan.block_length + denoiser.config.max_post_steps + 2)


class LoopAnswer(Answer):
    """As `Answer`, with its steps taken by a loop. `begin` is called when the prompt is in the
    cache, and gives a loop that takes this answer; when it cannot, the host takes the steps."""

    def __init__(
        self,
        plan: Plan,
        denoiser: Denoiser,
        tokenizer: Tokenizer | None,
        on_prefill: OnPrefill | None,
        requested: float,
        begin: Callable[[Plan, Denoiser], AnswerLoop],
    ) -> None:
        super().__init__(plan, denoiser, tokenizer, on_prefill, requested)
        self._begin = begin
        self._mask_id = denoiser.mask_id
        self._last: Reason | None = None  # why the answer ends with the last block that ended

    @property
    def reach(self) -> int:
        """As for `Answer`, and a block more, for trying the wide forward; not less than what saves
        most chats from a second capture."""
        return max(super().reach + self._plan.block_length, _LEAST_CAPACITY)

    def events(self) -> Iterator[Event]:
        """Yield the answer's events; the last one is its FinishEvent."""
        if not self._prefill():
            yield self._finish("stopped")
            return
        if self._denoiser.stop():
            yield self._close(BlockEnd(self._open(self._plan.first_start), stopped=True))
            yield self._finish("stopped")
            return
        try:
            loop = self._begin(self._plan, self._denoiser)
        except GraphUnavailableError:
            yield from self._blocks()
            return
        try:
            yield from self._follow(loop)
        finally:
            loop.halt()

    def _follow(self, loop: AnswerLoop) -> Iterator[Event]:
        reader = Reader(loop.mailbox)
        while True:
            loop.runner.start()
            idle = False
            while not idle:
                idle = loop.runner.idle()  # asked first, so that its last records are read
                for record in reader.new():
                    if record.kind == DONE:
                        yield from self._done(record.outcome)
                        return
                    yield from self._tell(record, reader)
                self._check_turn()
                if self._denoiser.stop():
                    loop.mailbox.stop.fill_(1)
                if not idle:
                    time.sleep(_POLL_SECONDS)

    def _check_turn(self) -> None:
        if self._cache.turn != self._turn:
            raise RuntimeError("another answer has begun; this one cannot go on")

    def _tell(self, record: Record, reader: Reader) -> Iterator[Event]:
        now = time.perf_counter()
        if record.kind == A_STEP:
            self._tally.counted(
                record.unmasked, record.edited, forwards=record.forwards, fused=record.fused,
                now=now,
            )  # fmt: skip
            if record.snapshot is not None:
                yield self._step_event(self._result(record))
            return
        canvas = self._canvas(record, reader.final(record.block))
        if record.committed:
            self._check_turn()
            self._cache.commit(canvas.tokens.tolist())
        end = BlockEnd(
            canvas, commits=record.commits, commit_forwards=record.forwards,
            committed=record.committed, stopped=record.stopped,
        )  # fmt: skip
        self._tally.ended(end, now)
        yield self._close(end)
        self._last = self._reason(end, last=not self._has_next(canvas.start))

    def _done(self, outcome: int) -> Iterator[Event]:
        if outcome in (NOT_FINITE, CAPPED):
            self._tally.close_block(0, time.perf_counter())
            words = {
                NOT_FINITE: "the model's output holds values that are not numbers",
                CAPPED: "it took more steps than an answer can need",
            }
            yield self._finish("error", f"The answer was stopped: {words[outcome]}.")
            return
        assert self._last is not None, "the loop ended where the answer goes on"
        assert outcome != OVER or self._last != "stopped"
        yield self._finish(self._last)

    def _canvas(self, record: Record, tokens: list[int]) -> Canvas:
        start = self._plan.first_start + record.block * self._plan.block_length
        held = torch.tensor(tokens)
        prompt_tokens = max(len(self._plan.prompt) - start, 0)
        return Canvas(start, held, held == self._mask_id, prompt_tokens, step=record.step)

    def _result(self, record: Record) -> StepResult:
        shot = record.snapshot
        assert shot is not None
        return StepResult(
            canvas=self._canvas(record, list(shot.token_ids)),
            token_ids=shot.token_ids,
            confidences=shot.confidences,
            unmasked=shot.unmasked,
            edited=shot.edited,
            settled=False,  # nobody asks it of an event
            forwards=record.forwards,
            fused=record.fused,
        )
