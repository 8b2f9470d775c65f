"""Search over all chats: an FTS5 index of the messages, kept in step by triggers.

The index holds no text of its own, only which message has which words. Where SQLite was built
without FTS5 the triggers are taken out, since a trigger that needs it would stop every save, and
messages are read one by one; an SQLite that has FTS5 finds no triggers and builds the index anew.
"""

import contextlib
import sqlite3
from dataclasses import dataclass

from app.text import printable
from app.words import Search

SNIPPET_LENGTH = 120

# Without the places of the words the index has a third of the size. One letter is looked for the
# moment it is typed, and would otherwise walk through all words that begin with it.
_TABLE = (
    "CREATE VIRTUAL TABLE message_words USING fts5 (content, content = 'messages',"
    " content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2', detail = 'none',"
    " prefix = '1')"
)
_OUT = (
    "INSERT INTO message_words (message_words, rowid, content)"
    " VALUES ('delete', old.id, old.content);"
)
_IN = "INSERT INTO message_words (rowid, content) VALUES (new.id, new.content);"
_TRIGGERS = {
    "message_added": f"AFTER INSERT ON messages BEGIN {_IN} END",
    "message_removed": f"AFTER DELETE ON messages BEGIN {_OUT} END",
    "message_changed": f"AFTER UPDATE OF content ON messages BEGIN {_OUT} {_IN} END",
}


@dataclass(frozen=True)
class Hit:
    """The newest message of a chat that a search found: a printable line of it, and where in that
    line the words stand, as (start, end)."""

    message_id: int
    snippet: str
    marks: tuple[tuple[int, int], ...]


def build(connection: sqlite3.Connection) -> bool:
    """Make the index where it can be had and is not there yet; whether there is one."""
    try:
        if not available(connection):
            leave(connection)
            return False
        if _complete(connection):
            return True
        return _build(connection)
    except sqlite3.Error:
        return False


def available(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite has FTS5."""
    sql = "SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"
    return connection.execute(sql).fetchone() is not None


def at_fault(error: sqlite3.Error) -> bool:
    """Whether a write may have failed because the index is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT) or "vtable" in str(error)


def leave(connection: sqlite3.Connection) -> None:
    """Keep the index no longer in step; the next start builds it anew."""
    for name in _TRIGGERS:
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")


def forget(connection: sqlite3.Connection) -> None:
    """Overwrite what the index still holds of messages that are gone; inside a transaction."""
    if available(connection):
        connection.execute("INSERT INTO message_words (message_words) VALUES ('optimize')")


def hits(
    connection: sqlite3.Connection, search: Search, limit: int, *, indexed: bool
) -> dict[int, Hit | None]:
    """The chats that hold `search`, newest first, each with its newest message that does; None
    where only the title does."""
    found = _messages(connection, search, indexed=indexed)
    rows = connection.execute(
        "SELECT id, title FROM chats WHERE deleted IS NULL ORDER BY updated DESC, id DESC"
    )
    chosen = [id for id, title in rows if id in found or search.titles(title)][:limit]
    return {id: _hit(connection, found[id], search) if id in found else None for id in chosen}


def _complete(connection: sqlite3.Connection) -> bool:
    sql = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name IN (?, ?, ?)"
    return connection.execute(sql, tuple(_TRIGGERS)).fetchone()[0] == len(_TRIGGERS)


def _build(connection: sqlite3.Connection) -> bool:
    """In one transaction; a second process waits and finds it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _complete(connection):
            connection.execute("DROP TABLE IF EXISTS message_words")
            connection.execute(_TABLE)
            for name, body in _TRIGGERS.items():
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
                connection.execute(f"CREATE TRIGGER {name} {body}")
            connection.execute("INSERT INTO message_words (message_words) VALUES ('rebuild')")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return True


def _messages(connection: sqlite3.Connection, search: Search, *, indexed: bool) -> dict[int, int]:
    """Per chat the newest message that holds every word."""
    if indexed and search.in_index:
        # A damaged index must not hide what the messages themselves can still answer.
        with contextlib.suppress(sqlite3.DatabaseError):
            return dict(
                connection.execute(
                    "SELECT m.chat_id, max(m.id) FROM message_words w"
                    " CROSS JOIN messages m ON m.id = w.rowid"
                    " WHERE message_words MATCH ? GROUP BY m.chat_id",
                    (search.expression,),
                ).fetchall()
            )
    return dict(_reading_all(connection, search))


def _reading_all(connection: sqlite3.Connection, search: Search) -> list[tuple[int, int]]:
    """Signs and scripts without case are compared by SQLite itself, which is much faster."""
    holds, needles = [], []
    for part in search.parts:
        caseless = part.casefold() == part.upper()
        holds.append(f"instr({'content' if caseless else 'casefold(content)'}, ?)")
        needles.append(part.casefold())
    return connection.execute(
        f"SELECT chat_id, max(id) FROM messages WHERE {' AND '.join(holds)} GROUP BY chat_id",
        needles,
    ).fetchall()


def _hit(connection: sqlite3.Connection, message_id: int, search: Search) -> Hit:
    sql = "SELECT content FROM messages WHERE id = ?"
    (content,) = connection.execute(sql, (message_id,)).fetchone()
    snippet, marks = search.snippet(printable(content), SNIPPET_LENGTH)
    return Hit(message_id, snippet, tuple(marks))
