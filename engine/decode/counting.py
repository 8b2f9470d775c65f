"""Counts and times of an answer while it is made; `engine.events` defines what they mean."""

from dataclasses import dataclass, field, replace

from engine.decode.denoise import BlockEnd, StepResult
from engine.decode.loop_times import LoopTimes
from engine.events import BlockStats, Stats


@dataclass
class BlockTally:
    """What the open block has cost so far; `decided` counts answer positions decided in it."""

    steps: int = 0
    forwards: int = 0
    commits: int = 0
    seconds: float = 0.0
    unmasked: list[int] = field(default_factory=list)
    edits: list[int] = field(default_factory=list)

    def freeze(self, tokens: int) -> BlockStats:
        """The block's figures once it is final, with its `tokens` visible ones."""
        return BlockStats(
            tokens=tokens,
            steps=self.steps,
            forwards=self.forwards,
            commits=self.commits,
            seconds=self.seconds,
            unmasked_per_step=tuple(self.unmasked),
            edits_per_step=tuple(self.edits),
        )


class Tally:
    """An answer's counts. Times are readings of one monotonic clock, in seconds."""

    def __init__(self, requested: float) -> None:
        self._requested = requested
        self._decode_from = self._mark = requested
        self._first_block: float | None = None
        self._prefill_tokens = self._cached_tokens = 0
        self._fused = 0
        self._blocks: list[BlockStats] = []
        self.block = BlockTally()
        self.forwards = 0

    def prefilled(self, tokens: int, cached: int, now: float) -> None:
        """The prompt is in the cache: `tokens` computed, `cached` kept."""
        self._prefill_tokens, self._cached_tokens = tokens, cached
        self._decode_from = self._mark = now

    def stepped(self, result: StepResult, now: float) -> None:
        """A step was decided."""
        self.counted(
            sum(result.unmasked), sum(result.edited), forwards=result.forwards, fused=result.fused,
            now=now,
        )  # fmt: skip

    def counted(
        self, unmasked: int, edited: int, *, forwards: int, fused: bool, now: float
    ) -> None:
        """A step was decided, told in numbers. The time of an accepted fused forward is left for
        the block that it opens, which comes next."""
        self.block.steps += 1
        self.block.unmasked.append(unmasked)
        self.block.edits.append(edited)
        self._fused += fused
        if forwards:
            self._spent(1, now)

    def ended(self, end: BlockEnd, now: float) -> None:
        """The block is final; a commit-only forward was its own."""
        self.block.commits += end.commits
        if end.commit_forwards:
            self._spent(end.commit_forwards, now)

    def _spent(self, forwards: int, now: float) -> None:
        self.block.forwards += forwards
        self.forwards += forwards
        self.block.seconds += now - self._mark
        self._mark = now

    def close_block(self, tokens: int, now: float) -> BlockStats:
        """Freeze the open block and begin another."""
        if self._first_block is None:
            self._first_block = now - self._requested
        stats = self.block.freeze(tokens)
        self._blocks.append(stats)
        self.block = BlockTally()
        return stats

    def finish(
        self,
        tokens: int,
        waste: int,
        seed: int | None,
        stopped_at: float | None,
        times: LoopTimes | None = None,
    ) -> Stats:
        """All figures. The end is the last forward's, or the moment of a stop."""
        end = self._mark if stopped_at is None else stopped_at
        blocks = _cut_blocks(self._blocks, tokens)
        return Stats(
            tokens=tokens,
            forwards=self.forwards,
            steps=sum(b.steps for b in blocks),
            commits=sum(b.commits for b in blocks),
            fused=self._fused,
            edits=sum(sum(b.edits_per_step) for b in blocks),
            waste_tokens=waste,
            prefill_tokens=self._prefill_tokens,
            cached_tokens=self._cached_tokens,
            prefill_seconds=self._decode_from - self._requested,
            decode_seconds=end - self._decode_from,
            whole_seconds=end - self._requested,
            first_block_seconds=self._first_block or 0.0,
            seed=seed,
            blocks=blocks,
            model_seconds=None if times is None else times.model,
            pick_seconds=None if times is None else times.pick,
            commit_seconds=None if times is None else times.commit,
        )


def _cut_blocks(blocks: list[BlockStats], tokens: int) -> tuple[BlockStats, ...]:
    """Blocks whose token counts add up to the answer's `tokens`: a stop string that began in an
    earlier block takes tokens back from it."""
    cut = []
    for block in blocks:
        own = min(block.tokens, tokens)
        tokens -= own
        cut.append(replace(block, tokens=own))
    return tuple(cut)
