"""A run's best checkpoint as a folder: the adapter, the whole model, or that in NVFP4."""

from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.completion import expanded
from app.job import JobError, Progress, run_job
from app.paths import paths
from app.run_watch import RunWatch
from app.text import printable
from app.tui.background import in_background
from app.tui.widgets.bars import KeyBar
from app.tui.widgets.choice import Choice
from app.tui.widgets.path_field import PathField

FORMS = (
    ("adapter", "the adapter alone"),
    ("merged", "the whole model, adapter merged in"),
    ("nvfp4", "the whole model, merged and packed in NVFP4"),
)
WHOLE_FORMS = (("adapter", "the whole model"), ("nvfp4", "the whole model, packed in NVFP4"))
OPTIONS = {"adapter": (), "merged": ("--merge",), "nvfp4": ("--merge", "--quantize")}


class ExportScreen(ModalScreen[None]):
    """What to write, and where to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "write", "write it", id="export.write", priority=True),
        Binding("escape", "dismiss", "back", id="export.back"),
    ]

    def __init__(self, watch: RunWatch) -> None:
        super().__init__()
        self._watch = watch
        whole = watch.info is not None and watch.info.config.train == "full"
        self._forms = WHOLE_FORMS if whole else FORMS
        self._writing = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="window -small") as window:
            window.border_title = Content(f"Export {printable(self._watch.name)}")
            yield Choice("write  ", self._forms, id="export-form")
            yield PathField(placeholder="a new folder", id="export-to")
            yield Static("", id="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """A folder of the program's own, until another is named."""
        self._propose()
        self.query_one(Choice).focus()
        self._say("Enter in the field, or ctrl+s, writes it.")

    def on_choice_changed(self, event: Choice.Changed) -> None:
        """Another form has another folder."""
        event.stop()
        self._propose()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write it."""
        event.stop()
        self.action_write()

    def action_write(self) -> None:
        """In a process of its own; leaving this window ends it."""
        field = self.query_one(PathField)
        if self._writing or not field.value.strip():
            return
        form = self.query_one(Choice).value
        target = str(expanded(field.value.strip()).absolute())
        run = str(self._watch.run.path)
        command = ["export", run, target, *OPTIONS[form], "--progress", "--json"]
        self._writing = True
        self._say("Writing")
        in_background(self, self._write, command, group="job")

    async def _write(self, command: list[str]) -> None:
        try:
            result = await run_job(command, self._tell)
            self._say(_told(result))
        except JobError as error:
            self._say(str(error))
        self._writing = False

    def _tell(self, progress: Progress) -> None:
        share = f", {progress.done / progress.total:.0%}" if progress.total else ""
        self._say(f"{progress.stage[:1].upper()}{progress.stage[1:]}{share}")

    def _propose(self) -> None:
        form = self.query_one(Choice).value
        end = "" if form == "adapter" else f"-{form}"
        self.query_one(PathField).value = str(paths().exports / f"{self._watch.name}{end}")

    def _say(self, words: str) -> None:
        for note in self.query("#note").results(Static):
            note.update(Text(printable(words)))


def _told(result: Any) -> str:
    told = result.get("told") if isinstance(result, dict) else None
    return f"{told}." if told else "It was written."
