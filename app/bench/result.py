"""A benchmark's outcome as it is printed, saved and read again."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.bench.conditions import Conditions
from app.bench.figures import Figures, figures
from app.bench.run import Setting, Turn
from app.bench.sample import Sample
from app.decoding import preset_name

FORMAT = 1
MOST_BYTES = 1 << 30


class ResultError(ValueError):
    """A result that cannot be read or written; the message is a sentence for the user."""


@dataclass(frozen=True)
class Run:
    """One row of the table: its answers, and the conditions that are its own."""

    label: str
    conditions: Conditions
    samples: tuple[Sample, ...] = ()

    @property
    def figures(self) -> Figures:
        """Raises ValueError while nothing was measured."""
        return figures(self.samples)


@dataclass(frozen=True)
class Result:
    """All rows, under the conditions that they share. `interrupted`: something is missing."""

    conditions: Conditions
    runs: tuple[Run, ...]
    interrupted: bool = False

    def with_samples(self, measured: Iterable[tuple[Turn, Sample]]) -> "Result":
        """After these answers were measured."""
        found: dict[str, list[Sample]] = {run.label: list(run.samples) for run in self.runs}
        for turn, sample in measured:
            found[turn.setting.label].append(sample)
        return replace(
            self, runs=tuple(replace(r, samples=tuple(found[r.label])) for r in self.runs)
        )

    def measured(self) -> "Result":
        """Without the rows that have no answer."""
        return replace(self, runs=tuple(run for run in self.runs if run.samples))

    def to_json(self) -> dict[str, Any]:
        """Plain data: the figures and every answer behind them."""
        return {
            "bench": FORMAT,
            "conditions": self.conditions,
            "interrupted": self.interrupted,
            "runs": [
                {
                    "label": run.label,
                    "conditions": run.conditions,
                    "figures": run.figures.to_json(),
                    "answers": [sample.to_json() for sample in run.samples],
                }
                for run in self.runs
            ],
        }


def decode_conditions(setting: Setting) -> Conditions:
    """How a row of the engine's was decoded."""
    names = (
        "threshold", "editing_threshold", "max_new_tokens", "temperature", "top_k", "top_p", "seed",
        "overlap",
    )  # fmt: skip
    config = setting.config
    return {"preset": preset_name(config), **{name: getattr(config, name) for name in names}}


def write_result(result: Result, path: str | Path) -> None:
    """All of it or nothing. Raises ResultError."""
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(json.dumps(result.to_json(), ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ResultError(f"{path} cannot be written: {error.strerror}.") from error


def read_result(path: str | Path) -> Result:
    """What `write_result` wrote, or `bench --json` printed. Raises ResultError."""
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read(MOST_BYTES))
        format, runs = data["bench"], data["runs"]
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ResultError(
            f"{path} is no result of a benchmark; make one with: orl-chat bench --out FILE"
        ) from error
    if format != FORMAT:
        raise ResultError(f"{path} is a result of format {format}; this version reads {FORMAT}.")
    try:
        return Result(dict(data["conditions"]), _runs(runs), bool(data["interrupted"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultError(f"The result {path} is damaged ({error}); measure again.") from error


def _runs(runs: Sequence[dict[str, Any]]) -> tuple[Run, ...]:
    return tuple(
        Run(
            str(run["label"]),
            dict(run["conditions"]),
            tuple(Sample.from_json(answer) for answer in run["answers"]),
        )
        for run in runs
    )
