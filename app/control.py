"""What the reader thread tells the engine loop while that loop is busy: stop, pace, quit."""

import queue
import threading
import time

from app.protocol import Chat, LoadModel, SetAdapter, Unload

Work = LoadModel | Unload | Chat | SetAdapter
"""Requests that are done one after the other."""


class Control:
    """Shared by the two threads; every wait in it ends at once when something changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._open: dict[str, bool] = {}  # chat id -> was it stopped
        self._pace = 0.0
        self._quitting = False

    @property
    def pace(self) -> float:
        """Seconds to wait before each forward; 0 is full speed."""
        return self._pace

    # reader thread

    def add(self, work: Work) -> bool:
        """Queue a request; False for a chat whose id is already open."""
        with self._changed:
            if isinstance(work, Chat):
                if work.id in self._open:
                    return False
                self._open[work.id] = False
        self._work.put(work)
        return True

    def stop(self, id: str) -> None:
        """Stop a chat that is queued or being answered; any other id is too late and ignored."""
        with self._changed:
            if id in self._open:
                self._open[id] = True
                self._changed.notify_all()

    def set_pace(self, seconds: float) -> None:
        """Change the pace, also of a wait that has begun."""
        with self._changed:
            self._pace = seconds
            self._changed.notify_all()

    def quit(self) -> None:
        """End the engine loop at its next look."""
        with self._changed:
            self._quitting = True
            self._changed.notify_all()
        self._work.put(None)

    # engine loop

    def next_work(self) -> Work | None:
        """The next request, None when it is time to quit; waits."""
        work = self._work.get()
        return None if self._quitting else work

    def close(self, id: str) -> None:
        """A chat has ended; its id may be used again."""
        with self._changed:
            self._open.pop(id, None)

    def is_stopped(self, id: str) -> bool:
        """Whether the chat should end now."""
        return self._quitting or self._open.get(id, True)

    def wait(self, id: str, seconds: float | None = None) -> bool:
        """Wait for `seconds` (None: the pace) or until stopped; True when stopped."""
        start = time.monotonic()
        with self._changed:
            while not self.is_stopped(id):
                length = self._pace if seconds is None else seconds
                left = start + length - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self.is_stopped(id)
