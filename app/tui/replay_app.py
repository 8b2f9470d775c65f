"""A recording in a window of its own: `orl-chat replay FILE --tui`. No model, no chats."""

from textual.screen import Screen

from app.settings import SettingsFile
from app.trace import Recording, read_recording
from app.tui.film import Film
from app.tui.look import Look
from app.tui.program import Program
from app.tui.screens.replay import ReplayScreen


class ReplayProgram(Program):
    """Shows the answers of a recording."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, recording: Recording, file: SettingsFile) -> None:
        super().__init__(Look.of(file.settings))
        if file.settings.keys:
            self.hold_keys(file.settings.keys)
        films = [Film.of(answer, recording.ready) for answer in recording.answers]
        self._replay = ReplayScreen(films, file.settings)

    def get_default_screen(self) -> Screen[None]:
        """The replay."""
        return self._replay


def run(path: str) -> int:
    """Show the trace at `path` until the user leaves; the exit code. Raises TraceError."""
    file = SettingsFile.open()
    program = ReplayProgram(read_recording(path), file)
    code = program.run(mouse=file.settings.mouse)
    return program.return_code or code or 0
