"""What the Speed tab says of the answers so far, as rows of spans. No screen here.

Every figure comes from the stored figures of an answer (`ask --json`), which may be of an older
version or damaged: what is missing or not a number shows as an en dash.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.store_rows import Message
from app.text import printable
from app.tui import heat
from app.tui.figures import count, duration, number, rate, ratio
from app.tui.panel import GAP, Row
from app.tui.spark import meter

LABEL, VALUE = 15, 9
Stats = Mapping[str, Any]

FIGURES = (
    ("tok/s", "tokens you see / decode time"),
    ("with prompt", "the same tokens / whole time"),
    ("TPF", "tokens you see / forwards"),
    ("tokens/step", "tokens you see / steps"),
    ("forwards/s", "forwards / decode time"),
    ("ms a forward", "decode time / forwards"),
)
COUNTS = (
    ("tokens", "tokens", "without the end token"),
    ("forwards", "forwards", "model calls after the prompt"),
    ("steps", "steps", "decisions, the settling ones included"),
    ("commits", "commits", "work that only stores a block"),
    ("edits", "edits", "tokens changed after they were set"),
    ("after the end", "waste_tokens", "computed, never counted as speed"),
)


PARTS = (("model", "model"), ("pick tokens", "pick"), ("commit only", "commit"))


@dataclass(frozen=True)
class Rate:
    """What an answer's speed was, for the curves. None where it was not measured."""

    tokens_per_second: float | None
    tpf: float | None


def rate_of(stats: Stats) -> Rate:
    """An answer's figures for the curves; the tpf of an answer without forwards is none."""
    measured = stats.get("measured", True)
    speed = number(stats, "tokens_per_second") if measured else None
    return Rate(speed or None, number(stats, "tpf") or None)


def heading(message: Message) -> str:
    """When an answer was given, and under which conditions."""
    stats = message.stats or {}
    when = datetime.fromtimestamp(message.created).strftime("%d %b %H:%M")
    parts = [when, *(str(stats.get(name) or "") for name in ("model", "device", "preset"))]
    seed = number(stats, "seed")
    parts.append("" if seed is None else f"seed {seed:.0f}")
    return printable(" · ".join(part for part in parts if part))


def figure_rows(stats: Stats, width: int) -> list[Row]:
    """The rates, the counts and the times of one answer, each with its definition."""
    measured = bool(stats.get("measured", True))
    values = _rates(stats, measured)
    rows = [
        _row(label, value, words, width)
        for (label, words), value in zip(FIGURES, values, strict=True)
    ]
    rows.append(GAP)
    rows += [_row(label, _count(stats, name), words, width) for label, name, words in COUNTS]
    return rows


def _rates(stats: Stats, measured: bool) -> list[str]:
    seconds, forwards = number(stats, "decode_seconds"), number(stats, "forwards")
    timed = measured and bool(seconds) and bool(forwards)
    per_second = forwards / seconds if timed and forwards and seconds else None
    return [
        rate(number(stats, "tokens_per_second") if timed else None),
        rate(number(stats, "tokens_per_second_whole") if timed else None),
        ratio(number(stats, "tpf")),
        ratio(number(stats, "tpf_steps")),
        rate(per_second),
        rate(1000 / per_second if per_second else None),
    ]


def _count(stats: Stats, name: str) -> str:
    value = number(stats, name)
    return count(None if value is None else int(value))


def _row(label: str, value: str, words: str, width: int) -> Row:
    row: Row = [(label.ljust(LABEL), "label"), (value.rjust(VALUE), "figure")]
    if width >= LABEL + VALUE + 2 + len(words):
        row.append(("  " + words, "note"))
    return row


def time_rows(stats: Stats, width: int) -> list[Row]:
    """Where the time of an answer went; parts that nobody measured are said to be so."""
    if not stats.get("measured", True):
        return [[("slow motion: speed not measured", "note")]]
    prefill, decode = number(stats, "prefill_seconds"), number(stats, "decode_seconds")
    if prefill is None or decode is None:
        return [[("not measured", "note")]]
    parts = [("prompt", prefill), *_decode_parts(stats, decode)]
    longest = max(seconds for _, seconds in parts) or 1.0
    room = max(4, width - LABEL - VALUE - 2)
    rows = [_bar(label, seconds, seconds / longest, room) for label, seconds in parts]
    if len(parts) == 2:
        rows.append([("The loop's parts were not measured.", "note")])
    return rows


def _decode_parts(stats: Stats, decode: float) -> list[tuple[str, float]]:
    """The loop's parts where the engine timed them, else the loop as a whole."""
    parts = [(label, number(stats, f"{name}_seconds")) for label, name in PARTS]
    known = [(label, seconds) for label, seconds in parts if seconds is not None]
    if len(known) < len(parts):
        return [("decoding", decode)]
    rest = decode - sum(seconds for _, seconds in known)
    return [*known, ("host gap", max(0.0, rest))]


def _bar(label: str, seconds: float, share: float, room: int) -> Row:
    full, empty = meter(share, room)
    return [
        (label.ljust(LABEL), "label"), (duration(seconds).rjust(VALUE), "value"), ("  ", "label"),
        (full, "meter"), (empty, "rest"),
    ]  # fmt: skip


def block_rows(stats: Stats, width: int, *, first: int = 0) -> list[Row]:
    """One row a block from block `first` on: its steps as bars whose height is the tokens set in
    them, its edits, tokens, steps, time."""
    found = [block for block in _list(stats.get("blocks")) if isinstance(block, Mapping)]
    if not found:
        return [[("This answer has no blocks to show.", "note")]]
    timed = bool(stats.get("measured", True))
    room = max(4, width - 30)
    head: Row = [("  block  ", "label"), ("tokens set a step".ljust(room)[:room], "label")]
    head.append(("  tok step   time", "label"))
    rows = [_block(index, block, room, timed) for index, block in enumerate(found)]
    return [head, *rows[first:]]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _block(index: int, block: Stats, room: int, timed: bool) -> Row:
    steps = _whole_numbers(block.get("unmasked_per_step"))
    edits = [*_whole_numbers(block.get("edits_per_step")), *[0] * len(steps)]
    cells = [heat.cell(*step, FULL) for step in zip(steps, edits, strict=False)]
    strip = "".join(cells[:room])
    seconds = number(block, "seconds") if timed else None
    return [
        (f"{index + 1:>7}  ", "label"), (strip.ljust(room), "spark"),
        (f"  {_count(block, 'tokens'):>3} {_count(block, 'steps'):>4}", "value"),
        (f" {duration(seconds):>7}", "value"),
    ]  # fmt: skip


FULL = 32
"""Tokens of a bar at full height: a whole block."""


def _whole_numbers(value: object) -> list[int]:
    return [int(v) for v in _list(value) if isinstance(v, int | float)]
