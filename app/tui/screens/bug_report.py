"""A bug report to read, copy and save, before anybody else sees it."""

from collections.abc import Sequence

from textual.binding import Binding

from app.bug_report import clean, save
from app.tui.background import in_background
from app.tui.machine_check import CheckFailedError, doctor_command, run_doctor
from app.tui.screens.text import TextScreen

LOOKING = "(looking at the machine)"


class BugReportScreen(TextScreen):
    """What the program knows at once; what the doctor says of the machine comes when it is done.
    `doctor` replaces the doctor's command."""

    BINDINGS = [Binding("s", "save", "save", id="text.save", tooltip="save it beside the logs")]

    def __init__(self, facts: str, doctor: Sequence[str] | None = None) -> None:
        super().__init__("Bug report", f"{LOOKING}\n\n{facts}")
        self._facts = facts
        self._doctor = doctor if doctor is not None else doctor_command("--report")

    def on_mount(self) -> None:
        """Ask the doctor, in a process of its own."""
        super().on_mount()
        in_background(self, self._look, group="look")

    async def _look(self) -> None:
        try:
            out, _, _ = await run_doctor(self._doctor)
            found = clean(out.decode("utf-8", "replace")).strip()
        except CheckFailedError as error:
            found = str(error)
        self.show_text(f"{found}\n\n{self._facts}")

    def action_save(self) -> None:
        """To a file, whose path is told."""
        try:
            path = save(self.text)
        except OSError as error:
            self.notify(f"It cannot be saved: {error.strerror}.", severity="error", markup=False)
            return
        self.notify(str(path), title="Saved", markup=False)
