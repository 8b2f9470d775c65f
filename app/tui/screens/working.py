"""A tab that runs the shell's commands as child processes, one at a time, and says how far they
are."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from app.job import JobError, Progress, run_job
from app.text import printable
from app.tui.background import in_background
from app.tui.figures import duration
from app.tui.screens.tab import TabScreen

TICK = 0.5


class WorkScreen(TabScreen):
    """`work` starts a command; another one takes its place."""

    def __init__(self) -> None:
        super().__init__()
        self._working = ""
        self._began = 0.0
        self._progress: Progress | None = None
        self._number = 0
        self._note = ("", False)

    def on_mount(self) -> None:
        """The clock of what is going on, and of what happens outside."""
        self.set_interval(TICK, self._tick)

    @property
    def busy(self) -> bool:
        """Whether a command runs."""
        return bool(self._working)

    def work(
        self,
        words: str,
        arguments: Sequence[str],
        done: Callable[[Any], None],
        failed: Callable[[str], None] | None = None,
    ) -> None:
        """Run a command that `words` name; then `done` with its result, or `failed` with its
        sentence (None: say it)."""
        self._number += 1
        self._working, self._began, self._progress = words, time.monotonic(), None
        self._note = ("", False)
        in_background(
            self, self._work, self._number, arguments, done, failed or self.complain, group="job"
        )
        self.refresh_bindings()
        self.show_state()

    def make_room(self) -> bool:
        """A run needs the card to itself: the chat's engine ends until a message wants it. False,
        and a word about it, while an answer is being written."""
        program = self.program
        if not program.link.on_card:
            return True
        if program.session.turn is not None:
            self.complain("An answer is being written on the card; wait for it, or stop it.")
            return False
        in_background(program, program.link.rest, group="engine")
        return True

    def stop_work(self) -> None:
        """End the command that runs."""
        self.workers.cancel_group(self, "job")
        self._rest()

    def complain(self, sentence: str) -> None:
        """Say what went wrong."""
        self.note(printable(sentence), alert=True)

    def note(self, words: str, *, alert: bool = False) -> None:
        """Say something in place of `idle_words` until the next work or note; "" is no note."""
        self._note = (words, alert)
        self.show_state()

    def show_state(self) -> None:
        """What is going on; `idle_words` when nothing is."""
        if not self.busy:
            words, alert = self._note if self._note[0] else self.idle_words()
            self.say(words, alert=alert)
            return
        progress = self._progress
        parts = [self._working]
        if progress is not None:
            counted = f" {progress.done:,} of {progress.total:,}" if progress.total else ""
            parts.append(printable(progress.stage) + counted)
        parts.append(duration(round(time.monotonic() - self._began, 0) or 0.0))
        self.say(" · ".join(parts))

    def idle_words(self) -> tuple[str, bool]:
        """What to say when nothing is going on, and whether it is a warning."""
        return "", False

    def look_outside(self) -> None:
        """What may have changed without this window; called every now and then."""

    def _tick(self) -> None:
        if self.is_current:
            self.look_outside()
            if self.busy:
                self.show_state()

    async def _work(
        self,
        number: int,
        arguments: Sequence[str],
        done: Callable[[Any], None],
        failed: Callable[[str], None],
    ) -> None:
        try:
            result = await run_job(arguments, self._tell)
        except JobError as error:
            self._rest(number)
            failed(str(error))
            return
        self._rest(number)
        done(result)

    def _tell(self, progress: Progress) -> None:
        self._progress = progress

    def _rest(self, number: int | None = None) -> None:
        if number is None or number == self._number:
            self._working = ""
            self.refresh_bindings()
            self.show_state()
