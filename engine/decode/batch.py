"""Many answers at once: each forward serves one block of every open answer.

Decisions, counts and text are those of `denoise.py` and `answer.py`; only the forwards are shared,
so an answer is the same as alone (in float32; a product over more rows may round differently).

Left out: two blocks of one answer in a forward, since a batch fills the processor anyway. With
`overlap` the counts are still those of the overlapping schedule, which the steps determine. Left
out too: one prefill for the k answers of a prompt. Times are the batch's, not an answer's own.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.decode.answer import Answer
from engine.decode.canvas import Canvas
from engine.decode.denoise import BlockEnd, NotFiniteError, StepResult
from engine.events import FinishEvent, Reason
from engine.kernels import ops
from engine.model.attention import Attend
from engine.model.transformer import LLaDA2Model


@dataclass(frozen=True)
class Ask:
    """A forward that an answer needs next: over `canvas`, for decisions or only for the keys and
    values that it leaves."""

    canvas: Canvas
    decides: bool = True


Asking = Generator[Ask, Tensor | None, FinishEvent]
"""Yields what it needs, is sent logits [B, V] (None where none were asked for), returns the end."""


class Lane(Answer):
    """An answer that asks for its forwards instead of making them."""

    def run(self) -> Asking:
        """From the prompt to the FinishEvent."""
        if not (yield from self._read_prompt()):
            return self._finish("stopped")
        start, fused = self._plan.first_start, False
        while True:
            last = not self._has_next(start)
            try:
                end, fused = yield from self._take_steps(self._open(start), last, fused)
            except NotFiniteError as error:
                self._tally.close_block(0, time.perf_counter())
                return self._finish("error", f"The answer was stopped: {error}.")
            self._tally.ended(end, time.perf_counter())
            self._close(end)
            reason: Reason | None = self._reason(end, last=last)
            if reason is not None:
                return self._finish(reason)
            start += self._plan.block_length

    def _read_prompt(self) -> Generator[Ask, Tensor | None, bool]:
        """The prompt's whole blocks, one a forward; False when stopped on the way."""
        plan, done = self._plan, 0
        for start in range(0, plan.first_start, plan.block_length):
            if self._denoiser.stop():
                break
            ids = plan.prompt[start : start + plan.block_length]
            device = self._denoiser.model.embedding_table.device
            canvas = Canvas.open(start, plan.block_length, ids, self._denoiser.mask_id, device)
            yield Ask(canvas, decides=False)
            done = start + plan.block_length
        self._tally.prefilled(done, 0, time.perf_counter())
        return done == plan.first_start

    def _take_steps(
        self, canvas: Canvas, last: bool, fused: bool
    ) -> Generator[Ask, Tensor | None, tuple[BlockEnd, bool]]:
        """One block; how it ended, and whether that forward would open the next block too.

        `fused` says the same of the block before.
        """
        denoiser, result = self._denoiser, None
        while True:
            if denoiser.stop():
                return BlockEnd(canvas, stopped=True), False
            shared = result is not None and not last and denoiser.may_fuse(result)
            logits = yield Ask(canvas)
            assert logits is not None
            result = denoiser.decide(canvas, logits)
            canvas, shared = result.canvas, shared and result.settled
            self._note(replace(result, fused=fused, forwards=0 if shared else 1))
            fused = False
            if result.settled:
                return BlockEnd(canvas, committed=True), shared
            if denoiser.ends_answer(result):
                return BlockEnd(canvas), False
            if denoiser.is_final(canvas):
                if last or denoiser.ends_block(result):
                    return BlockEnd(canvas), False
                if denoiser.stop():
                    return BlockEnd(canvas, stopped=True), False
                yield Ask(canvas, decides=False)
                own = 0 if denoiser.overlap else 1
                end = BlockEnd(canvas, commits=1, commit_forwards=own, committed=True)
                return end, denoiser.overlap

    def _note(self, result: StepResult) -> None:
        self._tally.stepped(result, time.perf_counter())
        if result.state is not None:
            self._states.append(result.state)


class LaneCache:
    """Keys and values of several answers, a row each: per layer [rows, Hkv, capacity, D]."""

    def __init__(self, config: ModelConfig, rows: int, capacity: int, like: Tensor) -> None:
        shape = (rows, config.num_key_value_heads, capacity, config.head_dim)
        layers = range(config.num_hidden_layers)
        self._keys = [like.new_zeros(shape) for _ in layers]
        self._values = [like.new_zeros(shape) for _ in layers]

    def attend(self, rows: Tensor, starts: Tensor, block_length: int, reach: int) -> Attend:
        """Attention of rows [n], whose open blocks begin at starts [n]: stores their keys and
        values; each sees its own row before its start, and its block. `reach` is the largest end.
        """
        positions = starts[:, None] + torch.arange(block_length, device=starts.device)
        ends = starts + block_length

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._keys[layer], self._values[layer]
            keys[rows[:, None], :, positions] = k.transpose(1, 2)
            values[rows[:, None], :, positions] = v.transpose(1, 2)
            own = (keys[rows, :, :reach], values[rows, :, :reach])
            return ops(q).prefix_attention(q, *own, ends)

        return attend


@torch.no_grad()
def answer_all(
    lanes: Sequence[Lane],
    model: LLaDA2Model,
    rows: int,
    *,
    progress: Callable[[int, FinishEvent], None] | None = None,
) -> list[FinishEvent]:
    """Run every lane, at most `rows` at a time, in the order given; their ends in that order.

    All must have one block length. `progress` is told (index, end) of each as it ends.
    """
    ends: dict[int, FinishEvent] = {}
    waiting = deque(enumerate(lane.run() for lane in lanes))
    capacity = max((lane.reach for lane in lanes), default=0)
    cache = LaneCache(model.config, min(rows, len(lanes)), capacity, model.embedding_table)
    open_: dict[int, tuple[int, Asking, Ask]] = {}  # row -> answer's index, itself, its wish
    free = deque(range(min(rows, len(lanes))))

    def advance(row: int, index: int, asking: Asking, logits: Tensor | None) -> None:
        try:
            open_[row] = (index, asking, asking.send(logits))
        except StopIteration as stop:
            ends[index] = stop.value
            free.append(row)
            open_.pop(row, None)
            if progress is not None:
                progress(index, stop.value)

    while waiting or open_:
        while waiting and free:
            advance(free.popleft(), *waiting.popleft(), None)
        if open_:
            turns = sorted(open_.items())
            results = _forward(model, cache, [row for row, _ in turns], [t[2] for _, t in turns])
            for (row, (index, asking, _)), logits in zip(turns, results, strict=True):
                advance(row, index, asking, logits)
    return [ends[index] for index in range(len(lanes))]


def _forward(
    model: LLaDA2Model, cache: LaneCache, rows: list[int], asks: list[Ask]
) -> list[Tensor | None]:
    """One model call for all; logits [B, V] for those that decide."""
    canvases = [ask.canvas for ask in asks]
    device = model.embedding_table.device
    starts = torch.tensor([canvas.start for canvas in canvases], device=device)
    length, reach = len(canvases[0]), max(canvas.start + len(canvas) for canvas in canvases)
    positions = starts[:, None] + torch.arange(length, device=device)
    attend = cache.attend(torch.tensor(rows, device=device), starts, length, reach)
    hidden = model.trunk(_embed(model, canvases), positions, attend)
    deciding = [index for index, ask in enumerate(asks) if ask.decides]
    logits = model.lm_head(model.model.norm(hidden[deciding])).float() if deciding else []
    results: list[Tensor | None] = [None] * len(asks)
    for index, own in zip(deciding, logits, strict=True):
        results[index] = own
    return results


def _embed(model: LLaDA2Model, canvases: list[Canvas]) -> Tensor:
    """Input embeddings [n, B, d]; those with residual context in one call of the adapter."""
    tokens = torch.stack([canvas.tokens for canvas in canvases])
    embeds = model.embed(tokens)
    taking = [index for index, canvas in enumerate(canvases) if canvas.z is not None]
    if taking:
        z = torch.stack([z for canvas in canvases if (z := canvas.z) is not None])
        undecided = torch.stack([canvases[index].undecided for index in taking])
        embeds[taking] = model.embed(tokens[taking], z, undecided)
    return embeds
