"""Chats and messages in one SQLite file that survives a killed program, a full disk and damage.

Every call commits. A file that cannot be used never stops the program: a damaged one is set aside
under a new name, a newer or a read-only one is left alone and the session goes on in memory; in
each case `Store.notice` says so in a sentence. The schema is counted by `user_version` and only
ever extended by a migration (`app/store_schema.py`). Questions and answers have versions: a chat
is a tree, of which one path is shown (`app/store_tree.py`).
"""

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from app import store_records, store_search, store_tree
from app.chat_files import ChatRecord
from app.chat_settings import ChatSettings
from app.store_file import StoreFile
from app.store_rows import ChatSummary, Message, Prompt, message_of, one_line, summary_of
from app.store_schema import NOT_SENT, StoreError
from app.words import Search

TITLE_LENGTH = 60


class Store(StoreFile):
    """The chats of one user; safe to share between threads and between processes.

    Every method raises StoreError, a sentence, when the file cannot be read or another window holds
    it for too long; those that write a message, also when the chat is gone.
    """

    # --- chats ----------------------------------------------------------------------------------

    def create_chat(self, title: str = "", settings: ChatSettings | None = None) -> int:
        """A new chat's id. An empty title becomes the start of the first user message."""
        now = time.time()
        values = (_text(title), now, now, settings.to_json() if settings else None)
        sql = "INSERT INTO chats (title, created, updated, settings) VALUES (?, ?, ?, ?)"
        return self._write(lambda c: store_records.inserted(c.execute(sql, values)))

    def chats(self, search: str = "", limit: int = 200) -> list[ChatSummary]:
        """The newest chats first: all, or those whose title or messages hold the words of `search`
        (see `app/words.py`), with the newest message that does."""
        looked_for = Search(_text(search))
        if not looked_for.parts:
            rows = self._read(f"{_LIVING} ORDER BY c.updated DESC, c.id DESC LIMIT ?", (limit,))
            return [summary_of(row) for row in rows]

        def look(c: sqlite3.Connection) -> list[ChatSummary]:
            found = store_search.hits(c, looked_for, limit, indexed=self._indexed)
            rows = (c.execute(f"{_LIVING} AND c.id = ?", (id,)).fetchone() for id in found)
            return [summary_of(row, found[row[0]]) for row in rows if row]

        return self._reading(look)

    def rename_chat(self, id: int, title: str) -> None:
        """Set a chat's title; its place in the list stays."""
        values = (_text(title), id)
        self._write(lambda c: c.execute("UPDATE chats SET title = ? WHERE id = ?", values))

    def delete_chat(self, id: int) -> None:
        """Take a chat off the list. For a while `restore_chat` brings it back; a start after that
        removes it with its messages, whose bytes are overwritten in the file."""
        sql = "UPDATE chats SET deleted = ? WHERE id = ?"
        self._write(lambda c: c.execute(sql, (time.time(), id)))

    def restore_chat(self, id: int) -> bool:
        """Bring a deleted chat back as it was; False when it is gone for good."""
        sql = "UPDATE chats SET deleted = NULL WHERE id = ?"
        return self._write(lambda c: c.execute(sql, (id,)).rowcount > 0)

    def deleted_chats(self) -> list[ChatSummary]:
        """What `restore_chat` can bring back, the last deleted first."""
        rows = self._read(f"{_SUMMARY} WHERE c.deleted IS NOT NULL ORDER BY c.deleted DESC")
        return [summary_of(row) for row in rows]

    def holds_chat(self, id: int) -> bool:
        """Whether a chat is on the list."""
        return bool(self._read("SELECT 1 FROM chats WHERE id = ? AND deleted IS NULL", (id,)))

    def chat_settings(self, id: int) -> ChatSettings:
        """What a chat decides for itself; nothing for a chat that is gone."""
        rows = self._read("SELECT settings FROM chats WHERE id = ?", (id,))
        return ChatSettings.from_json(rows[0][0]) if rows else ChatSettings()

    def set_chat_settings(self, id: int, settings: ChatSettings) -> None:
        """Replace what a chat decides for itself."""
        values = (settings.to_json(), id)
        self._write(lambda c: c.execute("UPDATE chats SET settings = ? WHERE id = ?", values))

    # --- messages -------------------------------------------------------------------------------

    def messages(self, chat_id: int) -> list[Message]:
        """A chat's chosen path in order, and after it what was never sent; empty for a chat that
        is gone."""

        def look(c: sqlite3.Connection) -> list[Any]:
            living = "SELECT 1 FROM chats WHERE id = ? AND deleted IS NULL"
            if c.execute(living, (chat_id,)).fetchone() is None:
                return []
            values = {"chat": chat_id}
            path = c.execute(store_tree.PATH, values).fetchall()
            return path + c.execute(store_tree.UNSENT, values).fetchall()

        return [message_of(row) for row in self._reading(look)]

    def versions(self, message_id: int) -> list[Message]:
        """All versions of a message, oldest first; empty for one that is gone."""
        return [message_of(row) for row in self._read(store_tree.SIBLINGS, (message_id,))]

    def answers(self, limit: int) -> list[Message]:
        """The newest answers of all chats that have figures, oldest first."""
        rows = self._read(
            f"SELECT {store_tree.COLUMNS} FROM messages m JOIN chats c ON c.id = m.chat_id"
            " WHERE role = 'assistant' AND stats IS NOT NULL AND deleted IS NULL"
            " ORDER BY m.id DESC LIMIT ?",
            (limit,),
        )
        return [message_of(row) for row in reversed(rows)]

    def questions(self, limit: int) -> list[str]:
        """What the user sent last in all chats, oldest first."""
        return [row[0] for row in reversed(self._read(store_tree.QUESTIONS, (limit,)))]

    def add_message(
        self, chat_id: int, role: str, content: str, *, after: int | None = None
    ) -> int:
        """Append a message and give its id; the first user message names an untitled chat.

        It comes after the message `after`, as a further version where that one has been followed
        before; without `after`, at the end of the chosen path.
        """
        role, content = _text(role), _text(content)

        def write(c: sqlite3.Connection) -> int:
            id = store_tree.append(c, chat_id, role, content, after)
            _touch(c, id)
            if role == "user":
                values = (one_line(content, TITLE_LENGTH), chat_id)
                c.execute("UPDATE chats SET title = ? WHERE id = ? AND title = ''", values)
            return id

        return self._write(write)

    def add_version(self, message_id: int, content: str) -> int:
        """A new version of a message, chosen from now on; its id. The chat goes on from it: what
        followed the other versions stays with them."""

        def write(c: sqlite3.Connection) -> int:
            id = store_tree.sibling(c, message_id, _text(content))
            _touch(c, id)
            return id

        return self._write(write)

    def choose_version(self, message_id: int) -> None:
        """Let the chosen path lead through a message: a version, or what a search found."""
        self._write(lambda c: store_tree.choose(c, message_id))

    def resend(self, message_id: int, content: str) -> int:
        """Put an unsent message at the end of the path, with the text it has now; its new id."""

        def write(c: sqlite3.Connection) -> int:
            id = store_tree.resend(c, message_id, _text(content))
            _touch(c, id)
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
        """Replace what is given; None leaves a field as it is. What is gone stays gone. A reason of
        `NOT_SENT` takes a question that did not fit off the path, unless it was answered before;
        only `resend` brings it back."""
        values = (
            None if content is None else _text(content),
            None if reason is None or reason in NOT_SENT else _text(reason),
            None if stats is None else json.dumps(stats),
        )

        def write(c: sqlite3.Connection) -> None:
            if reason in NOT_SENT:
                store_tree.unsend(c, message_id, reason)
            c.execute(
                "UPDATE messages SET content = coalesce(?, content),"
                f" reason = CASE WHEN {store_tree.SENT} THEN coalesce(?, reason) ELSE reason END,"
                " stats = coalesce(?, stats) WHERE id = ?",
                (*values, message_id),
            )
            _touch(c, message_id)

        self._write(write)

    # --- prompts, and whole chats ---------------------------------------------------------------

    def prompts(self) -> list[Prompt]:
        """The prompt library by name."""
        return [Prompt(*row) for row in self._read("SELECT name, content FROM prompts ORDER BY 1")]

    def save_prompt(self, name: str, content: str) -> None:
        """Keep a prompt; one of that name is replaced. Raises StoreError also without a name."""
        if not name.strip():
            raise StoreError("A prompt needs a name.")
        values = (one_line(_text(name), TITLE_LENGTH), _text(content))
        sql = "INSERT OR REPLACE INTO prompts (name, content) VALUES (?, ?)"
        self._write(lambda c: c.execute(sql, values))

    def delete_prompt(self, name: str) -> None:
        """Remove a prompt, if there is one of that name."""
        self._write(lambda c: c.execute("DELETE FROM prompts WHERE name = ?", (_text(name),)))

    def records(self, ids: Sequence[int] | None = None) -> list[ChatRecord]:
        """Whole chats for a file, all of them (oldest first) or those of `ids` that exist."""
        return self._reading(lambda c: store_records.collect(c, ids))

    def add_records(self, chats: Sequence[ChatRecord]) -> list[int]:
        """Add those chats from a file that are not here as they are there, all of them or none;
        the ids of the new ones."""
        return self._write(lambda c: store_records.add_new(c, chats))


_SUMMARY = (
    "SELECT c.id, c.title, c.updated,"
    " (SELECT count(*) FROM messages m WHERE m.chat_id = c.id),"
    " (SELECT substr(m.content, 1, 400) FROM messages m WHERE m.chat_id = c.id"
    "  ORDER BY m.id DESC LIMIT 1)"
    " FROM chats c"
)
_LIVING = f"{_SUMMARY} WHERE c.deleted IS NULL"


def _touch(connection: sqlite3.Connection, message_id: int) -> None:
    connection.execute(
        "UPDATE chats SET updated = ? WHERE id = (SELECT chat_id FROM messages WHERE id = ?)",
        (time.time(), message_id),
    )


def _text(text: str) -> str:
    """Text that SQLite takes: lone surrogates, which UTF-8 cannot hold, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")
