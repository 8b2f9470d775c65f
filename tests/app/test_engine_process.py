"""The engine process for real: a random checkpoint behind the actual pipe.

One process serves all these tests, as importing torch is most of what each would take.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.client import EngineClient, worker_command
from app.protocol import (
    Block,
    Chat,
    Done,
    Error,
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
from app.trace import read_recording
from tests.app.talk import FIGURES, QUESTION, Talk

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Talk]:
    # Many threads for a tiny model only get in each other's way.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        client = EngineClient(worker_command(), log=tmp_path_factory.mktemp("log") / "engine.log")
        await client.start()
    yield Talk(client)
    await client.close()


@pytest_asyncio.fixture(loop_scope="module")
async def engine(process: Talk, tiny_checkpoint: Path) -> Talk:
    """The process with the model asked for, at full speed; Ready is still to come."""
    process.client.send(Pace(0))
    process.client.send(LoadModel(str(tiny_checkpoint), device="cpu"))
    return process


async def test_from_load_to_answer(engine: Talk, tiny_checkpoint: Path, tmp_path: Path) -> None:
    seen = await engine.until(Ready)
    ready = seen[-1]
    stages = [m.stage for m in seen if isinstance(m, Loading)]
    assert stages[:2] == ["importing torch", "reading weights"]
    assert (ready.path, ready.device, ready.dtype) == (str(tiny_checkpoint), "cpu", "float32")
    assert ready.context_length == 512
    assert ready.parameters > 0

    trace = tmp_path / "t.gz"
    config = {"preset": "careful", "max_new_tokens": 40, "stop_at_end": False}
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


async def test_an_answer_is_continued_from_its_text(engine: Talk) -> None:
    """Its tokens so far are part of the prompt in whole, and none of the new ones."""
    await engine.next(Ready)
    config = {"max_new_tokens": 40, "stop_at_end": False}
    engine.client.send(Chat("first", QUESTION, config))
    seen = await engine.until(Done)
    prompt, first = next(m.prompt for m in seen if isinstance(m, Prefill)), seen[-1]
    engine.client.send(Chat("second", QUESTION, config, continue_text="ab cd ef gh"))
    seen = await engine.until(Done)
    assert next(m.prompt for m in seen if isinstance(m, Prefill)) > prompt
    assert "ab cd ef gh" not in seen[-1].text
    assert (first.stats["tokens"], seen[-1].stats["tokens"]) == (40, 40)
