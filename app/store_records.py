"""Whole chats out of the store and into it, for files. Runs inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from app.chat_files import ChatRecord, MessageRecord
from app.chat_settings import ChatSettings
from app.store_schema import NOT_SENT


def collect(connection: sqlite3.Connection, ids: Collection[int] | None) -> list[ChatRecord]:
    """The chats of `ids` that exist, all of them for None, oldest first."""
    rows = connection.execute(
        "SELECT id, title, created, updated, settings FROM chats WHERE deleted IS NULL ORDER BY id"
    ).fetchall()
    wanted = None if ids is None else set(ids)
    return [_chat(connection, *row) for row in rows if wanted is None or row[0] in wanted]


def add_new(connection: sqlite3.Connection, chats: Sequence[ChatRecord]) -> list[int]:
    """Insert the chats that are not here yet; their ids."""
    begun = {chat.created for chat in chats}
    rows = connection.execute("SELECT id, created FROM chats").fetchall()
    here = {_said(chat) for chat in collect(connection, {id for id, at in rows if at in begun})}
    ids = []
    for chat in chats:
        if _said(chat) not in here:
            ids.append(_add(connection, chat))
            here.add(_said(chat))
    return ids


def _said(chat: ChatRecord) -> Hashable:
    """What makes two chats the same: all but which versions are shown."""
    messages = tuple(
        (m.role, m.content, m.created, m.reason, json.dumps(m.stats), m.parent)
        for m in chat.messages
    )
    return chat.title, chat.created, chat.settings, messages


def _add(connection: sqlite3.Connection, chat: ChatRecord) -> int:
    cursor = connection.execute(
        "INSERT INTO chats (title, created, updated, settings) VALUES (?, ?, ?, ?)",
        (chat.title, chat.created, chat.updated, chat.settings.to_json()),
    )
    chat_id = inserted(cursor)
    ids: list[int] = []
    for message in chat.messages:
        cursor = connection.execute(
            "INSERT INTO messages (chat_id, role, content, created, reason, stats, parent, chosen)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                chat_id,
                message.role,
                message.content,
                message.created,
                message.reason,
                None if message.stats is None else json.dumps(message.stats),
                0 if message.parent is None else ids[message.parent],
                message.chosen and message.reason not in NOT_SENT,
            ),
        )
        ids.append(inserted(cursor))
    return chat_id


def inserted(cursor: sqlite3.Cursor) -> int:
    """The id of the row that was just inserted."""
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def stats(stored: str | None) -> dict[str, Any] | None:
    """The figures of an answer, None where there are none that can be read."""
    try:
        found = None if stored is None else json.loads(stored)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _chat(
    connection: sqlite3.Connection,
    id: int,
    title: str,
    created: float,
    updated: float,
    settings: str | None,
) -> ChatRecord:
    rows = connection.execute(
        "SELECT id, role, content, created, reason, stats, parent, chosen FROM messages"
        " WHERE chat_id = ? ORDER BY id",
        (id,),
    ).fetchall()
    places = {row[0]: place for place, row in enumerate(rows)}
    messages = tuple(
        MessageRecord(role, content, sent, reason, stats(kept), places.get(parent), bool(chosen))
        for _, role, content, sent, reason, kept, parent, chosen in rows
    )
    return ChatRecord(title, created, updated, ChatSettings.from_json(settings), messages)
