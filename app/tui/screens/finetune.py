"""The Finetune tab: prompts, verifier and recipe of a new run, whether it fits, and all runs.

Everything that needs a model runs as a child process of the shell's own commands. A run is started
detached and read from its folder, so this window may close at any time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, OptionList

from app.paths import ensure, paths
from app.runs import delete_run
from app.text import printable
from app.tui import setup_words
from app.tui.screens.finetune_view import FinetuneView
from app.tui.widgets.run_list import RunList
from finetune.runs import RunError, RunFolder

DEMO_PROMPTS = 256


class FinetuneScreen(FinetuneView):
    """A new run, and all runs, with their keys."""

    TAB = "finetune"
    AUTO_FOCUS = "RunList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "start", id="tune.start", tooltip="begin the run"),
        Binding("t", "test", "test verifier", id="tune.test"),
        Binding("a", "answers", "answers", id="tune.answers", tooltip="the test run's answers"),
        Binding("m", "measure", "measure", id="tune.measure", tooltip="make one update here"),
        Binding("p", "problems", "problems", id="tune.problems", tooltip="lines of the file"),
        Binding("d", "demo", "demo prompts", id="tune.demo", tooltip="a set of the demo's prompts"),
        Binding("r", "resume", "resume", id="tune.resume", tooltip="go on with the marked run"),
        Binding("delete", "delete", "delete", id="tune.delete", tooltip="delete the marked run"),
        Binding("x", "stop_work", "cancel", id="tune.cancel", tooltip="end what is going on"),
        Binding("pageup", "page(-1)", "Up", show=False),
        Binding("pagedown", "page(1)", "Down", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._doomed: Path | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of what can be done now."""
        setup = self.setup
        marked = next((runs.marked for runs in self.query(RunList)), None)
        possible = {
            "start": not setup.missing() and not self.busy,
            "test": setup.testable and not self.busy,
            "measure": not setup.missing() and not self.busy,
            "answers": setup.trial is not None,
            "problems": bool(setup_words.problem_text(setup)),
            "resume": marked is not None and marked.resumable and not self.busy,
            "delete": marked is not None and not marked.status.alive,
            "stop_work": self.busy,
        }
        return possible.get(action, True)

    # --- the prompts --------------------------------------------------------------------------

    def action_demo(self) -> None:
        """A set to try everything with, made once."""
        path = paths().demo_prompts
        if path.is_file():
            self.use(str(path))
            self.go_on()
            return
        if not ensure(path.parent):
            self.complain(f"{path.parent} cannot be written; name a file of your own.")
            return
        command = ["prompts", "make", "demo", "--n", str(DEMO_PROMPTS), "--out", str(path)]

        def made(result: Any) -> None:
            self.use(str(path))
            self.go_on()

        self.work("Making demo prompts", [*command, "--json"], made)

    def action_problems(self) -> None:
        """All lines that cannot be used."""
        self.read("Lines that cannot be used", setup_words.problem_text(self.setup))

    # --- trying, measuring, starting ----------------------------------------------------------

    def action_test(self) -> None:
        """A few answers, verified."""
        command = self.setup.test_command(self.model)
        take = self.took("trial")
        self._allowed(lambda: self.work("Testing the verifier", command, take))

    def action_answers(self) -> None:
        """The answers of the test run."""
        self.read("Answers of the test", setup_words.answers_text(self.setup.trial or {}))

    def action_measure(self) -> None:
        """One update, to see what it takes."""
        command = self.setup.step_command(self.model)
        take = self.took("step")
        self._allowed(lambda: self.work("Measuring one update", command, take))

    def action_start(self) -> None:
        """Begin, outside of this window."""
        self._allowed(self._start)

    def _start(self) -> None:
        self._begin("Starting the run", self.setup.start_command(self.model))

    def _begin(self, words: str, command: list[str]) -> None:
        if self.make_room():
            self.work(words, command, self._started)

    def _started(self, result: Any) -> None:
        from app.tui.screens.run import RunScreen

        self.look_outside()
        folder = result.get("folder") if isinstance(result, dict) else None
        if folder and self.is_current:
            self.app.push_screen(RunScreen(RunFolder(folder)))

    def _allowed(self, act: Callable[[], None]) -> None:
        """Do it, after asking for leave to run code where that is due."""
        consent = self.setup.consent
        if consent is None:
            act()
            return
        from app.tui.screens.confirm import ConfirmScreen

        def answered(yes: bool | None) -> None:
            if not yes:
                return
            self.program.session.keeper.settings(run_code=consent.get("level"))
            if self.setup.checked is not None:
                self.setup.checked["consent"] = None
            self.show()
            act()

        text = f"{consent.get('text')} Allow this from now on?"
        self.app.push_screen(
            ConfirmScreen("Leave to run code", text, yes="Allow", no="Not now"), answered
        )

    # --- the runs -----------------------------------------------------------------------------

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another run has other keys."""
        event.stop()
        marked = self.query_one(RunList).marked
        if self._doomed is not None and (marked is None or marked.run.path != self._doomed):
            self._doomed = None
            self.note("")
        self.refresh_bindings()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the run."""
        from app.tui.screens.run import RunScreen

        event.stop()
        marked = self.query_one(RunList).marked
        if marked is not None:
            self.app.push_screen(RunScreen(marked.run))

    def action_resume(self) -> None:
        """Go on with the marked run."""
        marked = self.query_one(RunList).marked
        if marked is not None:
            command = ["finetune", "--resume", str(marked.run.path), "--detach", "--json"]
            self._begin(f"Going on with {printable(marked.name)}", command)

    def action_delete(self) -> None:
        """Twice, for the same run."""
        marked = self.query_one(RunList).marked
        if marked is None:
            return
        if self._doomed != marked.run.path:
            self._doomed = marked.run.path
            self.note(f"Once more deletes {printable(marked.name)} and its checkpoints for good.")
            return
        try:
            delete_run(marked.run)
        except (RunError, OSError) as error:
            self.complain(str(error))
            return
        self._doomed = None
        self.look_outside()
        self.note("")

    # --- drawing ------------------------------------------------------------------------------

    def action_stop_work(self) -> None:
        """End what is going on."""
        looking = self.looking
        self.stop_work()
        if looking:
            self._refused("The prompts were not looked at; enter their path again to use them.")

    def action_page(self, step: int) -> None:
        """Page keys move all of it."""
        area = self.query_one("#tune-body", VerticalScroll)
        area.scroll_page_down(animate=False) if step > 0 else area.scroll_page_up(animate=False)

    def action_to_chat(self) -> None:
        """Out of a field first, then back to the chat."""
        if isinstance(self.focused, Input):
            self.query_one(RunList).focus()
        else:
            super().action_to_chat()
