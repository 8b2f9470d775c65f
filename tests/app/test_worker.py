"""The engine process for real: a random checkpoint, or a recording, behind the actual pipe."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

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
    Loading,
    LoadModel,
    Pace,
    Prefill,
    Ready,
    SetAdapter,
    Step,
    Stop,
    Unload,
)
from app.trace import TraceWriter, read_recording

ROOT = Path(__file__).parents[2]
QUESTION = [{"role": "user", "content": "What is <|mask|>?"}]
FIGURES = set(answer_figures("", "end", NO_STATS, Conditions("", "", "")))


class Talk:
    """A client whose messages can be awaited by kind."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self._messages = client.messages()

    async def until(self, *kinds: type) -> list[Any]:
        """Everything up to the first message of one of `kinds`, that one included."""
        seen: list[Any] = []
        async with asyncio.timeout(60):
            async for message in self._messages:
                seen.append(message)
                if isinstance(message, kinds):
                    return seen
        pytest.fail(f"the engine ended after {seen[-3:]}")

    async def next(self, kind: type) -> Any:
        return (await self.until(kind, EngineDied))[-1]

    def ask(self, id: str = "q", **config: Any) -> None:
        self.client.send(Chat(id, QUESTION, {"max_new_tokens": 64, **config}))


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


@pytest.fixture
async def engine(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Talk]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # many threads for a tiny model only get in the way
    client = EngineClient(worker_command(), log=tmp_path / "engine.log")
    await client.start()
    talk = Talk(client)
    client.send(LoadModel(str(tiny_checkpoint), device="cpu"))
    yield talk
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


# --- the engine ---------------------------------------------------------------------------------


async def test_from_load_to_answer(engine: Talk, tiny_checkpoint: Path, tmp_path: Path) -> None:
    seen = await engine.until(Ready)
    ready = seen[-1]
    stages = [m.stage for m in seen if isinstance(m, Loading)]
    assert stages[:2] == ["importing torch", "reading weights"]
    assert (ready.path, ready.device, ready.dtype) == (str(tiny_checkpoint), "cpu", "float32")
    assert ready.context_length == 512
    assert ready.parameters > 0

    trace = tmp_path / "t.gz"
    config = {"preset": "careful", "max_new_tokens": 64, "stop_at_end": False}
    engine.client.send(Chat("q", QUESTION, config, trace=str(trace)))
    seen = await engine.until(Done)
    done = seen[-1]
    blocks = [m for m in seen if isinstance(m, Block)]
    assert isinstance(seen[0], Prefill)
    assert done.text.startswith("".join(b.text for b in blocks))
    assert set(done.stats) == FIGURES
    assert done.stats["preset"] == "careful"
    assert done.stats["steps"] == sum(b.steps for b in blocks)
    assert done.stats["tokens"] == sum(b.tokens for b in blocks)
    assert done.measured

    (answer,) = read_recording(trace).answers
    steps = [t.message for t in answer.messages if isinstance(t.message, Step)]
    assert len(steps) == done.stats["steps"], "the trace has every step"
    assert answer.messages[-1].message == done
    assert all(len(step.slots) == 32 for step in steps)
    for token, text, confidence, state in steps[-1].slots:
        assert isinstance(token, int)
        assert isinstance(text, str)
        assert 0 <= confidence <= 1
        assert state in "unsep"


async def test_slow_motion_stop_and_full_speed(engine: Talk) -> None:
    await engine.next(Ready)
    engine.client.send(Pace(30))
    engine.ask()
    await engine.next(Prefill)
    engine.client.send(Pace(0.01))
    await engine.next(Step)
    engine.client.send(Pace(30))
    engine.client.send(Stop("q"))
    done = await engine.next(Done)
    assert (done.id, done.reason, done.measured) == ("q", "stopped", False)
    engine.client.send(Pace(0))
    engine.ask("again")
    assert (await engine.next(Done)).measured


async def test_a_queued_chat_can_be_stopped(engine: Talk) -> None:
    engine.ask("early")
    engine.client.send(Stop("early"))
    done = await engine.next(Done)
    assert (done.reason, done.text, done.stats["forwards"]) == ("stopped", "", 0)
    assert set(done.stats) == FIGURES


async def test_every_bad_chat_is_a_sentence_and_the_next_one_works(engine: Talk) -> None:
    await engine.next(Ready)
    bad: list[tuple[str, Chat]] = [
        ("bad_request", Chat("1", [])),
        ("bad_request", Chat("2", [{"role": "robot", "content": "x"}])),
        ("bad_request", Chat("3", [{"role": "user"}])),
        ("bad_request", Chat("4", QUESTION, {"preset": "fast"})),
        ("bad_request", Chat("5", QUESTION, {"threshold": 1.4})),
        ("bad_request", Chat("6", QUESTION, {"threshold": "high"})),
        ("bad_request", Chat("7", QUESTION, {"preset": ["speed"]})),
        ("bad_request", Chat("8", QUESTION, {"colour": 3})),
        ("bad_request", Chat("9", QUESTION, trace="/nonexistent/t.gz")),
        ("prompt_too_long", Chat("10", [{"role": "user", "content": "x" * 5000}])),
    ]
    for kind, request in bad:
        engine.client.send(request)
        error = await engine.next(Error)
        assert (error.kind, error.id) == (kind, request.id), error
        assert error.message.endswith(".")
        assert "\n" not in error.message
    assert error.counts["prompt"] > 5000
    assert error.counts["context"] == 512
    engine.ask()
    assert (await engine.next(Done)).reason in ("end", "length")


async def test_without_a_model_and_after_unloading(engine: Talk, tmp_path: Path) -> None:
    await engine.next(Ready)
    engine.client.send(Unload())
    engine.ask("a")
    error = await engine.next(Error)
    assert (error.id, error.message) == ("a", "No model is loaded; load one first.")
    engine.client.send(SetAdapter(None))
    assert (await engine.next(Error)).kind == "load"
    engine.client.send(LoadModel(str(tmp_path / "missing")))
    error = await engine.next(Error)
    assert (error.kind, error.id) == ("load", None)
    assert "missing" in error.message
    engine.client.send(LoadModel(str(tmp_path)))
    assert (await engine.next(Error)).kind == "load"


async def test_an_adapter_that_is_none_loads_again(engine: Talk) -> None:
    await engine.next(Ready)
    engine.client.send(SetAdapter("/nonexistent/adapter"))
    assert (await engine.next(Error)).kind == "load"
    engine.client.send(SetAdapter(None))
    error_or_ready = (await engine.until(Ready, Error))[-1]
    assert isinstance(error_or_ready, Ready | Error)


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


async def test_no_process_is_left_when_the_client_closes(engine: Talk) -> None:
    pid = engine.client.pid
    assert pid is not None
    begin = time.monotonic()
    await engine.client.close()
    assert time.monotonic() - begin < 5
    assert not psutil.pid_exists(pid)
