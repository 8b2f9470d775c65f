"""Which model the window uses: what was found out about the machine, the download, the choice.

Outlives the screens that show it. The choice is kept in the settings; another engine process then
loads it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.models import DEFAULT_REPO, DEMO
from app.settings import SettingsFile
from app.tui.background import in_background
from app.tui.download_link import DownloadLink
from app.tui.download_state import DownloadState, Stage
from app.tui.machine_check import Verdict, ask_doctor, doctor_command
from app.tui.state import Problem

if TYPE_CHECKING:
    from app.tui.app import OrlChat


def is_first_start(model: str | None, file: SettingsFile) -> bool:
    """Whether nothing was chosen yet, neither on the command line (`model`) nor in the settings.

    In a file that cannot be read something may have been chosen, and no choice could be kept.
    """
    return model is None and not file.broken and "model" not in file.settings.model_fields_set


class ModelChoice:
    """The part of the program that brings models and chooses among them.

    Attributes:
        first: nothing was chosen yet, so the program starts with the choice.
        verdict: what the machine can do, once it is known.
    """

    def __init__(
        self,
        program: "OrlChat",
        *,
        first: bool,
        doctor: Sequence[str] | None,
        limits: Mapping[str, float] | None,
    ) -> None:
        self._program = program
        self.first = first
        self.doctor = list(doctor) if doctor is not None else doctor_command()
        self.verdict: Verdict | None = None
        self.download = DownloadLink(program.session.file, limits)
        self.download.changed = self._download_changed

    @property
    def now(self) -> str | None:
        """The model in use; None before the first choice."""
        return None if self.first else self._program.link.model

    @property
    def can_run_large(self) -> bool | None:
        """Whether the checkpoint that the program is made for runs here; None while unknown."""
        return self.verdict.runs_large if self.verdict is not None else None

    async def check(self) -> None:
        """Look at the machine; `verdict` is what was found. Raises CheckFailedError."""
        self.verdict = await ask_doctor(self.doctor)

    async def close(self) -> None:
        """The window closes, and what works for it ends."""
        self._program.workers.cancel_group(self._program, "check")
        await self.download.close()

    def show(self) -> None:
        """The screen that offers models."""
        from app.tui.screens.models import ModelsScreen

        program = self._program
        if not any(isinstance(screen, ModelsScreen) for screen in program.screen_stack):
            program.push_screen(ModelsScreen(self))
        while not isinstance(program.screen, ModelsScreen):
            program.pop_screen()  # what lies over it, such as the download

    def choose(self, model: str, *, adapter: str | None = None, keep: bool = True) -> None:
        """Load `model` with `adapter` (a run, a folder), unless they are in use already, and go to
        the chat; `keep` the model for the next start."""
        program, engine = self._program, self._program.session.engine
        same = (model, adapter) == (self.now, program.link.adapter)
        in_use = same and (engine.usable or engine.coming)
        self.first = False
        if keep:
            program.session.keeper.settings(model=model)
        program.link.model, program.link.adapter = model, adapter
        while program.screen is not program.chat:
            program.pop_screen()
        if not in_use:
            program.start_engine()

    def use_demo_meanwhile(self) -> None:
        """Chat with the demo; a download that runs goes on, and the choice stays open."""
        self.choose(DEMO, keep=not self.download.running)

    def fetch(self, repo: str) -> None:
        """Download `repo` (or go on with it) and show it."""
        from app.tui.screens.download import DownloadScreen

        state = self.download.state
        if state is None or state.repo != repo or not state.running:
            self.download.prepare(repo)
            in_background(self._program, self.download.run, group="download")
        if not isinstance(self._program.screen, DownloadScreen):
            self._program.push_screen(DownloadScreen(self))

    def load_download(self) -> None:
        """Use what was downloaded while somebody did something else."""
        state = self.download.state
        if state is not None and state.stage is Stage.READY:
            self.choose(state.repo)

    def loads_by_itself(self, state: DownloadState) -> bool:
        """Whether a finished download is surely what this machine wants: it runs here."""
        return state.repo == DEFAULT_REPO and self.can_run_large is True

    def words(self) -> str:
        """The download in a few words, for the top bar; nothing when there is none."""
        state = self.download.state
        if state is None or not state.running:
            return ""
        paused = " (paused)" if state.stage is Stage.PAUSED else ""
        return f"download {state.percent} %{paused}"

    def _download_changed(self, state: DownloadState) -> None:
        from app.tui.screens.download import DownloadScreen

        program = self._program
        program.chat.refresh_top()
        shown = next((s for s in program.screen_stack if isinstance(s, DownloadScreen)), None)
        if shown is not None:
            shown.show(state)
        elif state.stage in (Stage.READY, Stage.FAILED):
            program.chat.problem(_news(state))


def _news(state: DownloadState) -> Problem:
    """What became of a download that nobody looks at."""
    if state.ready is not None:
        words = "Every file was checked."
        return Problem(f"{state.repo} is here", words, actions=("load",))
    assert state.error is not None
    return Problem.of(f"The download of {state.repo} ended", state.error, ("models",))
