"""One measured answer: what every figure of a benchmark is made of.

The engine's own counts and times (`engine.events.Stats`), wherever they come from: the engine
itself, the message that ends an answer in the terminal program or in a trace, a saved result. A
server's answer has the same form, without the forwards and steps that no server tells.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from app.answer import Conditions, answer_figures
from app.protocol import Done
from engine.events import BlockStats, Stats

_ELSEWHERE = ("model", "device", "preset")
"""What `ask --json` tells of each answer and a result tells once."""


@dataclass(frozen=True)
class Sample:
    """One answer.

    Attributes:
        prompt: the prompt's id.
        repetition: how often the prompt was measured before.
        timed: it ran at full speed; without, its counts hold and its times do not.
        right: its verifier passed it and it ended by itself; None: it was not verified.
        why: what the verifier has against it.
        counted: who counted its tokens, where that was not the engine.
    """

    prompt: str
    text: str
    reason: str
    stats: Stats
    repetition: int = 0
    timed: bool = True
    right: bool | None = None
    why: str = ""
    counted: str = ""

    @property
    def characters_per_second(self) -> float:
        """Characters over the time since the request: what models with different tokenizers can
        be compared by."""
        seconds = self.stats.whole_seconds
        return len(self.text) / seconds if seconds > 0 else 0.0

    @classmethod
    def of_done(cls, prompt: str, done: Done, first_block_seconds: float) -> Self:
        """The answer that `done` ended, whose first block came after so many seconds.

        Raises ValueError when its figures are not those of an answer.
        """
        stats = stats_of({**done.stats, "first_block_seconds": first_block_seconds})
        return cls(prompt, done.text, done.reason, stats, timed=done.measured)

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the names of `ask --json`."""
        figures = answer_figures(self.text, self.reason, self.stats, Conditions("", "", ""))
        figures = {name: value for name, value in figures.items() if name not in _ELSEWHERE}
        own = ("prompt", "repetition", "timed", "right", "why", "counted")
        return {
            **{name: getattr(self, name) for name in own},
            **figures,
            "first_block_seconds": self.stats.first_block_seconds,
            "whole_seconds": self.stats.whole_seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote. Raises ValueError for anything else."""
        try:
            own = ("prompt", "text", "repetition", "timed", "right", "why", "counted")
            fields = {name: data[name] for name in own}
            return cls(reason=data["finish_reason"], stats=stats_of(data), **fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"an answer has no usable {error}") from error


def stats_of(figures: Mapping[str, Any]) -> Stats:
    """The counts and times behind the figures of one answer. Raises ValueError, a clause."""
    try:
        counts = {name: int(figures[name]) for name in _COUNTS}
        prefill, decode = (float(figures[f"{part}_seconds"]) for part in ("prefill", "decode"))
        blocks = tuple(map(_block, figures["blocks"]))
        first = float(figures["first_block_seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"an answer has no usable {error}") from error
    return Stats(
        **counts,
        fused=counts["steps"] + counts["commits"] - counts["forwards"],
        cached_tokens=0,
        prefill_seconds=prefill,
        decode_seconds=decode,
        whole_seconds=prefill + decode,
        first_block_seconds=first,
        seed=figures.get("seed"),
        blocks=blocks,
    )


_COUNTS = ("tokens", "forwards", "steps", "commits", "edits", "waste_tokens", "prefill_tokens")


def _block(figures: Mapping[str, Any]) -> BlockStats:
    tokens, steps, forwards = (int(figures[name]) for name in ("tokens", "steps", "forwards"))
    return BlockStats(tokens, steps, forwards, 0, float(figures["seconds"]))
