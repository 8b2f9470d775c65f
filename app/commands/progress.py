"""How a run is told in a shell: a line an update, a line a check, alarms, and what came of it."""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.commands.running import say
from app.runs import called, seen_status
from app.text import printable
from finetune.checks import best_check
from finetune.runs import RunError, RunFolder


class Progress:
    """Writes a run's events to stderr as they come. On a terminal the update's line is replaced
    by the next one; into a file only every tenth is written."""

    EVERY = 10

    def __init__(self, run: RunFolder, *, quiet: bool = False) -> None:
        self._run, self._quiet = run, quiet
        self._updates = run.info().config.updates
        self._first = 0
        self._begin = time.monotonic()
        self._open_line = False

    def begin(self, done: int) -> None:
        """The run goes on behind `done` updates."""
        self._first, self._begin = done, time.monotonic()
        if not self._quiet:
            where = f", behind update {done}" if done else ""
            say(f"Run {self._run.name}{where}; its folder is {self._run.path}")

    def tell(self, event: dict[str, Any]) -> None:
        """One event."""
        if self._quiet:
            return
        kind = event["kind"]
        if kind == "update":
            self._update(event)
        elif kind == "check":
            self._line(check_line(event))
        elif kind == "alarm":
            self._line(f"! {event['text']}")

    def _update(self, event: dict[str, Any]) -> None:
        loss = event["prediction"]  # None: it was not a number, which the run copes with
        text = (
            f"update {event['done']}/{self._updates}  passed {event['kept']}/{event['answers']}  "
            f"tokens a step {event['tpf_steps']:.2f}  "
            f"loss {'not a number' if loss is None else f'{loss:.3f}'}  "
            f"{self._left(event['done'])} left"
        )
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._open_line = True
        elif event["done"] % self.EVERY == 0:
            say(text)

    def _left(self, done: int) -> str:
        pace = (time.monotonic() - self._begin) / max(done - self._first, 1)
        seconds = round(pace * (self._updates - done))
        return f"{seconds // 60} min {seconds % 60:02} s"

    def _line(self, text: str) -> None:
        if self._open_line:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._open_line = False
        say(text)

    def closing(self) -> str:
        """What came of the run, in lines for stdout."""
        if self._open_line:
            print(file=sys.stderr, flush=True)
        data = summary(self._run)
        lines = [
            f"{data['name']}: {data['state']} after {data['update']} updates. {data['message']}"
        ]
        if data["best"] is not None and data["start"] is not None:
            start, best = data["start"], data["best"]
            lines += [
                f"held out, at the start:  {_figures(start)}",
                f"held out, the best:      {_figures(best)} (update {best['done']})",
                f'use it:  orl-chat ask --adapter {shlex.quote(called(self._run))} "..."',
            ]
        return printable("\n".join(line.rstrip() for line in lines))


def check_line(event: dict[str, Any]) -> str:
    """A held-out check in one line."""
    return f"held out after {event['done']} updates: {_figures(event)}"


def summary(run: RunFolder) -> dict[str, Any]:
    """A run in one object, as --json prints it. Raises RunError for one that is damaged."""
    try:
        return _summary(run)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise RunError(
            f"The events of {run.path} are damaged ({type(error).__name__}: {error})."
        ) from error


def _summary(run: RunFolder) -> dict[str, Any]:
    status, info = seen_status(run), run.info()
    checks, updates, alarms = (_whole(run.events(), kind) for kind in ("check", "update", "alarm"))
    best = run.best()
    return {
        "name": run.name,
        "folder": str(run.path),
        "model": info.model,
        "train": info.config.train,
        "state": status.state,
        "message": status.message,
        "pid": status.pid if status.alive else None,
        "update": status.update,
        "updates": status.updates,
        "start": _check_figures(checks[0]) if checks else None,
        "best": _check_figures(best_check(checks)) if checks else None,
        "checkpoint": None if best is None else str(best),
        "seconds": sum(u["rollout_seconds"] + u["learn_seconds"] for u in updates),
        "parts": _parts(updates, checks),
        "card": updates[-1].get("card") if updates else None,
        "alarms": [event["text"] for event in alarms],
    }


_NEEDED = {
    "check": {"n", "right", "interval", "passes", "tpf", "tpf_steps"},
    "update": {"rollout_seconds", "learn_seconds"},
    "alarm": {"text"},
}


def _whole(events: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The events of a kind that have their figures; a folder may be of another version."""
    return [e for e in events if e["kind"] == kind and _NEEDED[kind] <= e.keys()]


def _parts(updates: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]) -> dict:
    """Seconds of all updates by what they went to, and of the held-out checks. None where a run
    of an older version did not time that."""
    verify = _total(updates, "verify_seconds")
    rollout = sum(update["rollout_seconds"] for update in updates)
    return {
        "answers": None if verify is None else rollout - verify,
        "verifiers": verify,
        "learning": sum(update["learn_seconds"] for update in updates),
        "checks": _total(checks, "seconds"),
    }


def _total(events: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [event[name] for event in events if name in event]
    return sum(values) if len(values) == len(events) else None


def _check_figures(event: Mapping[str, Any]) -> dict[str, Any]:
    names = ("done", "n", "right", "interval", "tpf", "tpf_steps")
    return {name: event[name] for name in names}


def _figures(event: dict[str, Any]) -> str:
    low, high = event["interval"]
    return f"{event['right']}/{event['n']} right ({low:.0%} to {high:.0%}), TPF {event['tpf']:.2f}"
