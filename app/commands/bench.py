"""`orl-chat bench`: speed over a set of prompts, setting by setting, with its conditions."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.bench.conditions import bench_conditions, engine_conditions
from app.bench.report import as_text, frontier_text
from app.bench.result import Result, write_result
from app.bench.run import Judge, Turn, measure, plan
from app.bench.sample import Sample
from app.commands.bench_setup import (
    Bench,
    Part,
    check,
    judging,
    loaded,
    parts_of,
    prompts_of,
    server_of,
    settings_of,
)
from app.commands.running import INTERRUPTED, CommandError, ctrl_c_asks, say
from app.models import resolve_model
from app.settings import Settings
from app.text import printable

PROGRESS_EVERY = 10


def bench(request: Bench, settings: Settings) -> int:
    """Measure and print; the exit code. Everything that can be checked is, before a load."""
    check(request)
    rows = settings_of(request)
    folder = None if request.only_endpoint else resolve_model(request.model)
    found = prompts_of(request, settings, folder)
    server = server_of(request)
    plan(found.prompts, rows, repeat=request.repeat, warm_up=request.warmup)
    with judging(found, request.run_code) as (asked, judge):
        if request.frontier and judge is None:
            raise CommandError(
                "A frontier needs prompts whose answers are verified; name some with --prompts."
            )
        engine, asked = loaded(request, folder, asked)
        conditions = bench_conditions(found, request.repeat, request.warmup)
        if engine is not None and folder is not None:
            named = None if request.adapter is None else Path(request.adapter).name
            conditions |= engine_conditions(engine, folder, named)
        with ctrl_c_asks() as interrupted:
            parts = list(parts_of(request, rows, asked, engine, server, interrupted.is_set))
            result = Result(conditions, tuple(run for part in parts for run in part.runs))
            return _Session(request, result).run(parts, judge, interrupted.is_set)


class _Session:
    """Measures part after part. Whatever ends it, what was measured is printed and kept."""

    def __init__(self, request: Bench, result: Result) -> None:
        self._request = request
        self._result = result
        self._measured: list[tuple[Turn, Sample]] = []

    def run(self, parts: list[Part], judge: Judge | None, stop: Callable[[], bool]) -> int:
        """The exit code."""
        try:
            for part in parts:
                for turn, sample in measure(part.turns, part.answer, judge, stop=stop):
                    self._measured.append((turn, sample))
                    self._tell_progress(turn, part)
        except BaseException:
            self._close(interrupted=True)
            raise
        self._close(interrupted=stop())
        return INTERRUPTED if stop() else 0

    def _tell_progress(self, turn: Turn, part: Part) -> None:
        if not sys.stderr.isatty():
            return
        label = turn.setting.label
        done = sum(measured.setting.label == label for measured, _ in self._measured)
        total = sum(t.setting.label == label and not t.warm_up for t in part.turns)
        if done % PROGRESS_EVERY == 0 or done == total:
            say(f"{label}: {done} of {total}")

    def _close(self, *, interrupted: bool) -> None:
        result = replace(self._result, interrupted=interrupted)
        result = _counters(result.with_samples(self._measured)).measured()
        if not result.runs:
            say("Stopped before the first answer was whole.")
            return
        text = frontier_text if self._request.frontier else as_text
        publish(result, as_json=self._request.as_json, out=self._request.out, text=text)


def publish(
    result: Result,
    *,
    as_json: bool,
    out: str | None,
    text: Callable[[Result], str] = as_text,
) -> None:
    """Print a result, and write it into the file `out`."""
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False), flush=True)
    else:
        print(printable(text(result)), flush=True)
    if out is not None:
        write_result(result, out)
        say(f"Saved as {out}; hold it beside another: orl-chat bench compare {out} OTHER.json")


def _counters(result: Result) -> Result:
    """With who counted a server's tokens, which is known once it answered."""
    runs = []
    for run in result.runs:
        counted = sorted({sample.counted for sample in run.samples} - {""})
        own = {"counted": " and ".join(counted)} if counted else {}
        runs.append(replace(run, conditions={**run.conditions, **own}))
    return replace(result, runs=tuple(runs))
