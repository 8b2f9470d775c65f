"""What the engine process makes of an engine's events, and of an engine that breaks."""

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app import protocol, worker
from app.answer import NO_STATS, Conditions, Narrator
from app.backend import EngineBackend
from app.card_watch import CardWatch
from app.control import Control
from app.failures import explain, sentence
from app.outbox import Outbox
from app.protocol import Chat, Done, EngineMessage, Error, LoadModel, Step, decode_engine
from app.replay import STAND_IN
from engine.config import CheckpointError, PromptTooLongError
from engine.events import BlockEvent, BlockStats, FinishEvent, StepEvent
from engine.machine.gauges import Gauges
from tests.engine.stand_ins import Gpu, Nvml

QUESTION = [{"role": "user", "content": "hi"}]


class Texts:
    def token_text(self, id: int) -> str:
        return f"<{id}>"


def step(states: str, block: int = 0, confidence: float = 0.5) -> StepEvent:
    size = len(states)
    return StepEvent(block, 1, (7,) * size, (confidence,) * size, states, 1, 0, 1, False, 0.1)


def narrator() -> Narrator:
    return Narrator("q", Texts(), Conditions("m", "cpu", "quality"))


def test_slots_and_the_count_of_decided_tokens() -> None:
    teller = narrator()
    message = teller.step(step("ppnseu"))()
    assert [slot[3] for slot in message.slots] == list("ppnseu")
    assert [slot[1] for slot in message.slots] == ["<7>"] * 5 + [""]
    assert message.tokens == 3
    stats = BlockStats(tokens=4, steps=2, forwards=2, commits=0, seconds=0.1)
    teller.block(BlockEvent(0, (1, 2, 3, 4), "text", stats, 0.2))
    assert teller.step(step("nnu", block=1))().tokens == 6


def test_a_confidence_that_is_no_number_is_zero() -> None:
    assert narrator().step(step("n", confidence=float("nan")))().slots[0][2] == 0.0


def test_what_was_slowed_is_not_measured_from_then_on() -> None:
    teller = narrator()
    before = teller.step(step("n"))
    teller.slowed = True
    assert before().measured
    assert not teller.step(step("n"))().measured
    assert not teller.done(FinishEvent((), "", "end", NO_STATS)).measured


# --- an engine that breaks ------------------------------------------------------------------------


class FakeEngine:
    """An engine whose answer is `answer`."""

    def __init__(self, answer: Callable[[], Iterator[Any]]) -> None:
        self.answer = answer
        self.tokenizer = self
        self.device = "cpu"

    def encode_chat(self, messages: Any, continue_text: str = "") -> list[int]:
        return [1]

    def token_text(self, id: int) -> str:
        return "x"

    def generate(self, ids: Any, config: Any, **_: Any) -> Iterator[Any]:
        return self.answer()


def answer_with(answer: Callable[[], Iterator[Any]]) -> list[EngineMessage]:
    """What a chat with such an engine sends, then a chat with a sound one."""
    sink = io.BytesIO()
    outbox, control = Outbox(sink), Control()
    backend = EngineBackend(outbox, control)
    backend._ready = STAND_IN
    for id, reply in (("bad", answer), ("good", sound)):
        backend._engine = FakeEngine(reply)  # type: ignore[assignment]
        request = Chat(id, QUESTION)
        control.add(request)
        worker._do(request, backend, control, outbox)
    outbox.close(10)
    return [decode_engine(line) for line in sink.getvalue().splitlines()]


def sound() -> Iterator[Any]:
    yield step("n")
    yield FinishEvent((7,), "fine", "end", NO_STATS)


def raising(error: BaseException) -> Callable[[], Iterator[Any]]:
    def answer() -> Iterator[Any]:
        yield step("n")
        raise error

    return answer


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            RuntimeError("CUDA error: device-side assert\ntriggered"),
            "device",
            "graphics card failed",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "memory", "ran out"),
        (OutOfMemoryError("x"), "memory", "ran out"),
        (MemoryError(), "memory", "ran out"),
        (ZeroDivisionError(), "internal", "ZeroDivisionError"),
        (PromptTooLongError(600, 512, 32), "prompt_too_long", "600 tokens"),
        (ValueError("bad ids"), "bad_request", "Bad ids."),
        (RecursionError("deep"), "internal", "deep"),
    ],
)
def test_an_answer_that_breaks_ends_in_an_error(error: BaseException, kind: str, said: str) -> None:
    messages = answer_with(raising(error))
    failure = next(message for message in messages if isinstance(message, Error))
    done = messages[-1]
    assert (failure.kind, failure.id) == (kind, "bad")
    assert said in failure.message
    assert "\n" not in failure.message
    assert "Traceback" in failure.detail
    assert isinstance(done, Done)
    assert (done.id, done.text) == ("good", "fine")


def test_an_answer_that_the_engine_gives_up_is_told_in_its_words() -> None:
    def given_up() -> Iterator[Any]:
        yield FinishEvent((), "", "error", NO_STATS, error="The answer was stopped: NaN.")

    failure = answer_with(given_up)[0]
    assert isinstance(failure, Error)
    assert failure.message == "The answer was stopped: NaN."


def test_prompt_too_long_carries_the_counts() -> None:
    error = explain(PromptTooLongError(600, 512, 32), id="q")
    assert error.counts == {"prompt": 600, "context": 512}


def test_failed_loads() -> None:
    assert explain(CheckpointError("a is damaged."), loading=True).kind == "load"
    assert explain(ImportError("no", name="torch"), loading=True).message == (
        "The Python package torch cannot be imported; install orl-chat again."
    )
    assert explain(RuntimeError("x"), loading=True).kind == "internal"
    full = OSError(28, "No space left on device")
    assert explain(full, loading=True).message == (
        "The operating system reports: No space left on device."
    )
    assert explain(OSError(13, "Denied", "/a"), loading=True).message == "/a: Denied."
    copied = OSError(28, "No space left on device", "/from", None, "/to")
    assert explain(copied, loading=True).message == "/to: No space left on device."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("threshold must be", "Threshold must be."),
        ("max_new_tokens must be", "max_new_tokens must be."),
        ("/a/b is missing; do it.", "/a/b is missing; do it."),
        ("Really?", "Really?"),
    ],
)
def test_sentences(text: str, shown: str) -> None:
    assert sentence(text) == shown


def test_details_show_no_local_variables() -> None:
    def fail() -> None:
        token = "hf_secret" + "".join(["_", "value"])
        raise RuntimeError(f"{len(token)}")

    with pytest.raises(RuntimeError) as caught:
        fail()
    assert "hf_secret_value" not in json.dumps(explain(caught.value).detail)


@pytest.mark.parametrize("exists", [True, False])
def test_a_name_without_a_folder_costs_nothing_and_a_bad_folder_the_model(
    tmp_path: Path, exists: bool
) -> None:
    sink = io.BytesIO()
    outbox, control = Outbox(sink), Control()
    backend = EngineBackend(outbox, control)
    backend._engine, backend._ready = FakeEngine(sound), STAND_IN  # type: ignore[assignment]
    if exists:
        (tmp_path / "model").mkdir()
    worker._do(LoadModel(str(tmp_path / "model")), backend, control, outbox)
    worker._do(Chat("q", QUESTION), backend, control, outbox)
    outbox.close(10)
    messages = [decode_engine(line) for line in sink.getvalue().splitlines()]
    failed = next(message for message in messages if isinstance(message, Error))
    assert failed.kind == "load"
    assert isinstance(messages[-1], Error if exists else Done)


def test_steps_are_built_only_when_sent() -> None:
    built = 0

    def counted() -> Step:
        nonlocal built
        built += 1
        return narrator().step(step("n"))()

    outbox = Outbox(io.BytesIO())
    for _ in range(1000):
        outbox.sample(counted)
    outbox.close(10)
    assert built < 20


def test_the_card_is_told_of_while_a_model_is_on_it() -> None:
    sink, gpu = io.BytesIO(), Gpu(free=7.8)
    outbox = Outbox(sink)
    card = CardWatch(outbox, Gauges(Nvml(gpu), gpu))
    card.start()
    while not sink.getvalue().endswith(b"\n"):
        time.sleep(0.01)
    card.end()
    card.join()
    outbox.close(10)
    (first, *_) = [decode_engine(line) for line in sink.getvalue().splitlines()]
    assert isinstance(first, protocol.Gpu)
    assert (first.power_watts, first.temperature_c, first.utilisation) == (388.0, 66, 97)
