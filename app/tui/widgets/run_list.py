"""The runs on this machine, the newest first: where each stands, and what it brought."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets.option_list import Option

from app.run_watch import RunWatch
from app.runs import every_run
from app.tui.panel import Row
from app.tui.run_words import list_row
from app.tui.widgets.options import Options

NONE = "No runs yet."


class RunList(Options):
    """Keeps a watch on every run; `look` reads what is new and draws what changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "open", key_display="enter", id="runs.open"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False, compact=True)
        self._watches: dict[str, RunWatch] = {}
        self._drawn: list[Text] = []

    def look(self) -> None:
        """Read the folders again."""
        marked = self.marked
        found: dict[str, RunWatch] = {}
        for run in reversed(every_run()):
            name = str(run.path)
            watch = self._watches.get(name)
            if watch is None:
                watch = RunWatch(run)
            else:
                watch.look()
            found[name] = watch
        self._watches = found
        self._draw(marked)

    def on_resize(self) -> None:
        """Rows fit the width."""
        self._draw(self.marked)

    @property
    def marked(self) -> RunWatch | None:
        """The run under the mark."""
        index, watches = self.highlighted, list(self._watches.values())
        return watches[index] if index is not None and index < len(watches) else None

    def _draw(self, marked: RunWatch | None) -> None:
        width = max(40, self.size.width - 2)
        rows = [self._text(list_row(watch, width)) for watch in self._watches.values()]
        if rows == self._drawn and self.option_count:
            return
        self._drawn = rows
        self.clear_options()
        if not rows:
            self.add_option(Option(Text(NONE, "dim"), disabled=True))
            return
        self.add_options(Option(row) for row in rows)
        names = list(self._watches)
        at = names.index(str(marked.run.path)) if marked and str(marked.run.path) in names else 0
        self.highlighted = at

    def _text(self, row: Row) -> Text:
        looks = {"label": "dim", "note": "dim", "warning": "bold"}
        return Text.assemble(*((text, looks.get(look, "")) for text, look in row), no_wrap=True)
