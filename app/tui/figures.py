"""The numbers on screen: how each is written, and the words that define it.

The definitions are those of `engine/events.py` said for a reader; F1 shows them. What has no value
yet is an en dash, never a zero, because a zero would be a measurement.
"""

from collections.abc import Mapping
from typing import Any

from app.text import printable

NOTHING = "\u2013"
HUGE = 1e15
"""No figure is as large: a file that says so, or that something is infinite, is damaged."""

DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "tok/s",
        "Tokens you see, divided by decode time: from the end of prefill to the last block's final "
        "forward. The end token and whatever was computed after it are never counted. While an "
        "answer is written: the mean over its last half second, and over two blocks at least.",
    ),
    (
        "tok/s with prompt",
        "The same tokens over the whole time since the request, prefill included.",
    ),
    (
        "TPF",
        "Tokens per forward: tokens you see, divided by all forwards after prefill, those that "
        "only commit a block included. It does not depend on how fast the machine is.",
    ),
    (
        "forward",
        "One call of the model on a block. forwards = steps + commits - fused, where a fused "
        "forward ends one block and opens the next.",
    ),
    (
        "step",
        "One round of denoising a block: undecided positions that the model is sure of are set, "
        "and decided ones may be edited.",
    ),
    (
        "first block",
        "Time from the request to the first final block. Blocks are decided as a whole, so there "
        "is no honest time to a first token.",
    ),
    ("edits", "Tokens that were changed after they had been set."),
    (
        "set per step",
        "A row a block, a cell a step, as high as the tokens that the step set. A dot set none, an "
        "underlined cell edited some, a star only edited.",
    ),
    (
        "open block",
        "Shaded: undecided. Bold: set in this step. Underlined with a star: edited in it. The "
        "colour of both is how sure the model was: green from .9, amber from .7, red below.",
    ),
    (
        "context",
        "Tokens of the conversation so far, of those that fit. Nothing is cut by itself: a message "
        "that does not fit is handed back to you, and you choose what to do.",
    ),
    (
        "slow motion",
        "The engine waits before each forward so that steps can be watched. Speeds are not "
        "measured then; TPF and counts still are.",
    ),
)

REASONS = {
    "end": "",
    "length": "reached the answer limit",
    "context": "the context is full",
    "stopped": "stopped",
    "error": "cut short: the engine stopped",
    "interrupted": "interrupted",
}
"""Why an answer ended, in words; a normal end needs none."""


def rate(value: float | None) -> str:
    """A rate with three significant places: `1,504`, `84.0`, `8.40`."""
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(value: float | None) -> str:
    """A count per count, always with two decimals: `8.40`."""
    return NOTHING if value is None else f"{value:.2f}"


def count(value: int | None) -> str:
    """A whole number: `32,768`."""
    return NOTHING if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """A time that is easy to read at its size: `55 ms`, `3.2 s`, `4 min 05 s`."""
    if seconds is None:
        return NOTHING
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def size(count: float) -> str:
    """Bytes: `10.9 GB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def stats_line(stats: Mapping[str, Any] | None, reason: str | None) -> str:
    """The line under an answer: its figures, and why it ended when that is not the normal end.

    `stats` come from a database or a pipe: whatever is missing or not a number is left out.
    """
    parts = _figures(stats or {})
    parts.append(REASONS.get(reason, printable(reason)) if reason else "")
    return " · ".join(part for part in parts if part)


def stats_lines(stats: Mapping[str, Any] | None, reason: str | None) -> str:
    """The lines under an answer: one for each part of an answer that was continued."""
    earlier = (stats or {}).get("earlier")
    before = [part for part in earlier if isinstance(part, dict)] if earlier else []
    lines = [stats_line(part, _word(part.get("reason"))) for part in before]
    lines.append(stats_line(stats, reason))
    if not before:
        return lines[0]
    return "\n".join(f"part {number}: {line}" for number, line in enumerate(lines, start=1))


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _figures(stats: Mapping[str, Any]) -> list[str]:
    tokens, forwards = number(stats, "tokens"), number(stats, "forwards")
    if tokens is None:
        return []
    parts = [f"{tokens:,.0f} tok"]
    measured = stats.get("measured", True)
    speed, tpf = number(stats, "tokens_per_second"), number(stats, "tpf")
    if measured and speed:
        parts.append(f"{rate(speed)} tok/s")
    if tpf is not None:
        parts.append(f"TPF {ratio(tpf)}")
    if forwards is not None:
        parts.append(f"{forwards:,.0f} fwd")
    seconds = number(stats, "decode_seconds")
    if not measured:
        parts.append("slow motion: speed not measured")
    elif seconds is not None:
        parts.append(duration(seconds))
    return parts


def number(stats: Mapping[str, Any], name: str) -> float | None:
    """`stats[name]` where that is a number that can be reckoned with, else None."""
    value = stats.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < HUGE else None
