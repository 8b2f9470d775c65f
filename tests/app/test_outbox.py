"""The outbox never delays who fills it, keeps order, and samples steps with the newest winning."""

import io
import os
import threading
import time
from collections.abc import Callable

from app.outbox import RATE, Outbox
from app.protocol import Block, EngineMessage, Gpu, Step, decode_engine


def step(number: int) -> Callable[[], Step]:
    return lambda: Step("a", 0, number, [], 0, 0, 0, number, 0.0)


def block(index: int) -> Block:
    return Block("a", index, "", 0, 0, 0, 0, 0.0, 0.0)


class Sink(io.BytesIO):
    """Keeps what was written when closed by nobody."""

    def messages(self) -> list[EngineMessage]:
        return [decode_engine(line) for line in self.getvalue().splitlines()]


def test_order_is_kept() -> None:
    sink = Sink()
    outbox = Outbox(sink)
    for number in range(100):
        outbox.put(block(number))
        outbox.put(step(number))
    outbox.close(10)
    messages = sink.messages()
    assert [m.type for m in messages] == ["block", "step"] * 100
    assert [m.index for m in messages if isinstance(m, Block)] == list(range(100))


def test_steps_are_sampled_and_the_newest_arrives() -> None:
    sink = Sink()
    outbox = Outbox(sink)
    begin = time.monotonic()
    for number in range(300):
        outbox.sample(step(number))
        time.sleep(0.001)
    time.sleep(2 / RATE)
    elapsed = time.monotonic() - begin
    outbox.close(10)
    steps = [m for m in sink.messages() if isinstance(m, Step)]
    assert 1 <= len(steps) <= elapsed * RATE + 2
    assert steps[-1].forwards == 299, "the last step is not left lying"


def test_what_is_no_part_of_an_answer_takes_no_step_away() -> None:
    sink = Sink()
    outbox = Outbox(sink)
    for number in range(3):
        outbox.sample(step(number))
        outbox.aside(Gpu(power_watts=float(number)))
    while len(sink.getvalue().splitlines()) < 4:
        time.sleep(0.01)
    outbox.close(10)
    steps = [m for m in sink.messages() if isinstance(m, Step)]
    assert steps[-1].forwards == 2


def test_a_block_replaces_the_step_that_waits() -> None:
    sink = Sink()
    outbox = Outbox(sink)
    outbox.put(step(0))
    for number in range(1, 50):
        outbox.sample(step(number))
    outbox.put(block(0))
    outbox.close(10)
    assert sink.messages()[-1] == block(0)


def test_the_last_message_brings_the_newest_step() -> None:
    sink = Sink()
    outbox = Outbox(sink)
    for number in range(1, 50):
        outbox.sample(step(number))
        outbox.put(block(number))
    outbox.last(block(99))
    outbox.last(block(100))
    outbox.close(10)
    *_, newest, last, other = sink.messages()
    assert isinstance(newest, Step)
    assert newest.forwards == 49
    assert (last, other) == (block(99), block(100)), "and brings it once"


def test_a_reader_that_does_not_read_delays_nobody() -> None:
    reading, writing = os.pipe()
    with open(writing, "wb", buffering=0) as pipe:
        outbox = Outbox(pipe)
        begin = time.monotonic()
        for number in range(20_000):
            outbox.put(block(number))
        assert time.monotonic() - begin < 10
        outbox.close(0.05)
        os.close(reading)
        outbox.close(10)


def test_nobody_at_the_other_end() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    broken = threading.Event()
    with open(writing, "wb", buffering=0) as pipe:
        outbox = Outbox(pipe, on_broken=broken.set)
        outbox.put(block(0))
        assert broken.wait(10)
        outbox.put(block(1))
        outbox.close(10)
