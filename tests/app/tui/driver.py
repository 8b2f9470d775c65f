"""Drives the real program with keys, against a real engine process that plays a recording."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot

from app.client import EngineClient, worker_command
from app.paths import paths
from app.settings import SettingsFile
from app.store import Store
from app.tui.app import OrlChat
from app.tui.look import Look
from app.tui.parts import furnishing
from app.tui.session import ChatSession
from app.tui.state import Turn
from app.tui.widgets.messages import Answer
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.safe_markdown import SafeMarkdown
from app.tui.widgets.transcript import Transcript

SIZE = (100, 30)
PATIENCE = 60.0


class Window:
    """A running program and the keyboard in front of it."""

    def __init__(self, app: OrlChat, pilot: Pilot[Any]) -> None:
        self.app = app
        self.pilot = pilot
        self._seen: Turn | None = None

    @property
    def session(self) -> ChatSession:
        """The chat behind the window, once there is one."""
        return self.app.session

    async def until(self, what: Callable[[], object]) -> None:
        """Wait for something; how long is not what is tested."""
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            if what():
                return
            if self.app._exception is not None:
                raise AssertionError("the program crashed") from self.app._exception
            await asyncio.sleep(0.01)
        raise AssertionError(f"never happened; the screen:\n{self.text}")

    async def ready(self) -> None:
        """The engine can answer."""
        await self.until(lambda: self.session.engine.usable)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other. Unlike the pilot's, this does not wait for the program
        to be idle, which it never is while an answer is written."""
        for key in keys:
            await self.burst(key)

    async def burst(self, *keys: str) -> None:
        """Keys that arrive together, as from a fast typist or another program."""
        self._arrive(*(events.Key(key, key if len(key) == 1 else None) for key in keys))
        await asyncio.sleep(0.01)

    async def paste(self, text: str) -> None:
        """Paste from the terminal."""
        self._arrive(events.Paste(text))
        await asyncio.sleep(0.01)

    def _arrive(self, *happened: events.Event) -> None:
        driver = self.app._driver
        assert driver is not None
        for event in happened:
            event.set_sender(self.app)
            driver.send_message(event)

    async def type(self, text: str) -> None:
        """Type into the prompt."""
        await self.until(lambda: self.app.screen is self.app.chat)
        prompt = self.app.chat.query_one(Prompt)
        prompt.focus()
        prompt.insert(text)
        await self.until(lambda: prompt.has_focus)

    async def ask(self, text: str) -> None:
        """Type a message and send it."""
        await self.type(text)
        await self.press("enter")

    async def writing(self, block: int) -> None:
        """An answer is being written and has come to this block."""
        await self.until(lambda: (t := self.session.turn) and (t.live.block or 0) >= block)

    async def answered(self) -> None:
        """An answer that was not complete before is complete, and drawn."""
        await self.until(lambda: self.session.turn is None and self.session.last is not self._seen)
        self._seen = last = self.session.last
        assert last is not None
        transcript = self.app.chat.query_one(Transcript)
        await self.until(lambda: (a := transcript.answer(last.answer)) and _is_drawn(a))

    async def shows(self, text: str) -> None:
        """The screen says `text`, sooner or later."""
        await self.until(lambda: text in self.text)

    @property
    def text(self) -> str:
        """What stands on the screen, line by line (Textual has no public way to ask)."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)


def _is_drawn(answer: Answer) -> bool:
    sources = [markdown.source for markdown in answer.query(SafeMarkdown)]
    return sources == [answer.entry.content] and not answer.has_class("-open")


@contextlib.asynccontextmanager
async def window(
    trace: Path,
    *,
    store: Store | None = None,
    size: tuple[int, int] = SIZE,
    command: list[str] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Window]:
    """The program with a recording behind it; its processes are gone afterwards. `options` are
    more arguments of the program."""
    file = SettingsFile.open()
    if settings:
        file.set(**settings)
    command = command or worker_command("--replay", str(trace))
    furnish = furnishing(
        file=file,
        store=store or Store.open(paths().store),
        make_client=lambda: EngineClient(command, log=paths().engine_log),
        **{"model": "demo", **(options or {})},
    )
    app = OrlChat(Look.of(file.settings), furnish)
    async with app.run_test(size=size, notifications=True) as pilot:
        try:
            yield Window(app, pilot)
        finally:
            await app.link.close()
            await app.models.close()
            app.session.store.close()
