"""A recording in the place of an engine: the same messages with the same timing, no model.

Recorded answers are given in turn, whatever is asked. Stop, slow motion and sampling work as with
an engine; numbers are the recorded ones.
"""

from dataclasses import replace
from typing import Any

from app.control import Control
from app.outbox import Outbox
from app.protocol import Block, Chat, Done, EngineMessage, Loading, LoadModel, Ready, Step
from app.steps import Picture, changes
from app.trace import RecordedAnswer, Recording, play

STAND_IN = Ready(
    model="recording", path="", device="cpu", adapter=None, memory=0, context_length=4096,
    block_length=32, parameters=0, dtype="float32", load_seconds=0.0,
)  # fmt: skip


class ReplayBackend:
    """Answers chats from `recording`, `speed` times as fast as it was made."""

    def __init__(
        self, outbox: Outbox, control: Control, recording: Recording, speed: float = 1.0
    ) -> None:
        self._outbox = outbox
        self._control = control
        self._recording = recording
        self._speed = speed
        self._next = 0

    def load(self, request: LoadModel) -> None:
        """Tell of a load that takes no time."""
        self._outbox.put(Loading("reading the recording"))
        self._outbox.put(self._recording.ready or STAND_IN)

    def unload(self) -> None:
        """There is nothing to drop."""

    def set_adapter(self, adapter: str | None) -> None:
        """A recording has the adapter it has."""
        self._outbox.put(self._recording.ready or STAND_IN)

    def chat(self, request: Chat) -> None:
        """Play the next recorded answer under the id of `request`."""
        answers = self._recording.answers
        answer = answers[self._next % len(answers)]
        self._next += 1
        telling = _Telling(request.id, self._outbox, self._control)
        ended = False
        for message in play(answer.messages, telling.wait, self._speed):
            telling.tell(message)
            ended = isinstance(message, Done) or message.type == "error"
        if not ended:
            self._outbox.last(telling.stopped(answer))


class _Telling:
    """One answer being played."""

    def __init__(self, id: str, outbox: Outbox, control: Control) -> None:
        self._id = id
        self._outbox = outbox
        self._control = control
        self._blocks: list[Block] = []
        self._open: list[Step] = []
        self._slowed = False

    def wait(self, seconds: float) -> bool:
        """True when the answer was stopped; in slow motion the pace is kept instead, by step."""
        if self._control.pace > 0:
            self._slowed = True
            return self._control.is_stopped(self._id)
        return self._control.wait(self._id, seconds)

    def tell(self, message: EngineMessage) -> None:
        """Send a recorded message as one of this answer."""
        fields: dict[str, Any] = {**vars(message), "id": self._id}
        if self._slowed and "measured" in fields:
            fields["measured"] = False
        message = type(message)(**fields)
        if isinstance(message, Step):
            self._open.append(message)
        if isinstance(message, Block):
            message = self._with_changes(message)
            self._blocks.append(message)
        if isinstance(message, Step) and self._control.pace > 0:
            self._outbox.put(message)
            self._control.wait(self._id)
        elif isinstance(message, Step):
            step = message
            self._outbox.sample(lambda: step)
        elif isinstance(message, Done):
            self._outbox.last(message)
        else:
            self._outbox.put(message)

    def _with_changes(self, block: Block) -> Block:
        """A block that tells its steps, as an engine's does; from the recorded ones if need be."""
        mine = [step for step in self._open if step.block == block.index]
        self._open = [step for step in self._open if step.block > block.index]
        if block.changes or not mine:
            return block
        pictures = [Picture(step.seconds, step.forwards, step.slots) for step in mine]
        return replace(block, positions=len(mine[0].slots), changes=changes(pictures))

    def stopped(self, answer: RecordedAnswer) -> Done:
        """The end of an answer that was stopped, with the figures of the blocks played."""
        last = answer.messages[-1].message if answer.messages else None
        stats = dict(last.stats) if isinstance(last, Done) else {}
        text = "".join(block.text for block in self._blocks)
        sums = {
            name: sum(getattr(block, name) for block in self._blocks)
            for name in ("tokens", "steps", "commits", "forwards")
        }
        seconds = sum(block.seconds for block in self._blocks)
        stats |= {"text": text, "finish_reason": "stopped", "decode_seconds": seconds, **sums}
        stats |= _rates(sums, seconds)
        stats["blocks"] = stats.get("blocks", [])[: len(self._blocks)]
        return Done(self._id, "stopped", text, stats, measured=not self._slowed)


def _rates(sums: dict[str, int], seconds: float) -> dict[str, float]:
    tokens = sums["tokens"]
    return {
        "tpf": tokens / sums["forwards"] if sums["forwards"] else 0.0,
        "tpf_steps": tokens / sums["steps"] if sums["steps"] else 0.0,
        "tokens_per_second": tokens / seconds if seconds > 0 else 0.0,
    }
