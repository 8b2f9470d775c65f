"""One denoising step, and the plain loop over a block's steps.

Any faster form of the loop must give the same tokens in the same number of steps as this one.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.canvas import Canvas
from engine.decode.kv_cache import KVCache
from engine.decode.loop_times import LoopTimes, Part
from engine.decode.trajectory import StepState
from engine.decode.unmasking import edit, entropy, predict, suppress_mask, unmask
from engine.kernels import ops
from engine.model.transformer import LLaDA2Model


class NotFiniteError(ArithmeticError):
    """The model's output is not numbers, so no decision can be made."""


@dataclass(frozen=True)
class StepResult:
    """One step's outcome on the host, one entry a position.

    Attributes:
        canvas: the block after the step.
        token_ids, confidences: as after the step.
        unmasked, edited: which positions this step changed, and how.
        settled: the input was final: nothing was undecided and no edit was proposed.
        forwards: 1, or 0 for the half of an accepted fused forward that ended a block.
        fused: the forward also ended the block before.
        state: what was read, when recording.
    """

    canvas: Canvas
    token_ids: tuple[int, ...]
    confidences: tuple[float, ...]
    unmasked: tuple[bool, ...]
    edited: tuple[bool, ...]
    settled: bool
    forwards: int = 1
    fused: bool = False
    state: StepState | None = None


@dataclass(frozen=True)
class BlockEnd:
    """How a block ended: its canvas, the commits made for it and how many were forwards of their
    own, the next block's first step where a fused forward made it, whether its keys and values
    are in the cache, and whether it was stopped from outside."""

    canvas: Canvas
    commits: int = 0
    commit_forwards: int = 0
    opened: StepResult | None = None
    committed: bool = False
    stopped: bool = False


@dataclass(frozen=True)
class Denoiser:
    """Steps over the blocks of one answer, whose first block begins at `first_start`.

    `config` is resolved: `mask_id`, `stop_ids` and `seed` stand beside it as the values in use.
    `stop` is asked before every forward. `times`, where it is given, learns where the time goes.
    """

    model: LLaDA2Model
    cache: KVCache
    config: DecodeConfig
    mask_id: int
    stop_ids: frozenset[int]
    seed: int
    first_start: int
    overlap: bool
    record: bool
    stop: Callable[[], bool]
    times: LoopTimes | None = None

    def block(
        self, canvas: Canvas, fresh: Canvas | None, opened: StepResult | None
    ) -> Generator[StepResult, None, BlockEnd]:
        """Denoise `canvas` until it is final; yields its steps, returns how it ended.

        `fresh` is the next block's canvas, None when this is the answer's last one; `opened` is
        the first step where a fused forward has taken it already.
        """
        result = opened
        while True:
            if result is not None:
                yield result
                canvas = result.canvas
                if result.settled:
                    self.cache.commit(list(result.token_ids))
                    return BlockEnd(canvas, committed=True)
                if self.ends_answer(result):
                    return BlockEnd(canvas)
                if self.is_final(canvas):
                    return self._end_by_commit(result, fresh)
            if self.stop():
                return BlockEnd(canvas, stopped=True)
            if fresh is not None and result is not None and self.may_fuse(result):
                result, following = self.fused_step(canvas, fresh)
                if following is not None:
                    yield result
                    self.cache.commit(list(result.token_ids))
                    return BlockEnd(result.canvas, opened=following, committed=True)
            else:
                result = self.step(canvas)

    def step(self, canvas: Canvas) -> StepResult:
        """One forward over the block against the committed prefix, and its decisions."""
        with self._without_gradients():
            logits = self._logits(canvas.start, self._embed(canvas), canvas.positions)
            return self.decide(canvas, logits)

    def fused_step(self, canvas: Canvas, fresh: Canvas) -> tuple[StepResult, StepResult | None]:
        """A mask-free step of `canvas` and the first step of `fresh` in one forward.

        If the first half proposes an edit, the second rests on tokens that change: it is dropped.
        """
        with self._without_gradients():
            own, ahead = self._fused_logits(canvas, fresh)
            result = self.decide(canvas, own)
            if not result.settled:
                return result, None
            following = self._ahead(fresh, ahead)
            return (result if following is None else replace(result, forwards=0)), following

    def _ahead(self, fresh: Canvas, logits: Tensor) -> StepResult | None:
        """The next block's first step, from a fused forward. None if its half is not numbers,
        which is for that block's own step to say: the block before is not to be lost for it."""
        try:
            return replace(self.decide(fresh, logits), fused=True)
        except NotFiniteError:
            return None

    def _end_by_commit(self, result: StepResult, fresh: Canvas | None) -> BlockEnd:
        """Store the keys and values of a block whose last forward did not read its final tokens,
        unless nothing will ever see them."""
        canvas = result.canvas
        if fresh is None or self.ends_block(result):
            return BlockEnd(canvas)
        if self.stop():
            return BlockEnd(canvas, stopped=True)
        opened = None
        with self._without_gradients():
            if self.overlap:
                _, ahead = self._fused_logits(canvas, fresh)
                opened = self._ahead(fresh, ahead)
            else:
                attend = self.cache.attend(canvas.start)
                with self._timed("commit"):
                    self.model.trunk(self._embed(canvas), canvas.positions, attend)
        self.cache.commit(list(result.token_ids))
        own = 1 if opened is None else 0
        return BlockEnd(canvas, commits=1, commit_forwards=own, opened=opened, committed=True)

    def is_final(self, canvas: Canvas) -> bool:
        """Filled, and no further step is allowed to change it."""
        limit = self.config.max_post_steps if self.config.edits else 0
        return canvas.filled and canvas.post_steps >= limit

    def may_fuse(self, result: StepResult) -> bool:
        """A mask-free step that is worth trying together with the next block's first: a block's
        first two, never in a block that may be the answer's last."""
        canvas = result.canvas
        early = canvas.filled and canvas.post_steps < 2
        return self.overlap and early and not self.ends_block(result)

    def ends_block(self, result: StepResult) -> bool:
        """A stop id stands at an unprotected position, so the answer ends with this block."""
        own = result.token_ids[result.canvas.prompt_tokens :]
        return self.config.stop_at_end and not self.stop_ids.isdisjoint(own)

    def ends_answer(self, result: StepResult) -> bool:
        """With editing off, a stop id with nothing undecided before it can no longer change."""
        if self.config.edits or not self.config.stop_at_end:
            return False
        return self.end_position(result) is not None

    def end_position(self, result: StepResult) -> int | None:
        """Index in the block of the first stop id that nothing undecided precedes, if any."""
        for index in range(result.canvas.prompt_tokens, len(result.token_ids)):
            token = result.token_ids[index]
            if token in self.stop_ids:
                return index
            if token == self.mask_id:
                return None
        return None

    def _without_gradients(self) -> AbstractContextManager[object]:
        """Inference mode is a tenth faster on a small model, but its tensors cannot be trained on,
        which is what recorded ones are for."""
        return torch.no_grad() if self.record else torch.inference_mode()

    def _embed(self, canvas: Canvas) -> Tensor:
        return self.model.embed(canvas.tokens, canvas.z, canvas.undecided)

    def _fused_logits(self, canvas: Canvas, fresh: Canvas) -> tuple[Tensor, Tensor]:
        embeds = torch.cat((self._embed(canvas), self._embed(fresh)))
        positions = torch.cat((canvas.positions, fresh.positions))
        own, ahead = self._logits(canvas.start, embeds, positions).split(len(canvas))
        return own, ahead

    def _logits(self, start: int, embeds: Tensor, positions: Tensor) -> Tensor:
        with self._timed("model"):
            logits: Tensor = self.model(embeds, positions, self.cache.attend(start))
        return logits

    def _timed(self, part: Part) -> AbstractContextManager[object]:
        return nullcontext() if self.times is None else self.times.measure(part)

    def decide(self, canvas: Canvas, logits: Tensor) -> StepResult:
        """Unmask and edit by logits [B, V]; one transfer to the host."""
        with self._timed("pick"):
            return self._decide(canvas, logits)

    def _decide(self, canvas: Canvas, logits: Tensor) -> StepResult:
        logits = suppress_mask(logits, self.mask_id)
        prediction = predict(
            logits, self.config, seed=self.seed, start=canvas.start, step=canvas.step
        )
        unmasked = unmask(prediction, canvas.undecided, self.config)
        edited = edit(prediction, canvas.tokens, canvas.editable, self.config)
        tokens = torch.where(unmasked, prediction.tokens, canvas.tokens)
        tokens = torch.where(edited, prediction.best, tokens)
        undecided = canvas.undecided & ~unmasked
        rows = (tokens, prediction.confidence, unmasked, edited, undecided)
        # float64 holds every token id exactly, and one tensor is one transfer.
        ids, confidences, new, changed, open_ = torch.stack([r.double() for r in rows]).tolist()
        if not all(c == c for c in confidences):
            raise NotFiniteError("the model's output holds values that are not numbers")
        filled = not any(open_)
        after = Canvas(
            canvas.start,
            tokens,
            undecided,
            canvas.prompt_tokens,
            z=None if filled else self._residual_context(logits),
            step=canvas.step + 1,
            post_steps=canvas.post_steps + canvas.filled,
            filled=filled,
        )
        return StepResult(
            canvas=after,
            token_ids=tuple(int(i) for i in ids),
            confidences=tuple(confidences),
            unmasked=tuple(bool(n) for n in new),
            edited=tuple(bool(c) for c in changed),
            settled=canvas.filled and not any(changed),
            state=self._state(canvas, logits) if self.record else None,
        )

    def _residual_context(self, logits: Tensor) -> Tensor | None:
        """z [B, d] for the next step; None where no adapter would read it."""
        if self.model.residual_adapter is None:
            return None
        residual = self.model.residual
        z: Tensor = ops(logits).soft_embedding(
            logits,
            self.model.embedding_table,
            temperature=residual.temperature,
            top_k=residual.top_k,
        )
        return z

    def _state(self, canvas: Canvas, logits: Tensor) -> StepState:
        open_rows = logits[canvas.undecided]
        return StepState(
            block=(canvas.start - self.first_start) // len(canvas),
            step=canvas.step,
            start=canvas.start,
            canvas=canvas.tokens,
            undecided=canvas.undecided,
            z=canvas.z,
            entropy=float(entropy(open_rows).mean()) if len(open_rows) else 0.0,
        )
