"""What the Finetune tab says of a run, as rows of spans. No screen here.

Every figure comes from a run's folder, which may be of another version or damaged: what is missing
or not a number shows as an en dash.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import set_cell_size

from app.run_watch import Event, RunWatch, best_checks
from app.text import printable
from app.tui.figures import NOTHING, count, duration, number, ratio, size
from app.tui.panel import Row, card_rows
from app.tui.run_pace import RECENT, Pace, summed
from app.tui.spark import meter
from finetune.runs import Status

LABEL = 21
FULL_SECONDS = 60.0
STATES = {
    "new": "not begun",
    "running": "running",
    "paused": "paused",
    "stopped": "stopped",
    "done": "done",
    "failed": "failed",
}


def share(part: float | None, whole: float | None) -> str:
    """A share in per cent: `63 %`."""
    return f"{part / whole:.0%}".replace("%", " %") if part is not None and whole else NOTHING


def passed(check: Event | None) -> str:
    """A check's share of right answers."""
    return NOTHING if check is None else share(number(check, "right"), number(check, "n"))


def tpf(check: Event | None) -> str:
    """A check's tokens per forward."""
    return NOTHING if check is None else ratio(number(check, "tpf"))


def from_to(watch: RunWatch) -> str:
    """`pass 45 % → 70 %, TPF 8.10 → 9.02`, from the start to the best check."""
    start, best = best_checks(watch)
    if start is None:
        return ""
    if best is None or best is start:
        return f"pass {passed(start)}, TPF {tpf(start)}"
    return f"pass {passed(start)} \u2192 {passed(best)}, TPF {tpf(start)} \u2192 {tpf(best)}"


def list_row(watch: RunWatch, width: int) -> Row:
    """A run in one line: name, state and progress, before and after, size; a failed one's cause."""
    status = watch.status
    name = set_cell_size(printable(watch.name), min(26, max(12, width // 4)))
    at = f"{status.update}/{status.updates}" if status.updates else ""
    state = f"{STATES.get(status.state, status.state):<9}{at:>9}  "
    look = "warning" if status.state == "failed" else "value"
    told = watch.problem or (status.message if status.state == "failed" else from_to(watch))
    room = width - len(name) - len(state) - 13
    rest = set_cell_size(printable(" ".join(told.split())), max(0, room))
    return [
        (f"{name}  ", "value"), (state, look), (rest, "label"), (f"{size(watch.size):>10}", "note"),
    ]  # fmt: skip


def health_rows(watch: RunWatch) -> list[Row]:
    """How learning goes: what was kept first, losses after."""
    updates = watch.of("update")
    if not updates:
        return [[(_waiting(watch), "note")]]
    last = updates[-1]
    answers = number(last, "answers")
    recent = updates[-RECENT:]
    asked, missed = (
        summed(recent, "prompts"),
        summed(recent, "prompts") - summed(recent, "prompts_passed"),
    )
    kept = f"{_count(last, 'kept')} of {_count(last, 'answers')}"
    losses = "  ".join(_short(number(last, name)) for name in ("prediction", "aec", "anchor"))
    lengths = [_mean(update) for update in (updates[0], last)]
    return (
        [
            _row("answers kept", kept, alert=not number(last, "kept")),
            _row("prompts without pass", f"{share(missed, asked)} of {asked:,.0f}"),
            _row("answer length", f"{_whole(lengths[1])} tokens ({_whole(lengths[0])} at first)"),
            _row("cut, errors", f"{_count(last, 'cut')}, {_count(last, 'errors')}"),
            _row("positions trained", _positions(last)),
            _row("loss CE, AEC, KL", losses),
            _row("gradient norm", _short(number(last, "grad_norm"))),
        ]
        if answers is not None
        else [[("These events are of another version.", "note")]]
    )


def now_rows(watch: RunWatch, width: int, now: float, memory: int | None) -> list[Row]:
    """Where the run stands: progress, pace, end, the best check."""
    status = watch.status
    done, of = status.update, max(status.updates, 1)
    full, empty = meter(done / of, max(6, min(20, width - LABEL - 8)))
    rows: list[Row] = [
        _row("state", STATES.get(status.state, status.state), alert=status.state == "failed"),
        [
            (f"update {done}/{status.updates}".ljust(LABEL), "label"), (full, "meter"),
            (empty, "rest"), (f" {share(done, of)}", "value"),
        ],
    ]  # fmt: skip
    if (pace := Pace.of(watch)) is not None:
        rows += _pace_rows(pace, status, now)
    start, best = best_checks(watch)
    rows.append(_row("held out, start", f"{passed(start)}  TPF {tpf(start)}"))
    if best is not None:
        at = f" at {_count(best, 'done')}"
        rows.append(_row("held out, best", f"{passed(best)}  TPF {tpf(best)}{at}"))
    rows.append(_row("disk", size(watch.size)))
    if memory is not None:
        rows.append(_row("memory", size(memory)))
    return rows + _card_rows(watch)


def notice(watch: RunWatch) -> str:
    """What to know about the run, in words: why it ended, or the newest alarm."""
    status = watch.status
    if watch.problem:
        return watch.problem
    if status.state == "failed":
        update = f" It reached update {status.update}."
        return status.message + (update if status.update else "")
    told = [str(event.get("text", "")) for event in watch.of("alarm")]
    return told[-1] if told else ""


def sample_rows(watch: RunWatch, width: int) -> list[Row]:
    """The last update's answers with their verdicts; a mark and a word, not only a colour."""
    updates = watch.of("update")
    samples = updates[-1].get("samples") if updates else None
    rows: list[Row] = []
    for sample in samples if isinstance(samples, list) else []:
        if isinstance(sample, Mapping):
            rows += _sample(watch, sample, width)
    return rows or [[("No answers yet.", "note")]]


def _sample(watch: RunWatch, sample: Mapping[str, Any], width: int) -> list[Row]:
    good = sample.get("passed") is True
    reason = "" if good else f"  ({_line(sample.get('reason')) or 'not ended by itself'})"
    question = _line(watch.question(str(sample.get("prompt"))))
    text = _line(sample.get("text"))
    answer_width = max(8, width - 2 - len(reason))
    return [
        [("  " + _cut(question, width - 2), "note")],
        [
            ("\u2713 " if good else "\u2717 ", "meter" if good else "warning"),
            (_cut(text, answer_width), "value"), (reason, "warning"),
        ],
    ]  # fmt: skip


def series(watch: RunWatch) -> dict[str, list[tuple[float, float]]]:
    """Points (update, value) of every curve, by name."""
    updates, checks = watch.of("update"), watch.of("check")
    return {
        "train": _points(updates, lambda e: _ratio(e, "kept", "answers")),
        "held": _points(checks, lambda e: _ratio(e, "right", "n")),
        "train tpf": _points(updates, lambda e: number(e, "tpf_steps")),
        "held tpf": _points(checks, lambda e: number(e, "tpf")),
    }


def _points(events: Sequence[Event], value: Any) -> list[tuple[float, float]]:
    pairs = ((number(event, "done"), value(event)) for event in events)
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _ratio(event: Event, part: str, whole: str) -> float | None:
    a, b = number(event, part), number(event, whole)
    return a / b if a is not None and b else None


def _waiting(watch: RunWatch) -> str:
    if not watch.status.alive:
        return "No update was made."
    return "Loading, and the first check on held-out prompts."


def _pace_rows(pace: Pace, status: Status, now: float) -> list[Row]:
    """What an update takes, part by part, and when the run will be over."""
    if pace.verify is None:
        rows = [_row("an update", f"{duration(pace.update)} ({duration(pace.rollout)} answers)")]
    else:
        parts = (pace.rollout - pace.verify, pace.verify, pace.learn)
        rows = [
            _row("an update", duration(pace.update)),
            _row("answer+verify+learn", ", ".join(duration(max(0.0, part)) for part in parts)),
        ]
    if status.alive and status.state == "running":
        left = pace.left(status.update, status.updates)
        ends = time.strftime("%H:%M", time.localtime(now + left))
        rows.append(_row("left", f"{duration(left)}, ends {ends}"))
    return rows


def _card_rows(watch: RunWatch) -> list[Row]:
    """The card at the end of the last update, its power the mean over it; nothing without one."""
    updates = watch.of("update")
    card = updates[-1].get("card") if updates else None
    return card_rows(card, LABEL) if isinstance(card, Mapping) else []


def _mean(update: Event) -> float | None:
    return _ratio(update, "tokens", "answers")


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _short(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.3f}".removeprefix("0") if value >= 0.0005 else "<.001"


def _positions(update: Event) -> str:
    uncertain, positions = number(update, "uncertain"), number(update, "positions")
    return f"{share(uncertain, positions)} of {_whole(positions)}"


def _count(event: Event, name: str) -> str:
    value = number(event, name)
    return count(None if value is None else int(value))


def _row(label: str, value: str, *, alert: bool = False) -> Row:
    return [(label.ljust(LABEL), "label"), (value, "warning" if alert else "value")]


def _line(text: object) -> str:
    return printable(" ".join(str(text or "").split()))


def _cut(text: str, width: int) -> str:
    short = set_cell_size(text, max(1, width)).rstrip()
    return short if len(short) >= len(text) else short[:-1] + "\u2026"
