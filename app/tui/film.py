"""A recorded answer as frames to be shown one after the other, and the projector that shows them.

A block has a frame for each step that was recorded and one for the moment it is final. No clock is
read here: whoever shows says how much time went by.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.protocol import Block, Done, Ready, Step
from app.trace import RecordedAnswer
from app.tui.figures import duration

AS_IT_WAS = 0.0
SPEEDS = (1.0, 2.0, 4.0, 8.0, 15.0, AS_IT_WAS)
"""Steps a second; the last is the recorded time."""
USUAL = 2


@dataclass(frozen=True)
class Frame:
    """The open block at one moment; `step` is 0 where nothing is known of its steps."""

    block: int
    step: int
    slots: Sequence[Sequence[Any]]
    seconds: float
    final: bool = False


@dataclass(frozen=True)
class Film:
    """A whole answer. `frames` are in order, `blocks` are the final ones."""

    question: str = ""
    source: str = ""
    blocks: tuple[Block, ...] = ()
    frames: tuple[Frame, ...] = ()
    done: Done | None = None
    evenly: bool = False
    """Some block's steps have no times of their own: they are spread over it."""

    @classmethod
    def of(cls, answer: RecordedAnswer, ready: Ready | None = None) -> "Film":
        """The film of a recorded answer."""
        messages = [timed.message for timed in answer.messages]
        blocks = [message for message in messages if isinstance(message, Block)]
        steps = [message for message in messages if isinstance(message, Step)]
        spread, evenly = _spread(steps, blocks)
        said = answer.request.messages[-1:] if answer.request is not None else []
        return cls(
            question=said[0].get("content", "") if said else "",
            source=" · ".join((ready.model, ready.device)) if ready is not None else "",
            blocks=tuple(blocks),
            frames=tuple(_frames(spread, blocks)),
            done=next((message for message in messages if isinstance(message, Done)), None),
            evenly=evenly,
        )

    @property
    def seconds(self) -> float:
        """When its last frame was."""
        return self.frames[-1].seconds if self.frames else 0.0

    @property
    def note(self) -> str:
        """What does not stand to the letter: steps without times, steps that are missing, times
        that were slowed."""
        taken = sum(block.steps for block in self.blocks)
        shown = sum(1 for frame in self.frames if not frame.final)
        notes = []
        if shown < taken:
            notes.append(f"{shown:,} of {taken:,} steps recorded: pictures were sampled")
        if self.evenly:
            notes.append("blocks timed, steps evenly drawn")
        if not all(block.measured for block in self.blocks):
            notes.append("recorded in slow motion: speeds not measured")
        return " · ".join(notes)

    def text_before(self, block: int) -> str:
        """What the final blocks before `block` say."""
        return "".join(b.text for b in self.blocks if b.index < block)

    def taken(self, block: int) -> int:
        """How many steps a block took; 0 while that is not known."""
        return next((b.steps for b in self.blocks if b.index == block), 0)


def _frames(steps: Sequence[Step], blocks: Sequence[Block]) -> list[Frame]:
    found = [Frame(s.block, s.step, s.slots, s.seconds) for s in steps]
    last = {step.block: step.slots for step in steps}
    for block in blocks:
        slots = last.get(block.index, [])
        found.append(Frame(block.index, block.steps, slots, block.elapsed, final=True))
    return sorted(found, key=lambda frame: (frame.block, frame.final, frame.step))


def _spread(steps: Sequence[Step], blocks: Sequence[Block]) -> tuple[list[Step], bool]:
    """Steps that all came at the end of their block, evenly over it; and whether any did."""
    by_block: dict[int, list[Step]] = {}
    for step in steps:
        by_block.setdefault(step.block, []).append(step)
    timed: dict[tuple[int, int], float] = {}
    for block in blocks:
        mine = by_block.get(block.index, [])
        if len(mine) > 1 and len({step.seconds for step in mine}) == 1:
            begin = mine[0].seconds - block.seconds
            for number, step in enumerate(mine, start=1):
                timed[step.block, step.step] = begin + block.seconds * number / len(mine)
    moved = [replace(s, seconds=timed.get((s.block, s.step), s.seconds)) for s in steps]
    return moved, bool(timed)


@dataclass
class Projector:
    """Which frame of a film is shown, and how fast it goes on."""

    film: Film
    index: int = 0
    playing: bool = False
    speed_index: int = USUAL
    _left: float = field(default=0.0, repr=False)
    """Seconds until the next frame, while playing."""

    @property
    def frame(self) -> Frame | None:
        """The frame to show; None in an empty film."""
        return self.film.frames[self.index] if self.film.frames else None

    @property
    def at_end(self) -> bool:
        """Whether no frame comes after this one."""
        return self.index >= len(self.film.frames) - 1

    @property
    def speed(self) -> str:
        """The speed in words."""
        speed = SPEEDS[self.speed_index]
        return "as it was" if speed == AS_IT_WAS else f"{speed:g} steps/s"

    def toggle(self) -> None:
        """Play, or stand still; at the end, from the beginning."""
        if not self.playing and self.at_end:
            self.index = 0
        self.playing = not self.playing and bool(self.film.frames)
        self._left = self._wait()

    def advance(self, seconds: float) -> bool:
        """Let time go by; whether another frame is to be shown. Frames that were over before they
        could be shown are left out."""
        before = self.index
        self._left -= seconds
        while self.playing and self._left <= 0:
            self.index = min(self.index + 1, max(0, len(self.film.frames) - 1))
            self.playing = not self.at_end
            self._left += self._wait()
        return self.index != before

    def move(self, frames: int) -> None:
        """Some frames on or back, standing still."""
        self.playing = False
        self.index = max(0, min(self.index + frames, len(self.film.frames) - 1))

    def go(self, block: int, step: int = 1) -> None:
        """To a step of a block, or the nearest that was recorded; beyond the ends, to the ends."""
        self.playing = False
        frames = self.film.frames
        wanted = max(0, min(block, frames[-1].block)) if frames else 0
        places = [index for index, frame in enumerate(frames) if frame.block == wanted]
        if places:
            self.index = next((i for i in places if frames[i].step >= step), places[-1])

    def faster(self, by: int) -> None:
        """Another speed, from the next frame on."""
        self.speed_index = max(0, min(self.speed_index + by, len(SPEEDS) - 1))
        self._left = self._wait()

    def _wait(self) -> float:
        """How long the frame that is shown stays."""
        speed = SPEEDS[self.speed_index]
        if speed != AS_IT_WAS:
            return 1 / speed
        if self.at_end:
            return 0.0
        now, then = self.film.frames[self.index : self.index + 2]
        return max(0.0, then.seconds - now.seconds)

    def place(self) -> str:
        """Where it stands: `step 12 of 44 · block 4 of 12 · 0.12 s of 0.33 s`."""
        film, frame = self.film, self.frame
        if frame is None:
            return "nothing was recorded"
        before = sum(block.steps for block in film.blocks if block.index < frame.block)
        of = sum(block.steps for block in film.blocks)
        times = f"{duration(max(0.0, frame.seconds))} of {duration(film.seconds)}"
        number = f"step {before + frame.step:,} of {max(of, before + frame.step):,}"
        last = film.frames[-1].block + 1
        return f"{number} · block {frame.block + 1:,} of {last:,} · {times}"
