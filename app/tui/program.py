"""What every terminal program of ours has in common: its look, its help, and a decent end.

What goes wrong ends in a sentence and a log file, never in a traceback with local variables on the
screen.
"""

import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, ScreenStackError
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.css.query import NoMatches
from textual.worker import WorkerFailed

from app.paths import paths
from app.terminal import is_ascii_only, is_without_drawing
from app.tui.ascii_only import AsciiOnly
from app.tui.look import Look
from app.tui.palette import Palette
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

    def __init__(self, look: Look) -> None:
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.chosen_keys: dict[str, str] = {}
        self.key_notices: list[str] = []
        self.wear(look)

    def wear(self, look: Look) -> None:
        """Look as that, with our own theme where there is none of that name. A theme that is set
        while the program runs has every style sheet read again; before that, it costs nothing."""
        strict = is_ascii_only()
        if strict or look.ascii or is_without_drawing():
            self._filters[:] = [f for f in self._filters if not isinstance(f, AsciiOnly)]
            self._filters.append(AsciiOnly(strict=strict))
            self.add_class("-ascii")
        self.wanted_theme = look.theme or DEFAULT
        theme = DEFAULT if self.theme_is_missing else self.wanted_theme
        if self.is_running:
            self.theme = theme
            return
        self.set_reactive(App.theme, theme)
        dark = self.current_theme.dark
        self.set_class(dark, "-dark-mode", update=False)
        self.set_class(not dark, "-light-mode", update=False)
        self._refresh_truecolor_filter(self.ansi_theme)
        self.stylesheet.set_variables(self.get_css_variables())

    @property
    def theme_is_missing(self) -> bool:
        """Whether there is no theme of the name that is wanted."""
        return self.wanted_theme not in self.available_themes

    def hold_keys(self, chosen: Mapping[str, str]) -> None:
        """Let chosen keys hold, those that can; there are words about the others."""
        from app.tui import keys

        known = keys.rebindable()
        self.chosen_keys, self.key_notices = keys.check(chosen, known)
        self.set_keymap(keys.complete(self.chosen_keys, known))

    def get_css_variables(self) -> dict[str, str]:
        """The theme's, and the colour of lines, which every theme then has."""
        variables = super().get_css_variables()
        paper, ink = (Color.parse(variables[name]) for name in ("background", "foreground"))
        variables |= {"line": paper.blend(ink, 0.22).hex}
        theme = self.current_theme
        if self.console.color_system == "standard" and theme in THEMES:
            variables |= sixteen_colours(dark=theme.dark)
        return variables

    @property
    def settings_path(self) -> Path:
        """The user's settings file."""
        return paths().settings

    def action_command_palette(self) -> None:
        """All commands."""
        if self.use_command_palette and not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

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
        self.push_screen(HelpScreen(here, elsewhere, editing, self.settings_path))

    @property
    def is_closing(self) -> bool:
        """Whether the program, which ran, is on its way out."""
        return self._exit or not self.is_running

    def _handle_exception(self, error: Exception) -> None:
        """What still comes while the program is closing finds no screen, or none of its parts:
        that is no failure."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        if not (self.is_closing and isinstance(cause, ScreenStackError | NoMatches)):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """A traceback without locals goes to the log, a sentence to the terminal."""
        log.error("the screen failed:\n%s", traceback.format_exc())
        self._exit_renderables.append(
            Text(f"orl-chat stopped because of an error in it. Details are in {paths().log}.")
        )
        self._close_messages_no_wait()
