"""What the Live panel says, as rows of spans (a text and the name of its look). No screen here."""

from collections.abc import Mapping
from typing import Any

from app.text import printable
from app.tui import heat
from app.tui.figures import NOTHING, count, duration, number, rate, ratio, size
from app.tui.live import Live, Rates, final_rates
from app.tui.slots import Span
from app.tui.spark import meter, spark
from app.tui.state import EngineState, Turn

LABEL = 13
VALUE = 6
LONGEST_STRIP = 10
NEARLY_FULL = 0.8
STRIP_HEAD, LEAST_STRIP = 2, 3

Row = list[Span]
GAP: Row = []


def rows(
    turn: Turn | None,
    before: Turn | None,
    engine: EngineState,
    width: int,
    context: int | None = None,
) -> list[Row]:
    """The panel's lines, top to bottom; `before` is the answer that came before `turn`, `context`
    what the chat takes as far as is known without `turn`."""
    live = turn.live if turn is not None else Live()
    return [
        *_rates(live, width),
        GAP,
        _row("first block", duration(live.first_block_seconds)),
        _row("this answer", answer_so_far(live) if turn is not None else NOTHING),
        _row(*_place(live)),
        _row("edits", count(live.edits) if turn is not None else NOTHING),
        GAP,
        *_context(_used(live, context), engine, width),
        *device_rows(engine),
        *_before(before),
    ]


def _row(label: str, value: str, *more: Span) -> Row:
    return [(label.ljust(LABEL), "label"), (value, "value"), *more]


def answer_so_far(live: Live) -> str:
    """`96 tok / 11 fwd`."""
    return f"{count(live.tokens)} tok / {count(live.forwards)} fwd"


def _place(live: Live) -> tuple[str, str]:
    """The open block; of a whole answer, how many there were."""
    if live.block is None:
        return "block", NOTHING
    if live.stats is not None:
        return "blocks", count(live.block + 1)
    return "block", f"{live.block + 1}, step {live.step}"


def _rates(live: Live, width: int) -> list[Row]:
    past = list(live.history)
    speeds = [past_rates.tokens_per_second for past_rates in past]
    forwards = [past_rates.forwards_per_second for past_rates in past]
    tpf = _rate("TPF", ratio(live.rates.tpf), [p.tpf for p in past], width)
    if not live.measured:
        return [_unmeasured("tok/s"), tpf, _unmeasured("forwards/s")]
    return [
        _rate("tok/s", rate(live.rates.tokens_per_second), speeds, width),
        tpf,
        _rate("forwards/s", rate(live.rates.forwards_per_second), forwards, width),
    ]


def _rate(label: str, value: str, past: list[float | None], width: int) -> Row:
    room = min(LONGEST_STRIP, width - LABEL - VALUE - 2)
    strip = spark(past, room) if len(past) > 1 and room > 2 else ""
    if value == NOTHING:
        return _row(label, value)
    return [(label.ljust(LABEL), "label"), (value.rjust(VALUE), "figure"), ("  " + strip, "spark")]


def _unmeasured(label: str) -> Row:
    return [(label.ljust(LABEL), "label"), ("not measured", "note")]


def _used(live: Live, context: int | None) -> int | None:
    return live.context if live.context is not None else context


def _context(known: int | None, engine: EngineState, width: int) -> list[Row]:
    limit = engine.ready.context_length if engine.ready is not None else None
    if limit is None:
        return [_row("context", NOTHING)]
    used = known or 0
    full, empty = meter(used / limit, max(4, width))
    look = "warning" if used >= NEARLY_FULL * limit else "meter"
    value = f"{count(known)} / {count(limit)}"
    return [_row("context", value), [(full, look), (empty, "rest")]]


def device_rows(engine: EngineState) -> list[Row]:
    """The device's figures behind a gap: NVML's where there is a card, else the model's memory."""
    gpu = engine.gpu
    if gpu is None:
        memory = engine.ready.memory if engine.ready is not None else 0
        return [GAP, _row("memory", size(memory))] if memory else []
    found = card_rows(vars(gpu), LABEL)
    return [GAP, *found] if found else []


def card_rows(card: Mapping[str, Any], label: int) -> list[Row]:
    """A card's figures by the names of `Gpu`, behind labels of that width; none where there are
    none, or not such."""
    found: list[Row] = []
    used, total = number(card, "memory_used"), number(card, "memory_total")
    if used is not None and total:
        memory = f"{used / 1e9:.1f} / {size(total)}"
        found.append([("VRAM".ljust(label), "label"), (memory, "value")])
    units = (("utilisation", "%"), ("power_watts", "W"), ("temperature_c", "°C"))
    values = ((number(card, name), unit) for name, unit in units)
    if facts := [f"{value:.0f} {unit}" for value, unit in values if value is not None]:
        found.append([("GPU".ljust(label), "label"), ("  ".join(facts), "value")])
    if throttle := card.get("throttle"):
        found.append([("throttled".ljust(label), "label"), (printable(str(throttle)), "warning")])
    return found


def _before(before: Turn | None) -> list[Row]:
    if before is None or not before.live.stats:
        return []
    figures: Rates = final_rates(before.live.stats)
    speed = figures.tokens_per_second
    words = [f"{rate(speed)} tok/s"] if speed is not None else []
    words.append(f"TPF {ratio(figures.tpf)}")
    return [GAP, [("before  ", "label"), ("  ".join(words), "note")]]


def strip(turn: Turn | None, width: int, room: int) -> list[Row]:
    """Tokens set per step, a row a block, the newest ones; none where only a few would fit."""
    live = turn.live if turn is not None else Live()
    shown = live.blocks[-(room - STRIP_HEAD) :]
    if not shown or room < STRIP_HEAD + min(LEAST_STRIP, len(shown)):
        return []
    most = heat.top(live.blocks)
    return [
        GAP,
        [("set per step, by block", "label")],
        *(heat.row(block, width, most) for block in shown),
    ]


def one_line(turn: Turn | None, engine: EngineState, width: int, context: int | None = None) -> Row:
    """The most wanted figures in one line; what does not fit is left out, last ones first."""
    live = turn.live if turn is not None else Live()
    speed = rate(live.rates.tokens_per_second) if live.measured else "not measured"
    pairs = [("tok/s", speed), ("TPF", ratio(live.rates.tpf))]
    if engine.ready is not None:
        limit = count(engine.ready.context_length)
        pairs.append(("context", f"{count(_used(live, context))} / {limit}"))
    if live.block is not None:
        pairs.append(_place(live))
    row: Row = []
    for label, value in pairs:
        if sum(len(text) for text, _ in row) + len(label) + len(value) + 1 <= width:
            row += [(f"{label} ", "label"), (value, "figure"), ("   ", "label")]
    return row
