"""Chats and messages in one SQLite file that survives a killed program, a full disk and damage.

Every call commits. A file that cannot be used never stops the program: a damaged one is set aside
under a new name, a newer or a read-only one is left alone and the session goes on in memory; in
each case `Store.notice` says so in a sentence. The schema is counted by `user_version` and only
ever extended by a migration (`app/store_schema.py`). Left out for now: full-text search and the
versions of an answer; both are new tables beside these two.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from app import store_schema
from app.store_schema import StoreError

TITLE_LENGTH = 60
PREVIEW_LENGTH = 80

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ChatSummary:
    """One row of the list of chats. `updated` is a Unix time; `preview` opens the last message."""

    id: int
    title: str
    updated: float
    messages: int
    preview: str


@dataclass(frozen=True)
class Message:
    """One message. `reason` is None while an answer is unfinished; `stats` as in `ask --json`."""

    id: int
    chat_id: int
    role: str
    content: str
    created: float
    reason: str | None
    stats: dict[str, Any] | None


class Store:
    """The chats of one user; safe to share between threads and between processes."""

    def __init__(
        self, connection: sqlite3.Connection, notice: str | None = None, *, writable: bool = True
    ) -> None:
        self.notice = notice
        self.writable = writable
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path | None) -> Self:
        """The store at `path`, or one in memory for None. Never raises for a bad file: see the
        module, and `notice`."""
        if path is None:
            return cls(store_schema.memory())
        connection, notice, writable = store_schema.open_or_explain(path)
        return cls(connection, notice, writable=writable)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with self._lock:
            self._connection.close()

    def create_chat(self, title: str = "") -> int:
        """A new chat's id. An empty title becomes the start of the first user message."""
        now = time.time()
        return self._write(
            lambda c: _inserted(
                c.execute(
                    "INSERT INTO chats (title, created, updated) VALUES (?, ?, ?)",
                    (_text(title), now, now),
                )
            )
        )

    def chats(self, search: str = "", limit: int = 200) -> list[ChatSummary]:
        """The newest chats first; `search` is looked for in titles and messages, in any case."""
        needle = _text(search).strip().casefold()
        rows = self._read(
            "SELECT c.id, c.title, c.updated,"
            " (SELECT count(*) FROM messages m WHERE m.chat_id = c.id),"
            " (SELECT substr(m.content, 1, 400) FROM messages m WHERE m.chat_id = c.id"
            "  ORDER BY m.id DESC LIMIT 1)"
            " FROM chats c WHERE ?1 = '' OR instr(casefold(c.title), ?1)"
            " OR EXISTS (SELECT 1 FROM messages m"
            "  WHERE m.chat_id = c.id AND instr(casefold(m.content), ?1))"
            " ORDER BY c.updated DESC, c.id DESC LIMIT ?2",
            (needle, limit),
        )
        return [
            ChatSummary(id, title, updated, count, _one_line(last or "", PREVIEW_LENGTH))
            for id, title, updated, count, last in rows
        ]

    def chat_ids(self) -> set[int]:
        """Every chat there is."""
        return {id for (id,) in self._read("SELECT id FROM chats", ())}

    def messages(self, chat_id: int) -> list[Message]:
        """A chat's messages in order; empty for a chat that is gone."""
        rows = self._read(
            "SELECT id, chat_id, role, content, created, reason, stats FROM messages"
            " WHERE chat_id = ? ORDER BY id",
            (chat_id,),
        )
        return _messages(rows)

    def answers(self, limit: int) -> list[Message]:
        """The newest answers of all chats that have figures, oldest first."""
        rows = self._read(
            "SELECT id, chat_id, role, content, created, reason, stats FROM messages"
            " WHERE role = 'assistant' AND stats IS NOT NULL ORDER BY id DESC LIMIT ?",
            (limit,),
        )
        return _messages(rows)[::-1]

    def add_message(self, chat_id: int, role: str, content: str) -> int:
        """Append a message and give its id; the first user message names an untitled chat.

        Raises:
            StoreError: the chat is gone (deleted in another window), or another window holds the
                file for too long.
        """
        now, content = time.time(), _text(content)

        def write(c: sqlite3.Connection) -> int:
            id = _inserted(
                c.execute(
                    "INSERT INTO messages (chat_id, role, content, created) VALUES (?, ?, ?, ?)",
                    (chat_id, _text(role), content, now),
                )
            )
            c.execute("UPDATE chats SET updated = ? WHERE id = ?", (now, chat_id))
            if role == "user":
                title = _one_line(content, TITLE_LENGTH)
                c.execute(
                    "UPDATE chats SET title = ? WHERE id = ? AND title = ''", (title, chat_id)
                )
            return id

        return self._write(write)

    def update_message(
        self,
        message_id: int,
        *,
        content: str | None = None,
        reason: str | None = None,
        stats: dict[str, Any] | None = None,
    ) -> None:
        """Replace what is given; None leaves a field as it is. A message that is gone stays gone.

        Raises:
            StoreError: another window holds the file for too long.
        """
        values = (
            None if content is None else _text(content),
            None if reason is None else _text(reason),
            None if stats is None else json.dumps(stats),
        )

        def write(c: sqlite3.Connection) -> None:
            c.execute(
                "UPDATE messages SET content = coalesce(?, content), reason = coalesce(?, reason),"
                " stats = coalesce(?, stats) WHERE id = ?",
                (*values, message_id),
            )
            c.execute(
                "UPDATE chats SET updated = ? WHERE id ="
                " (SELECT chat_id FROM messages WHERE id = ?)",
                (time.time(), message_id),
            )

        self._write(write)

    def rename_chat(self, id: int, title: str) -> None:
        """Set a chat's title; its place in the list stays. Raises StoreError like the others."""
        values = (_text(title), id)
        self._write(lambda c: c.execute("UPDATE chats SET title = ? WHERE id = ?", values))

    def delete_chat(self, id: int) -> None:
        """Remove a chat with its messages; their bytes are overwritten in the file."""
        self._write(lambda c: c.execute("DELETE FROM chats WHERE id = ?", (id,)))

    def _read(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"The chats cannot be read: {error}.") from error

    def _write(self, change: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run `change` in one transaction; a disk that fails moves the session into memory."""
        with self._lock:
            try:
                return _transaction(self._connection, change)
            except sqlite3.IntegrityError as error:
                raise StoreError(
                    "This chat is gone: it was deleted in another window. Start a new one."
                ) from error
            except sqlite3.OperationalError as error:
                if store_schema.is_busy(error):
                    raise StoreError(
                        "Another window is writing the chats; try again in a moment."
                    ) from error
                self._move_to_memory(error)
                return _transaction(self._connection, change)
            except sqlite3.Error as error:
                raise StoreError(f"The chats cannot be saved: {error}.") from error

    def _move_to_memory(self, error: sqlite3.Error) -> None:
        if not self.writable:
            raise StoreError(f"The chats cannot be kept in memory either: {error}.") from error
        copy = store_schema.copy_to_memory(self._connection)
        self._connection.close()
        self._connection, self.writable = copy, False
        self.notice = (
            f"Chats are no longer saved ({error}); free some disk space and start orl-chat again. "
            "Until then this session is kept in memory only."
        )


def _transaction(
    connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _Result]
) -> _Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = change(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _messages(rows: Sequence[Any]) -> list[Message]:
    return [
        Message(id, chat, role, content, created, reason, _stats(stats))
        for id, chat, role, content, created, reason, stats in rows
    ]


def _inserted(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _stats(stored: str | None) -> dict[str, Any] | None:
    try:
        stats = None if stored is None else json.loads(stored)
    except ValueError:
        return None
    return stats if isinstance(stats, dict) else None


def _text(text: str) -> str:
    """Text that SQLite takes: lone surrogates, which UTF-8 cannot hold, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _one_line(text: str, length: int) -> str:
    return " ".join(text.split())[:length]
