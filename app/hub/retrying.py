"""Again and again while it helps: after longer and longer waits, without end while bytes come."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from app.hub.control import Control, Interrupted, Stopped
from app.hub.faults import Asked, Failure, FailureError, classify
from app.hub.limits import Limits
from app.hub.secret import scrub

log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Retrying:
    """How one thing is tried.

    Attributes:
        on_retry: told the reason, the seconds until the next try and its number.
        moved: grows when something came that was not there before; that starts the patience anew.
        patience: seconds without anything coming after which a passing failure is final; one more
            try there is always.
    """

    asked: Asked
    limits: Limits
    control: Control
    patience: float
    on_retry: Callable[[Failure, float, int], None]
    moved: Callable[[], int] = lambda: 0
    clock: Callable[[], float] = time.monotonic

    def run(self, action: Callable[[], Result]) -> Result:
        """What `action` returns in the end.

        Raises:
            FailureError: it cannot work, or nothing came for too long.
            Stopped: as `control` says.
        """
        attempt, seen, since = 0, self.moved(), self.clock()
        while True:
            try:
                self.control.wait()
                return action()
            except Interrupted:
                attempt, since = 0, self.clock()
                continue
            except Stopped:
                raise
            except Exception as error:
                failure = self._explain(error)
            if self.moved() != seen:
                attempt, seen, since = 0, self.moved(), self.clock()
            attempt += 1
            asked = min(failure.wait or 0.0, self.limits.longest_order)
            wait = max(self.limits.wait(attempt), asked)
            enough = attempt > 1 and self.clock() + wait - since > self.patience + asked
            if enough or not failure.passing:
                raise FailureError(replace(failure, passing=False))
            self.on_retry(failure, wait, attempt)
            self.control.sleep(wait)

    def _explain(self, error: Exception) -> Failure:
        failure = classify(error, self.asked)
        level = logging.ERROR if failure.kind == "internal" else logging.INFO
        log.log(level, "%s", scrub(str(error)), exc_info=failure.kind == "internal")
        return failure
