"""Chats to and from files, as somebody types their paths; each gives the words about it."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from app import chat_files
from app.chat_files import ENDINGS, ChatFileError, ChatRecord
from app.completion import expanded
from app.store import Store
from app.store_rows import ChatSummary

AT_ONCE = 50
"""Chats of one transaction, during which nobody else reads or writes."""


def suggested(chat: ChatSummary) -> str:
    """A name in the home folder that is free, as one would type it."""
    home = expanded("~")
    return f"~/{chat_files.free_name(chat.title, home, ENDINGS[0]).name}"


def other_ending(path: str) -> str:
    """`path` with the other one of the two endings; with the first where it has neither."""
    here, there = ENDINGS if path.lower().endswith(ENDINGS[0]) else ENDINGS[::-1]
    return (path[: -len(here)] if path.lower().endswith(here) else path) + there


def export(store: Store, chat: ChatSummary, path: str) -> str:
    """Write a chat to a new file. Raises StoreError and ChatFileError."""
    target = _path(path)
    text = chat_files.as_text(store.records([chat.id]), target)
    chat_files.save(text, target)
    return f"Saved as {target}."


def read(path: str) -> Sequence[ChatRecord]:
    """The chats of a file. Raises ChatFileError."""
    return chat_files.read(_path(path))


async def bring_in(
    store: Store, chats: Sequence[ChatRecord], tell: Callable[[str], None]
) -> tuple[list[int], str]:
    """Add chats, in another thread and `AT_ONCE` at a time, so that the window goes on: thousands
    take seconds. `tell` gets how far it is; the ids of the new ones, and the words about them.
    Raises StoreError; what was added until then stays, and is passed over the next time."""
    new: list[int] = []
    for first in range(0, len(chats), AT_ONCE):
        if first:
            tell(f"Importing: {first:,} of {len(chats):,} chats")
        new += await asyncio.to_thread(store.add_records, chats[first : first + AT_ONCE])
    return new, chat_files.imported(len(chats), len(new))


def _path(typed: str) -> Path:
    if not typed.strip():
        raise ChatFileError("Type the path of a file.")
    return expanded(typed.strip()).absolute()
