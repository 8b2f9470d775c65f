"""`orl-chat chats`: the saved chats listed and searched, written to files and read from them.

What is listed can come from a file that is only readable; what is imported has to reach the file,
since a session that is kept in memory would end with the command.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from app import chat_files
from app.chat_files import ChatFileError, ChatRecord
from app.commands.running import CommandError, say
from app.completion import expanded
from app.paths import paths
from app.store import Store
from app.store_rows import ChatSummary
from app.store_schema import StoreError
from app.text import printable

LIMIT = 100_000
FORMATS = {"md": chat_files.to_markdown, "json": chat_files.to_json}


def list_chats(search: str, *, as_json: bool) -> int:
    """Print the chats, the newest first, with what a search found in each; the exit code."""
    with _opened() as store:
        _tell(store)
        chats = store.chats(search, LIMIT)
    if as_json:
        print(json.dumps([asdict(chat) for chat in chats]))
    elif not chats:
        say("No chat holds that." if search.strip() else "There are no chats yet.")
    for chat in [] if as_json else chats:
        print(_line(chat))
        if chat.hit is not None:
            print(f"{'':8}{chat.hit.snippet}")
    return 0


def export(words: Sequence[str], *, everything: bool, style: str | None) -> int:
    """Write chats to a new file, or to stdout for "-". `words` are ids and, last, the file; the
    exit code."""
    *ids, target = words
    if everything == bool(ids):
        raise CommandError("Name the chats (orl-chat chats lists them), or give --all, not both.")
    form = FORMATS[_style(style, target)]
    with _opened() as store:
        _tell(store)
        chats = store.records(None if everything else [_id(word, store) for word in ids])
        if target == "-":
            print(form(chats), end="")
        else:
            path = _path(target)
            chat_files.save(form(chats), path)
            print(f"{path} holds {_count(chats)}.")
    return 0


def bring_in(source: str) -> int:
    """Add the chats of an exported file that are not here yet; the exit code."""
    with _opened() as store:
        chats = chat_files.read(_path(source))
        new = store.add_records(chats) if store.writable else []
        if not store.writable:
            raise CommandError(f"{store.notice} Nothing was imported.")
    print(chat_files.imported(len(chats), len(new)))
    return 0


@contextmanager
def _opened() -> Iterator[Store]:
    """The store, closed again; what it cannot do is the command's failure, as a sentence."""
    store = Store.open(paths().store)
    try:
        yield store
    except (StoreError, ChatFileError) as error:
        raise CommandError(str(error)) from error
    finally:
        store.close()


def _tell(store: Store) -> None:
    if store.notice:
        say(store.notice)


def _path(typed: str) -> Path:
    return expanded(typed).absolute()


def _style(style: str | None, target: str) -> str:
    """The format asked for, else the one that the file's name ends in."""
    style = style or Path(target).suffix.lower().removeprefix(".")
    if style not in FORMATS:
        raise CommandError(f"A chat is written as md or json, got {style!r}; add --format md.")
    return style


def _id(word: str, store: Store) -> int:
    known = {chat.id for chat in store.chats(limit=LIMIT)}
    if not word.isdecimal() or int(word) not in known:
        raise CommandError(f"There is no chat {word!r}; orl-chat chats lists them with their ids.")
    return int(word)


def _count(chats: Sequence[ChatRecord]) -> str:
    return f"{len(chats):,} chat" + ("s" if len(chats) != 1 else "")


def _line(chat: ChatSummary) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(chat.updated))
    title = " ".join(printable(chat.title).split()) or "Untitled"
    return f"{chat.id:>6}  {at}  {title}  ({chat.messages:,})"
