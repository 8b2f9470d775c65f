"""A session without a screen and without an engine, whose two ends are lists."""

from typing import Any

from app.protocol import Block, Chat, Done, Error, Request
from app.settings import SettingsFile
from app.store import Store
from app.tui.session import ChatSession
from app.tui.state import Problem, Turn
from tests.app.tui.recording import READY


class FakeView:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.told.append((name, *values))

    @property
    def names(self) -> list[str]:
        return [told[0] for told in self.told]

    @property
    def problems(self) -> list[Problem]:
        return [told[1] for told in self.told if told[0] == "problem"]


class Bench:
    """A session with a fake view, a list for a pipe and a store in memory."""

    def __init__(self, store: Store | None = None, **settings: Any) -> None:
        file = SettingsFile.open()
        if settings:
            file.set(**settings)
        self.view = FakeView()
        self.sent: list[Request] = []
        self.store = store or Store.open(None)
        self.session = ChatSession(self.store, file, self.view)  # type: ignore[arg-type]
        self.session.send = self.sent.append

    def ready(self) -> "Bench":
        self.session.handle(READY)
        self.sent.clear()
        return self

    @property
    def turn(self) -> Turn:
        assert self.session.turn is not None
        return self.session.turn

    @property
    def chat(self) -> Chat:
        (chat,) = [r for r in self.sent if isinstance(r, Chat)]
        return chat

    def block(self, text: str, index: int = 0) -> None:
        self.session.handle(Block(self.turn.id, index, text, 32, 4, 4, 0, 0.1, 0.2))

    def done(self, text: str, reason: str = "end") -> None:
        self.session.handle(Done(self.turn.id, reason, text, {"tokens": 32, "forwards": 4}))

    def error(self, kind: str, **more: Any) -> None:
        self.session.handle(Error(kind, "It failed.", id=self.turn.id, **more))

    def saved(self) -> list[tuple[str, str, str | None]]:
        (chat,) = self.store.chats()
        return [(m.role, m.content, m.reason) for m in self.store.messages(chat.id)]
