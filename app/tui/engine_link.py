"""Keeps one engine process beside the window: starts it, feeds the session, ends it."""

from collections.abc import Callable
from typing import Protocol

from app.client import EngineClient, EngineDied
from app.protocol import EngineMessage, LoadModel, Request
from app.tui.session import ChatSession
from app.tui.state import EngineState, Phase


class Guest(Protocol):
    """Somebody else who uses the session's engine for a while."""

    def take(self, message: EngineMessage | EngineDied) -> bool:
        """Take a message; False when the session is to have it."""


class EngineLink:
    """The session's engine. `run` once for each process; it returns when the process is over.

    `model` and `adapter` (a run's name, a folder, None) are what the next process loads; `guest`
    hears every message first.
    """

    def __init__(
        self, session: ChatSession, model: str, make_client: Callable[[], EngineClient]
    ) -> None:
        self._session = session
        self.model = model
        self.adapter: str | None = None
        self.guest: Guest | None = None
        self._make_client = make_client
        self._client: EngineClient | None = None

    @property
    def pid(self) -> int | None:
        """The engine's process id."""
        return self._client.pid if self._client is not None else None

    async def run(self) -> None:
        """End the engine there may be, start a new one and hand its messages to the session."""
        await self.close()
        session, client = self._session, self._make_client()
        self._client = client
        session.engine_starting()
        try:
            await client.start()
        except OSError as error:
            session.handle(EngineDied(error.errno or 1, f"The engine cannot be started: {error}"))
            return
        session.send = client.send
        client.send(LoadModel(self.model, adapter=self.adapter))
        async for message in client.messages():
            if client is not self._client:
                return
            if self.guest is None or not self.guest.take(message):
                session.handle(message)

    def send(self, request: Request) -> None:
        """Send the engine a request."""
        self._session.send(request)

    @property
    def on_card(self) -> bool:
        """Whether the engine holds memory of a card, which a run would need."""
        ready = self._session.engine.ready
        return ready is not None and ready.device != "cpu"

    async def rest(self) -> None:
        """End the engine until a message wants it again."""
        session = self._session
        session.engine = EngineState(Phase.DEAD)
        session.view.engine_changed()
        await self.close()

    async def close(self, timeout: float = 0.5) -> None:
        """End the engine; in less than a second, whatever it is doing."""
        client, self._client = self._client, None
        self._session.send = lambda request: None
        if client is not None:
            await client.close(timeout)
