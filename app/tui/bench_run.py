"""A benchmark over the window's own engine process: no second model is loaded for it.

A state machine without a screen: requests go out through `send`, the engine's messages come in
through `take`, which says whether they belong to the benchmark. What it measures, and in which
order, is `app.bench`'s.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from enum import StrEnum

from app.bench.conditions import bench_conditions, processor_name, ready_conditions
from app.bench.prompts import BenchSet
from app.bench.result import Result, Run, decode_conditions
from app.bench.run import Setting, Turn, plan
from app.bench.sample import Sample
from app.client import EngineDied
from app.decoding import decode_config
from app.protocol import (
    Block,
    Chat,
    Done,
    EngineMessage,
    Error,
    Pace,
    Prefill,
    Ready,
    Request,
    Step,
    Stop,
)
from app.tui.state import new_id
from engine.config import PRESETS

LONGEST = 256
"""Tokens of an answer, as the command's default has it."""


class Stage(StrEnum):
    """How far a benchmark is."""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"


class BenchRun:
    """Every preset over the prompts of `found`, each `repeat` times.

    Attributes:
        result: what was measured so far.
        trouble: why it failed, a sentence.
    """

    def __init__(
        self,
        found: BenchSet,
        ready: Ready,
        send: Callable[[Request], None],
        changed: Callable[[], None],
        *,
        repeat: int = 1,
    ) -> None:
        settings = [
            Setting(name, decode_config({"preset": name, "max_new_tokens": LONGEST}))
            for name in PRESETS
        ]
        self._turns = plan(found.prompts, settings, repeat=repeat, warm_up=1)
        self._send, self._changed = send, changed
        self._at = -1
        self._id = ""
        self._first_block = 0.0
        self.stage = Stage.RUNNING
        self.trouble = ""
        shared = bench_conditions(found, repeat, 1) | ready_conditions(ready)
        if ready.device == "cpu":
            shared["processor"] = processor_name()
        runs = tuple(Run(s.label, decode_conditions(s)) for s in settings)
        self.result = Result(shared, runs)

    @property
    def done(self) -> int:
        """Answers that are over, warm-ups included."""
        return max(0, self._at)

    @property
    def total(self) -> int:
        """Answers to be made, warm-ups included."""
        return len(self._turns)

    @property
    def answers(self) -> dict[str, str]:
        """The newest answer's text of each setting."""
        return {run.label: run.samples[-1].text for run in self.result.runs if run.samples}

    def begin(self) -> None:
        """Ask the first question, at full speed whatever the window's pace is."""
        self._send(Pace(0.0))
        self._next()

    def stop(self) -> None:
        """End after the answer in progress, which does not count."""
        if self.stage is Stage.RUNNING:
            self._send(Stop(self._id))
            self._end(Stage.STOPPED)

    def take(self, message: EngineMessage | EngineDied) -> bool:
        """Take one message; False when it is not the benchmark's alone."""
        if isinstance(message, EngineDied):
            if self.stage is Stage.RUNNING:
                self._end(Stage.FAILED, "The engine stopped; what was measured until then is kept.")
            return False
        if not isinstance(message, Prefill | Step | Block | Done | Error) or not self._id:
            return False
        if message.id != self._id:
            return False
        if self.stage is Stage.RUNNING:
            self._heard(message)
        return True

    def _heard(self, message: Prefill | Step | Block | Done | Error) -> None:
        if isinstance(message, Error):
            self._end(Stage.FAILED, message.message)
        elif isinstance(message, Block) and not self._first_block:
            self._first_block = message.elapsed
        elif isinstance(message, Done):
            self._measured(message)
            self._next()

    def _measured(self, done: Done) -> None:
        turn = self._turns[self._at]
        if turn.warm_up:
            return
        try:
            sample = Sample.of_done(turn.prompt.id, done, self._first_block)
        except ValueError as error:
            self._end(Stage.FAILED, f"The engine's figures cannot be used: {error}.")
            return
        sample = replace(sample, repetition=turn.repetition)
        self.result = self.result.with_samples([(turn, sample)])

    def _next(self) -> None:
        if self.stage is not Stage.RUNNING:
            return
        self._at += 1
        if self._at == len(self._turns):
            self._end(Stage.DONE)
            return
        turn: Turn = self._turns[self._at]
        self._id, self._first_block = new_id(), 0.0
        self._send(Chat(self._id, list(turn.prompt.messages), asdict(turn.config)))
        self._changed()

    def _end(self, stage: Stage, trouble: str = "") -> None:
        self.stage, self.trouble = stage, trouble
        self.result = replace(self.result, interrupted=stage is not Stage.DONE)
        self._changed()
