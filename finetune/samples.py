"""Which of a trajectory's denoising states are trained, and which of their positions."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from engine.decode.trajectory import StepState, Trajectory


@dataclass(frozen=True)
class Sample:
    """What is trained of one answer: `states` in the order they came, and of each, the block
    positions that are trained; `pairs` are indices of neighbours in one block."""

    final_ids: tuple[int, ...]
    block_length: int
    states: tuple[StepState, ...]
    trained: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def clean_tokens(self) -> int:
        """Clean context needed: the blocks before the last state's."""
        return max(state.start for state in self.states)

    @property
    def context(self) -> tuple[int, ...]:
        """The clean tokens."""
        return self.final_ids[: self.clean_tokens]

    @property
    def cost(self) -> int:
        """Tokens in a row of its own."""
        return self.clean_tokens + len(self.states) * self.block_length


def select(
    trajectory: Trajectory, stop_ids: Collection[int], most: int, rng: random.Random
) -> Sample | None:
    """At most `most` neighbouring states that have undecided positions to train; None if none has.

    Trained are undecided positions up to the first stop token, which is included. The window
    wraps around, so that every state of a long answer is as likely as any other.
    """
    end = _end(trajectory, stop_ids)
    found = []
    for state in trajectory.steps:
        open_ = state.undecided.nonzero().flatten().tolist()
        own = tuple(i for i in open_ if state.start + i <= end)
        if own:
            found.append((state, own))
    if not found:
        return None
    if len(found) > most:
        first = rng.randrange(len(found))
        chosen = sorted((first + i) % len(found) for i in range(most))
        found = [found[i] for i in chosen]
    states = tuple(state for state, _ in found)
    return Sample(
        final_ids=trajectory.final_ids,
        block_length=trajectory.block_length,
        states=states,
        trained=tuple(own for _, own in found),
        pairs=tuple(
            (i, i + 1)
            for i, (a, b) in enumerate(pairwise(states))
            if (a.block, a.step + 1) == (b.block, b.step)
        ),
    )


def _end(trajectory: Trajectory, stop_ids: Collection[int]) -> int:
    """Position of the answer's first stop token, or of its last token."""
    first = len(trajectory.prompt_ids)
    for position, token in enumerate(trajectory.final_ids[first:], start=first):
        if token in stop_ids:
            return position
    return len(trajectory.final_ids) - 1
