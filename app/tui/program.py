"""What every terminal program of ours has in common: its look, its help, and a decent end.

What goes wrong ends in a sentence and a log file, never in a traceback with local variables on the
screen.
"""

import logging
import traceback
from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual.app import App, ScreenStackError
from textual.binding import Binding, BindingType
from textual.color import Color

from app.paths import paths
from app.settings import SettingsFile
from app.terminal import is_ascii_only, is_without_drawing
from app.tui.ascii_only import AsciiOnly
from app.tui.theme import DEFAULT, THEMES, sixteen_colours
from app.tui.widgets.bars import declared

log = logging.getLogger(__name__)

HELP = "this page, for the part that has the focus (? outside text)"


class Program(App[int]):
    """A program that looks as the settings have it, and as the terminal can show it."""

    TITLE = "orl-chat"
    CSS_PATH = "orl_chat.tcss"
    PAUSE_GC_ON_SCROLL = True
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (90, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-tiny-height"), (20, "-low"), (24, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "help", id="help", priority=True, tooltip=HELP),
        Binding("question_mark", "help", show=False),
        Binding("ctrl+q", "quit", "quit", id="quit", priority=True, tooltip="quit, at once"),
    ]

    def __init__(self, file: SettingsFile) -> None:
        super().__init__()
        self._file = file
        settings = file.settings
        for theme in THEMES:
            self.register_theme(theme)
        chosen = "theme" in settings.model_fields_set
        self.wanted_theme = settings.theme if chosen else DEFAULT
        strict = is_ascii_only()
        if strict or settings.ascii or is_without_drawing():
            self._filters.append(AsciiOnly(strict=strict))
            self.add_class("-ascii")
        self.chosen_keys: dict[str, str] = {}
        self.key_notices: list[str] = []
        if settings.keys:
            self.hold_keys(settings.keys)

    def hold_keys(self, chosen: Mapping[str, str]) -> None:
        """Let chosen keys hold, those that can; there are words about the others."""
        from app.tui import keys

        known = keys.rebindable()
        self.chosen_keys, self.key_notices = keys.check(chosen, known)
        self.set_keymap(keys.complete(self.chosen_keys, known))

    def wear_theme(self) -> None:
        """The theme that is wanted, or ours where there is none of that name."""
        self.theme = self.wanted_theme if self.wanted_theme in self.available_themes else DEFAULT

    def get_css_variables(self) -> dict[str, str]:
        """The theme's, and the colour of lines, which every theme then has."""
        variables = super().get_css_variables()
        paper, ink = (Color.parse(variables[name]) for name in ("background", "foreground"))
        variables |= {"line": paper.blend(ink, 0.22).hex}
        theme = self.current_theme
        if self.console.color_system == "standard" and theme in THEMES:
            variables |= sixteen_colours(dark=theme.dark)
        return variables

    def action_help(self) -> None:
        """The keys in force here, and the numbers."""
        from app.tui import keys
        from app.tui.screens.help import HelpScreen, key_lines, other_lines

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
            return
        actives = sorted(self.screen.active_bindings.values(), key=declared)
        bindings = [active.binding for active in actives]
        here, editing = (key_lines(bindings, with_id=with_id) for with_id in (True, False))
        shown = {binding.id for binding in bindings}
        others = [other for other in keys.rebindable() if other.id not in shown]
        elsewhere = other_lines(others, self.chosen_keys)
        self.push_screen(HelpScreen(here, elsewhere, editing, self._file.path))

    def _handle_exception(self, error: Exception) -> None:
        """A key that comes while the program is closing finds no screen: that is no failure."""
        if not (self._exit and isinstance(error, ScreenStackError)):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """A traceback without locals goes to the log, a sentence to the terminal."""
        log.error("the screen failed:\n%s", traceback.format_exc())
        self._exit_renderables.append(
            Text(f"orl-chat stopped because of an error in it. Details are in {paths().log}.")
        )
        self._close_messages_no_wait()
