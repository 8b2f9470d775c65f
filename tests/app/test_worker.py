"""The engine process with a recording in the engine's place: the pipe, and how it ends."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from app.answer import NO_STATS, Conditions, answer_figures
from app.client import EngineClient, EngineDied, worker_command
from app.protocol import (
    Block,
    Chat,
    Done,
    Error,
    Hello,
    LoadModel,
    Pace,
    Ready,
    Step,
    Stop,
)
from app.trace import TraceWriter
from tests.app.talk import FIGURES, QUESTION, Talk

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of eight steps, 10 ms apart; then an answer that failed."""
    path = tmp_path_factory.mktemp("trace") / "t.gz"
    writer = TraceWriter(path)
    writer.put(0.0, Chat("x", QUESTION))
    now = 0.0
    for index in range(2):
        for number in range(1, 9):
            now += 0.01
            slots = [[7, "w", 0.9, "n"]] * 32
            writer.put(now, Step("x", index, number, slots, 4, 0, 0, index * 8 + number, now))
        writer.put(now, Block("x", index, f"part {index} ", 32, 8, 8, 0, 0.08, now))
    figures = answer_figures("part 0 part 1 ", "end", NO_STATS, Conditions("m", "cpu", "quality"))
    writer.put(now, Done("x", "end", "part 0 part 1 ", figures))
    writer.put(0.0, Chat("y", QUESTION))
    writer.put(0.01, Error("internal", "It broke.", id="y"))
    writer.close()
    return path


@pytest.fixture
async def replay(recording: Path) -> AsyncIterator[Talk]:
    client = EngineClient(worker_command("--replay", str(recording)))
    await client.start()
    yield Talk(client)
    await client.close()


# --- a recording --------------------------------------------------------------------------------


async def test_a_recording_answers_like_an_engine(replay: Talk) -> None:
    hello = await replay.next(Hello)
    assert hello.pid == replay.client.pid
    assert hello.torch == ""
    replay.client.send(LoadModel("demo"))
    await replay.next(Ready)
    replay.ask("first")
    seen = await replay.until(Done)
    assert {m.id for m in seen} == {"first"}
    assert [m.text for m in seen if isinstance(m, Block)] == ["part 0 ", "part 1 "]
    assert len([m for m in seen if isinstance(m, Step)]) < 16, "steps are sampled"
    assert seen[-1].measured
    replay.ask("second")
    error = await replay.next(Error)
    assert (error.id, error.message) == ("second", "It broke.")
    replay.ask("third")
    assert (await replay.next(Done)).id == "third"


async def test_slow_motion_sends_every_step_and_measures_nothing(replay: Talk) -> None:
    replay.client.send(Pace(0.02))
    replay.ask()
    seen = await replay.until(Done)
    steps = [m for m in seen if isinstance(m, Step)]
    assert [(s.block, s.step) for s in steps] == [(b, s) for b in (0, 1) for s in range(1, 9)]
    assert not any(m.measured for m in seen if isinstance(m, Step | Block | Done))


async def test_stop_in_a_recording(replay: Talk) -> None:
    replay.client.send(Pace(30))
    replay.ask()
    await replay.next(Step)
    replay.client.send(Stop("q"))
    done = await replay.next(Done)
    assert (done.reason, done.text, done.stats["finish_reason"]) == ("stopped", "", "stopped")
    assert set(done.stats) == FIGURES


@pytest.mark.parametrize("arguments", [["--replay", "/nonexistent"], ["--trace", "/nonexistent/t"]])
async def test_a_trace_that_cannot_be_used(arguments: list[str]) -> None:
    client = EngineClient(worker_command(*arguments))
    await client.start()
    *_, error, died = await Talk(client).until(EngineDied)
    assert isinstance(error, Error)
    assert error.kind == "load"
    assert "/nonexistent" in error.message
    assert isinstance(died, EngineDied)
    await client.close()


async def test_bad_requests_are_errors_and_the_next_one_works(recording: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *worker_command("--replay", str(recording)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    lines = b"\n".join(
        [
            b"nonsense",
            b"\xff\xfe",
            b'{"type": "dance"}',
            b'{"type": "pace", "seconds_per_step": -1}',
            b'{"type": "pace", "seconds_per_step": NaN}',
            b'{"type": "stop", "id": "nobody"}',
            b'{"type": "chat", "id": "a", "messages": []}',
            b'{"type": "chat", "id": "a", "messages": []}',
            b'{"type": "unload"}',
        ]
    )
    assert process.stdin is not None
    process.stdin.write(lines + b"\n")
    assert process.stdout is not None
    kinds = []
    async with asyncio.timeout(30):
        while not kinds or kinds[-1] != "done":
            kinds.append(json.loads(await process.stdout.readline())["type"])
    assert kinds.count("error") == 6
    assert kinds[0] == "hello"
    process.stdin.close()
    await process.communicate()


# --- its end ------------------------------------------------------------------------------------


@pytest.fixture
def bare(recording: Path) -> Callable[[], subprocess.Popen[bytes]]:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            worker_command("--replay", str(recording)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    return start


@pytest.mark.parametrize("how", ["quit", "eof"])
def test_quit_and_end_of_input_end_it_in_the_middle(
    bare: Callable[[], subprocess.Popen[bytes]], how: str
) -> None:
    process = bare()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"type": "pace", "seconds_per_step": 50}\n')
    process.stdin.write(b'{"type": "chat", "id": "a", "messages": []}\n')
    process.stdin.flush()
    while b'"step"' not in process.stdout.readline():
        pass
    if how == "quit":
        process.stdin.write(b'{"type": "quit"}\n')
        process.stdin.flush()
    else:
        process.stdin.close()
    assert process.wait(20) == 0
    process.stdin.close()
    process.stdout.close()


HANGING = """
import sys, threading
sys.path.insert(0, {root!r})
import app.worker
app.worker._serve = lambda *_: threading.Event().wait()
app.worker.main([])
"""


def test_a_forward_that_hangs_does_not_keep_it_alive() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING.format(root=str(ROOT))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert b"hello" in process.stdout.readline()
    process.communicate(b"")
    assert process.returncode == 0


PRINTING = """
import sys
sys.path.insert(0, {root!r})
import os, app.worker
def serve(options, control, outbox):
    print("a library prints")
    os.write(1, b"and C code does")
    os.system("echo and a child does; cat")
    return 0
app.worker._serve = serve
app.worker.main([])
"""


def test_only_protocol_reaches_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTING.format(root=str(ROOT))],
        input=b"",
        capture_output=True,
        check=False,
    )
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["type"] == "hello"
    for words in (b"library prints", b"C code", b"child does"):
        assert words in done.stderr


async def test_no_process_is_left_when_the_client_closes(replay: Talk) -> None:
    pid = replay.client.pid
    assert pid is not None
    begin = time.monotonic()
    await replay.client.close()
    assert time.monotonic() - begin < 5
    assert not psutil.pid_exists(pid)
