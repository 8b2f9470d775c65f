"""Commands as child processes of the window: progress, results, sentences, and no orphans."""

import asyncio
import json
from collections.abc import Callable

import psutil
import pytest

from app import job
from app.child import python_command
from app.job import JobError, Progress, run_job


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Another program in the command's place."""

    def put(code: str) -> None:
        monkeypatch.setattr(job, "cli_command", lambda *arguments: python_command(code))

    return put


async def test_progress_then_the_result(child: Callable[[str], None]) -> None:
    rows = [
        {"kind": "progress", "stage": "answers", "done": 1, "total": 2}, {"first": 1},
        {"kind": "progress", "stage": "x", "done": "two"}, {"second": 2},
    ]  # fmt: skip
    text = "\n".join(["not json", *map(json.dumps, rows), "[" * 5000])
    child(f"print({text!r}); sys.exit(1)")
    told: list[Progress] = []
    assert await run_job([], told.append) == {"second": 2}
    assert told == [Progress("answers", 1, 2), Progress("x", 0, 0)]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('x' * 99999 + '\\nThis is why.', file=sys.stderr); sys.exit(1)", "This is why."),
        ("sys.exit(3)", "exit code 3"),
    ],
)
async def test_a_failure_is_its_sentence(
    child: Callable[[str], None], code: str, words: str
) -> None:
    child(code)
    with pytest.raises(JobError, match=words):
        await run_job([])


async def test_a_command_does_not_outlive_its_call(child: Callable[[str], None]) -> None:
    child('import time; print(\'{"kind": "progress"}\', flush=True); time.sleep(600)')
    begun = asyncio.Event()
    # Other tests in this process may have left children (multiprocessing's own, say).
    before = set(psutil.Process().children())
    task = asyncio.create_task(run_job([], lambda progress: begun.set()))
    await begun.wait()
    (process,) = set(psutil.Process().children()) - before
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not process.is_running()


async def test_the_real_command_line_answers() -> None:
    with pytest.raises(JobError, match="cannot be read"):
        await run_job(["prompts", "check", "nothing.jsonl"])
