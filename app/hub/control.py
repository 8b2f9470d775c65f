"""What the reader of requests tells the threads that fetch: pause, go on, end."""

import threading
import time


class Interrupted(Exception):
    """Somebody paused; let go of the connection, then `Control.wait`."""


class Stopped(Exception):
    """The download ends, because it was cancelled or another file failed."""


class Control:
    """Shared by all threads of a download; every wait in it ends at once when it is stopped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paused = False
        self._stopped = False
        self._cancelled = False
        self._pauses = 0

    @property
    def paused(self) -> bool:
        """Whether a pause holds."""
        return self._paused

    @property
    def stopped(self) -> bool:
        """Whether threads are to end."""
        return self._stopped

    def pause(self) -> bool:
        """Let threads stop asking for bytes; False when a pause holds already."""
        return self._set_paused(True)

    def resume(self) -> bool:
        """End a pause; False when there is none."""
        return self._set_paused(False)

    def stop(self) -> None:
        """Let every thread raise `Stopped` at its next look; one of them failed."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """As `stop`, and for good."""
        self._cancelled = True
        self.stop()

    def start_again(self) -> bool:
        """After a stop, when all threads ended; False when it was a cancel."""
        with self._changed:
            self._stopped = self._cancelled
        return not self._stopped

    def check(self) -> None:
        """Between two pieces of work that holds a connection. Raises Interrupted, Stopped."""
        if self._stopped:
            raise Stopped
        if self._paused:
            raise Interrupted

    def wait(self) -> None:
        """Stay here while a pause holds. Raises Stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._paused)
        if self._stopped:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait before a retry; a pause ends the wait too. Raises Stopped."""
        end = time.monotonic() + seconds
        with self._changed:
            pauses = self._pauses  # one that is over before this thread woke counts as well
            while not (self._stopped or self._paused or self._pauses != pauses):
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
        self.wait()

    def _set_paused(self, paused: bool) -> bool:
        with self._changed:
            changed = self._paused != paused
            self._paused = paused
            self._pauses += paused and changed
            self._changed.notify_all()
        return changed
