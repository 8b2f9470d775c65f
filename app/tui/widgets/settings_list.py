"""Every setting in a list: Enter takes the next choice or opens a field; saved as it changes."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.settings import Settings, SettingsError
from app.text import printable
from app.tui.setting_rows import GROUPS, Group, SettingRow, next_choice, origin, value_words
from app.tui.widgets.options import Options

LABEL, VALUE = 20, 26


class SettingsSource(Protocol):
    """Where the settings come from and go to; `settings` is another object when they changed."""

    settings: Settings

    def set(self, **changes: Any) -> Settings:
        """Check values, let them hold and save them. Raises SettingsError."""

    def reset(self, name: str) -> Settings:
        """Let the default of `name` hold. Raises SettingsError."""


class SettingsOptions(Options):
    """The list itself; its keys act on the marked setting."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "change", key_display="enter", id="settings.change"),
        Binding("backspace,delete", "reset", "default", id="settings.reset"),
    ]

    class Reset(Message):
        """The marked setting is to have its default again."""

    def action_reset(self) -> None:
        """Ask for the default."""
        self.post_message(self.Reset())


class SettingsList(Vertical):
    """The settings of a file or of a chat, and what each one means."""

    class Changed(Message):
        """A setting holds a new value, which is saved."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(
        self,
        file: SettingsSource,
        *,
        id: str,
        groups: Sequence[Group] = GROUPS,
        origin: Callable[[SettingRow, Settings], str] = origin,
    ) -> None:
        super().__init__(id=id)
        self._file = file
        self._groups = groups
        self._origin = origin
        self._rows = {row.name: row for group in groups for row in group.rows}

    def compose(self) -> ComposeResult:
        yield SettingsOptions(*self._options(), markup=False, compact=True)
        yield Input(id="value")
        yield Static("", id="meaning", markup=False)

    def on_mount(self) -> None:
        """The field appears when something is to be typed."""
        self.query_one(Input).display = False

    def look(self) -> None:
        """Show the values that hold now."""
        options = self.query_one(OptionList)
        for name in self._rows:
            options.replace_option_prompt(name, self._line(self._rows[name]))

    def _options(self) -> list[Option | None]:
        found: list[Option | None] = []
        for group in self._groups:
            found.append(Option(Text(group.title, style="bold"), disabled=True))
            found += [Option(self._line(row), id=row.name) for row in group.rows]
        return found

    def _line(self, row: SettingRow) -> Text:
        value = printable(" ".join(value_words(row, self._file.settings).split()))
        line = Text(f"  {row.label:<{LABEL}}", no_wrap=True, overflow="ellipsis")
        line.append(f"{value[:VALUE]:<{VALUE}}", "bold")
        line.append(f"  {self._origin(row, self._file.settings)}", "dim")
        return line

    @property
    def _marked(self) -> SettingRow | None:
        option = self.query_one(OptionList).highlighted_option
        return self._rows.get(option.id or "") if option is not None else None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Say what the setting means."""
        event.stop()
        self._close_field()
        if (row := self._marked) is not None:
            self.say(f"{row.label}: {row.words}")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the next choice, or let the value be typed."""
        event.stop()
        row = self._marked
        if row is None:
            return
        if row.choices:
            self._set(row, next_choice(row, self._file.settings))
            return
        field = self.query_one(Input)
        value = getattr(self._file.settings, row.name)
        field.value = "" if value is None else str(value)
        field.placeholder = f"{row.label}, then Enter; empty: {row.unset or 'the default'}"
        field.display = True
        field.focus()

    def on_settings_options_reset(self) -> None:
        """The default holds again."""
        if (row := self._marked) is not None:
            self._set(row, None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Check, hold and save what was typed."""
        event.stop()
        row = self._marked
        if row is not None and self._set(row, event.value.strip() or None):
            self._close_field()
            self.query_one(OptionList).focus()

    @property
    def typing(self) -> bool:
        """Whether the field is open."""
        return bool(self.query_one(Input).display)

    def leave_field(self) -> None:
        """What was typed is dropped."""
        self._close_field()
        self.query_one(OptionList).focus()

    def _close_field(self) -> None:
        self.query_one(Input).display = False

    def _set(self, row: SettingRow, value: str | None) -> bool:
        """Let `value` hold (None: the default); False, and why, when it cannot."""
        before = self._file.settings
        try:
            self._file.reset(row.name) if value is None else self._file.set(**{row.name: value})
        except SettingsError as error:
            self.say(str(error), alert=True)
        if self._file.settings is before:
            return False
        self.look()
        self.post_message(self.Changed(row.name))
        return True

    def say(self, words: str, *, alert: bool = False) -> None:
        """Say something below the list."""
        meaning = self.query_one("#meaning", Static)
        meaning.set_class(alert, "-alert")
        meaning.update(Text(printable(words)))
