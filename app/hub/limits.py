"""How patient, how careful and how parallel a download is."""

from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True)
class Limits:
    """Times in seconds, sizes in bytes.

    Attributes:
        workers: files that are fetched at once; one connection seldom fills a fast line.
        connect: how long a connection may take to be made.
        stall: without a byte for so long, a connection is given up and made again.
        patience: without a byte for so long, over all retries, the download fails.
        plan_patience: the same before the first byte, where somebody waits for an answer.
        first_wait, longest_wait: before the first retry, doubled with each, up to the longest.
        longest_order: longest time to wait that a server can ask for with Retry-After.
        damaged: how often a file may arrive with the wrong hash.
        margin: what stays free on the disk.
        rate: progress messages a second.
    """

    workers: float = 3
    connect: float = 10.0
    stall: float = 20.0
    patience: float = 15 * 60.0
    plan_patience: float = 8.0
    first_wait: float = 1.0
    longest_wait: float = 60.0
    longest_order: float = 10 * 60.0
    damaged: float = 3
    margin: float = 64 << 20
    rate: float = 4.0

    @classmethod
    def of(cls, changes: dict[str, float]) -> Self:
        """The defaults with `changes`. Raises ValueError for an unknown name or a number < 0."""
        names = {f.name for f in fields(cls)}
        for name, value in changes.items():
            if name not in names:
                raise ValueError(f"there is no limit {name!r}")
            if not value >= 0:
                raise ValueError(f"the limit {name} must be at least 0, got {value}")
        return replace(cls(), **changes)

    def wait(self, attempt: int) -> float:
        """Before the retry number `attempt`, counted from 1."""
        return min(self.first_wait * 2.0 ** min(attempt - 1, 30), self.longest_wait)
