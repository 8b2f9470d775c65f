"""From the first answer over a benchmark and a run whose trainer is killed to a tuned answer, in
shell commands alone."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from app.child import cli_command

PATIENCE = 120.0


def shell(*arguments: object) -> str:
    done = subprocess.run(
        cli_command(*map(str, arguments)), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def the_run() -> dict[str, Any]:
    (run,) = json.loads(shell("runs", "--json"))
    return run


def once(reached: Any) -> dict[str, Any]:
    give_up = time.monotonic() + PATIENCE
    while not reached(run := the_run()):
        assert time.monotonic() < give_up, run
    return run


@pytest.mark.slow
def test_from_prompts_to_a_tuned_answer(tmp_path: Path) -> None:
    prompts, demo = tmp_path / "sums.jsonl", ("--model", "demo")
    assert "85" in shell("ask", "What is 47 + 38?", *demo)
    measured = json.loads(shell("bench", *demo, "--set", "demo", "--n", 3, "--json"))
    assert [len(run["answers"]) for run in measured["runs"]] == [3, 3, 3]
    shell("prompts", "make", "demo", "--n", 12, "--out", prompts)
    assert json.loads(shell("prompts", "check", prompts, *demo, "--json"))["problems"] == []
    tried = json.loads(shell("prompts", "test", prompts, *demo, "--n", 2, "--k", 2, "--json"))
    assert tried["answers"] == 4
    begun = json.loads(shell("finetune", prompts, *demo, "--updates", 200, "--detach", "--json"))
    run = once(lambda run: run["update"] >= 1)
    assert run["pid"] == begun["pid"]
    os.kill(run["pid"], signal.SIGKILL)
    run = once(lambda run: run["state"] == "failed")
    assert "was killed" in run["message"]
    done, name = run["update"], run["name"]
    shell("finetune", "--resume", name, "--detach")
    once(lambda run: run["update"] > done)
    shell("runs", "stop", name)
    run = once(lambda run: run["state"] == "stopped")
    compared = json.loads(shell("compare", name, "--json"))
    assert compared["n"] == 3
    assert len(compared["items"]) == 3
    assert "85" in shell("ask", "What is 47 + 38?", *demo, "--adapter", name)
