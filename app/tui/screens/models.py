"""The first start, and Ctrl+P Models: what this machine can do, and which model to use.

The choices stay in view whatever the size; what was found about the machine scrolls above them.
Nothing here waits: the machine is looked at and the hub is asked in processes of their own, and
each choice can be made before their answers.
"""

from typing import ClassVar, cast

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.hub.messages import Planned
from app.models import DEFAULT_REPO, DEMO, check_folder, is_repo
from app.protocol import Error
from app.text import printable
from app.tui import machine_words
from app.tui.background import in_background
from app.tui.machine_check import CheckFailedError
from app.tui.machine_words import DOWNLOAD, FOLDER
from app.tui.model_choice import ModelChoice
from app.tui.welcome import this_machine
from app.tui.widgets.bars import KeyBar, TopBar
from app.tui.widgets.options import Options
from app.tui.widgets.too_small import TooSmall
from engine.config import CheckpointError

CHOICES = (DOWNLOAD, FOLDER, DEMO)
MARK = "\u203a"
PAGES = "https://huggingface.co/"
"""Before the name of a repository, where its page's address was copied."""


class FolderField(Input):
    """Where a folder is typed; Enter is the field's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "check and use", key_display="enter", id="models.use"),
    ]


class ChoiceList(Options):
    """The choices; Enter takes the one that is marked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "choose", key_display="enter", id="models.choose"),
        Binding("pageup", "screen.scroll_rows(-1)", "Up", show=False),
        Binding("pagedown", "screen.scroll_rows(1)", "Down", show=False),
    ]


class ModelsScreen(Screen[None]):
    """The machine above, the choices below."""

    AUTO_FOCUS = "ChoiceList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", id="models.back"),
        Binding("f6", "check_again", "check again", id="models.check"),
    ]

    def __init__(self, models: ModelChoice) -> None:
        super().__init__()
        self._models = models
        self._machine = this_machine()
        self._checking = False
        self._trouble = ""
        self._plan: Planned | Error | None = None
        self._asked = False
        self._offered = 0  # where a list puts its mark by itself

    def compose(self) -> ComposeResult:
        yield TopBar()
        with VerticalScroll(id="machine"):
            yield Static("", id="rows", markup=False)
        with Vertical(id="choices"):
            yield ChoiceList(*self._options(), markup=False, compact=True)
            yield FolderField(placeholder="/path/to/a/checkpoint, or owner/name", id="folder")
            yield Static("", id="note", markup=False)
            yield Static("", id="about", markup=False)
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """The choice first, then the look at the machine."""
        models = self._models
        self.query_one("#machine").border_title = "This machine"
        self.query_one("#choices").border_title = "Which model?"
        self.query_one(TopBar).show("first start" if models.first else f"now: {models.now}")
        self.query_one("#folder").display = self.query_one("#note").display = False
        self._offer_best()
        self._show_rows()
        if models.verdict is None:
            self.call_after_refresh(self.action_check_again)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Before the first choice there is no chat to go back to."""
        if action == "back":
            open_field = any(field.display for field in self.query("#folder"))
            return not self._models.first or open_field
        return True

    # --- the machine --------------------------------------------------------------------------

    def action_check_again(self) -> None:
        """Look at the machine; the look that runs, if any, ends."""
        in_background(self, self._check, group="check")

    def action_scroll_rows(self, step: int) -> None:
        """Page keys move what was found."""
        rows = self.query_one("#machine", VerticalScroll)
        rows.scroll_page_down(animate=False) if step > 0 else rows.scroll_page_up(animate=False)

    async def _check(self) -> None:
        self._checking, self._trouble = True, ""
        self._show_rows()
        try:
            await self._models.check()
        except CheckFailedError as error:
            self._trouble = str(error)
        self._checking = False
        self._show_rows()
        self._show_about()
        self._offer_best()

    def _show_rows(self) -> None:
        machine, verdict = self._machine, self._models.verdict
        words = machine_words.report(
            machine, verdict, checking=self._checking, trouble=self._trouble
        )
        self._write("#rows", words)

    def _offer_best(self) -> None:
        """Mark what is likely wanted, unless the user marked something."""
        for choices in self.query(ChoiceList):
            if choices.highlighted == self._offered:
                choices.highlighted = self._offered = CHOICES.index(self._best())

    def _best(self) -> str:
        """What to offer first: the model in use, else what this machine can run. Before the look
        is over a card may do, and no card does not."""
        models = self._models
        if models.now == DEMO or (models.first and models.can_run_large is False):
            return DEMO
        if models.now == DEFAULT_REPO or models.can_run_large:
            return DOWNLOAD
        return DOWNLOAD if self._machine.gpus and models.can_run_large is None else DEMO

    # --- the choices --------------------------------------------------------------------------

    @property
    def _list(self) -> ChoiceList:
        return self.query_one(ChoiceList)

    @property
    def _choice(self) -> str:
        return CHOICES[self._list.highlighted or 0]

    def _options(self) -> list[Option]:
        return [Option(_row(choice, marked=False), id=choice) for choice in CHOICES]

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Say more about the choice; the hub is asked only about what may be downloaded."""
        event.stop()
        for choice in CHOICES:  # colour alone does not show the mark everywhere
            self._list.replace_option_prompt(choice, _row(choice, marked=choice == self._choice))
        self._show_about()
        if self._choice == DOWNLOAD and not self._asked:
            self._asked = True
            in_background(self, self._ask_hub, group="plan")

    async def _ask_hub(self) -> None:
        self._plan = None
        self._show_about()
        self._plan = await self._models.download.plan(DEFAULT_REPO)
        self._asked = isinstance(self._plan, Planned)  # what failed is asked again
        self._show_about()

    def _show_about(self) -> None:
        if not self.query(ChoiceList):
            return
        words = machine_words.about(self._choice, self._models.verdict, self._plan)
        self._write("#about", Text(printable("\n".join(words))))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the choice."""
        event.stop()
        if event.option_id == DEMO:
            self._models.use_demo_meanwhile()
        elif event.option_id == DOWNLOAD:
            self._models.fetch(DEFAULT_REPO)
        else:
            self._open_field()

    # --- a folder -----------------------------------------------------------------------------

    def _open_field(self) -> None:
        field = cast("Input", self.query_one("#folder"))
        field.display = True
        now = self._models.now
        if not field.value and now is not None and now.startswith("/"):
            field.value = now
        field.focus()
        self.refresh_bindings()

    def action_back(self) -> None:
        """Close the field, or go back to the chat."""
        field = self.query_one("#folder", Input)
        if field.display:
            field.display = False
            self._say("")
            self._list.focus()
            self.refresh_bindings()
        else:
            self.dismiss(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        """What was wrong is being mended."""
        self._say("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """A folder is looked at and used, a repository is downloaded."""
        event.stop()
        text = event.value.strip().strip("\"'").removeprefix(PAGES)
        if not text:
            self._say("Type the folder that holds config.json and the .safetensors files.")
            return
        try:
            self._models.choose(str(check_folder(text)))
        except CheckpointError as error:
            if is_repo(text) and not text.startswith(("~", ".")):
                self._models.fetch(text)
            else:
                self._say(str(error))

    def _say(self, words: str) -> None:
        self._write("#note", Text(printable(words)))
        self.query_one("#note").display = bool(words)

    def _write(self, part: str, words: RenderableType) -> None:
        """Into a part of the screen, unless the screen was left meanwhile."""
        for static in self.query(part).results(Static):
            static.update(words)


def _row(choice: str, *, marked: bool) -> Text:
    label, note = machine_words.LABELS[choice]
    return Text.assemble(f"{MARK if marked else ' '} {label:<25}", (note, "dim"), no_wrap=True)
