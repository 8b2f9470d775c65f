"""Messages on their way out of the engine process: written by a thread, so that a terminal that
reads slowly never delays the engine, and step messages sampled on the way.

Of the steps given to `sample`, at most RATE a second are sent and the newest wins; a message given
to `put` (a block, say) replaces the step that waits before it. An answer's `last` message brings
its newest step with it, so that the picture that stays is the final one. Only sent steps are built.
No step is lost for that: all come with their final block, as what they changed (`app/steps.py`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from app.protocol import EngineMessage, Step, encode

RATE = 15.0
"""Step messages a second."""


class Outbox:
    """A queue with a writer thread. `on_broken` is called there when nobody reads any more."""

    def __init__(self, file: BinaryIO, on_broken: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._queue: deque[EngineMessage | Callable[[], EngineMessage]] = deque()
        self._step: Callable[[], Step] | None = None
        self._newest: Callable[[], Step] | None = None  # of the answer, while it is not sent
        self._step_due = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: EngineMessage | Callable[[], EngineMessage]) -> None:
        """Send in order; a step that still waits to be sampled is superseded."""
        with self._changed:
            self._step = None
            self._queue.append(message)
            self._changed.notify()

    def aside(self, message: EngineMessage) -> None:
        """As `put`, for what is no part of an answer: a step that waits goes on waiting."""
        with self._changed:
            self._queue.append(message)
            self._changed.notify()

    def last(self, message: EngineMessage) -> None:
        """As `put`, at an answer's end: its newest step goes first, if it was not sent."""
        with self._changed:
            if self._newest is not None:
                self._queue.append(self._newest)
            self._step = self._newest = None
            self._queue.append(message)
            self._changed.notify()

    def sample(self, step: Callable[[], Step]) -> None:
        """Send this step when its turn comes, unless a newer message does first."""
        with self._changed:
            if self._step is None:
                self._changed.notify()
            self._step = self._newest = step

    def close(self, timeout: float) -> None:
        """Write what is queued, for at most `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._file.write(encode(item() if callable(item) else item))
                self._file.flush()
            except (OSError, ValueError):
                self._on_broken()
                return

    def _next(self) -> EngineMessage | Callable[[], EngineMessage] | None:
        """The next thing to write, None at the end; waits."""
        with self._changed:
            while True:
                if self._queue:
                    return self._queue.popleft()
                if self._closing:
                    return None
                wait = None if self._step is None else self._step_due - time.monotonic()
                if wait is not None and wait <= 0:
                    step, self._step, self._newest = self._step, None, None
                    self._step_due = time.monotonic() + 1 / RATE
                    return step
                self._changed.wait(wait)
