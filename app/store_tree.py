"""The messages of a chat as a tree, of which one path is shown.

Each message names the one before it; those that name the same one are versions of each other, and
exactly one of them is chosen (an index of the schema holds that). The path starts at the chosen
first message and goes on with the chosen one after it. A message that was never sent is no version:
it is in the chat, but on no path. Every function runs inside the caller's transaction.
"""

import sqlite3
import time

from app.store_schema import GONE, NOT_SENT, StoreError

START = 0
"""The parent of a first message."""

_PATH = (
    "WITH RECURSIVE path (id, depth) AS ("
    " SELECT id, 0 FROM messages WHERE chat_id = :chat AND parent = 0 AND chosen"
    " UNION ALL"
    " SELECT m.id, depth + 1 FROM path JOIN messages m"
    "  ON m.chat_id = :chat AND m.parent = path.id AND m.chosen) "
)
SENT = f"coalesce(reason, '') NOT IN {NOT_SENT}"
"""Whether a message is on a path at all."""

_VERSIONS = (
    "SELECT count(*) FROM messages s WHERE s.chat_id = m.chat_id AND s.parent = m.parent"
    f" AND {SENT}"
)
COLUMNS = (
    "m.id, m.chat_id, m.role, m.content, m.created, m.reason, m.stats,"
    f" ({_VERSIONS} AND s.id <= m.id), ({_VERSIONS})"
)
"""What a message is read as; the last two say which version of how many it is."""

PATH = f"{_PATH} SELECT {COLUMNS} FROM path JOIN messages m USING (id) ORDER BY depth"
UNSENT = f"SELECT {COLUMNS} FROM messages m WHERE chat_id = :chat AND NOT {SENT} ORDER BY id"
QUESTIONS = (
    "SELECT content FROM messages m JOIN chats c ON c.id = m.chat_id"
    " WHERE role = 'user' AND deleted IS NULL ORDER BY m.id DESC LIMIT ?"
)
SIBLINGS = (
    f"SELECT {COLUMNS} FROM messages m WHERE (chat_id, parent) ="
    f" (SELECT chat_id, parent FROM messages WHERE id = ?) AND {SENT} ORDER BY id"
)


def end(connection: sqlite3.Connection, chat_id: int) -> int:
    """The last message of the chosen path, START in an empty chat."""
    sql = f"{_PATH} SELECT id FROM path ORDER BY depth DESC LIMIT 1"
    row = connection.execute(sql, {"chat": chat_id}).fetchone()
    return row[0] if row else START


def append(
    connection: sqlite3.Connection, chat_id: int, role: str, content: str, after: int | None
) -> int:
    """A new chosen message after `after` (None: after the end of the path); its id."""
    _require(connection, chat_id)
    if after is None:
        after = end(connection, chat_id)
    elif after != START:
        chat_of_it, _, _, reason = _place(connection, after)
        if chat_of_it != chat_id:
            raise StoreError(GONE)
        if reason in NOT_SENT:
            raise StoreError("Nothing can follow a message that was not sent; send it first.")
    _unchoose(connection, chat_id, after)
    cursor = connection.execute(
        "INSERT INTO messages (chat_id, parent, role, content, created) VALUES (?, ?, ?, ?, ?)",
        (chat_id, after, role, content, time.time()),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def sibling(connection: sqlite3.Connection, message_id: int, content: str) -> int:
    """A new chosen version of a message; its id."""
    chat_id, parent, _, _ = _place(connection, message_id)
    sql = "SELECT role FROM messages WHERE id = ?"
    (role,) = connection.execute(sql, (message_id,)).fetchone()
    return append(connection, chat_id, role, content, parent)


def choose(connection: sqlite3.Connection, message_id: int) -> None:
    """Let the path lead through a message, whatever was chosen on the way to it; an unsent one is
    met at the message before it."""
    chat_id, parent, chosen, reason = _place(connection, message_id)
    _require(connection, chat_id)
    if reason in NOT_SENT:
        message_id = parent
    while message_id != START:
        _, parent, chosen, _ = _place(connection, message_id)
        if not chosen:
            _unchoose(connection, chat_id, parent)
            connection.execute("UPDATE messages SET chosen = 1 WHERE id = ?", (message_id,))
        message_id = parent


def unsend(connection: sqlite3.Connection, message_id: int, reason: str) -> None:
    """Take a message off the path; the newest version besides it, if any, takes its place. One
    that was answered stays, since what follows it could not be reached any more."""
    place = "SELECT chat_id, parent FROM messages WHERE id = ?"
    chat_id, parent = connection.execute(place, (message_id,)).fetchone() or (START, START)
    sql = "SELECT 1 FROM messages WHERE chat_id = ? AND parent = ?"
    if connection.execute(sql, (chat_id, message_id)).fetchone():
        return
    connection.execute(
        "UPDATE messages SET chosen = 0, reason = ? WHERE id = ?", (reason, message_id)
    )
    if connection.execute(f"{sql} AND chosen", (chat_id, parent)).fetchone() is None:
        connection.execute(
            "UPDATE messages SET chosen = 1 WHERE id = (SELECT max(id) FROM messages"
            f" WHERE chat_id = ? AND parent = ? AND {SENT})",
            (chat_id, parent),
        )


def resend(connection: sqlite3.Connection, message_id: int, content: str) -> int:
    """Put an unsent message at the end of the path as it is now, with its new text; its new id,
    since a message always has a higher one than the message before it. One that is on the path
    (taking it off could not be saved) gets its new text where it is."""
    chat_id, _, _, reason = _place(connection, message_id)
    if reason not in NOT_SENT:
        sql = "UPDATE messages SET content = ?, reason = 'sent' WHERE id = ?"
        connection.execute(sql, (content, message_id))
        return message_id
    connection.execute("DELETE FROM messages WHERE id = ?", (message_id,))
    id = append(connection, chat_id, "user", content, None)
    connection.execute("UPDATE messages SET reason = 'sent' WHERE id = ?", (id,))
    return id


def _require(connection: sqlite3.Connection, chat_id: int) -> None:
    sql = "SELECT 1 FROM chats WHERE id = ? AND deleted IS NULL"
    if connection.execute(sql, (chat_id,)).fetchone() is None:
        raise StoreError(GONE)


def _place(connection: sqlite3.Connection, message_id: int) -> tuple[int, int, bool, str | None]:
    """The chat and the parent of a message, whether it is chosen, and its reason."""
    sql = "SELECT chat_id, parent, chosen, reason FROM messages WHERE id = ?"
    row = connection.execute(sql, (message_id,)).fetchone()
    if row is None:
        raise StoreError(GONE)
    return row


def _unchoose(connection: sqlite3.Connection, chat_id: int, parent: int) -> None:
    sql = "UPDATE messages SET chosen = 0 WHERE chat_id = ? AND parent = ? AND chosen"
    connection.execute(sql, (chat_id, parent))
