"""How far a command is, as JSON lines ahead of its result, for whoever runs it as a child process.

With `--progress` a command prints objects of the kind "progress" to stdout; its result, the one
object that `--json` prints, stays the last line.
"""

import json
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

SECONDS = 0.1
"""Between two lines of the same stage; a stage's first and last are always told."""


@dataclass
class Steps:
    """Tells, where it is `wanted`."""

    wanted: bool
    _stream: TextIO = field(default_factory=lambda: sys.stdout, init=False)
    _stage: str = field(default="", init=False)
    _told: float = field(default=0.0, init=False)

    def tell(self, stage: str, done: int = 0, total: int = 0) -> None:
        """`done` of `total` of a stage; 0 of 0 where that is not known."""
        if not self.wanted:
            return
        now = time.monotonic()
        if stage != self._stage or done == total or now - self._told > SECONDS:
            self._stage, self._told = stage, now
            row = {"kind": "progress", "stage": stage, "done": done, "total": total}
            print(json.dumps(row), file=self._stream, flush=True)
