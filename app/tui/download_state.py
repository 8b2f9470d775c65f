"""A download as the window knows it: its events in, what is to be drawn out. Nothing waits here.

Bytes done never get fewer, not even over attempts: what a new process finds damaged and fetches
again lets the bar wait, and a line says why.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from app.hub.messages import (
    Cancelled,
    Event,
    FileState,
    Notice,
    Paused,
    Planned,
    Progress,
    Ready,
    Resumed,
    Retry,
    State,
)
from app.hub.text import size_text, time_text
from app.protocol import Error

LINES = 200
"""Lines of the log that are kept."""


class Stage(StrEnum):
    """Where a download stands."""

    ASKING = "asking"
    FETCHING = "fetching"
    PAUSED = "paused"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class FileRow:
    """A file: bytes done (never fewer than before) of `size`, checked ones, bytes a second."""

    path: str
    size: int
    state: State = "waiting"
    done: int = 0
    checked: int = 0
    speed: float = 0.0


@dataclass
class DownloadState:
    """One repository's download, over all attempts of this window."""

    repo: str
    stage: Stage = Stage.ASKING
    plan: Planned | None = None
    rows: dict[str, FileRow] = field(default_factory=dict)
    done: int = 0
    now: Progress | None = None
    ready: Ready | None = None
    error: Error | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))

    @property
    def running(self) -> bool:
        """Whether a process works on it, or would but for a pause."""
        return self.stage in (Stage.ASKING, Stage.FETCHING, Stage.PAUSED)

    @property
    def total(self) -> int:
        """Bytes of all files; 0 before the plan."""
        return self.plan.total if self.plan is not None else 0

    @property
    def percent(self) -> int:
        """Of the bytes; 100 only when every file was checked."""
        if self.stage is Stage.READY:
            return 100
        return min(99, 100 * self.done // self.total) if self.total else 0

    @property
    def checking(self) -> list[FileRow]:
        """Files that are being read and hashed."""
        return [row for row in self.rows.values() if row.state == "checking"]

    def begin(self) -> None:
        """Another attempt."""
        self.stage, self.error, self.ready, self.now = Stage.ASKING, None, None, None

    def take(self, event: Event) -> None:
        """An event of the process."""
        match event:
            case Planned():
                self._plan(event)
            case Progress():
                self._progress(event)
            case FileState():
                self._file(event)
            case Notice():
                self.lines.append(event.text)
            case Retry():
                name = f"{event.path}: " if event.path else ""
                wait = time_text(max(event.wait, 1))
                self.lines.append(f"{name}{event.reason} Trying again in {wait}.")
            case Paused():
                self.stage = Stage.PAUSED
            case Resumed():
                self.stage = Stage.FETCHING if self.plan is not None else Stage.ASKING
            case Cancelled() | Ready() | Error():
                self._end(event)

    def _plan(self, plan: Planned) -> None:
        old = self.rows if self.plan is not None and self.plan.commit == plan.commit else {}
        self.done = max(self.done, plan.kept) if old else plan.kept
        self.rows = {}
        for row in plan.files:
            path, kept = row["path"], row["kept"]
            done = max(kept, old[path].done) if path in old else kept
            self.rows[path] = FileRow(path, row["size"], row["state"], done)
        self.plan = plan
        if self.stage is Stage.ASKING:
            self.stage = Stage.FETCHING

    def _progress(self, now: Progress) -> None:
        self.now = now
        self.done = max(self.done, now.done)
        for row in now.files:
            known = self.rows.get(row["path"])
            if known is not None:
                known.state, known.speed = row["state"], row["speed"]
                known.done = max(known.done, row["done"])
                known.checked = max(known.checked, row["checked"])

    def _file(self, event: FileState) -> None:
        row = self.rows.get(event.path)
        if row is None:
            return
        row.state, row.done = event.state, max(row.done, event.done)
        if event.state == "checked":
            row.speed, row.checked = 0.0, row.size
        self.done = max(self.done, sum(row.done for row in self.rows.values()))

    def _end(self, event: Cancelled | Ready | Error) -> None:
        self.now = None
        match event:
            case Ready():
                self.stage, self.ready, self.done = Stage.READY, event, event.total
                for row in self.rows.values():
                    row.state, row.done, row.speed = "checked", row.size, 0.0
            case Cancelled():
                self.stage = Stage.CANCELLED
                self._rest()
                kept = f"{size_text(event.kept)} of {size_text(event.total)} are kept."
                self.lines.append(f"Cancelled. {kept if event.total else 'Nothing was fetched.'}")
            case Error():
                self.stage, self.error = Stage.FAILED, event
                self._rest()

    def _rest(self) -> None:
        """Nothing happens to any file now."""
        for row in self.rows.values():
            if row.state != "checked":
                row.state, row.speed = "waiting", 0.0
