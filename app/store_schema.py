"""The store's file: its tables, their migrations, and how a file that cannot be used is met."""

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from app.paths import ensure

BUSY_SECONDS = 3.0
NOT_SENT = ("unsent", "moved")
"""Reasons of a message that never reached the engine; "moved" was asked in another chat instead."""
GONE = "This chat is gone: it was deleted, perhaps in another window. Start a new one."

MIGRATIONS: tuple[Sequence[str], ...] = (
    (
        "CREATE TABLE chats (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL,"
        " created REAL NOT NULL, updated REAL NOT NULL)",
        "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " chat_id INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,"
        " role TEXT NOT NULL, content TEXT NOT NULL, created REAL NOT NULL,"
        " reason TEXT, stats TEXT)",
        "CREATE INDEX chats_updated ON chats (updated DESC)",
        "CREATE INDEX messages_chat ON messages (chat_id, id)",
    ),
    (
        "ALTER TABLE chats ADD COLUMN settings TEXT",
        "ALTER TABLE chats ADD COLUMN deleted REAL",
        "CREATE TABLE prompts (name TEXT PRIMARY KEY COLLATE NOCASE, content TEXT NOT NULL)",
        # A list of messages becomes a tree: see app/store_tree.py.
        "ALTER TABLE messages ADD COLUMN parent INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE messages ADD COLUMN chosen INTEGER NOT NULL DEFAULT 1",
        "CREATE INDEX messages_parent ON messages (chat_id, parent)",
        f"UPDATE messages SET chosen = 0 WHERE reason IN {NOT_SENT}",
        # Answers in a row were tries at one question: they become its versions.
        "UPDATE messages SET parent = coalesce((SELECT max(p.id) FROM messages p"
        " WHERE p.chat_id = messages.chat_id AND p.id < messages.id AND p.role <> 'assistant'"
        " AND p.chosen), 0) WHERE role = 'assistant'",
        # Chosen is the one that the engine was shown: the latest that has text, else the latest.
        "UPDATE messages SET chosen = 0 WHERE role = 'assistant' AND EXISTS (SELECT 1"
        " FROM messages s WHERE s.chat_id = messages.chat_id AND s.parent = messages.parent"
        " AND s.role = 'assistant' AND (trim(s.content, char(9, 10, 13, 32)) <> '', s.id)"
        " > (trim(messages.content, char(9, 10, 13, 32)) <> '', messages.id))",
        "UPDATE messages SET parent = coalesce((SELECT max(p.id) FROM messages p"
        " WHERE p.chat_id = messages.chat_id AND p.id < messages.id AND p.chosen), 0)"
        " WHERE role <> 'assistant'",
        "CREATE UNIQUE INDEX messages_chosen ON messages (chat_id, parent) WHERE chosen",
    ),
)
"""Entry i takes a file from schema i to i + 1. Entries are never changed, only added."""

SCHEMA = len(MIGRATIONS)

_KEPT_IN_MEMORY = "Chats of this session are kept in memory only and end with it."

_CHECKS = (
    "SELECT id, title, created, updated, settings, deleted FROM chats LIMIT 0",
    "SELECT id, chat_id, role, content, created, reason, stats, parent, chosen FROM messages"
    " LIMIT 0",
    "SELECT name, content FROM prompts LIMIT 0",
)


class StoreError(Exception):
    """The chats cannot be read or written; the message is a sentence for the user."""


class _DamagedError(Exception):
    """The file is no store of ours, or no longer one."""


class _NewerError(Exception):
    """The file was written by a newer version."""


def memory() -> sqlite3.Connection:
    """An empty store without a file."""
    connection = _connect(":memory:")
    _migrate(connection)
    return connection


def open_or_explain(path: Path) -> tuple[sqlite3.Connection, str | None, bool]:
    """A connection to `path`, what to tell the user, and whether writing reaches the file."""
    notice = None
    for _ in range(3):
        before = _identity(path)
        try:
            return _open_file(path), notice, True
        except _DamagedError as error:
            if _identity(path) != before:
                continue  # another process has just set the damaged file aside
            aside = _set_aside(path)
            if aside is None:
                return _unusable(path, f"{path} is damaged ({error}) and cannot be renamed")
            notice = (
                f"The chats file was damaged ({error}); it is kept as {aside} and a new one was "
                "started."
            )
        except _NewerError as error:
            why = f"{path} was written by a newer orl-chat ({error}); update orl-chat to use it"
            return memory(), f"{why}. {_KEPT_IN_MEMORY}", False
        except (sqlite3.Error, OSError) as error:
            return _unusable(path, f"{path} cannot be written ({error})")
    return _unusable(path, f"{path} is damaged again as soon as it is made; check the disk")


def copy_to_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """What `connection` holds as a store without a file; empty when it cannot be read."""
    copy = _connect(":memory:")
    try:
        connection.backup(copy)
        _migrate(copy)
        for check in _CHECKS:
            copy.execute(check)
    except (sqlite3.Error, _DamagedError, _NewerError):
        copy.close()
        return memory()
    return copy


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process merely holds the file."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _unusable(path: Path, why: str) -> tuple[sqlite3.Connection, str, bool]:
    return _read_only_copy(path), f"{why}. {_KEPT_IN_MEMORY}", False


def _open_file(path: Path) -> sqlite3.Connection:
    if not ensure(path.parent):
        raise PermissionError(f"the folder {path.parent} cannot be written")
    connection = _connect(str(path))
    try:
        _check_version(connection)
        _check_damage(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
        _check_tables(connection)
        _check_writable(connection)
    except BaseException as error:
        connection.close()
        if _is_damage(error):
            raise _DamagedError(str(error)) from error
        raise
    return connection


def _connect(name: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.create_function("casefold", 1, _casefold, deterministic=True)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _casefold(value: object) -> str:
    return value.casefold() if isinstance(value, str) else ""


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _check_version(connection: sqlite3.Connection) -> None:
    version = _version(connection)
    if version > SCHEMA:
        raise _NewerError(f"schema {version}, this version knows {SCHEMA}")


def _check_damage(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise _DamagedError(" ".join(found.split()))


def _check_tables(connection: sqlite3.Connection) -> None:
    try:
        for check in _CHECKS:
            connection.execute(check)
    except sqlite3.OperationalError as error:
        raise _DamagedError(str(error)) from error


def _check_writable(connection: sqlite3.Connection) -> None:
    """A transaction that changes nothing but has to reach the file."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to SCHEMA in one transaction; a second process waits and finds it done."""
    if _version(connection) == SCHEMA:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        _check_version(connection)
        for statements in MIGRATIONS[_version(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if "already exists" in str(error):
            raise _DamagedError(f"it is not a chats file: {error}") from error
        raise


def _is_damage(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _set_aside(path: Path) -> Path | None:
    """Rename the file and its companions; None when that is impossible."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        suffix = f"-{number}" if number else ""
        aside = path.with_name(f"{path.stem}.damaged-{stamp}{suffix}{path.suffix}")
        if not aside.exists():
            break
    try:
        path.rename(aside)
        for end in ("-wal", "-shm", "-journal"):
            companion = path.with_name(path.name + end)
            if companion.exists():
                companion.rename(aside.with_name(aside.name + end))
    except OSError:
        return None
    return aside


def _read_only_copy(path: Path) -> sqlite3.Connection:
    """The file's chats in memory where they can be read at all, else none."""
    if not os.access(path, os.R_OK):
        return memory()
    for mode in ("mode=ro", "immutable=1"):
        try:
            source = _connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True)
        except sqlite3.Error:
            continue
        try:
            _check_damage(source)
            return copy_to_memory(source)
        except (sqlite3.Error, _DamagedError):
            continue
        finally:
            source.close()
    return memory()
