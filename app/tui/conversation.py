"""One chat in memory: its messages, how they come from the store, and what the engine is sent.

The screen draws from these objects and not from the store, so a store that stops writing costs
nothing that can be seen. A user message whose reason is "unsent" did not fit the context: it is
kept in the store, never drawn or sent, and comes back as the draft, unless it was "moved" to
another chat. Questions and answers have versions: here is the path that is chosen, the others are
in the store. Consecutive answers are tries at one question of which the store could not keep the
earlier ones; the engine is shown the latest that has text.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.attachment import split
from app.chat_settings import ChatSettings
from app.store import TITLE_LENGTH, Store
from app.store_rows import Message
from app.store_schema import GONE, NOT_SENT, StoreError
from app.tui.figures import number

UNSENT, MOVED, INTERRUPTED = "unsent", "moved", "interrupted"
CUT_SHORT = ("stopped", "length", "context", "error", INTERRUPTED)
"""Reasons for which an answer can be continued."""


@dataclass
class Entry:
    """A message on screen, version number `version` of `versions`. `id` is None until the store has
    it; `reason` None while it is open."""

    role: str
    content: str
    created: float = field(default_factory=time.time)
    reason: str | None = None
    stats: dict[str, Any] | None = None
    id: int | None = None
    version: int = 1
    versions: int = 1


@dataclass
class Conversation:
    """A chat. `id` is None until its first message is saved; `unsent` waits to be sent again;
    `editing` is the question of which the next message is to be a new version."""

    id: int | None = None
    title: str = ""
    entries: list[Entry] = field(default_factory=list)
    unsent: Entry | None = None
    editing: Entry | None = None
    unsent_aside: bool = False
    """Whether the field holds something else than `unsent`, which then must not be rewritten."""
    settings: ChatSettings = field(default_factory=ChatSettings)

    @property
    def last_question(self) -> Entry | None:
        """The newest user message."""
        return next((e for e in reversed(self.entries) if e.role == "user"), None)

    @property
    def last_answer(self) -> Entry | None:
        """The newest message, where that is an answer."""
        last = self.entries[-1] if self.entries else None
        return last if last is not None and last.role == "assistant" else None

    @property
    def prompts(self) -> list[str]:
        """What the user has sent, oldest first."""
        return [entry.content for entry in self.entries if entry.role == "user"]

    @property
    def context(self) -> int | None:
        """Tokens of the chat as the engine counted them with its last answer; None where no answer
        says so."""
        answer = next((e for e in reversed(self.entries) if e.role == "assistant"), None)
        found = number(answer.stats or {}, "context") if answer is not None else None
        return None if found is None else int(found)

    def asked_by(self, answer: Entry) -> int | None:
        """The stored message that `answer` answers; None while the store has none."""
        index = self.index(answer)
        questions = (e.id for e in reversed(self.entries[:index]) if e.role == "user")
        return next(questions, None)

    def index(self, entry: Entry) -> int:
        """Where `entry` stands. Raises StopIteration when it is not here (any more)."""
        return next(i for i, other in enumerate(self.entries) if other is entry)

    def holds(self, entry: Entry) -> bool:
        """Whether `entry` is on the path that is shown."""
        return any(other is entry for other in self.entries)

    def question_of(self, entry: Entry) -> Entry | None:
        """The question that `entry` is or answers; None also for one that is not here any more."""
        if not self.holds(entry):
            return None
        before = self.entries[: self.index(entry) + 1]
        return next((e for e in reversed(before) if e.role == "user"), None)


def title_of(text: str) -> str:
    """A chat's name until somebody gives it one: the start of its first message, or the name of the
    file that is all of it."""
    said, files = split(text)
    line = " ".join((said.strip() or (files[0].name if files else "")).split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def why_complete(answer: Entry) -> str | None:
    """Why `answer` cannot be continued; None when it can."""
    if not answer.content.strip():
        return "This answer has no text to go on from; Ctrl+R asks again."
    if answer.reason not in CUT_SHORT:
        return "This answer is complete."
    return None


def load(store: Store, chat_id: int, title: str, at: int | None = None) -> Conversation:
    """A chat from the store, with the message `at` on its path; answers that nobody finished are
    marked as interrupted there. Raises StoreError, also for a chat that is gone: what would be
    said in it could not be saved."""
    if not store.holds_chat(chat_id):
        raise StoreError(GONE)
    if at is not None:
        store.choose_version(at)
    conversation = Conversation(chat_id, title, settings=store.chat_settings(chat_id))
    reload(store, conversation)
    return conversation


def reload(store: Store, conversation: Conversation) -> None:
    """The path that is chosen in the store; a message that is on screen stays the same object."""
    before = [*conversation.entries, *([conversation.unsent] if conversation.unsent else [])]
    known = {entry.id: entry for entry in before if entry.id is not None}
    entries: list[Entry] = []
    conversation.unsent = None
    assert conversation.id is not None
    for message in store.messages(conversation.id):
        entry = _entry(message)
        old = known.get(message.id, entry)
        if entry.reason in NOT_SENT:
            conversation.unsent = old if entry.reason == UNSENT else conversation.unsent
            continue
        if entry.role == "assistant" and entry.reason is None:
            entry.reason = INTERRUPTED
            store.update_message(message.id, reason=INTERRUPTED)
        old.version, old.versions = entry.version, entry.versions
        entries.append(old)
    conversation.entries = entries


def _entry(message: Message) -> Entry:
    return Entry(
        role=message.role,
        content=message.content,
        created=message.created,
        reason=message.reason,
        stats=message.stats,
        id=message.id,
        version=message.version,
        versions=message.versions,
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
