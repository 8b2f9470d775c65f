"""`orl-chat runs`: every run with where it stands, and a word to one that trains."""

import json
from typing import Any, get_args

from app.commands.progress import summary
from app.commands.running import CommandError, say
from app.paths import paths
from app.runs import every_run, find_run
from app.text import printable
from finetune.runs import Request, RunError


def list_runs(*, as_json: bool = False) -> int:
    """Print all runs, the newest last; the exit code."""
    rows = []
    for run in every_run():
        try:
            rows.append(summary(run))
        except RunError as error:
            say(str(error))
    if as_json:
        print(json.dumps(rows))
    elif not rows:
        print(f"There are no runs in {paths().runs}; begin one: orl-chat finetune PROMPTS.jsonl")
    for row in [] if as_json else rows:
        print(printable(_line(row)))
    return 0


def ask_run(action: str, name: str) -> int:
    """Send a run's process a word; the exit code."""
    words: dict[str, Any] = {"continue": "go"} | {word: word for word in get_args(Request)}
    if action not in words:
        raise CommandError(f"runs takes pause, continue, save or stop, got {action!r}.")
    run = find_run(name)
    run.request(words[action])
    told = f"{run.name} was asked to {action}; it obeys after the update in progress."
    print(printable(told))
    return 0


def _line(row: dict) -> str:
    parts = [f"{row['name']:<28}{row['state']:<12}{row['update']:>4}/{row['updates']:<5}"]
    start, best = row["start"], row["best"]
    if start is not None and best is not None:
        parts.append(
            f"right {start['right'] / start['n']:.0%} to {best['right'] / best['n']:.0%}  "
            f"TPF {start['tpf']:.2f} to {best['tpf']:.2f}"
        )
    if row["message"]:
        parts.append(row["message"])
    return "  ".join(parts)
