"""Chats as files: JSON, which holds everything and can be imported again, and Markdown to read.

A file that is no export of ours, is damaged, or comes from a newer version is refused in one
sentence before anything of it reaches the store.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from app.chat_settings import ChatSettings
from app.store_schema import NOT_SENT
from app.text import printable

FORMAT = "orl-chat chats"
VERSION = 1
ENDINGS = (".md", ".json")
NAME_LENGTH = 40
NAMES = {"user": "You", "assistant": "orl-chat", "system": "System"}

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""A Unix time, in seconds."""


class ChatFileError(Exception):
    """A file that cannot be read or written; the message is a sentence for the user."""


@dataclass(frozen=True)
class MessageRecord:
    """A message in a file. `parent` is the place in the chat of the message before it, None for a
    first one; of messages with the same parent one is chosen."""

    role: Literal["system", "user", "assistant"]
    content: str
    created: Moment
    reason: str | None = None
    stats: dict[str, Any] | None = None
    parent: int | None = None
    chosen: bool = True


@dataclass(frozen=True)
class ChatRecord:
    """A chat in a file. Raises ValueError for messages that form no tree."""

    title: str
    created: Moment
    updated: Moment
    settings: ChatSettings = field(default_factory=ChatSettings)
    messages: tuple[MessageRecord, ...] = ()

    def __post_init__(self) -> None:
        chosen = [m.parent for m in self.messages if m.chosen and m.reason not in NOT_SENT]
        parents = {m.parent for m in self.messages if m.reason not in NOT_SENT}
        if len(chosen) != len(set(chosen)) or set(chosen) != parents:
            raise ValueError("of several versions exactly one must be chosen")
        for place, message in enumerate(self.messages):
            if message.parent is not None and not 0 <= message.parent < place:
                raise ValueError(f"message {place} comes after message {message.parent}")

    @property
    def path(self) -> list[tuple[MessageRecord, int, int]]:
        """The messages that are shown, each with which version of how many it is."""
        following: dict[int | None, list[int]] = {}
        for place, message in enumerate(self.messages):
            if message.reason not in NOT_SENT:
                following.setdefault(message.parent, []).append(place)
        path: list[tuple[MessageRecord, int, int]] = []
        last: int | None = None
        while versions := following.get(last):
            last = next(place for place in versions if self.messages[place].chosen)
            path.append((self.messages[last], versions.index(last) + 1, len(versions)))
        return path


@dataclass(frozen=True)
class _File:
    format: Literal["orl-chat chats"]
    version: Literal[1]
    chats: tuple[ChatRecord, ...]


_FILE = TypeAdapter(_File)


def to_json(chats: Sequence[ChatRecord]) -> str:
    """Everything about `chats`, one a line; plain ASCII, so that it is safe to look at."""
    lines = ",\n".join(json.dumps(_compact(chat)) for chat in chats)
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "chats": [\n{lines}\n]}}\n'


def to_markdown(chats: Sequence[ChatRecord]) -> str:
    """The shown messages of `chats`, to read: versions that are not shown are counted only."""
    return "\n\n".join(_markdown(chat) for chat in chats) + "\n"


def read(path: Path) -> tuple[ChatRecord, ...]:
    """The chats of an exported JSON file. Raises ChatFileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ChatFileError(
            f"{path} cannot be read ({error.strerror}); name a file that was exported as JSON."
        ) from error
    try:
        return _FILE.validate_json(data, strict=True).chats
    except ValidationError as error:
        raise ChatFileError(f"{path} {_refusal(data, error)}") from error


def as_text(chats: Sequence[ChatRecord], path: Path) -> str:
    """`chats` in the format that a name ends in. Raises ChatFileError for another ending."""
    if path.suffix.lower() not in ENDINGS:
        raise ChatFileError(f"{path} must end in .md (to read) or .json (to import again).")
    return to_json(chats) if path.suffix.lower() == ".json" else to_markdown(chats)


def free_name(title: str, folder: Path, ending: str) -> Path:
    """A file in `folder` named after a chat, where there is nothing yet."""
    name = re.sub(r"\W+", "-", printable(title)).strip("-_")[:NAME_LENGTH].strip("-_") or "chat"
    path, number = folder / f"{name}{ending}", 1
    while os.path.exists(path):
        number += 1
        path = folder / f"{name}-{number}{ending}"
    return path


def save(text: str, path: Path) -> None:
    """Write a new file, readable by its owner alone. Raises ChatFileError, also where there
    already is something under that name: a chat is never written over a file."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ChatFileError(f"{path} exists already; choose another name.") from error
    except OSError as error:
        raise ChatFileError(f"{path} cannot be written ({error.strerror}).") from error
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise ChatFileError(f"{path} cannot be written ({error.strerror}).") from error


def imported(read: int, new: int) -> str:
    """What became of the chats of a file, of which `new` were not here yet, in words."""
    if not read:
        return "There is no chat in that file."
    if not new:
        return f"{_chats(read)} were here already." if read > 1 else "That chat was here already."
    old = read - new
    here = f"; {old:,} of the file {'were' if old > 1 else 'was'} here already" if old else ""
    return f"Imported {_chats(new)}{here}."


def _chats(number: int) -> str:
    return f"{number:,} chat" + ("s" if number != 1 else "")


def _compact(chat: ChatRecord) -> dict[str, Any]:
    return {**asdict(chat), "settings": chat.settings.changes()}


def _markdown(chat: ChatRecord) -> str:
    parts = [f"# {_line(chat.title) or 'Untitled'}", f"*{_date(chat.created)}*"]
    if chat.settings.system:
        parts += ["## System", printable(chat.settings.system)]
    for message, number, of in chat.path:
        version = f" ({number} of {of})" if of > 1 else ""
        parts += [f"## {NAMES[message.role]}{version}", printable(message.content).strip("\n")]
    return "\n\n".join(parts)


def _line(text: str) -> str:
    return " ".join(printable(text).split())


def _date(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))


def _refusal(data: bytes, error: ValidationError) -> str:
    try:
        head = json.loads(data)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        return "is no JSON export of orl-chat, or not all of it; nothing was imported."
    version = head.get("version")
    if isinstance(version, int) and version > VERSION:
        return (
            f"was exported by a newer orl-chat (format {version}, this one knows {VERSION}); "
            "update orl-chat to import it."
        )
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"cannot be imported ({place}: {first['msg'][:200]}); nothing was imported."
