"""Traces written by hand: what an engine would say for given answers, block by block."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.protocol import Block, Chat, Done, EngineMessage, Prefill, Ready, Request, Step, encode

READY = Ready(
    model="demo", path="/models/demo", device="cpu", adapter=None, memory=10_500_000,
    context_length=2048, block_length=32, parameters=2_600_000, dtype="float32", load_seconds=0.3,
)  # fmt: skip

SECONDS_PER_STEP = 0.02
FOREVER = 3600.0


def tokens_of(text: str) -> list[str]:
    """Words with the space before them, and everything else on its own."""
    return re.findall(r" ?[\w]+|\n|[^\w\n]| ", text)


class Script:
    """Collects the lines of a trace; each answer gets the next id."""

    def __init__(self, *, ready: Ready | None = READY, pace: float = SECONDS_PER_STEP) -> None:
        self._lines = [json.dumps({"trace": 1, "version": "test"})]
        self._pace = pace
        self._answers = 0
        if ready is not None:
            self._add(0.0, ready)

    def answer(self, text: str, *, hold: int | None = None, prompt: int = 40) -> "Script":
        """An answer that is written in blocks of 32 tokens, each in four steps. After block
        `hold` it stands still, so that something can be done in the middle of it."""
        id = self._begin()
        self._add(0.01, Prefill(id, tokens=prompt, total=prompt, cached=0, seconds=0.01))
        tokens = tokens_of(text)
        count = max(1, math.ceil(len(tokens) / 32))
        now, forwards = 0.01, 0
        for block in range(count):
            mine = tokens[block * 32 : block * 32 + 32]
            for step, slots in enumerate(denoising(mine), start=1):
                now, forwards = now + self._pace, forwards + 1
                decided = block * 32 + sum(slot[3] != "u" for slot in slots)
                self._add(now, Step(id, block, step, slots, 8, 0, decided, forwards, now))
            self._add(now, _block(id, block, "".join(mine), len(mine), 4, now, self._pace))
            now += FOREVER if block == hold else 0.0
        seconds = count * 4 * self._pace
        self._add(now, Done(id, "end", text, stats(len(tokens), forwards, seconds)))
        return self

    def messages(self, *messages: EngineMessage) -> "Script":
        """An answer given message by message; their ids should be that of `next_id`. They come
        slowly enough for every step to be sent."""
        self._begin()
        for number, message in enumerate(messages):
            self._add(number * 0.1, message)
        return self

    @property
    def next_id(self) -> str:
        """The id of the next answer."""
        return f"a{self._answers}"

    def write(self, path: Path) -> Path:
        """The trace as a file."""
        path.write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        return path

    def _begin(self) -> str:
        id = self.next_id
        self._answers += 1
        self._add(0.0, Chat(id, []))
        return id

    def _add(self, seconds: float, message: EngineMessage | Request) -> None:
        self._lines.append(json.dumps({"t": seconds, **json.loads(encode(message))}))


def denoising(tokens: Sequence[str], steps: int = 4) -> Iterator[list[list[Any]]]:
    """The slots of a block after each step: tokens come in a fixed but scattered order, and the
    last step edits one."""
    length = 32
    padded = [*tokens, *["<|endoftext|>"] * (length - len(tokens))]
    order = [(i * 13 + 5) % length for i in range(length)]
    for step in range(1, steps + 1):
        old, new = order[: length * (step - 1) // steps], order[: length * step // steps]
        slots: list[list[Any]] = []
        for place, text in enumerate(padded):
            confidence = round(0.55 + 0.44 * ((place * 7 + step) % 10) / 9, 4)
            state = "s" if place in old else "n" if place in new else "u"
            if step == steps and place == 3:
                state = "e"
            slots.append([place, "" if state == "u" else text, confidence, state])
        yield slots


def _block(
    id: str, index: int, text: str, tokens: int, steps: int, now: float, pace: float
) -> Block:
    return Block(
        id=id, index=index, text=text, tokens=tokens, steps=steps, forwards=steps, commits=0,
        seconds=steps * pace, elapsed=now, unmasked_per_step=[8] * steps,
        edits_per_step=[0] * (steps - 1) + [1],
    )  # fmt: skip


def stats(tokens: int, forwards: int, seconds: float) -> dict[str, Any]:
    """The figures of an answer, as `ask --json` names them."""
    return {
        "text": "", "tokens": tokens, "forwards": forwards, "steps": forwards, "commits": 0,
        "edits": forwards // 4, "tpf": tokens / forwards, "tpf_steps": tokens / forwards,
        "tokens_per_second": tokens / seconds, "tokens_per_second_whole": tokens / (seconds + 0.01),
        "decode_seconds": seconds, "prefill_seconds": 0.01, "prefill_tokens": 32,
        "waste_tokens": 0,
        "blocks": [{"tokens": tokens, "steps": forwards, "forwards": forwards, "seconds": seconds}],
    }  # fmt: skip
