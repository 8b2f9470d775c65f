"""How long a run's updates take, part by part, and how long the rest of it will. No screen here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from app.run_watch import Event, RunWatch
from app.tui.figures import number

RECENT = 10
"""Updates over which a pace is averaged."""


@dataclass(frozen=True)
class Pace:
    """Seconds of an update, means over the recent ones. `verify` is the verifiers' part of
    `rollout`, None in runs that did not time it; `check` is what the last check on held-out
    prompts took, and there is one every `check_every` updates (0: none)."""

    rollout: float
    verify: float | None
    learn: float
    check: float = 0.0
    check_every: int = 0

    @classmethod
    def of(cls, watch: RunWatch) -> Self | None:
        """That of a run; None before its first update."""
        updates, checks = watch.of("update")[-RECENT:], watch.of("check")
        if not updates:
            return None
        names = ("rollout_seconds", "verify_seconds", "learn_seconds")
        rollout, verify, learn = (summed(updates, name) / len(updates) for name in names)
        timed = all(number(update, "verify_seconds") is not None for update in updates)
        check = number(checks[-1], "seconds") if checks else None
        every = watch.info.config.check_every if watch.info is not None else 0
        return cls(rollout, verify if timed else None, learn, check or 0.0, every)

    @property
    def update(self) -> float:
        return self.rollout + self.learn

    def left(self, done: int, updates: int) -> float:
        """Seconds from update `done` to the last, checks included; the last has one, too."""
        if done >= updates:
            return 0.0
        checks = 0
        if self.check_every:
            odd = updates % self.check_every != 0
            checks = updates // self.check_every - done // self.check_every + odd
        return self.update * (updates - done) + self.check * checks


def summed(events: Sequence[Event], name: str) -> float:
    """What a figure adds up to; an event without it adds nothing."""
    return sum(number(event, name) or 0.0 for event in events)
