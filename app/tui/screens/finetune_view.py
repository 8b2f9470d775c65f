"""The Finetune tab as it is drawn: a new run's parts above, all runs below, and what is found out
about the prompts without being asked."""

from collections.abc import Callable
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from app.completion import expanded
from app.paths import paths
from app.text import printable
from app.tui import setup_words
from app.tui.screens.working import WorkScreen
from app.tui.setup import TRAINS, Setup, prompts
from app.tui.widgets.choice import Choice
from app.tui.widgets.path_field import PathField
from app.tui.widgets.rows import GrowingRows
from app.tui.widgets.run_list import RunList
from finetune.config import RECIPES

LOOKING = "Looking at the prompts"
TITLES = {
    "prompts": "1 Prompts", "verifier": "2 Verifier", "recipe": "3 Recipe",
    "fit": "Will it fit?", "past": "Runs",
}  # fmt: skip


class FinetuneView(WorkScreen):
    """A new run above, the runs below."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = Setup(_offered())

    def body(self) -> ComposeResult:
        recipes = [(name, name) for name in RECIPES]
        with VerticalScroll(id="tune-body", can_focus=False):
            with Horizontal(classes="pair"):
                with Vertical(classes="panel", id="tune-prompts"):
                    yield PathField(placeholder="path of a JSON Lines file", id="tune-path")
                    yield GrowingRows(id="tune-problems")
                with Vertical(classes="panel", id="tune-verifier"):
                    yield GrowingRows(id="tune-trial")
            with Horizontal(classes="pair"):
                with Vertical(classes="panel", id="tune-recipe"):
                    yield Choice("recipe   ", recipes, id="tune-length", value=self.setup.recipe)
                    yield Choice("train    ", TRAINS, id="tune-train", value=self.setup.train)
                    with Horizontal(classes="fields"):
                        yield Static("updates  ", classes="label")
                        yield _whole_number("tune-updates", "the recipe's")
                        yield Static("  seed  ", classes="label")
                        yield _whole_number("tune-seed", "0")
                    yield GrowingRows(id="tune-about")
                with Vertical(classes="panel", id="tune-fit"):
                    yield GrowingRows(id="tune-plan")
            with Vertical(classes="panel", id="tune-past"):
                yield RunList(id="tune-runs")

    def on_mount(self) -> None:
        """Name the parts."""
        for id, title in TITLES.items():
            self.query_one(f"#tune-{id}").border_title = title
        self.query_one(PathField).value = self.setup.path

    def look(self) -> None:
        """The runs as they are now; a personal set that exists by now is offered, unless a path
        is being written."""
        if not self.setup.path and not self.query_one(PathField).value:
            self.use(_offered())
        elif self.setup.stale:
            self.use(self.setup.path)
        self.look_outside()
        self.show()
        self.go_on()

    def look_outside(self) -> None:
        """The runs; every folder is read, and every process looked at."""
        self.query_one(RunList).look()
        self.refresh_bindings()

    def idle_words(self) -> tuple[str, bool]:
        """What is missing, or that nothing is."""
        missing = self.setup.missing()
        if missing:
            return missing, bool(self.setup.trouble)
        return (
            f"Ready: s begins {self.setup.all_updates} updates on {prompts(self.setup.usable)}. "
            "The run goes on when this window closes.",
            False,
        )

    @property
    def model(self) -> str:
        """The model that the window uses is the one to train."""
        return self.program.link.model

    # --- the prompts and the recipe -----------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        """A number changes the recipe; a path counts when it is entered."""
        event.stop()
        if event.input.id in ("tune-updates", "tune-seed"):
            value = int(event.value) if event.value.isdigit() else None
            if event.input.id == "tune-updates":
                self.setup.updates = value or None
            else:
                self.setup.seed = value or 0
            self.setup.step = None  # another length; memory is the same
            self.show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the path; a number needs no more than to be typed."""
        event.stop()
        if event.input.id == "tune-path" and event.value.strip():
            self.use(str(expanded(event.value.strip()).absolute()))
        self.query_one(RunList).focus()
        self.go_on()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        """Another recipe."""
        event.stop()
        self.setup.recipe = self.query_one("#tune-length", Choice).value
        self.setup.train = self.query_one("#tune-train", Choice).value
        self.setup.changed()
        self.show()
        self.go_on()

    def use(self, path: str) -> None:
        """Another file of prompts; one that is being looked at is of no interest any more."""
        if self.looking:
            self.stop_work()
        self.setup.take_path(path)
        self.note("")
        field = self.query_one(PathField)
        field.value = path
        field.cursor_position = len(path)  # a long path shows its end, which tells files apart
        self.show()

    @property
    def looking(self) -> bool:
        """Whether the prompts are being looked at."""
        return self._working == LOOKING

    def go_on(self) -> None:
        """Find out by itself what costs no model."""
        setup = self.setup
        if self.busy or not setup.path or setup.trouble:
            return
        if setup.checked is None:
            command = setup.check_command(self.model)
            self.work(LOOKING, command, self.took("checked"), self._refused)
        elif setup.plan is None and setup.step is None and not setup.missing():
            command = setup.plan_command(self.model)
            self.work("Estimating memory", command, self.took("plan"), self._unplanned)

    def took(self, part: str) -> Callable[[Any], None]:
        """What to do with a result: keep it, show it, go on."""
        about = self.setup.about(part)

        def take(result: Any) -> None:
            if about == self.setup.about(part) and isinstance(result, dict):
                setattr(self.setup, part, result)
                self.show()
            self.go_on()

        return take

    def _refused(self, sentence: str) -> None:
        self.setup.trouble = sentence
        self.show()

    def _unplanned(self, sentence: str) -> None:
        self.setup.plan = {}
        self.complain(sentence)

    # --- drawing ------------------------------------------------------------------------------

    def read(self, title: str, text: str) -> None:
        """A text over the tab."""
        from app.tui.screens.text import TextScreen

        self.app.push_screen(TextScreen(title, text))

    def show(self) -> None:
        """Everything as it is known by now."""
        setup = self.setup
        for id, write in (
            ("problems", setup_words.prompt_rows), ("trial", setup_words.verifier_rows),
            ("plan", setup_words.fit_rows), ("about", setup_words.recipe_rows),
        ):  # fmt: skip
            self.query_one(f"#tune-{id}", GrowingRows).fill(partial(write, setup))
        title = f"{TITLES['recipe']} for {printable(self.model)}"
        self.query_one("#tune-recipe").border_title = Content(title)
        self.show_state()
        self.refresh_bindings()


def _offered() -> str:
    """The personal set, or else the demo's, where there is one."""
    return next((str(p) for p in (paths().kept, paths().demo_prompts) if p.is_file()), "")


def _whole_number(id: str, placeholder: str) -> Input:
    return Input(placeholder=placeholder, id=id, type="integer", max_length=6, compact=True)
