"""One answer from a prompt: prefill, then block after block, until it ends.

Everything here is bookkeeping on the host: which block is the last, what the user may see, what
the counts are. The decisions are `denoise.py`'s.
"""

import time
from collections.abc import Callable, Generator, Iterator

import torch

from engine.checkpoint.tokenizer import TextStream, Tokenizer
from engine.decode.canvas import Canvas
from engine.decode.counting import Tally
from engine.decode.denoise import BlockEnd, Denoiser, NotFiniteError, StepResult
from engine.decode.kv_cache import KVCache
from engine.decode.plan import Plan
from engine.decode.trajectory import StepState, Trajectory
from engine.events import (
    EDITED,
    NEW,
    PROTECTED,
    SET,
    UNDECIDED,
    BlockEvent,
    Event,
    FinishEvent,
    Reason,
    StepEvent,
)

PREFILL_TOKENS = 512
"""Prompt tokens a prefill forward takes: a stop waits for at most one of these."""

OnPrefill = Callable[[int, int, int, float], None]
"""(tokens computed, tokens to compute, tokens kept from before, seconds so far)."""


class Answer:
    """The state of one answer; `events` runs it."""

    def __init__(
        self,
        plan: Plan,
        denoiser: Denoiser,
        tokenizer: Tokenizer | None,
        on_prefill: OnPrefill | None,
        requested: float,
    ) -> None:
        self._plan = plan
        self._denoiser = denoiser
        self._tokenizer = tokenizer
        self._config = denoiser.config
        self._cache: KVCache = denoiser.cache
        self._on_prefill = on_prefill
        self._requested = requested
        self._tally = Tally(requested)
        self._stream = (
            None if tokenizer is None else TextStream(tokenizer, self._config.stop_strings)
        )
        self._ids: list[int] = []  # every token of the finished blocks, behind the prompt
        self._visible: list[int] = []
        self._waste = 0
        self._ended = False  # a stop id or stop string has been passed
        self._states: list[StepState] = []
        self._turn = -1

    @property
    def reach(self) -> int:
        """Position behind the last block that the answer may open."""
        return self._plan.last_start + self._plan.block_length

    def events(self) -> Iterator[Event]:
        """Yield the answer's events; the last one is its FinishEvent."""
        if not self._prefill():
            yield self._finish("stopped")
            return
        yield from self._blocks()

    def _blocks(self) -> Iterator[Event]:
        """The same from the first block on: the prompt is in the cache."""
        start, opened = self._plan.first_start, None
        canvas = self._open(start)
        while True:
            fresh = self._open(start + self._plan.block_length) if self._has_next(start) else None
            try:
                end = yield from self._denoise(canvas, fresh, opened)
            except NotFiniteError as error:
                self._tally.close_block(0, time.perf_counter())
                yield self._finish("error", f"The answer was stopped: {error}.")
                return
            yield self._close(end)
            reason = self._reason(end, last=fresh is None)
            if reason is not None:
                yield self._finish(reason)
                return
            assert fresh is not None
            start, canvas, opened = fresh.start, fresh, end.opened

    def _prefill(self) -> bool:
        """Bring the prompt's whole blocks into the cache; False when stopped on the way."""
        plan = self._plan
        cached = self._cache.keep_prefix(plan.prompt[: plan.first_start], plan.block_length)
        self._turn = self._cache.turn
        self._cache.reserve(self.reach)
        todo = plan.first_start - cached
        chunk = max(PREFILL_TOKENS // plan.block_length, 1) * plan.block_length
        while self._cache.length < plan.first_start:
            if self._denoiser.stop():
                break
            first = self._cache.length
            ids = plan.prompt[first : min(first + chunk, plan.first_start)]
            self._forward_prompt(ids, first)
            self._cache.commit(ids)
            self._tell_prefill(self._cache.length - cached, todo, cached)
        if not todo:
            self._tell_prefill(0, 0, cached)
        done = self._cache.length - cached
        self._tally.prefilled(done, cached, time.perf_counter())
        return done == todo

    def _forward_prompt(self, ids: list[int], first: int) -> None:
        model = self._denoiser.model
        device = model.embedding_table.device
        positions = torch.arange(first, first + len(ids), device=device)
        with torch.no_grad():
            embeds = model.embed(torch.tensor(ids, device=device))
            model.trunk(embeds, positions, self._cache.attend(first))
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # or the prompt's time would be the first block's

    def _tell_prefill(self, done: int, total: int, cached: int) -> None:
        if self._on_prefill is not None:
            self._on_prefill(done, total, cached, time.perf_counter() - self._requested)

    def _open(self, start: int) -> Canvas:
        plan, denoiser = self._plan, self._denoiser
        device = denoiser.model.embedding_table.device
        tail = plan.prompt[start:]
        return Canvas.open(start, plan.block_length, tail, denoiser.mask_id, device)

    def _has_next(self, start: int) -> bool:
        return start < self._plan.last_start

    def _denoise(
        self, canvas: Canvas, fresh: Canvas | None, opened: StepResult | None
    ) -> Generator[StepEvent, None, BlockEnd]:
        """Run one block's steps, yielding an event each; returns how the block ended."""
        steps = self._denoiser.block(canvas, fresh, opened)
        while True:
            if self._cache.turn != self._turn:
                raise RuntimeError("another answer has begun; this one cannot go on")
            try:
                result = next(steps)
            except StopIteration as stop:
                end: BlockEnd = stop.value
                self._tally.ended(end, time.perf_counter())
                return end
            self._tally.stepped(result, time.perf_counter())
            if result.state is not None:
                self._states.append(result.state)
            yield self._step_event(result)

    def _step_event(self, result: StepResult) -> StepEvent:
        canvas = result.canvas
        return StepEvent(
            block=(canvas.start - self._plan.first_start) // len(canvas),
            step=canvas.step,
            token_ids=result.token_ids,
            confidences=result.confidences,
            states="".join(_states(result, self._denoiser.mask_id)),
            unmasked=sum(result.unmasked),
            edited=sum(result.edited),
            forwards=self._tally.forwards,
            fused=result.fused,
            seconds=time.perf_counter() - self._requested,
        )

    def _close(self, end: BlockEnd) -> BlockEvent:
        """Take over a final (or stopped) block's tokens: what is visible, what is waste."""
        canvas = end.canvas
        own = canvas.tokens.tolist()[canvas.prompt_tokens :]
        block = (canvas.start - self._plan.first_start) // len(canvas)
        before = len(self._visible)
        self._ids += own
        self._visible += self._visible_part(own, canvas.start + canvas.prompt_tokens)
        text = self._push_text(self._visible[before:])
        visible = self._visible[before:]
        now = time.perf_counter()
        return BlockEvent(
            block=block,
            token_ids=tuple(visible),
            text=text,
            stats=self._tally.close_block(len(visible), now),
            seconds=now - self._requested,
        )

    def _visible_part(self, own: list[int], at: int) -> list[int]:
        """The tokens of a block that the user sees, from position `at` on; counts the waste."""
        denoiser, limit = self._denoiser, self._plan.limit
        visible: list[int] = []
        for position, token in enumerate(own, start=at):
            if token == denoiser.mask_id:
                if self._ended:
                    continue  # editing off: the end was certain before the block was filled
                break  # a stopped block: what lies beyond is not an answer yet
            if self._ended or position >= limit:
                self._waste += 1
            elif token in denoiser.stop_ids:
                self._ended = True
            else:
                visible.append(token)
        return visible

    def _push_text(self, visible: list[int]) -> str:
        if self._stream is None:
            return ""
        text = self._stream.push(visible)
        if self._stream.stopped:
            self._ended = True
            self._cut_at_stop_string()
        return text

    def _cut_at_stop_string(self) -> None:
        """Drop the tokens from the stop string on: the fewest are kept that hold the text."""
        assert self._stream is not None
        assert self._tokenizer is not None
        keep, text = len(self._visible), self._stream.text
        while keep and self._tokenizer.decode(self._visible[: keep - 1]).startswith(text):
            keep -= 1
        self._waste += len(self._visible) - keep
        self._visible = self._visible[:keep]

    def _reason(self, end: BlockEnd, *, last: bool) -> Reason | None:
        """Why the answer ends with this block, or None when it goes on."""
        if end.stopped:
            return "stopped"
        stop_string = self._stream is not None and self._stream.stopped
        if self._ended and (self._config.stop_at_end or last or stop_string):
            return "end"
        if last:
            return "context" if self._plan.by_context else "length"
        return None

    def _finish(self, reason: Reason, error: str | None = None) -> FinishEvent:
        text = ""
        if self._stream is not None:
            self._stream.finish()
            text = self._stream.text
        stopped_at = time.perf_counter() if reason == "stopped" else None
        trajectory = None
        if self._denoiser.record:
            plan = self._plan
            trajectory = Trajectory(
                prompt_ids=tuple(plan.prompt),
                final_ids=tuple(plan.prompt + self._ids),
                block_length=plan.block_length,
                steps=tuple(self._states),
            )
        seed = self._denoiser.seed if self._config.temperature > 0 else self._config.seed
        stats = self._tally.finish(
            len(self._visible), self._waste, seed, stopped_at, self._denoiser.times
        )
        return FinishEvent(
            token_ids=tuple(self._visible),
            text=text,
            reason=reason,
            stats=stats,
            trajectory=trajectory,
            error=error,
        )


def _states(result: StepResult, mask_id: int) -> Iterator[str]:
    prompt_tokens = result.canvas.prompt_tokens
    rows = zip(result.token_ids, result.unmasked, result.edited, strict=True)
    for position, (token, new, changed) in enumerate(rows):
        if position < prompt_tokens:
            yield PROTECTED
        elif token == mask_id:
            yield UNDECIDED
        else:
            yield NEW if new else EDITED if changed else SET
