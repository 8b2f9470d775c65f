"""Every step of a block as what it changed, small enough to come with the final block.

A position is decided once and seldom edited, so a block of 32 with all its steps is about 1 KB,
where the pictures that are sent while it is denoised take as much for each step and are sampled.
Left out is the confidence of positions that a step did not touch: no picture shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.protocol import Block, Step

UNDECIDED, SET, PROMPT = "u", "s", "p"
NOTHING_YET = (0, "", 0.0, UNDECIDED)


@dataclass(frozen=True)
class Picture:
    """An open block after a step: seconds since the request, forwards so far, and a slot
    [token id, text, confidence, state] a position; texts may be missing."""

    seconds: float
    forwards: int
    slots: Sequence[Sequence[Any]]


def changes(
    pictures: Sequence[Picture], text: Callable[[Sequence[Any]], str] = lambda slot: slot[1]
) -> list[list[Any]]:
    """One [seconds, forwards, [[position, token id, text, confidence, state], ...]] a picture;
    `text` gives a slot's text, and is asked for changed positions only."""
    found: list[list[Any]] = []
    shown: dict[int, tuple[int, str]] = {}
    for picture in pictures:
        moved: list[list[Any]] = []
        for position, slot in enumerate(picture.slots):
            token, _, confidence, state = slot if len(slot) == 4 else NOTHING_YET
            if state == UNDECIDED:
                expected = position not in shown
            else:
                expected = shown.get(position) == (token, state)
            if not expected:
                words = "" if state == UNDECIDED else text(slot)
                moved.append([position, token, words, confidence, state])
            if state == UNDECIDED:
                shown.pop(position, None)
            else:
                shown[position] = (token, _later(state))
        found.append([round(picture.seconds, 6), picture.forwards, moved])
    return found


def unfold(block: Block, before: int = 0) -> list[Step]:
    """The steps that `block.changes` tells of, as they were sent, or would have been; `before` is
    how many tokens the answer had. What is malformed ends the list, for it came from a file."""
    slots: list[list[Any]] = [list(NOTHING_YET) for _ in range(block.positions)]
    steps: list[Step] = []
    for number, change in enumerate(block.changes, start=1):
        slots = [[*slot[:3], _later(slot[3])] for slot in slots]
        try:
            seconds, forwards, moved = float(change[0]), int(change[1]), change[2]
            for position, token, words, confidence, state in moved:
                slots[int(position)] = [int(token), str(words), float(confidence), str(state)]
        except (TypeError, ValueError, IndexError, OverflowError):
            break
        states = [slot[3] for slot in slots]
        steps.append(
            Step(
                id=block.id,
                block=block.index,
                step=number,
                slots=slots,
                unmasked=states.count("n"),
                edited=states.count("e"),
                tokens=before + sum(state not in (UNDECIDED, PROMPT) for state in states),
                forwards=forwards,
                seconds=seconds,
                measured=block.measured,
            )
        )
    return steps


def _later(state: str) -> str:
    """What a position that nothing touches is in the next step."""
    return SET if state in ("n", "e") else state
