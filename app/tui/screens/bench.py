"""A benchmark in the window: presets in turn over a set of prompts, or over one question."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ScrollableContainer
from textual.screen import ModalScreen
from textual.widgets import Static

from app.bench.prompts import BenchSet
from app.bench.report import WIDTH, as_text
from app.bench.result import ResultError, write_result
from app.protocol import Ready
from app.text import printable
from app.tui.bench_run import BenchRun, Stage
from app.tui.exports import export_path
from app.tui.spark import meter
from app.tui.widgets.bars import KeyBar

if TYPE_CHECKING:
    from app.tui.app import OrlChat

METER = 40
LEAST_WIDTH = 40


class BenchScreen(ModalScreen[None]):
    """Runs at once; the report stands below the progress. `side_by_side`: the answers too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "stop", id="bench.leave", tooltip="stop, or leave"),
        Binding("e", "export", "export", id="bench.export", tooltip="save it as JSON"),
        Binding("r", "again", "again", id="bench.again", tooltip="measure once more"),
    ]

    def __init__(
        self, found: BenchSet, ready: Ready, *, repeat: int = 1, side_by_side: bool = False
    ) -> None:
        super().__init__()
        self._found, self._ready = found, ready
        self._repeat = repeat
        self._side_by_side = side_by_side
        self._run: BenchRun | None = None

    def compose(self) -> ComposeResult:
        with ScrollableContainer(classes="window") as window:
            window.border_title = f"Benchmark: {printable(self._found.name)}"
            yield Static("", id="progress", markup=False)
            yield Static("", id="report", markup=False)
            yield Static("", id="answers", markup=False)
        yield KeyBar()

    @property
    def program(self) -> "OrlChat":
        """The app, by its own type."""
        return cast("OrlChat", self.app)

    def on_mount(self) -> None:
        """Begin."""
        self.query_one(ScrollableContainer).focus()
        self.action_again()

    def action_again(self) -> None:
        """Measure, from the beginning."""
        link = self.program.link
        self._run = BenchRun(
            self._found, self._ready, link.send, self._changed, repeat=self._repeat
        )
        link.guest = self._run
        self._run.begin()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are not offered."""
        over = self._run is not None and self._run.stage is not Stage.RUNNING
        if action == "again":
            return over
        if action == "export":
            return over and self._measured
        return True

    @property
    def _measured(self) -> bool:
        return self._run is not None and any(run.samples for run in self._run.result.runs)

    def action_leave(self) -> None:
        """Stop what runs; leave what is over."""
        if self._run is not None and self._run.stage is Stage.RUNNING:
            self._run.stop()
        else:
            self.dismiss(None)

    def action_export(self) -> None:
        """The figures and every answer behind them, as `bench --out` writes them."""
        assert self._run is not None
        try:
            path = export_path("bench", "json")
            write_result(self._run.result.measured(), path)
        except (OSError, ResultError) as error:
            self.notify(printable(str(error)), severity="error", markup=False)
            return
        self.notify(_told(path), title="Saved", markup=False)

    def on_unmount(self) -> None:
        """The window's own pace again, and its engine for itself."""
        if self._run is not None:
            self._run.stop()
        self.program.session.send_pace()

    def on_resize(self) -> None:
        """The report's lines are as long as the window is wide."""
        self.call_after_refresh(self._changed)

    def _changed(self) -> None:
        run = self._run
        if run is None or not self.is_attached:
            return
        width = self.query_one("#progress").size.width
        full, empty = meter(run.done / run.total, min(METER, width // 3))
        words = {
            Stage.RUNNING: f"answer {run.done + 1} of {run.total}, warm-ups included",
            Stage.STOPPED: "Stopped: this is what was measured until then.",
            Stage.DONE: "Done.",
            Stage.FAILED: run.trouble,
        }
        line = Text(f"{full}{empty}  {printable(words[run.stage])}")
        self.query_one("#progress", Static).update(line)
        if self._measured and (run.stage is not Stage.RUNNING or run.done % 6 == 0):
            report = printable(as_text(run.result.measured(), max(LEAST_WIDTH, min(width, WIDTH))))
            self.query_one("#report", Static).update(Text(report))
        if self._side_by_side:
            self.query_one("#answers", Static).update(_columns(run.answers.items()))
        self.refresh_bindings()


def _columns(answers: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    found = list(answers)
    for _ in found:
        table.add_column(ratio=1)
    table.add_row(*(Text(label, style="bold") for label, _ in found))
    table.add_row(*(Text(printable(text)) for _, text in found))
    return table


def _told(path: Path) -> str:
    return f"{path}; in a shell: orl-chat bench compare {path.name} OTHER.json"
