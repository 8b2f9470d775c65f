"""`orl-chat prompts make`: a file of verified prompts, from the demo or reasoning-gym."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.commands.running import CommandError, say

DEMO = "demo"


def make(task: str, n: int, out: str, seed: int, *, as_json: bool = False) -> int:
    """Write n prompts of a task to the new file `out`; the exit code."""
    if n < 1:
        raise CommandError(f"The number of prompts must be at least 1, got {n}.")
    path = Path(out)
    if path.exists():
        raise CommandError(f"{out} exists already; name another file.")
    rows = list(_rows(task, n, seed))
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    if as_json:
        print(json.dumps({"file": out, "prompts": len(rows)}))
        return 0
    say(f"{len(rows):,} prompts in {out}; look at them with: orl-chat prompts check {out}")
    return 0


def _rows(task: str, n: int, seed: int) -> Iterator[dict[str, Any]]:
    if task == DEMO:
        from finetune.demo.rows import rows as demo_rows

        return demo_rows(n, seed)
    from finetune import gym

    if task not in (names := gym.tasks()):
        raise CommandError(f"There is no task {task!r}; there are {DEMO}, {', '.join(names)}.")
    return gym.rows(task, n, seed)


def _write(path: Path, text: str) -> None:
    """All of it or nothing."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
