"""The words and bars of the download screen."""

from dataclasses import replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from app.commands.download import pace_words, plan_lines
from app.hub.messages import Planned
from app.hub.text import size_text, time_text
from app.text import printable
from app.tui.download_state import DownloadState, FileRow, Stage

LOG_LINES = 6
NARROW = 80
LARGE = 1 << 24
"""Bytes of a file that gets a line of its own; the others share one."""
FEW = 12

_TITLES = {
    Stage.ASKING: "asking the hub",
    Stage.FETCHING: "download",
    Stage.PAUSED: "paused",
    Stage.READY: "ready",
    Stage.FAILED: "failed",
    Stage.CANCELLED: "cancelled",
}
PROBLEMS = {
    "gated": "Its terms must be accepted first",
    "private": "It is private, or not there",
    "not_found": "There is no such repository",
    "revision_not_found": "There is no such revision",
    "forbidden": "Access is refused",
    "bad_token": "The token is not accepted",
    "network": "No connection",
    "offline": "Offline",
    "proxy": "The proxy does not let it through",
    "tls": "The connection cannot be trusted",
    "endpoint": "The hub's address is wrong",
    "not_a_hub": "That is no hub",
    "busy": "The hub asks to wait",
    "server": "The hub has trouble",
    "disk_full": "The disk is too full",
    "read_only": "The cache cannot be written",
    "disk": "The disk has trouble",
    "damaged": "A file keeps arriving damaged",
    "unsuitable": "This is no model for orl-chat",
    "gone": "A file is gone",
    "bad_request": "This name cannot be",
    "died": "The download process ended",
}
"""Titles of cards by an error's kind; the sentence and the next move come with the error."""
TOKEN_HELPS = frozenset({"gated", "private", "not_found", "forbidden", "bad_token"})
"""Kinds of errors after which another token may be the next move."""
_TOKEN_HINT = "A token can also be typed here (Token)."


def title(state: DownloadState) -> str:
    """The top bar's right side."""
    commit = f" · {state.plan.commit[:7]}" if state.plan is not None else ""
    return f"{_TITLES[state.stage]}{commit}"


def card(state: DownloadState, *, runs: bool | None) -> Text | None:
    """What is to be said above the bar."""
    if state.stage is Stage.FAILED and state.error is not None:
        error = state.error
        heading = PROBLEMS.get(error.kind, "The download ended")
        more = _TOKEN_HINT if error.kind in TOKEN_HELPS else ""
        return _card(heading, error.message, f"{error.hint} {more}".strip())
    if state.stage is Stage.CANCELLED:
        return _card("Cancelled", "What came is kept; trying again goes on from there.", "")
    if state.ready is not None:
        hint = "" if runs is not False else "This machine may be too small for it."
        came = state.ready.fetched
        fetched = f"{size_text(came)} came in {time_text(state.ready.elapsed)}." if came else ""
        return _card("Ready", f"Every file is here and was checked. {fetched}".strip(), hint)
    return None


def token_card(state: DownloadState, note: str) -> Text:
    """What typing a token means; `note` is what was wrong with the last attempt."""
    message = f"Type or paste one that may read {state.repo}. It is not shown."
    hint = (
        "Use once: it is forgotten with this window. Use and keep: huggingface_hub stores it, as "
        "`hf auth login` does, for other programs too."
    )
    return _card("A Hugging Face token", f"{note} {message}".strip(), hint)


def _card(heading: str, message: str, hint: str) -> Text:
    text = Text(f"{heading}\n", "bold")
    text.append(printable(message), "not bold")
    if hint:
        text.append(f"\n{printable(hint)}", "not bold dim")
    return text


def total(state: DownloadState, width: int) -> Text:
    """The bar, the figures of the moment, and where from and where to."""
    if state.plan is None:
        words = "Asking the hub what the model consists of ..." if state.running else ""
        return Text(words, "dim")
    done = f" {size_text(state.done)} of {size_text(state.total)}  {state.percent:3d} %"
    cells = max(10, min(60, width - len(done)))
    text = bar(state.done, state.total, cells)
    text.append(f"{done}\n")
    text.append(f"{moment(state)}\n", "bold")
    about = plan_words(state.plan)
    for line in about[:-1] if state.stage is Stage.READY else about:
        text.append(f"{printable(line)}\n", "dim")
    return text


def plan_words(plan: Planned) -> list[str]:
    """The plan as the command line tells it, with the cache's folder in place of a long path."""
    return plan_lines(replace(plan, path=str(Path(plan.path).parents[2])))


def bar(done: int, whole: int, cells: int) -> Text:
    """A bar of `cells` cells, with the mark for each never ahead of the bytes."""
    full = cells * done // whole if whole else cells
    return Text("█" * full, "cyan") + Text("░" * (cells - full), "dim")


def moment(state: DownloadState) -> str:
    """ "41.8 MB/s (mean of 10 s) · 1 m 43 s left · 12 s so far · 1 reconnect"."""
    now = state.now
    if state.stage is Stage.PAUSED:
        return "Paused: nothing is asked for. What came is kept."
    if state.stage is Stage.READY:
        return "Complete."
    if now is None or state.stage is not Stage.FETCHING:
        return "" if state.stage is not Stage.FETCHING else "Beginning"
    parts = pace_words(now, about=" (mean of 10 s)")
    if state.checking:
        share = 100 * now.checked // now.total if now.total else 100
        parts.append(f"checking, {share} % checked")
    parts.append(f"{time_text(now.elapsed)} so far")
    if now.reconnects:
        parts.append(f"{now.reconnects} reconnect{'s' if now.reconnects > 1 else ''}")
    return " · ".join(parts)


def files(state: DownloadState, width: int) -> Table:
    """A line for each large file, one for the small ones together."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for _ in range(3 if width >= NARROW else 2):
        table.add_column(justify="right", no_wrap=True)
    rows = list(state.rows.values())
    large = rows if len(rows) <= FEW else [row for row in rows if row.size > LARGE]
    paused = state.stage is Stage.PAUSED
    small = [row for row in rows if row not in large]
    for row in large:
        doing = "paused" if paused and row.state == "fetching" else _doing(row)
        _add(table, printable(row.path), row.size, row.done, doing)
    if small:
        over = all(row.state == "checked" for row in small)
        size, done = sum(row.size for row in small), sum(row.done for row in small)
        label = f"{len(small)} small files"
        _add(table, label, size, done, "checked" if over else "")
    return table


def _add(table: Table, name: str, size: int, done: int, doing: str) -> None:
    percent = 100 * done // size if size else 100
    cells = [Text(name), Text(size_text(size)), Text(f"{percent} % {doing}".rstrip())]
    if len(table.columns) == 4:
        cells[2:] = [Text(f"{percent} %"), Text(doing)]
    table.add_row(*cells)


def _doing(row: FileRow) -> str:
    if row.state == "fetching" and row.speed:
        return f"{size_text(row.speed)}/s"
    if row.state == "checking":
        return f"checking {100 * row.checked // row.size if row.size else 100} %"
    return row.state


def log(state: DownloadState) -> Text:
    """The latest lines, and that nothing is lost by leaving."""
    lines = list(state.lines)[-LOG_LINES:]
    if state.running:
        lines.append("Safe to leave or quit: it goes on from here the next time.")
    return Text(printable("\n".join(lines)), "dim")


def label(name: str, plain: str, state: DownloadState) -> str:
    """A button's word, where it depends on what goes on."""
    if name == "toggle" and state.stage is Stage.PAUSED:
        return "Go on"
    return "Demo meanwhile" if name == "demo" and state.running else plain
