"""A run seen from outside, as its folder tells it: read again and again, and only what is new.

The window is a viewer: the same folder gives the same curves however often it is opened. Nothing
here fails for a file that is being written, or that another version wrote.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from app.runs import can_resume, seen_status, size_of
from finetune.prompts import read_prompts
from finetune.runs import RunError, RunFolder, RunInfo, Status

Event = Mapping[str, Any]
MOST_BYTES = 8 << 20
"""Of a file of prompts that is read where a screen is drawn: a larger one would be felt."""


class RunWatch:
    """One run. `look` takes in what happened since the last look.

    Attributes:
        info: what is trained on what; None where run.json cannot be read (`problem` says why).
        status: where it stands; a process that is gone has failed.
        events: every update, check and alarm so far.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.info: RunInfo | None = None
        self.problem = ""
        try:
            self.info = run.info()
        except RunError as error:
            self.problem = str(error)
        self.status = Status()
        self.events: list[Event] = []
        self.resumable = False
        self.size = 0
        self._file = 0
        self._read = 0
        self._questions: dict[str, str] | None = None
        self.look()

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    def look(self) -> bool:
        """Read what is new; whether anything was."""
        before = (self.status, self.resumable, len(self.events), self._file)
        status = seen_status(self.run)
        if status != self.status or self._file == 0:
            self.status = status
            self.size = size_of(self.run)
        self.resumable = can_resume(self.run, status)
        self._take_events()
        return before != (self.status, self.resumable, len(self.events), self._file)

    def of(self, kind: str) -> list[Event]:
        """The events of a kind, in their order."""
        return [event for event in self.events if event.get("kind") == kind]

    def question(self, id: str) -> str:
        """What the prompt of this id asks; nothing where it is not known."""
        if self._questions is None:
            try:
                small = self.run.prompts.stat().st_size <= MOST_BYTES
                found = read_prompts(self.run.prompts).prompts if small else ()
            except OSError:
                found = ()
            self._questions = {prompt.id: prompt.question for prompt in found}
        return self._questions.get(id, "")

    def _take_events(self) -> None:
        """A resumed run writes the file anew, without the updates that it makes again."""
        try:
            with (self.run.path / "events.jsonl").open("rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._file or facts.st_size < self._read:
                    self._file, self._read, self.events = facts.st_ino, 0, []
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                self.events.append(event)


def best_checks(watch: RunWatch) -> tuple[Event | None, Event | None]:
    """(the start, the best) held-out check; the best is the one that the run chose."""
    checks = watch.of("check")
    if not checks:
        return None, None
    best = next((c for c in checks if c.get("done") == watch.status.best), None)
    return checks[0], best
