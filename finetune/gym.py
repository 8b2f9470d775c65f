"""Prompts from reasoning-gym's tasks, and the verifier that their files name.

`finetune.gym:score` is an ordinary verifier function: it judges by the task's own rule, so an
answer may be right in more than one form. The package is an extra.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

VERIFIER = "finetune.gym:score"
MARK = "Answer:"
ASK = f"\n\nWrite the final answer at the end, after `{MARK}`"
TRIES = 4
"""How many entries may be drawn for each prompt that is wanted."""


class GymError(ValueError):
    """A task that cannot be used; the message is a sentence for the user."""


def score(prompt: str, answer: str, row: Mapping[str, Any]) -> float:
    """The task's own score of an answer, from 0 to 1."""
    entry = row["entry"]
    function = _package().get_score_answer_fn(entry["metadata"]["source_dataset"])
    return float(function(answer, {**entry, "answer": row["answer"]}))


def tasks() -> list[str]:
    """The names of all tasks. Raises GymError without the package."""
    _package()
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def rows(task: str, n: int, seed: int) -> Iterator[dict[str, Any]]:
    """n different prompts of a task, as lines of a file.

    An entry is left out when it does not survive being written as JSON: its own answer must still
    score 1. Raises GymError, also when too few are left.
    """
    dataset = _package().create_dataset(task, size=TRIES * n, seed=seed)
    seen: set[str] = set()
    for entry in dataset:
        if len(seen) == n:
            return
        row = _row(entry)
        if row is not None and row["prompt"] not in seen:
            seen.add(row["prompt"])
            yield row
    if len(seen) < n:
        raise GymError(f"The task {task} gives only {len(seen)} different prompts, not {n}.")


def _row(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    answer = entry["answer"]
    if not isinstance(answer, str) or not answer.strip():
        return None
    row = {
        "prompt": entry["question"].rstrip() + ASK,
        "answer": answer,
        "verify": {"kind": VERIFIER, "take": f"after {MARK}"},
        "entry": {"question": entry["question"], "metadata": entry["metadata"]},
    }
    try:
        written = json.loads(json.dumps(row))
        fits = score(written["prompt"], written["answer"], written) >= 1
    except Exception:  # each task judges in its own way, and fails in it
        return None
    return written if fits else None


def _package() -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise GymError("This needs the package reasoning-gym: pip install reasoning-gym") from error
    return reasoning_gym
