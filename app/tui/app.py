"""The terminal program: one window, one chat, one engine process beside it.

The first frame is painted before the engine process is started, and nothing that this process
imports imports torch.
"""

import asyncio
import gc
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from app import draft
from app.client import EngineClient
from app.logs import all_tails
from app.paths import paths
from app.settings import SettingsFile
from app.store import Store
from app.tui import clipboard, status, tabs
from app.tui.commands import commands
from app.tui.engine_link import EngineLink
from app.tui.hangup import on_hangup
from app.tui.model_choice import ModelChoice, is_first_start
from app.tui.program import Program
from app.tui.screens.chat import ChatScreen
from app.tui.screens.tab import TabScreen
from app.tui.session import ChatSession
from app.tui.state import Problem
from app.tui.widgets.bars import TopBar


class OrlChat(Program):
    """Holds what outlives a screen: the session, the engine, the settings, a download.

    With `first` nothing was chosen yet: the choice comes first, and the engine after it. `doctor`
    replaces the command of the look at the machine, `limits` a download's.
    """

    SCREENS = tabs.SCREENS
    BINDINGS: ClassVar[list[BindingType]] = [
        *tabs.bindings(),
        Binding("ctrl+l", "log", "log", id="log", show=False, priority=True, tooltip="the log"),
    ]

    def __init__(
        self,
        *,
        file: SettingsFile,
        store: Store,
        model: str,
        make_client: Callable[[], EngineClient],
        first: bool = False,
        doctor: Sequence[str] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(file)
        self.chat = ChatScreen()
        self.session = ChatSession(store, file, self.chat)
        self.link = EngineLink(self.session, model, make_client)
        self.models = ModelChoice(self, first=first, doctor=doctor, limits=limits)

    def get_default_screen(self) -> Screen[None]:
        """The chat."""
        return self.chat

    def on_mount(self) -> None:
        """Look first, then the engine."""
        self.wear_theme()
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.call_later, self.action_quit)
        on_hangup(lambda: loop.call_soon_threadsafe(self.call_later, self.action_quit))
        if self.models.first:
            self.models.show()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.chat.draft = draft.take(paths().draft)
        said = [*self.session.file.notices, *self.key_notices]
        notices = [("Settings", notice) for notice in said]
        if self.theme != self.wanted_theme:
            words = f"There is no theme {self.wanted_theme!r}; Ctrl+P, Theme lists them."
            notices.append(("Settings", words))
        if self.session.store.notice:
            notices.append(("Chats", self.session.store.notice))
        for title, notice in notices:
            self.chat.problem(Problem(title, notice))
        if not self.models.first:
            self.start_engine()
        self.session.recordings.prune()

    def start_engine(self) -> None:
        """Start the engine process; the one there may be ends first."""
        self.session.engine_starting()
        self.run_worker(self.link.run(), group="engine", exclusive=True)

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
        self.session.close()
        self.session.recordings.prune()
        draft.keep(self.chat.draft, paths().draft)
        await asyncio.gather(self.link.close(timeout=0.3), self.models.close())
        self.exit(0)

    def refresh_top(self) -> None:
        """What answers, and how far a download is, in the top bar of the open tab."""
        answers = status.what_answers(self.session.engine, self.session.settings_here)
        words = " · ".join(part for part in (self.models.words(), answers) if part)
        for screen in self.screen_stack:
            if isinstance(screen, ChatScreen | TabScreen):
                for bar in screen.query(TopBar):
                    bar.show(words)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Before a model is chosen there are no tabs."""
        return not self.models.first if action == "tab" else True

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
            self.run_worker(clipboard.hand_to_tmux(text), group="clipboard", exclusive=True)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What Ctrl+P offers."""
        return commands(self)


def run(
    model: str | None = None, *, mouse: bool = True, engine: Sequence[str] | None = None
) -> int:
    """Chat until the user quits; the exit code. Without `mouse` the terminal keeps it for itself;
    `engine` replaces the engine's command."""
    file = SettingsFile.open()
    store = Store.open(paths().store)
    command = list(engine) if engine is not None else None
    try:
        program = OrlChat(
            file=file,
            store=store,
            model=model or file.settings.model,
            make_client=lambda: EngineClient(command, log=paths().engine_log),
            first=is_first_start(model, file),
        )
        code = program.run(mouse=mouse and file.settings.mouse)
        return program.return_code or code or 0
    finally:
        store.close()
        gc.freeze()  # or the interpreter spends most of the quitting on collecting what it drops
