"""Where the denoising loop's time goes, on a device that ends each operation before it returns."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Part = Literal["model", "pick", "commit"]


@dataclass
class LoopTimes:
    """Seconds of an answer's model calls, of its decisions, and of calls that only store a block.

    A fused forward counts as a model call. What is left of the decode time is the host's.
    """

    model: float = 0.0
    pick: float = 0.0
    commit: float = 0.0

    @contextmanager
    def measure(self, part: Part) -> Iterator[None]:
        """Add the time of the body to `part`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, part, getattr(self, part) + time.perf_counter() - begin)
