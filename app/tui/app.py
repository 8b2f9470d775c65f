"""The terminal program: one window, one chat, one engine process beside it.

The first frame is painted before most of the program is imported (`app.tui.parts`) and before the
engine process is started, and nothing that this process imports imports torch.
"""

import asyncio
import gc
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from app import draft
from app.logs import all_tails
from app.paths import paths
from app.tui import clipboard, tabs
from app.tui.background import in_background
from app.tui.hangup import on_hangup
from app.tui.look import Look
from app.tui.program import Program
from app.tui.screens.chat_frame import ChatFrame, FirstFrame
from app.tui.screens.tab import TabScreen
from app.tui.widgets.bars import TopBar

if TYPE_CHECKING:
    from app.tui.engine_link import EngineLink
    from app.tui.model_choice import ModelChoice
    from app.tui.screens.chat import ChatScreen
    from app.tui.session import ChatSession

Furnish = Callable[["OrlChat"], None]
"""Gives the program its parts: `chat`, `session`, `link` and `models`."""


class OrlChat(Program):
    """Holds what outlives a screen: the session, the engine, the settings, a download.

    Without `first_frame` it is furnished at once. With it, a frame of the chat is painted first,
    and what is typed meanwhile is held until the chat is there.
    """

    SCREENS = tabs.SCREENS
    BINDINGS: ClassVar[list[BindingType]] = [
        *tabs.bindings(),
        Binding("ctrl+l", "log", "log", id="log", show=False, priority=True, tooltip="the log"),
    ]
    chat: "ChatScreen"
    session: "ChatSession"
    link: "EngineLink"
    models: "ModelChoice"

    def __init__(self, look: Look, furnish: Furnish, *, first_frame: bool = False) -> None:
        super().__init__(look)
        self._furnish = furnish
        self._frame = FirstFrame(usual_keys=look.usual_keys) if first_frame else None
        self._held: list[events.Event] = []
        self.is_furnished = not first_frame
        """Whether the program has its parts."""
        if self.is_furnished:
            furnish(self)

    def get_default_screen(self) -> Screen[None]:
        """The chat, or its frame."""
        return self._frame or self.chat

    def on_mount(self) -> None:
        """Look first, then the rest."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.call_later, self.action_quit)
        on_hangup(lambda: loop.call_soon_threadsafe(self.call_later, self.action_quit))
        if self.is_furnished:
            self._begin()
        else:
            self.call_after_refresh(self.call_later, self._open)

    async def _open(self) -> None:
        """The frame is painted: put the chat into its place, and let it have the keys."""
        self._furnish(self)
        self.is_furnished = True
        frame = self.screen
        frame._push_result_callback(self, None)  # a default screen has none, and switching takes it
        self.chat.add_class(*frame.classes)  # of its size, or the first layout would lack them
        with self.batch_update():
            await self.switch_screen(self.chat)
        if not gc.isenabled():
            gc.freeze()  # what was imported stays, and need not be looked at ever
            gc.enable()
        if self.is_closing:
            return
        self._begin()
        while self._held:
            await super().on_event(self._held.pop(0))
        self._frame = None

    def _begin(self) -> None:
        from app.tui.parts import begin

        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if self.models.first:
            self.models.show()
        self.call_after_refresh(begin, self)

    async def on_event(self, event: events.Event) -> None:
        """Keys and pastes wait for the chat; what is clicked in its frame is nothing yet."""
        if self._frame is None or not isinstance(event, events.InputEvent | events.Paste):
            await super().on_event(event)
        elif not isinstance(event, events.MouseEvent):
            self._held.append(event)

    @property
    def settings_path(self) -> Path:
        """Where the settings came from."""
        return self.session.file.path

    def start_engine(self) -> None:
        """Start the engine process; the one there may be ends first."""
        self.session.engine_starting()
        in_background(self, self.link.run, group="engine")

    def _keep_theme(self, theme: Theme) -> None:
        self.session.keeper.settings(theme=theme.name)

    def setting_changed(self, name: str) -> None:
        """Let a setting that was changed by hand have its effect."""
        settings = self.session.settings
        if name == "theme" and settings.theme in self.available_themes:
            self.theme = settings.theme
        elif name in ("block_view", "slow_steps_per_second"):
            self.session.send_pace()
        elif name in ("block_layout", "confidence_colours"):
            self.chat.refresh_look()
        self.chat.engine_changed()

    async def action_quit(self) -> None:
        """At once: what was written so far is saved, and the engine ends."""
        if not self.is_furnished:
            self.exit(0)
            return
        self.session.close()
        self.session.recordings.prune()
        draft.keep(self.chat.unfinished, paths().draft)
        await asyncio.gather(self.link.close(timeout=0.3), self.models.close())
        self.exit(0)

    def refresh_top(self) -> None:
        """What answers, and how far a download is, in the top bar of the open tab."""
        parts = (self.models.words(), self.chat.what_answers)
        words = " · ".join(part for part in parts if part)
        for screen in self.screen_stack:
            if isinstance(screen, ChatFrame | TabScreen):
                for bar in screen.query(TopBar):
                    bar.show(words)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Before a model is chosen there are no tabs."""
        return action != "tab" or not self.is_furnished or not self.models.first

    def action_tab(self, name: str) -> None:
        """Open a tab; what lies over the chat goes."""
        screen = self.screen
        if isinstance(screen, TabScreen) and name == screen.TAB:
            return
        while self.screen is not self.chat:
            self.pop_screen()
        if name != tabs.CHAT:
            self.push_screen(name)

    def action_models(self) -> None:
        """What this machine can do, and which model to use."""
        self.models.show()

    def action_bug_report(self) -> None:
        """What a report needs, without what is private."""
        from app.bug_report import facts
        from app.tui import status
        from app.tui.screens.bug_report import BugReportScreen

        engine = status.engine_facts(self.session.engine)
        screen = (
            f"{self.size.width} x {self.size.height}, {self.console.color_system or 'no colour'}"
        )
        about = facts(self.session.file, engine, screen, self.session.store.notice)
        self.push_screen(BugReportScreen(about))

    def action_log(self) -> None:
        """The end of both logs."""
        from app.tui.screens.text import TextScreen

        self.push_screen(TextScreen("Log", all_tails(), at_end=True))

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52, and inside tmux by tmux."""
        super().copy_to_clipboard(text)
        if clipboard.in_tmux():
            in_background(self, clipboard.hand_to_tmux, text, group="clipboard")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What Ctrl+P offers."""
        from app.tui.commands import commands

        return commands(self)


def run(
    model: str | None = None, *, mouse: bool = True, engine: Sequence[str] | None = None
) -> int:
    """Chat until the user quits; the exit code. Without `mouse` the terminal keeps it for itself;
    `engine` replaces the engine's command."""

    def furnish(program: OrlChat) -> None:
        from app.tui.parts import furnish_from_home

        furnish_from_home(program, model, engine)

    look = Look.glance(paths().settings)
    program = OrlChat(look, furnish, first_frame=True)
    try:
        code = program.run(mouse=mouse and look.mouse)
        return program.return_code or code or 0
    finally:
        if program.is_furnished:
            program.session.store.close()
        gc.freeze()  # or the interpreter spends most of the quitting on collecting what it drops
