"""One chat in memory: its messages, how they come from the store, and what the engine is sent.

The screen draws from these objects and not from the store, so a store that stops writing costs
nothing that can be seen. A user message whose reason is "unsent" did not fit the context: it is
kept in the store, never drawn or sent, and comes back as the draft. Consecutive answers are tries
at one question ("again"); the engine is shown the latest that has text.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.store import TITLE_LENGTH, Message, Store

UNSENT, INTERRUPTED = "unsent", "interrupted"


@dataclass
class Entry:
    """A message on screen. `id` is None until the store has it; `reason` None while it is open."""

    role: str
    content: str
    created: float = field(default_factory=time.time)
    reason: str | None = None
    stats: dict[str, Any] | None = None
    id: int | None = None


@dataclass
class Conversation:
    """A chat. `id` is None until its first message is saved; `unsent` waits to be sent again."""

    id: int | None = None
    title: str = ""
    entries: list[Entry] = field(default_factory=list)
    unsent: Entry | None = None

    @property
    def last_question(self) -> Entry | None:
        """The newest user message."""
        return next((e for e in reversed(self.entries) if e.role == "user"), None)

    @property
    def prompts(self) -> list[str]:
        """What the user has sent, oldest first."""
        return [entry.content for entry in self.entries if entry.role == "user"]

    def asked_by(self, answer: Entry) -> int | None:
        """The stored message that `answer` answers; None while the store has none."""
        index = next(i for i, entry in enumerate(self.entries) if entry is answer)
        questions = (e.id for e in reversed(self.entries[:index]) if e.role == "user")
        return next(questions, None)

    def attempt(self, answer: Entry) -> tuple[int, int]:
        """Which try of how many `answer` is: (2, 3)."""
        index = next(i for i, entry in enumerate(self.entries) if entry is answer)
        first = index
        while first > 0 and self.entries[first - 1].role == "assistant":
            first -= 1
        last = index
        while last + 1 < len(self.entries) and self.entries[last + 1].role == "assistant":
            last += 1
        return index - first + 1, last - first + 1


def title_of(text: str) -> str:
    """A chat's name until somebody gives it one: the start of its first message."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def load(store: Store, chat_id: int, title: str) -> Conversation:
    """A chat from the store; answers that nobody finished are marked as interrupted there."""
    conversation = Conversation(chat_id, title)
    for message in _tries(store, store.messages(chat_id)):
        entry = _entry(message)
        if entry.reason == UNSENT:
            conversation.unsent = entry
            continue
        if entry.role == "assistant" and entry.reason is None:
            entry.reason = INTERRUPTED
            store.update_message(message.id, reason=INTERRUPTED)
        conversation.entries.append(entry)
    return conversation


def _tries(store: Store, path: Sequence[Message]) -> Iterator[Message]:
    """The messages of a path, each answer with its other versions."""
    for message in path:
        if message.role == "assistant" and message.versions > 1:
            yield from store.versions(message.id)
        else:
            yield message


def _entry(message: Message) -> Entry:
    return Entry(
        role=message.role,
        content=message.content,
        created=message.created,
        reason=message.reason,
        stats=message.stats,
        id=message.id,
    )


def request_messages(entries: Sequence[Entry], system: str) -> list[dict[str, str]]:
    """What the engine is asked to answer, up to the last user message in `entries`."""
    messages = [{"role": "system", "content": system}] if system.strip() else []
    for entry in entries:
        if entry.role == "assistant" and not entry.content.strip():
            continue
        if entry.role == "assistant" and messages and messages[-1]["role"] == "assistant":
            messages.pop()
        messages.append({"role": entry.role, "content": entry.content})
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    return messages
