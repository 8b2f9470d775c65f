"""The tab of models and settings: what is on this machine, and every setting with its meaning."""

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app import library
from app.hub.plan import KNOWN
from app.library import LibraryAdapter, LibraryError, LibraryModel
from app.models import BUILT_IN
from app.text import printable
from app.tui.background import in_background
from app.tui.figures import size
from app.tui.screens.tab import TabScreen
from app.tui.widgets.options import Options
from app.tui.widgets.settings_list import SettingsList

NAME, SIZE = 34, 9
KEYS = "put actions on other keys"
MACHINE = "what this machine can do"
IN_USE, OTHER = "\u25cf", " "


class ModelList(Options):
    """The models; its keys act on the marked one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "use", key_display="enter", id="library.use"),
        Binding("v", "screen.verify", "check files", id="library.verify"),
        Binding("d", "screen.delete", "delete", id="library.delete"),
    ]


class LibraryScreen(TabScreen):
    """Models and adapters above, settings below."""

    TAB = "models"
    AUTO_FOCUS = "ModelList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f6", "keys", "keys", id="library.keys", tooltip=KEYS),
        Binding("f7", "machine", "machine", id="library.machine", tooltip=MACHINE),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, LibraryModel | LibraryAdapter | None] = {}
        self._doomed: str | None = None

    def body(self) -> ComposeResult:
        with Vertical(id="library"):
            yield ModelList(markup=False, compact=True)
            yield Static("", id="about-model", markup=False)
        yield SettingsList(self.program.session.file, id="settings")

    def on_mount(self) -> None:
        """Name the parts."""
        self.query_one("#library").border_title = "Models and adapters"
        self.query_one("#settings").border_title = "Settings"

    def look(self) -> None:
        """Read the cache again, in a thread: it may be large, and the disk slow."""
        self.query_one(SettingsList).look()
        self.say(f"Saved to {self.program.session.file.path} as you change it.")
        in_background(self, self._read, group="library")

    async def _read(self) -> None:
        in_use = self.program.models.now
        models, adapters = await asyncio.to_thread(
            lambda: (library.models(in_use), library.adapters())
        )
        self._found = _in_order(models, adapters)
        options = self.query_one(ModelList)
        if [option.id for option in options.options] == list(self._found):
            for id in self._found:  # in place: a key may come at any time
                options.replace_option_prompt(id, self._line(id))
            return
        at = options.highlighted
        # Said here and not when the message comes: something else may have been said by then.
        with options.prevent(OptionList.OptionHighlighted):
            options.clear_options()
            options.add_options(Option(self._line(id), id=id) for id in self._found)
            options.highlighted = min(at or 0, options.option_count - 1)
        self._about(self._marked or "")

    def _line(self, id: str) -> Text:
        """A model, or an adapter under its own mark."""
        item = self._found[id]
        link = self.program.link
        if isinstance(item, LibraryAdapter):
            used = link.adapter == item.name
            words = f"on {item.model}, update {item.update}"
            name, mass = f"  + {item.name}", size(item.size)
        else:
            used = self.program.models.now == id and link.adapter is None
            words = item.state if item is not None else "not here; Enter fetches it"
            name, mass = id, size(item.size) if item is not None and item.size else ""
        line = Text(f"{IN_USE if used else OTHER} ", no_wrap=True, overflow="ellipsis")
        line.append(f"{printable(name):<{NAME}} {mass:>{SIZE}}  ", "bold" if used else "")
        line.append(printable(words), "dim")
        return line

    @property
    def _marked(self) -> str | None:
        option = self.query_one(ModelList).highlighted_option
        return option.id if option is not None else None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Where it lies."""
        event.stop()
        if event.option_id == self._doomed:
            return  # a key was faster than this message
        self._about(event.option_id or "")

    def _about(self, id: str) -> None:
        self._doomed = None
        item = self._found.get(id)
        if isinstance(item, LibraryModel) and item.state == "built in":
            self._tell("It comes with the program; its card says what it can do.")
        elif isinstance(item, LibraryModel):
            parts = [item.revision and f"revision {item.revision[:12]}", str(item.path or "")]
            self._tell("  ".join(part for part in parts if part))
        elif isinstance(item, LibraryAdapter):
            self._tell("The best checkpoint of a finetune run; it is loaded onto its base.")
        else:
            self._tell("Enter shows its size, and fetches it when you agree.")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Use it, or fetch it."""
        event.stop()
        id = event.option_id or ""
        item, choice = self._found.get(id), self.program.models
        if isinstance(item, LibraryAdapter):
            choice.choose(item.model, adapter=item.name, keep=False)
        elif item is not None and item.usable:
            choice.choose(id)
        elif id in KNOWN or item is not None:
            choice.fetch(id)

    def action_verify(self) -> None:
        """Read every file again and compare its hash; what is bad is fetched again."""
        item = self._found.get(self._marked or "")
        if not isinstance(item, LibraryModel) or item.state in ("built in", "folder", "not here"):
            self._tell("Only what came from the hub has hashes to check.", alert=True)
            return
        try:
            library.forget_checks(item.name)
        except LibraryError as error:
            self._tell(str(error), alert=True)
            return
        self.program.models.fetch(item.name)

    def action_delete(self) -> None:
        """Twice, for the same model."""
        id = self._marked
        item = self._found.get(id or "")
        if not isinstance(item, LibraryModel) or id in BUILT_IN:
            self._tell(
                "The demos come with the program; runs are deleted in their tab."
                if item is not None
                else "There is nothing of it here.",
                alert=True,
            )
        elif id == self.program.models.now:
            self._tell("It is in use; choose another model first.", alert=True)
        elif self._doomed != id:
            self._doomed = id
            self._tell(f"d again deletes {item.name}, {size(item.size)}.", alert=True)
        else:
            self._doomed = None
            in_background(self, self._delete, item, group="library", exclusive=False)

    async def _delete(self, item: LibraryModel) -> None:
        try:
            freed = await asyncio.to_thread(library.delete, item)
        except LibraryError as error:
            self._tell(str(error), alert=True)
            return
        await self._read()
        self._tell(f"{item.name} is deleted; {size(freed)} are free again.")

    def on_settings_list_changed(self, event: SettingsList.Changed) -> None:
        """Some settings have an effect at once."""
        self.program.setting_changed(event.name)

    def action_keys(self) -> None:
        """Other keys for the actions."""
        from app.tui.screens.keys import KeysScreen

        program = self.program
        self.app.push_screen(KeysScreen(program.session.file, program.hold_keys))

    def action_machine(self) -> None:
        """The look at the machine, with the choices of the first start."""
        self.program.action_models()

    def action_to_chat(self) -> None:
        """Out of the field, or back to the chat."""
        settings = self.query_one(SettingsList)
        settings.leave_field() if settings.typing else super().action_to_chat()

    def _tell(self, words: str, *, alert: bool = False) -> None:
        about = self.query_one("#about-model", Static)
        about.set_class(alert, "-alert")
        about.update(Text(printable(words), no_wrap=True, overflow="ellipsis"))


def _in_order(
    models: Iterable[LibraryModel], adapters: Iterable[LibraryAdapter]
) -> dict[str, LibraryModel | LibraryAdapter | None]:
    """By id: each model with its adapters below it, models to be had (None), and at the end the
    adapters whose model is not here."""
    found: dict[str, LibraryModel | LibraryAdapter | None] = {}
    below = {f"{adapter.model}\n{adapter.name}": adapter for adapter in adapters}
    for model in models:
        found[model.name] = model
        found |= {id: adapter for id, adapter in below.items() if adapter.model == model.name}
    found |= {repo: None for repo in KNOWN if repo not in found}
    return found | {id: adapter for id, adapter in below.items() if id not in found}
