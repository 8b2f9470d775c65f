"""How far a download is: bytes that never get fewer, a speed that tells when nothing comes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.hub.messages import Progress, State
from app.hub.plan import PlannedFile

WINDOW = 10.0
"""Seconds that a speed is the mean of."""
QUIET = 2.0
"""Seconds without a byte after which a download counts as stalled."""
BUCKET = 0.25


class Meter:
    """Bytes a second over the last WINDOW seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: float | None = None
        self._buckets: deque[tuple[float, int]] = deque()

    def begin(self) -> None:
        """Bytes are asked for from now on; what was before says nothing about the speed."""
        self._begun = self._clock()
        self._buckets.clear()

    def add(self, count: int) -> None:
        """`count` bytes came."""
        now = self._clock()
        if self._buckets and now - self._buckets[-1][0] < BUCKET:
            start, sum_ = self._buckets[-1]
            self._buckets[-1] = (start, sum_ + count)
        else:
            self._buckets.append((now, count))

    def speed(self) -> float:
        """The mean; 0 when nothing came."""
        if self._begun is None:
            return 0.0
        now = self._clock()
        while self._buckets and self._buckets[0][0] < now - WINDOW:
            self._buckets.popleft()
        seconds = min(WINDOW, max(now - self._begun, BUCKET))
        return sum(count for _, count in self._buckets) / seconds


@dataclass
class _Row:
    """A file's figures: bytes on the disk, bytes ever shown, bytes hashed (and ever shown so)."""

    size: int
    meter: Meter
    have: int = 0
    shown: int = 0
    checked: int = 0
    state: State = "waiting"


class Tally:
    """All files of a download. Every method may be called from any thread."""

    def __init__(
        self, files: Iterable[PlannedFile], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows = {file.path: _Row(file.size, Meter(clock)) for file in files}
        self._total = sum(row.size for row in self._rows.values())
        self._meter = Meter(clock)
        self._begun = self._last_byte = clock()
        self.fetched = 0
        self.reconnects = 0

    def have(self, path: str, size: int) -> None:
        """`size` bytes of a file are on the disk; fewer than before when some were bad."""
        with self._lock:
            row = self._rows[path]
            row.have = size
            row.shown = max(row.shown, min(size, row.size))

    def arrived(self, path: str, count: int) -> None:
        """`count` more bytes came over the network."""
        with self._lock:
            row = self._rows[path]
            row.have += count
            row.shown = max(row.shown, min(row.have, row.size))
            row.meter.add(count)
            self._meter.add(count)
            self.fetched += count
            self._last_byte = self._clock()

    def checked(self, path: str, count: int) -> None:
        """`count` bytes of a file were hashed so far."""
        with self._lock:
            row = self._rows[path]
            row.checked = max(row.checked, min(count, row.size))

    def turn(self, path: str, state: State) -> tuple[int, int]:
        """A file enters `state`; its bytes done and its size."""
        with self._lock:
            row = self._rows[path]
            if state == "fetching" and row.state != state:
                row.meter.begin()
                if not self._fetching():
                    self._begin()
            if state == "checked":
                row.shown = row.checked = row.have = row.size
            row.state = state
            return row.shown, row.size

    def reconnect(self) -> None:
        """A connection had to be made again."""
        with self._lock:
            self.reconnects += 1

    def restart(self) -> None:
        """After a pause: its time says nothing about the speed."""
        with self._lock:
            self._begin()

    @property
    def done(self) -> int:
        """Bytes to show as done, of all files."""
        with self._lock:
            return self._done()

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return self._total

    @property
    def kept(self) -> int:
        """Bytes that are really on the disk."""
        with self._lock:
            return sum(min(row.have, row.size) for row in self._rows.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begun

    def snapshot(self) -> Progress:
        """Everything as a message."""
        with self._lock:
            speed, stalled = self._pace()
            have = sum(min(row.have, row.size) for row in self._rows.values())
            left = (self._total - have) / speed if speed > 0 else None
            return Progress(
                done=self._done(),
                checked=sum(row.checked for row in self._rows.values()),
                total=self._total,
                speed=round(speed, 1),
                stalled=round(stalled, 1),
                left=0.0 if have >= self._total else left and round(left, 1),
                elapsed=round(self._clock() - self._begun, 1),
                reconnects=self.reconnects,
                files=[
                    {
                        "path": path,
                        "state": row.state,
                        "done": row.shown,
                        "checked": row.checked,
                        "speed": round(row.meter.speed(), 1) if row.state == "fetching" else 0.0,
                    }
                    for path, row in self._rows.items()
                    if row.state not in ("waiting", "checked")
                ],
            )

    def _pace(self) -> tuple[float, float]:
        """Speed, and seconds of silence where bytes should come."""
        if not self._fetching():
            return 0.0, 0.0
        silence = self._clock() - self._last_byte
        return (0.0, silence) if silence >= QUIET else (self._meter.speed(), 0.0)

    def _fetching(self) -> bool:
        return any(row.state in ("fetching", "retrying") for row in self._rows.values())

    def _begin(self) -> None:
        self._meter.begin()
        self._last_byte = self._clock()

    def _done(self) -> int:
        return sum(row.shown for row in self._rows.values())
