"""Rows of the chats' database as the rest of the program has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import store_records
from app.store_search import Hit

PREVIEW_LENGTH = 80


@dataclass(frozen=True)
class ChatSummary:
    """One row of the list of chats. `updated` is a Unix time; `messages` counts versions too;
    `preview` opens the newest message; `hit` is what a search found in the messages."""

    id: int
    title: str
    updated: float
    messages: int
    preview: str
    hit: Hit | None = None


@dataclass(frozen=True)
class Message:
    """One message. `reason` is None while an answer is unfinished; `stats` as in `ask --json`.
    It is version number `version`, counted from 1, of `versions`."""

    id: int
    chat_id: int
    role: str
    content: str
    created: float
    reason: str | None
    stats: dict[str, Any] | None
    version: int = 1
    versions: int = 1


@dataclass(frozen=True)
class Prompt:
    """An entry of the prompt library."""

    name: str
    content: str


def summary_of(row: Sequence[Any], hit: Hit | None = None) -> ChatSummary:
    """From (id, title, updated, messages, newest message)."""
    id, title, updated, count, last = row
    return ChatSummary(id, title, updated, count, one_line(last or "", PREVIEW_LENGTH), hit)


def message_of(row: Sequence[Any]) -> Message:
    """From the columns of `Message` in order."""
    id, chat, role, content, created, reason, stats, version, versions = row
    stats = store_records.stats(stats)
    return Message(id, chat, role, content, created, reason, stats, version, versions)


def one_line(text: str, length: int) -> str:
    """The beginning of `text`, its white space as single spaces."""
    return " ".join(text.split())[:length]
