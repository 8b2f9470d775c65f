"""What the tests of the engine process share: a client whose messages can be awaited by kind."""

import asyncio
from typing import Any

import pytest

from app.answer import NO_STATS, Conditions, answer_figures
from app.client import EngineClient, EngineDied
from app.protocol import Chat

QUESTION = [{"role": "user", "content": "What is <|mask|>?"}]
FIGURES = set(answer_figures("", "end", NO_STATS, Conditions("", "", "")))


class Talk:
    """A client whose messages can be awaited by kind."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self._messages = client.messages()

    async def until(self, *kinds: type) -> list[Any]:
        """Everything up to the first message of one of `kinds`, that one included."""
        seen: list[Any] = []
        async with asyncio.timeout(300):
            async for message in self._messages:
                seen.append(message)
                if isinstance(message, kinds):
                    return seen
        pytest.fail(f"the engine ended after {seen[-3:]}")

    async def next(self, kind: type) -> Any:
        return (await self.until(kind, EngineDied))[-1]

    def ask(self, id: str = "q", **config: Any) -> None:
        self.client.send(Chat(id, QUESTION, {"max_new_tokens": 64, **config}))
