"""F9: how the chat on screen is decoded, its system prompt, and the library of prompts."""

from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from app.store_rows import Prompt
from app.store_schema import StoreError
from app.text import printable
from app.tui.chat_values import BUILT_IN, CHAT_GROUPS, ChatValues, library, name_of
from app.tui.session import ChatSession
from app.tui.widgets.bars import KeyBar
from app.tui.widgets.options import Options
from app.tui.widgets.settings_list import SettingsList

KEEP_HELP = "put the system prompt into the library"


class PromptList(Options):
    """The library; its keys act on the marked prompt."""

    BINDINGS = [
        Binding("enter", "select", "take", key_display="enter", id="prompts.take"),
        Binding("delete,backspace", "screen.forget", "forget", id="prompts.forget"),
    ]


class ChatSettingsScreen(ModalScreen[None]):
    """What is changed holds at once, from the next answer on; the system prompt when it is left,
    also by a command and by quitting."""

    AUTO_FOCUS = "SettingsOptions"
    BINDINGS = [
        Binding("escape", "leave", "back", id="chat_settings.back"),
        Binding("f8", "keep", "keep prompt", id="chat_settings.keep", tooltip=KEEP_HELP),
        Binding("tab", "app.focus_next", "next part", id="chat_settings.next"),
    ]

    def __init__(self, session: ChatSession) -> None:
        super().__init__()
        self._store = session.store
        self._values = ChatValues(session)
        self._prompts: list[Prompt] = []
        self._system = TextArea(
            self._values.system, id="system", tab_behavior="focus", compact=True
        )

    def compose(self) -> ComposeResult:
        with Vertical(classes="window") as window:
            window.border_title = "Settings of this chat"
            yield SettingsList(
                self._values, groups=CHAT_GROUPS, origin=self._values.origin, id="chat-values"
            )
            yield self._system
            yield PromptList(id="prompts", markup=False, compact=True)
            yield Static("", id="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Name the parts and read the library."""
        self._system.border_title = "System prompt"
        self.query_one("#prompts").border_title = "Library"
        self._list()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A prompt of the library becomes this chat's."""
        event.stop()
        if (prompt := self._marked) is not None:
            self._system.text = prompt.content
            self._values.set_system(prompt.content)
            self._say(f"This chat has the prompt “{prompt.name}” now.")

    def action_leave(self) -> None:
        """Leave an open field, or the screen with what is written."""
        settings = self.query_one(SettingsList)
        if settings.typing:
            settings.leave_field()
            return
        self.dismiss(None)

    def on_unmount(self) -> None:
        """The system prompt holds."""
        self._values.set_system(self._system.text)

    def action_keep(self) -> None:
        """Put the system prompt into the library."""
        text = self._system.text
        if not text.strip():
            self._say("There is no system prompt to keep.")
            return
        self._try(lambda: self._store.save_prompt(name_of(text), text), f"Kept: {name_of(text)}")

    def action_forget(self) -> None:
        """Take the marked prompt out of the library."""
        prompt = self._marked
        if prompt is None:
            return
        if prompt in BUILT_IN:
            self._say("This prompt comes with the program and stays.")
            return
        self._try(lambda: self._store.delete_prompt(prompt.name), f"Forgotten: {prompt.name}")

    @property
    def _marked(self) -> Prompt | None:
        index = self.query_one(PromptList).highlighted
        return self._prompts[index] if index is not None and index < len(self._prompts) else None

    def _list(self) -> None:
        options = self.query_one(PromptList)
        try:
            self._prompts = library(self._store.prompts())
        except StoreError as error:
            self._prompts = library([])
            self._say(str(error))
        options.clear_options()
        options.add_options(Option(_row(prompt)) for prompt in self._prompts)

    def _try(self, act: Callable[[], None], words: str) -> None:
        try:
            act()
        except StoreError as error:
            words = str(error)
        self._list()
        self._say(words)

    def _say(self, words: str) -> None:
        self.query_one("#note", Static).update(Text(printable(words)))


def _row(prompt: Prompt) -> Text:
    line = Text(printable(prompt.name), no_wrap=True, overflow="ellipsis")
    return line.append(f"  {printable(' '.join(prompt.content.split()))}", "dim")
