"""One file of a download from "waiting" to "checked": found or fetched, then read and hashed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from app.hub.cache import RepoCache, free_bytes
from app.hub.checking import is_good
from app.hub.control import Control
from app.hub.faults import Asked, Failure, FailureError, no_space
from app.hub.limits import Limits
from app.hub.messages import Event, FileState, Notice, Retry, State
from app.hub.plan import Plan, PlannedFile
from app.hub.progress import Tally
from app.hub.retrying import Retrying
from app.hub.text import size_text
from app.hub.transfer import Transfer

log = logging.getLogger(__name__)

LOCK_SECONDS = 0.5
"""Between two looks at whether another program let go of a file."""


@dataclass(frozen=True)
class Workshop:
    """What the files of one download share. `emit` may be called from any thread."""

    plan: Plan
    cache: RepoCache
    tally: Tally
    asked: Asked
    headers: dict[str, str] = field(repr=False)
    limits: Limits
    control: Control
    emit: Callable[[Event], None]
    free: Callable[[Path], int] = free_bytes

    def url(self, file: PlannedFile) -> str:
        """Where the hub gives `file` away, at the planned commit."""
        name = quote(file.path)
        return f"{self.asked.endpoint}/{self.plan.repo}/resolve/{self.plan.commit}/{name}"

    def turn(self, file: PlannedFile, state: State) -> None:
        """`file` enters `state`, and everybody is told."""
        done, size = self.tally.turn(file.path, state)
        self.emit(FileState(file.path, state, done, size))

    def need(self, files: list[PlannedFile]) -> int:
        """Bytes that the disk must still take for `files`, without the margin."""
        return sum(max(file.size - self.cache.part_size(file), 0) for file in files)

    def require_space(self, files: list[PlannedFile]) -> None:
        """Raises FailureError ("disk_full") when the remaining bytes of `files` do not fit."""
        need = self.need(files)
        free = self.free(self.cache.folder)
        if need and need + self.limits.margin > free:
            raise FailureError(no_space(str(self.cache.root), need + int(self.limits.margin), free))


class FileJob:
    """Brings one file to "checked". `on_damaged` is called when what the cache holds is not."""

    def __init__(
        self, shop: Workshop, file: PlannedFile, on_damaged: Callable[[], None] = lambda: None
    ) -> None:
        self.shop = shop
        self.file = file
        self.on_damaged = on_damaged
        self._have = self._peak = 0
        self._state: State = "waiting"

    def run(self, *, trusted: bool) -> Path:
        """Where the file stands, good. `trusted`: what is in the cache was checked before.

        Raises:
            FailureError: it cannot be had.
            Stopped: as the control says.
            OSError: the disk.
        """
        place = self.shop.cache.find(self.file, self.shop.plan.commit)
        if place is not None:
            if trusted or self._check(place):
                return self._good(place)
            self.on_damaged()
            self._tell(f"{self.file.path} in the cache is damaged and is fetched again")
        return self._good(self._fetch_under_lock())

    def _fetch_under_lock(self) -> Path:
        cache, told = self.shop.cache, False
        cache.prepare()
        while True:
            with cache.lock(self.file) as mine:
                if mine:
                    return self._theirs(told) or self._fetch_good()
            if not told:
                self._tell(f"{self.file.path} is being fetched by another program; waiting for it")
                told = True
            self.shop.control.sleep(LOCK_SECONDS)

    def _theirs(self, waited: bool) -> Path | None:
        """What another program left where we waited for it, if it is good."""
        place = self.shop.cache.find(self.file, self.shop.plan.commit) if waited else None
        return place if place is not None and self._check(place) else None

    def _fetch_good(self) -> Path:
        cache = self.shop.cache
        for _ in range(max(int(self.shop.limits.damaged), 1)):
            self.shop.require_space([self.file])
            self._fetch()
            if self._check(cache.part(self.file)):
                return cache.keep(self.file)
            cache.part(self.file).unlink()
            self._sized(0, "its hash is not the one that the hub names; it is fetched again")
        raise FailureError(_damaged(self.file, int(self.shop.limits.damaged)))

    def _fetch(self) -> None:
        shop = self.shop
        self._have = self._peak = shop.cache.part_size(self.file)
        shop.tally.have(self.file.path, self._have)
        transfer = Transfer(
            self.file,
            shop.cache.part(self.file),
            url=shop.url(self.file),
            headers=shop.headers,
            limits=shop.limits,
            control=shop.control,
            on_bytes=self._arrived,
            on_size=self._sized,
        )
        Retrying(
            shop.asked,
            shop.limits,
            shop.control,
            shop.limits.patience,
            self._on_retry,
            lambda: self._peak,
        ).run(lambda: self._connect(transfer))

    def _connect(self, transfer: Transfer) -> None:
        self._turn("fetching")
        transfer.run()

    def _arrived(self, count: int) -> None:
        self._have += count
        self._peak = max(self._peak, self._have)
        if self._state == "retrying":
            self._turn("fetching")
        self.shop.tally.arrived(self.file.path, count)

    def _sized(self, size: int, why: str) -> None:
        """The part has another size now, because what it held was thrown away."""
        thrown = self._have - size
        self._have = size
        self.shop.tally.have(self.file.path, size)
        self._tell(f"{self.file.path}: {size_text(thrown)} were thrown away: {why}")

    def _on_retry(self, failure: Failure, wait: float, attempt: int) -> None:
        self.shop.tally.reconnect()
        self._turn("retrying")
        self.shop.emit(Retry(failure.message, wait, attempt, self.file.path))

    def _check(self, place: Path) -> bool:
        self._turn("checking")

        def on_bytes(done: int) -> None:
            self.shop.control.wait()
            self.shop.tally.checked(self.file.path, done)

        return is_good(place, self.file, on_bytes)

    def _good(self, place: Path) -> Path:
        self._turn("checked")
        return place

    def _turn(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self.shop.turn(self.file, state)

    def _tell(self, text: str) -> None:
        log.info("%s", text)
        self.shop.emit(Notice(text + ".", self.file.path))


def _damaged(file: PlannedFile, times: int) -> Failure:
    kind = "sha256" if file.sha256 else "hash"
    return Failure(
        "damaged",
        f"{file.path} arrived damaged {times} times: its {kind} is not the one the hub names.",
        "Try again later or over another network (a proxy may change files); the rest is kept.",
    )
