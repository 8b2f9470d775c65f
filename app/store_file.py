"""One connection to the store's file, shared between threads: reading, and writing that is whole.

A change runs in one transaction. A disk that fails moves the session into memory, once, with a
notice; a file that another window holds is an error that may be tried again.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from app import store_schema, store_search
from app.store_schema import StoreError

UNDO_SECONDS = 3600.0
"""How long a deleted chat can be brought back; the next start after that removes it for good."""

Result = TypeVar("Result")


class StoreFile:
    """What every part of the store reads and writes through.

    Attributes:
        notice: a sentence for the user about a file that could not be used as it is, or None.
        writable: whether what is written reaches the file.
    """

    def __init__(
        self, connection: sqlite3.Connection, notice: str | None = None, *, writable: bool = True
    ) -> None:
        self.notice = notice
        self.writable = writable
        self._connection = connection
        self._lock = threading.RLock()
        self._indexed = store_search.build(connection)

    @classmethod
    def open(cls, path: Path | None) -> Self:
        """The store at `path`, or one in memory for None. Never raises for a bad file: see the
        module, and `notice`."""
        if path is None:
            return cls(store_schema.memory())
        connection, notice, writable = store_schema.open_or_explain(path)
        store = cls(connection, notice, writable=writable)
        if writable:
            store._purge(time.time() - UNDO_SECONDS)
        return store

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with self._lock:
            self._connection.close()

    def chat_ids(self) -> set[int]:
        """Every chat in the file, those that can still be brought back among them."""
        return {id for (id,) in self._read("SELECT id FROM chats")}

    def _purge(self, before: float) -> None:
        """Remove chats that were deleted before that Unix time; what cannot be removed now waits
        for the next start."""

        def change(c: sqlite3.Connection) -> None:
            if c.execute("DELETE FROM chats WHERE deleted < ?", (before,)).rowcount:
                store_search.forget(c)

        with self._lock, contextlib.suppress(sqlite3.Error):
            _transaction(self._connection, change)

    def _read(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._reading(lambda c: c.execute(sql, values).fetchall())

    def _reading(self, look: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._lock:
            try:
                return look(self._connection)
            except sqlite3.Error as error:
                raise StoreError(f"The chats cannot be read: {error}.") from error

    def _write(self, change: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `change` in one transaction; a disk that fails moves the session into memory."""
        with self._lock:
            try:
                return _transaction(self._connection, change)
            except sqlite3.Error as error:
                if self._indexed and store_search.at_fault(error):
                    self._indexed = False
                    with contextlib.suppress(sqlite3.Error):
                        _transaction(self._connection, store_search.leave)
                else:
                    self._meet(error)
            return self._write(change)

    def _meet(self, error: sqlite3.Error) -> None:
        """Make writing possible again, or say why it is not."""
        if store_schema.is_busy(error):
            raise StoreError(
                "Another window is writing the chats; try again in a moment."
            ) from error
        if not isinstance(error, sqlite3.OperationalError):
            raise StoreError(f"The chats cannot be saved: {error}.") from error
        self._move_to_memory(error)

    def _move_to_memory(self, error: sqlite3.Error) -> None:
        if not self.writable:
            raise StoreError(f"The chats cannot be kept in memory either: {error}.") from error
        copy = store_schema.copy_to_memory(self._connection)
        self._connection.close()
        self._connection, self.writable = copy, False
        self._indexed = store_search.build(copy)
        self.notice = (
            f"Chats are no longer saved ({error}); free some disk space and start orl-chat again. "
            "Until then this session is kept in memory only."
        )


def _transaction(
    connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], Result]
) -> Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = change(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result
