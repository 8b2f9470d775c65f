"""One run: its curves, how learning goes, where it stands, answers with verdicts, the log.

Only a view of the run's folder: the run goes on without it, and whoever opens it again sees the
same curves. What is asked of the run goes through the folder too.
"""

import math
import time
from collections.abc import Callable
from typing import ClassVar

import psutil
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content

from app.run_watch import RunWatch
from app.runs import delete_run, log_tail
from app.text import printable
from app.tui import run_words, using
from app.tui.figures import ratio
from app.tui.panel import Row
from app.tui.screens.working import WorkScreen
from app.tui.setup_words import wrapped
from app.tui.widgets.plot import Frame, Line, Plot
from app.tui.widgets.rows import GrowingRows
from finetune.runs import Request, RunError, RunFolder

LOG_LINES = 6
PASS = "line: held out, dots: training"
TPF = "line: held out, dots: training, per step"
TITLES = {
    "pass": "Pass rate",
    "tpf": "TPF",
    "health": "Learning", "now": "Now", "samples": "Answers of the last update", "log": "Log",
}  # fmt: skip


class RunScreen(WorkScreen):
    """A run, live or over."""

    TAB = "finetune"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", id="run.back", tooltip="back to all runs"),
        Binding("p", "pause", "pause/go on", id="run.pause", tooltip="after this update"),
        Binding("s", "ask('save')", "save now", id="run.save", tooltip="check and keep"),
        Binding("x", "ask('stop')", "stop and keep", id="run.stop", tooltip="after this update"),
        Binding("r", "resume", "resume", id="run.resume", tooltip="from the last whole state"),
        Binding("c", "compare", "compare", id="run.compare", tooltip="before against after"),
        Binding("l", "load", "load/unload", id="run.load", tooltip="into the chat, or out of it"),
        Binding("e", "export", "export", id="run.export", tooltip="as a folder, merged, in NVFP4"),
        Binding("o", "details", "log", id="run.log", tooltip="the run's whole log"),
        Binding("delete", "delete", "delete", id="run.delete", tooltip="with all its checkpoints"),
        Binding("pageup", "page(-1)", "Up", show=False),
        Binding("pagedown", "page(1)", "Down", show=False),
    ]

    def __init__(self, run: RunFolder) -> None:
        super().__init__()
        self.seen = RunWatch(run)
        self._doomed = False

    def body(self) -> ComposeResult:
        with VerticalScroll(id="run-body", can_focus=False):
            with Horizontal(classes="plots"):
                yield Plot(id="run-pass", mark=lambda share: f"{share:.0%}", legend=PASS)
                yield Plot(id="run-tpf", mark=ratio, legend=TPF)
            yield GrowingRows(id="run-notice")
            with Horizontal(classes="pair"):
                for id in ("now", "health"):
                    with Vertical(classes="panel", id=f"run-{id}"):
                        yield GrowingRows(id=f"run-{id}-rows")
            for id in ("samples", "log"):
                with Vertical(classes="panel", id=f"run-{id}"):
                    yield GrowingRows(id=f"run-{id}-rows")

    def on_mount(self) -> None:
        """Name the parts."""
        for id, title in TITLES.items():
            self.query_one(f"#run-{id}").border_title = title

    def look(self) -> None:
        """The run as it is now."""
        self.seen.look()
        self._show()

    def look_outside(self) -> None:
        """What is new in the folder; a process that is gone shows with the next look."""
        if self.seen.look():
            self._doomed = False
            self.note("")
            self._show()

    def idle_words(self) -> tuple[str, bool]:
        """Where it runs, or how it ended."""
        status = self.seen.status
        if status.alive:
            paused = status.state == "paused"
            words = "is paused; p goes on" if paused else "goes on when this window closes"
            return f"{printable(self.seen.name)} {words} (pid {status.pid}).", False
        ended = f"{printable(self.seen.name)}: {run_words.STATES.get(status.state, '')}. "
        if status.state == "failed":
            more = "r goes on from the last whole state." if self.seen.resumable else ""
            return ended + (more or "It left no whole state, so it can only be begun anew."), True
        return ended + printable(status.message), False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of what can be done now."""
        watch = self.seen
        alive, saved = watch.status.alive, bool(watch.run.checkpoints())
        possible = {
            "pause": alive, "ask": alive, "resume": watch.resumable and not self.busy,
            "compare": saved, "load": saved, "export": saved, "delete": not alive,
        }  # fmt: skip
        return possible.get(action, True)

    # --- what is asked of the run -------------------------------------------------------------

    def action_pause(self) -> None:
        """After the update in progress; the same key goes on."""
        self.action_ask("go" if self.seen.status.state == "paused" else "pause")

    def action_ask(self, word: Request) -> None:
        """Leave the run's process a word."""
        try:
            self.seen.run.request(word)
        except (RunError, OSError) as error:
            self.complain(str(error))
            return
        told = "go on" if word == "go" else word
        self.note(f"The run was asked to {told}; it obeys after the update in progress.")

    def action_resume(self) -> None:
        """Go on in another process."""
        if self.make_room():
            command = ["finetune", "--resume", str(self.seen.run.path), "--detach", "--json"]
            self.work("Going on with the run", command, lambda result: self.look())

    def action_delete(self) -> None:
        """Twice."""
        if not self._doomed:
            self._doomed = True
            self.note("Once more deletes this run and all its checkpoints for good.")
            return
        try:
            delete_run(self.seen.run)
        except (RunError, OSError) as error:
            self.complain(str(error))
            return
        self.dismiss(None)

    # --- what came of it ----------------------------------------------------------------------

    def action_compare(self) -> None:
        """Before against after."""
        from app.tui.screens.compare import CompareScreen

        self.app.push_screen(CompareScreen(self.seen))

    def action_load(self) -> None:
        """Into the chat; out of it when it is there."""
        if using.is_used(self.program, self.seen):
            using.leave(self.program)
        elif (refusal := using.use(self.program, self.seen)) is not None:
            self.complain(refusal)

    def action_export(self) -> None:
        """Write it somewhere."""
        from app.tui.screens.export import ExportScreen

        self.app.push_screen(ExportScreen(self.seen))

    def action_details(self) -> None:
        """What its process wrote."""
        from app.tui.screens.text import TextScreen

        text = log_tail(self.seen.run, 100_000) or "This run has written no log."
        self.app.push_screen(TextScreen(f"Log of {printable(self.seen.name)}", text, at_end=True))

    def action_back(self) -> None:
        """To all runs."""
        self.dismiss(None)

    def action_page(self, step: int) -> None:
        """Page keys move all of it."""
        area = self.query_one("#run-body", VerticalScroll)
        area.scroll_page_down(animate=False) if step > 0 else area.scroll_page_up(animate=False)

    # --- drawing ------------------------------------------------------------------------------

    def _show(self) -> None:
        if not self.is_mounted or not self.query("#run-body"):
            return
        watch = self.seen
        self._show_curves()
        memory = _memory(watch.status.pid) if watch.status.alive else None
        lines = log_tail(watch.run).splitlines()[-LOG_LINES:]
        self._fill("health-rows", lambda width: run_words.health_rows(watch))
        self._fill("now-rows", lambda width: run_words.now_rows(watch, width, time.time(), memory))
        self._fill("samples-rows", lambda width: run_words.sample_rows(watch, width))
        self._fill("log-rows", lambda width: [[(printable(line), "note")] for line in lines])
        words = run_words.notice(watch)
        self.query_one("#run-notice").display = bool(words)
        self._fill("notice", lambda width: wrapped(words, width, "warning"))
        self.query_one("#run-now").border_title = Content(printable(watch.name))
        self.show_state()
        self.refresh_bindings()

    def _fill(self, id: str, write: Callable[[int], list[Row]]) -> None:
        self.query_one(f"#run-{id}", GrowingRows).fill(write)

    def _show_curves(self) -> None:
        curves, right = run_words.series(self.seen), float(self.seen.status.updates)
        for id, train, held, least, most in (
            ("pass", "train", "held", 0.2, 1.0), ("tpf", "train tpf", "held tpf", 1.0, math.inf),
        ):  # fmt: skip
            lines = [Line(curves[train], "dots"), Line(curves[held])]
            frame = Frame.around(lines, right, least, most)
            self.query_one(f"#run-{id}", Plot).show(lines, frame)


def _memory(pid: int | None) -> int | None:
    """Bytes that a process holds; None where that is not told."""
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid is not None else None
    except psutil.Error:
        return None
