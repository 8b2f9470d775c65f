"""Chats to and from files, as somebody types their paths; each gives the words about it."""

from pathlib import Path

from app import chat_files
from app.chat_files import ENDINGS, ChatFileError
from app.completion import expanded
from app.store import Store
from app.store_rows import ChatSummary


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


def bring_in(store: Store, path: str) -> tuple[list[int], str]:
    """Add the chats of a file; the ids of the new ones. Raises StoreError and ChatFileError."""
    chats = chat_files.read(_path(path))
    new = store.add_records(chats)
    return new, chat_files.imported(len(chats), len(new))


def _path(typed: str) -> Path:
    if not typed.strip():
        raise ChatFileError("Type the path of a file.")
    return expanded(typed.strip()).absolute()
