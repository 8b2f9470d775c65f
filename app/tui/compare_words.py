"""What the comparison of a run says, as rows of spans. No screen here.

The figures are the JSON of `orl-chat compare`; the texts in it are a model's.
"""

from collections.abc import Mapping
from typing import Any

from app.text import printable
from app.tui.figures import NOTHING, count, number, rate, ratio
from app.tui.panel import Row

Item = Mapping[str, Any]
KINDS = {"all": "all", "fixed": "only fixed", "broken": "only broken"}
NONE = {
    "all": "No prompt was answered by both.",
    "fixed": "No answer was wrong before and is right now.",
    "broken": "No answer was right before and is wrong now.",
}
COLUMNS = ("right", "TPF", "95 % interval", "tok/s", "tokens", "steps/block")
WIDTHS = (9, 8, 18, 9, 9, 13)


def items(data: Mapping[str, Any], kind: str = "all") -> list[Item]:
    """The prompts with both answers: all of them, or those that were fixed or broken."""
    found = data.get("items")
    rows = [row for row in (found if isinstance(found, list) else []) if isinstance(row, Mapping)]
    if kind == "fixed":
        return [row for row in rows if not _right(row, "base") and _right(row, "tuned")]
    if kind == "broken":
        return [row for row in rows if _right(row, "base") and not _right(row, "tuned")]
    return rows


def table_rows(data: Mapping[str, Any], width: int) -> list[Row]:
    """Base against tuned, what changed, and which thresholds were used."""
    shown = _fitting(width)
    head = "".join(f"{name:>{size}}" for name, size in shown)
    rows: list[Row] = [[(" " * 8 + head, "label")]]
    for name in ("base", "tuned"):
        cells = "".join(f"{_cell(_part(data, name), column):>{size}}" for column, size in shown)
        rows.append([(f"{name:<8}", "label"), (cells, "value")])
    return [*rows, _change(data), *_lists(data)]


def _fitting(width: int) -> list[tuple[str, int]]:
    shown, used = [], 8
    for name, size in zip(COLUMNS, WIDTHS, strict=True):
        used += size
        if used <= width:
            shown.append((name, size))
    return shown


def _cell(row: Mapping[str, Any], column: str) -> str:
    match column:
        case "right":
            return _share(number(row, "accuracy"))
        case "95 % interval":
            low, high = _pair(row.get("interval"))
            return NOTHING if low is None else f"{_share(low)} to {_share(high)}"
        case "tok/s":
            return rate(number(row, "tokens_per_second"))
        case "TPF":
            return ratio(number(row, "tpf"))
        case "tokens":
            return rate(number(row, "tokens_per_answer"))
        case _:
            return ratio(number(row, "steps_per_block"))


def _change(data: Mapping[str, Any]) -> Row:
    low, high = _pair(data.get("change_interval"))
    change, speedup = number(data, "change"), number(data, "speedup")
    words = f"right {_points(change)}"
    if low is not None:
        words += f" ({_points(low)} to {_points(high)})"
    return [("change  ", "label"), (f"{words}, TPF times {ratio(speedup)}", "figure")]


def _lists(data: Mapping[str, Any]) -> list[Row]:
    every, fixed, broken = (len(items(data, kind)) for kind in ("all", "fixed", "broken"))
    held = "held-out prompts" if data.get("held_out") else "prompts"
    editing = number(data, "editing_threshold")
    thresholds = f"threshold {number(data, 'threshold') or 0:g}"
    thresholds += ", editing off" if editing is None else f", editing {editing:g}"
    same = every - fixed - broken
    return [
        [(f"{fixed} fixed, {broken} broken, {same} as before", "value")],
        [(f"{count(every)} {held}, {thresholds}; intervals are over prompts", "note")],
    ]


def answer_title(item: Item | None, name: str) -> str:
    """`tuned ✓  48 tok, 5 fwd, TPF 9.60`."""
    if item is None:
        return name
    answer = _part(item, name)
    mark = "\u2713" if answer.get("right") is True else "\u2717"
    tokens, forwards = number(answer, "tokens"), number(answer, "forwards")
    figures = f"{_whole(tokens)} tok, {_whole(forwards)} fwd, TPF {ratio(number(answer, 'tpf'))}"
    return f"{name} {mark}  {figures}"


def answer_text(item: Item | None, name: str) -> str:
    """An answer as it may be shown."""
    return "" if item is None else printable(str(_part(item, name).get("text") or "(no text)"))


def question(item: Item | None) -> str:
    """What was asked, in one line."""
    return "" if item is None else printable(" ".join(str(item.get("question") or "").split()))


def _right(item: Item, name: str) -> bool:
    return _part(item, name).get("right") is True


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def _pair(value: object) -> tuple[float | None, float | None]:
    if isinstance(value, list) and len(value) == 2:
        numbers = {"low": value[0], "high": value[1]}
        low, high = number(numbers, "low"), number(numbers, "high")
        return (None, None) if low is None or high is None else (low, high)
    return None, None


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.0f} %"


def _points(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.1f}"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"
