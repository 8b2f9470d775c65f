"""Results as text: each figure with its spread, the conditions above it, what counts below it."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from app.bench.compare import Compared, Pairing, Ratio
from app.bench.conditions import Conditions
from app.bench.curve import Point, curve
from app.bench.figures import Figures, Spread
from app.bench.result import Result, Run

NONE = "\u2013"
TITLES = {
    "tokens_per_second": "tok/s (decode)",
    "tokens_per_second_whole": "tok/s (whole)",
    "tpf": "TPF",
    "tpf_steps": "tokens per step",
    "forwards_per_second": "forwards/s",
    "first_block_seconds": "first block, ms",
    "characters_per_second": "characters/s",
}
WIDTH = 100
UNSTEADY = 1.5
_LABEL = 26
_COLUMNS = ("p10", "p50", "p90", "peak", "all")
_COUNTS = ("answers", "tokens", "cut", "steps/block", "edits", "waste")
_COUNT_WIDTHS = (8, 9, 5, 14, 8, 8)


@dataclass(frozen=True)
class _Columns:
    """How wide the columns of a report's tables are."""

    label: int = _LABEL
    figure: int = 10
    counts: tuple[int, ...] = _COUNT_WIDTHS

    @classmethod
    def within(cls, width: int, labels: Iterable[str]) -> Self:
        """The usual ones, or the narrowest where those would not fit."""
        if width >= _LABEL + sum(_COUNT_WIDTHS):
            return cls()
        return cls(3 + max(map(len, labels), default=0), 8, (7, 7, 4, 12, 6, 6))


def as_text(result: Result, width: int = WIDTH) -> str:
    """The whole report of a benchmark, for so many columns of text."""
    figures = {run.label: run.figures for run in result.runs}
    columns = _Columns.within(width, figures)
    lines = [*describe(result.conditions, width), *_own_conditions(result.runs, columns, width), ""]
    lines.append(" " * columns.label + "".join(f"{name:>{columns.figure}}" for name in _COLUMNS))
    for name in TITLES:
        if any(name in own.spreads for own in figures.values()):
            lines.append(TITLES[name])
            lines += [_spread_row(label, name, own, columns) for label, own in figures.items()]
    lines += ["", *_counts(figures, columns), *_notes(result, width)]
    return "\n".join(lines)


def frontier_text(result: Result) -> str:
    """Accuracy against TPF for rows that differ in their threshold, as a table and a curve."""
    figures = {run.label: run.figures for run in result.runs}
    lines = [*describe(result.conditions), *_own_conditions(result.runs, _Columns()), ""]
    lines.append(
        f"{'':<{_LABEL}}{'right':>8}  {'95 % interval':<16}{'TPF':>8}{'per step':>10}"
        f"{'tok/s (decode), p50':>22}"
    )
    points = []
    for label, own in figures.items():
        lines.append(f"{label:<{_LABEL}}{_accuracy(own)}" + _frontier_cells(own))
        if own.accuracy is not None and "tpf" in own.pooled:
            points.append(Point(label, own.pooled["tpf"], own.accuracy.share))
    picture = curve(points, across="TPF", up="right") if points else []
    return "\n".join([*lines, "", *picture, *_notes(result)])


def _frontier_cells(figures: Figures) -> str:
    rate = figures.spreads.get("tokens_per_second")
    values = (
        ("tpf", figures.pooled.get("tpf"), 8),
        ("tpf_steps", figures.pooled.get("tpf_steps"), 10),
        ("tokens_per_second", None if rate is None else rate.p50, 22),
    )
    return "".join(f"{_number(name, value):>{width}}" for name, value, width in values)


def describe(conditions: Conditions, width: int = WIDTH) -> list[str]:
    """The conditions as a few lines."""
    get = conditions.get
    where = [get("device"), get("card"), get("processor")]
    if get("threads"):
        where.append(f"{get('threads')} thread{'s' * (get('threads') != 1)}")
    if get("power_limit_watts"):
        where.append(f"{get('power_limit_watts'):g} W")
    software = [
        f"{title} {get(name)}"
        for name, title in (("driver", "driver"), ("torch", "torch"), ("triton", "triton"))
        if get(name)
    ]
    model = [get("model"), get("revision") and f"revision {get('revision')}", get("dtype")]
    if get("adapter"):
        model.append(f"adapter {get('adapter')}")
    version = f"orl-chat {get('orl_chat')}" if get("orl_chat") else None
    lines = [model, [*where, *software], _asked(conditions), [version, get("date")]]
    return [
        part
        for line in lines
        for part in textwrap.wrap(_joined(line), width, subsequent_indent="  ")
    ]


def _asked(conditions: Conditions) -> list[str | None]:
    get = conditions.get
    parts: list[str | None] = [f"trace {get('trace')}" if get("trace") else None]
    if get("prompts"):
        parts += [
            f"{get('prompt_count')} prompts of {get('prompts')} ({get('prompts_hash')})",
            f"{get('warm_up')} to warm up, {get('repeat')} time{'s' * (get('repeat') != 1)} each",
        ]
    return parts


def _own_conditions(runs: Sequence[Run], columns: _Columns, width: int = WIDTH) -> list[str]:
    """Of each row: what it was decoded with, or which server answered."""
    told = ((run.label, _told(run.conditions)) for run in runs)
    lines = (f"  {label:<{columns.label - 2}}{text}" for label, text in told if text)
    indent = " " * columns.label
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=indent)]


def _told(own: Conditions) -> str:
    if "endpoint" in own:
        return _joined([own["endpoint"], own["model"], f"tokens by {own['counted']}"])
    if "threshold" not in own:
        return ""
    editing = own["editing_threshold"]
    sampling = "greedy" if not own["temperature"] else f"temperature {own['temperature']:g}"
    return _joined(
        [
            f"threshold {own['threshold']:g}",
            f"editing {'off' if editing is None else f'{editing:g}'}",
            sampling,
            None if own["seed"] is None else f"seed {own['seed']}",
            f"at most {own['max_new_tokens']} tokens",
            None if own["overlap"] else "no overlap",
        ]
    )


def _joined(parts: Sequence[Any]) -> str:
    return " · ".join(str(part) for part in parts if part)


def _spread_row(label: str, name: str, figures: Figures, columns: _Columns) -> str:
    spread = figures.spreads.get(name)
    values = [None] * 5 if spread is None else [*_values(spread), figures.pooled[name]]
    cells = "".join(f"{_number(name, value):>{columns.figure}}" for value in values)
    return f"  {label:<{columns.label - 2}}{cells}"


def _values(spread: Spread) -> list[float]:
    return [spread.p10, spread.p50, spread.p90, spread.peak]


def _number(name: str, value: float | None) -> str:
    if value is None:
        return NONE
    if name == "first_block_seconds":
        return f"{1000 * value:,.1f}"
    if name in ("tpf", "tpf_steps"):
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _counts(figures: dict[str, Figures], columns: _Columns) -> list[str]:
    verified = any(own.accuracy is not None for own in figures.values())
    head = " " * columns.label + _cells(_COUNTS, columns)
    lines = [head + (f"{'right':>8}  95 % interval" if verified else "")]
    for label, own in figures.items():
        counts = (
            f"{own.answers:,}", f"{own.tokens:,}", f"{sum(own.cut.values()):,}", _steps(own),
            _if_steps(own, own.edits), _if_steps(own, own.waste_tokens),
        )  # fmt: skip
        line = f"{label:<{columns.label}}" + _cells(counts, columns)
        lines.append((line + (_accuracy(own) if verified else "")).rstrip())
    return lines


def _cells(texts: Sequence[str], columns: _Columns) -> str:
    pairs = zip(texts, columns.counts, strict=True)
    return "".join(f"{text:>{width}}" for text, width in pairs)


def _steps(figures: Figures) -> str:
    if figures.steps_per_block is None:
        return NONE
    mean, least, most = figures.steps_per_block
    return f"{mean:.1f} ({least}-{most})"


def _if_steps(figures: Figures, count: int) -> str:
    """What a server does not tell is no zero."""
    return NONE if "tpf_steps" not in figures.spreads else f"{count:,}"


def _accuracy(figures: Figures) -> str:
    if figures.accuracy is None:
        return f"{NONE:>8}  {NONE:<16}"
    low, high = figures.accuracy.interval
    return f"{figures.accuracy.share:>8.1%}  {f'{low:.1%} to {high:.1%}':<16}"


def _notes(result: Result, width: int = WIDTH) -> list[str]:
    notes = ["p10 to peak are over answers; all is pooled. TPF counts every forward after prefill."]
    if any("endpoint" in run.conditions for run in result.runs):
        notes.append(
            "A server's first block is its first text; it tells no forwards, and its tokenizer may "
            "be another: compare characters/s."
        )
    worst = max((run.figures.unsteadiness for run in result.runs), default=1.0)
    if worst > UNSTEADY:
        notes.append(
            f"forwards/s differ a lot between answers of a row (p90 is up to {worst:.1f} times "
            "p10): the machine was busy, or lengths differ much. Rates suffer from that, TPF does "
            "not."
        )
    if untimed := sum(run.figures.untimed for run in result.runs):
        notes.append(f"{untimed} answers were slowed on purpose; their times are not counted.")
    if result.interrupted:
        notes.append("Interrupted: this is what was measured until then.")
    return ["", *(line for note in notes for line in textwrap.wrap(note, width))]


def compared_text(compared: Compared, a: str, b: str) -> str:
    """A comparison of the results called `a` and `b`."""
    lines = [f"A  {a}", f"B  {b}", ""]
    lines += _differing("Conditions that differ", compared.differing) or [
        "The conditions are the same."
    ]
    for pairing in compared.pairings:
        lines += ["", *_pairing(pairing)]
    note = "Intervals (95 %) are over the choice of prompts, not over sittings at the machine."
    if compared.other_pace:
        note += (
            " The same model ran on the same machine and its forwards/s differ: so much of the "
            "ratios is the machine's, not the decoding's."
        )
    return "\n".join([*lines, "", *textwrap.wrap(note, WIDTH)])


def _differing(title: str, differing: dict[str, tuple[Any, Any]]) -> list[str]:
    if not differing:
        return []
    rows = [
        f"  {name:<18}{NONE if a is None else a}  |  {NONE if b is None else b}"
        for name, (a, b) in differing.items()
    ]
    return [f"{title} (A | B):", *rows]


def _pairing(pairing: Pairing) -> list[str]:
    names = pairing.a if pairing.a == pairing.b else f"{pairing.a} (A), {pairing.b} (B)"
    how = "prompts in common" if pairing.paired else "prompts each, none in common: not paired"
    lines = [f"{names}: {pairing.prompts} {how}"]
    lines += _differing("  Decoded differently", pairing.differing)
    lines.append(f"{'':<{_LABEL}}{'A':>10}{'B':>10}{'B over A':>10}  95 % interval")
    lines += [_ratio(ratio) for ratio in pairing.ratios]
    if (change := pairing.change) is not None:
        low, high = change.interval
        lines.append(
            f"{'right':<{_LABEL}}{change.a:>10.1%}{change.b:>10.1%}{change.gained:>+10.1%}  "
            f"{low:+.1%} to {high:+.1%} ({change.fixed} fixed, {change.broken} broken)"
        )
    return lines


def _ratio(ratio: Ratio) -> str:
    interval = "too few prompts"
    if ratio.interval is not None:
        interval = f"{ratio.interval[0]:.3f} to {ratio.interval[1]:.3f}"
    a, b = (_number(ratio.metric, value) for value in (ratio.a, ratio.b))
    return f"{TITLES[ratio.metric]:<{_LABEL}}{a:>10}{b:>10}{ratio.ratio:>10.3f}  {interval}"
