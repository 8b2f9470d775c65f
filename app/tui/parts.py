"""What the program is made of behind its first frame: the settings, the store of chats, the
session, the engine's link, the choice of a model, the chat's screen.

Importing this module imports all of them, which is most of the time that a start takes.
"""

from collections.abc import Callable, Mapping, Sequence

from app import draft
from app.client import EngineClient
from app.paths import paths
from app.settings import SettingsFile
from app.store import Store
from app.tui.app import Furnish, OrlChat
from app.tui.engine_link import EngineLink
from app.tui.look import Look
from app.tui.model_choice import ModelChoice, is_first_start
from app.tui.screens.chat import ChatScreen
from app.tui.session import ChatSession
from app.tui.state import Problem


def furnishing(
    *,
    file: SettingsFile,
    store: Store,
    model: str,
    make_client: Callable[[], EngineClient],
    first: bool = False,
    doctor: Sequence[str] | None = None,
    limits: Mapping[str, float] | None = None,
) -> Furnish:
    """What gives a program its parts. With `first` nothing was chosen yet: the choice comes first,
    and the engine after it. `doctor` replaces the command of the look at the machine, `limits` a
    download's."""

    def furnish(program: OrlChat) -> None:
        program.chat = ChatScreen()
        program.session = ChatSession(store, file, program.chat)
        program.link = EngineLink(program.session, model, make_client)
        program.models = ModelChoice(program, first=first, doctor=doctor, limits=limits)
        program.wear(Look.of(file.settings))
        if file.settings.keys:
            program.hold_keys(file.settings.keys)

    return furnish


def furnish_from_home(
    program: OrlChat, model: str | None = None, engine: Sequence[str] | None = None
) -> None:
    """Give `program` its parts, with the user's settings and chats. `engine` replaces the
    engine's command."""
    file = SettingsFile.open()
    command = list(engine) if engine is not None else None
    furnish = furnishing(
        file=file,
        store=Store.open(paths().store),
        model=model or file.settings.model,
        make_client=lambda: EngineClient(command, log=paths().engine_log),
        first=is_first_start(model, file),
    )
    furnish(program)


def begin(program: OrlChat) -> None:
    """The chat is on screen: bring back what was typed last time, say what is wrong, and start the
    engine."""
    session = program.session
    program.chat.draft = draft.take(paths().draft)
    said = [*session.file.notices, *program.key_notices]
    notices = [("Settings", notice) for notice in said]
    if program.theme_is_missing:
        words = f"There is no theme {program.wanted_theme!r}; Ctrl+P, Theme lists them."
        notices.append(("Settings", words))
    if session.store.notice:
        notices.append(("Chats", session.store.notice))
    for title, notice in notices:
        program.chat.problem(Problem(title, notice))
    if not program.models.first:
        program.start_engine()
    session.recordings.prune()
