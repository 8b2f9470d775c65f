"""Before and after: the base against a run's best checkpoint on prompts that it held out, and both
texts side by side.

Measured by `orl-chat compare` in a process of its own; what it found is kept in the run's folder
until the run has a better checkpoint.
"""

import json
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.run_watch import RunWatch
from app.runs import tuned_update
from app.text import printable
from app.tui import compare_words as words
from app.tui import using
from app.tui.screens.working import WorkScreen
from app.tui.setup_words import wrapped
from app.tui.widgets.rows import GrowingRows
from finetune.files import write_json

FILE = "compare.json"
SIDES = ("base", "tuned")


class CompareScreen(WorkScreen):
    """A table above, the answers below."""

    TAB = "finetune"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", id="compare.back", tooltip="back to the run"),
        Binding("left", "go(-1)", "previous", id="compare.previous", tooltip="the prompt before"),
        Binding("right", "go(1)", "next prompt", id="compare.next"),
        Binding("f", "only('fixed')", "fixed", id="compare.fixed", tooltip="only what was fixed"),
        Binding("b", "only('broken')", "broken", id="compare.broken", tooltip="only what broke"),
        Binding("a", "only('all')", "all", id="compare.all"),
        Binding("l", "load", "load in chat", id="compare.load"),
        Binding("e", "export", "export", id="compare.export", tooltip="as a folder, merged, NVFP4"),
        Binding("m", "measure", "measure again", id="compare.measure"),
        Binding("x", "stop_work", "cancel", id="compare.cancel"),
        Binding("up", "scroll(-1)", "Up", show=False),
        Binding("down", "scroll(1)", "Down", show=False),
    ]

    def __init__(self, watch: RunWatch) -> None:
        super().__init__()
        self.seen = watch
        self.data: dict[str, Any] | None = None
        self._kind = "all"
        self._at = 0
        self._begun = False

    def body(self) -> ComposeResult:
        with Vertical(classes="panel", id="compare-table"):
            yield GrowingRows(id="compare-rows")
        with Vertical(classes="panel", id="compare-question"):
            yield Static("", id="compare-asked", markup=False)
        with Horizontal(id="compare-texts"):
            for side in SIDES:
                with VerticalScroll(id=f"compare-{side}", can_focus=False):
                    yield Static("", id=f"compare-{side}-text", markup=False)

    def look(self) -> None:
        """What was measured before, or begin to measure."""
        if self.data is None:
            self.data = _read(self.seen)
        self._show()
        if self.data is None and not self._begun:
            self.action_measure()

    def idle_words(self) -> tuple[str, bool]:
        """What an interval is."""
        if self.data is None:
            return "Not measured yet: m measures.", False
        n = len(words.items(self.data))
        return f"With {n} prompts, changes within the interval cannot be told from none.", False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of what can be done now."""
        measured = self.data is not None
        if action in ("go", "only"):
            return measured
        return {"stop_work": self.busy, "measure": not self.busy}.get(action, True)

    def action_measure(self) -> None:
        """Answer the held-out prompts with both."""
        self._begun = True
        command = ["compare", str(self.seen.run.path), "--progress", "--json"]
        self.work("Comparing", command, self._measured)

    def _measured(self, result: Any) -> None:
        if isinstance(result, dict):
            self.data, self._at = result, 0
            try:
                write_json(self.seen.run.path / FILE, result)
            except OSError as error:
                self.complain(f"The comparison is not kept: {error.strerror}.")
        self._show()

    def action_only(self, kind: str) -> None:
        """All prompts, or those that changed."""
        self._kind, self._at = kind, 0
        self._show()

    def action_go(self, step: int) -> None:
        """Another prompt."""
        shown = words.items(self.data or {}, self._kind)
        if shown:
            self._at = (self._at + step) % len(shown)
            self._show()

    def action_scroll(self, step: int) -> None:
        """Both texts move together."""
        for side in SIDES:
            self.query_one(f"#compare-{side}").scroll_relative(y=step, animate=False)

    def action_load(self) -> None:
        """The run's best checkpoint into the chat."""
        if (refusal := using.use(self.program, self.seen)) is not None:
            self.complain(refusal)

    def action_export(self) -> None:
        """Write it somewhere."""
        from app.tui.screens.export import ExportScreen

        self.app.push_screen(ExportScreen(self.seen))

    def action_stop_work(self) -> None:
        """End the measuring."""
        self.stop_work()

    def action_back(self) -> None:
        """To the run."""
        self.dismiss(None)

    def _show(self) -> None:
        if not self.query("#compare-texts"):
            return
        data = self.data or {}
        self.query_one("#compare-rows", GrowingRows).fill(
            lambda width: words.table_rows(data, width) if data else _waiting(width)
        )
        title = f"Before and after {printable(self.seen.name)}"
        self.query_one("#compare-table").border_title = Content(title)
        shown = words.items(data, self._kind)
        item = shown[self._at] if self._at < len(shown) else None
        place = f"Prompt {self._at + 1} of {len(shown)}" if shown else "No prompt"
        self.query_one("#compare-question").border_title = f"{place}, {words.KINDS[self._kind]}"
        asked = words.question(item) if item is not None or not data else words.NONE[self._kind]
        self.query_one("#compare-asked", Static).update(
            Text(asked, overflow="ellipsis", no_wrap=True)
        )
        for side in SIDES:
            self.query_one(f"#compare-{side}").border_title = words.answer_title(item, side)
            text = Text(words.answer_text(item, side))
            self.query_one(f"#compare-{side}-text", Static).update(text)
        self.show_state()
        self.refresh_bindings()


def _waiting(width: int) -> list[Any]:
    told = "Both models answer the held-out prompts, one at a time, with the run's thresholds."
    return wrapped(told, width, "note")


def _read(watch: RunWatch) -> dict[str, Any] | None:
    """What was kept, where it is about the best checkpoint that there is now."""
    try:
        data = json.loads((watch.run.path / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(data, dict) and data.get("update") == tuned_update(watch.run)
    return data if same else None
