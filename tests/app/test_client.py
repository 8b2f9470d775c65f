"""The client against real child processes: tiny scripts that behave, misbehave, hang and die."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from app.client import EngineClient, EngineDied, worker_command
from app.protocol import Block, Error, Hello, Pace, Step, encode

ROOT = Path(__file__).parents[2]

ECHO = """
import sys
print('{"type":"hello","version":"1","pid":1}', flush=True)
for line in sys.stdin:
    if '"quit"' in line:
        break
    sys.stderr.write(line)
    print('{"type":"hello","version":"echo","pid":2}', flush=True)
"""
DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"type":"hello","version":"1","pid":1}', flush=True)
while True:
    time.sleep(60)
"""


def scripted(code: str, log: Path | None = None) -> EngineClient:
    return EngineClient([sys.executable, "-c", code], log=log)


@pytest.fixture
async def echo() -> AsyncIterator[EngineClient]:
    client = scripted(ECHO)
    await client.start()
    yield client
    await client.close()


async def collect(client: EngineClient) -> list[object]:
    return [message async for message in client.messages()]


async def test_messages_flow_and_closing_is_silent(echo: EngineClient) -> None:
    messages = echo.messages()
    assert await anext(messages) == Hello("1", 1)
    echo.send(Pace(0.5))
    assert await anext(messages) == Hello("echo", 2)
    pid = echo.pid
    assert pid is not None
    await echo.close()
    assert [m async for m in messages] == []
    assert echo.pid is None
    assert not psutil.pid_exists(pid)


async def test_a_death_is_told_with_the_end_of_stderr(tmp_path: Path) -> None:
    log = tmp_path / "log" / "engine.log"
    code = "import sys; sys.stderr.write('x' * 9000 + 'the reason'); sys.exit(7)"
    client = scripted(code, log)
    await client.start()
    (died,) = await collect(client)
    assert isinstance(died, EngineDied)
    assert died.returncode == 7
    assert "exit code 7" in died.message
    assert died.detail.endswith("the reason")
    assert len(died.detail) == 4000
    assert log.read_text().endswith("the reason")
    client.send(Pace(1.0))
    await client.close()


async def test_stderr_of_an_earlier_engine_is_not_quoted(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("old news\n")
    client = scripted("import sys; sys.stderr.write('new')", log)
    await client.start()
    (died,) = await collect(client)
    assert isinstance(died, EngineDied)
    assert died.detail == "new"
    await client.close()


async def test_killed_and_started_again(echo: EngineClient) -> None:
    first = echo.pid
    echo.kill()
    *_, died = await collect(echo)
    assert isinstance(died, EngineDied)
    assert died.returncode == -signal.SIGKILL
    assert "killed" in died.message
    await echo.start()
    assert echo.pid not in (None, first)
    assert await anext(echo.messages()) == Hello("1", 1)


@pytest.mark.parametrize("read_first", [True, False])
async def test_an_engine_that_ignores_everything_is_killed(read_first: bool) -> None:
    client = scripted(DEAF)
    await client.start()
    if read_first:
        await anext(client.messages())
    pid = client.pid
    assert pid is not None
    await asyncio.wait_for(client.close(timeout=0.05), 5)
    assert not psutil.pid_exists(pid)


async def test_lines_that_are_no_messages_become_errors() -> None:
    code = 'print(\'hi\'); print(\'{}\'); print(\'{"type":"hello","version":"1","pid":3}\')'
    client = scripted(code)
    await client.start()
    first, second, third, died = await collect(client)
    assert isinstance(first, Error)
    assert first.kind == "protocol"
    assert "hi" in first.detail
    assert isinstance(second, Error)
    assert third == Hello("1", 3)
    assert isinstance(died, EngineDied)
    await client.close()


async def test_an_endless_line_is_an_error_and_not_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.client.MAX_LINE", 4096)
    client = scripted('print(\'x\' * 100_000); print(\'{"type":"hello","version":"1","pid":3}\')')
    await client.start()
    *errors, hello, died = await collect(client)
    assert errors
    assert all(isinstance(e, Error) for e in errors)
    assert hello == Hello("1", 3)
    assert isinstance(died, EngineDied)
    await client.close()


async def test_a_slow_reader_loses_steps_and_nothing_else(tmp_path: Path) -> None:
    step = Step("a", 0, 1, [], 0, 0, 0, 0, 0.0)
    block = Block("a", 0, "text", 1, 1, 1, 0, 0.0, 0.0)
    out = tmp_path / "lines"
    out.write_bytes(encode(step) * 500 + encode(block))
    client = EngineClient(["cat", str(out)])
    await client.start()
    await asyncio.sleep(0.3)
    *steps, last, died = await collect(client)
    assert last == block
    assert isinstance(died, EngineDied)
    assert 1 <= len(steps) < 500
    await client.close()


async def test_a_command_that_is_missing_is_an_os_error() -> None:
    client = EngineClient(["/nonexistent/engine"])
    with pytest.raises(FileNotFoundError):
        await client.start()
    await client.close()
    client.send(Pace(1.0))


async def test_closing_twice_or_before_starting_is_fine(echo: EngineClient) -> None:
    await EngineClient([]).close()
    await echo.close()
    await echo.close()


PARENT = """
import asyncio, sys
from app.client import EngineClient

async def main():
    client = EngineClient([sys.executable, "-c", sys.argv[1]])
    await client.start()
    print(client.pid, flush=True)
    async for message in client.messages():
        pass

asyncio.run(main())
"""


def test_a_terminal_killed_with_9_leaves_no_orphan() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, ECHO], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert parent.stdout is not None
    engine = int(parent.stdout.readline())
    assert psutil.pid_exists(engine)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while _running(engine) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _running(engine)


def _running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_worker_is_not_shadowed_by_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')")
    command = worker_command()
    command[command.index("-c") + 1] = command[command.index("-c") + 1].replace(
        "from app.worker import main; main()", "import app.protocol; print(app.protocol.__file__)"
    )
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(out.strip()) == ROOT / "app" / "protocol.py"
