"""Bars, speeds, retries and pauses, with a clock that tests set."""

import threading
import time
from typing import Any

import pytest

from app.hub.control import Control, Interrupted, Stopped
from app.hub.faults import Asked, Failure, FailureError
from app.hub.limits import Limits
from app.hub.plan import PlannedFile
from app.hub.progress import Tally
from app.hub.retrying import Retrying
from tests.app.hub.hub_server import sha256

COMMIT, OTHER = "a" * 40, "b" * 40
ASKED = Asked("o/n", "main", "https://huggingface.co")


def planned(**bodies: bytes) -> tuple[PlannedFile, ...]:
    return tuple(PlannedFile(name, len(body), sha256(body)) for name, body in bodies.items())


# --- progress -----------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_bar_never_runs_backwards() -> None:
    files = planned(a=b"x" * 1000, b=b"y" * 1000)
    tally = Tally(files, Clock())
    tally.turn("a", "fetching")
    tally.arrived("a", 800)
    assert tally.snapshot().done == tally.done == tally.kept == 800
    tally.have("a", 0)  # it was damaged
    assert (tally.snapshot().done, tally.kept) == (800, 0)
    tally.arrived("a", 100)
    assert (tally.snapshot().done, tally.kept) == (800, 100)
    tally.arrived("a", 900)
    tally.arrived("b", 1000)
    assert tally.snapshot().done == tally.total == 2000
    assert tally.fetched == 2800
    tally.arrived("b", 50)
    assert tally.snapshot().done == 2000, "nor beyond the end"


def test_speed_is_the_mean_of_ten_seconds_and_nothing_while_nothing_comes() -> None:
    clock = Clock()
    tally = Tally(planned(a=b"x" * 100_000), clock)
    tally.have("a", 10_000)
    assert (tally.snapshot().speed, tally.snapshot().left) == (0.0, None)
    tally.turn("a", "fetching")
    for _ in range(40):
        clock.now += 0.5
        tally.arrived("a", 1000)
    now = tally.snapshot()
    assert 1900 <= now.speed <= 2200
    assert now.left == pytest.approx(50_000 / now.speed, rel=0.01)
    assert (now.stalled, now.elapsed) == (0.0, 20.0)
    (row,) = now.files
    assert (row["path"], row["state"], row["done"]) == ("a", "fetching", 50_000)
    clock.now += 12
    now = tally.snapshot()
    assert (now.speed, now.stalled, now.left) == (0.0, 12.0, None)
    tally.restart()
    assert tally.snapshot().stalled == 0.0, "a pause is no stall"
    tally.turn("a", "checking")
    clock.now += 12
    assert tally.snapshot().stalled == 0.0, "nor is a check"
    tally.checked("a", 60_000)
    assert tally.snapshot().checked == 60_000
    assert tally.turn("a", "checked") == (100_000, 100_000)
    assert tally.snapshot().left == 0.0
    assert not tally.snapshot().files


# --- retries ------------------------------------------------------------------------------------


def retrying(clock: Clock, moved: Any = lambda: 0, **limits: float) -> tuple[Retrying, list[Any]]:
    told: list[Any] = []

    class Sleepless(Control):
        def sleep(self, seconds: float) -> None:
            clock.now += seconds

    return (
        Retrying(
            ASKED, Limits(**limits), Sleepless(), 60.0,
            lambda failure, wait, attempt: told.append((wait, attempt)), moved, clock,
        ),
        told,
    )  # fmt: skip


def passing(wait: float | None = None) -> FailureError:
    return FailureError(Failure("network", "Cut.", "Check.", passing=True, wait=wait))


def fail(*errors: Exception) -> Any:
    queue = list(errors)

    def action() -> str:
        if queue:
            raise queue.pop(0)
        return "done"

    return action


def test_waits_double_up_to_the_longest() -> None:
    tries, told = retrying(Clock(), first_wait=1.0, longest_wait=5.0)
    assert tries.run(fail(*[passing()] * 5)) == "done"
    assert told == [(1.0, 1), (2.0, 2), (4.0, 3), (5.0, 4), (5.0, 5)]


def test_patience_ends() -> None:
    clock = Clock()
    tries, told = retrying(clock, longest_wait=20.0)
    with pytest.raises(FailureError, match="Cut"):
        tries.run(fail(*[passing()] * 100))
    assert sum(wait for wait, _ in told) <= 60
    assert len(told) == 6


def test_a_server_may_ask_for_a_longer_wait_than_patience_has() -> None:
    tries, told = retrying(Clock(), longest_order=300.0)
    assert tries.run(fail(passing(90.0))) == "done"
    assert told == [(90.0, 1)]
    tries, told = retrying(Clock(), longest_order=300.0)
    with pytest.raises(FailureError):
        tries.run(fail(*[passing(9000.0)] * 10))
    assert {wait for wait, _ in told} == {300.0}


def test_patience_has_no_end_while_bytes_come() -> None:
    count = iter(range(10_000))
    tries, told = retrying(Clock(), moved=lambda: next(count))
    assert tries.run(fail(*[passing()] * 500)) == "done"
    assert {attempt for _, attempt in told} == {1}


def test_what_is_final_is_not_tried_again() -> None:
    tries, told = retrying(Clock())
    with pytest.raises(FailureError):
        tries.run(fail(FailureError(Failure("gated", "No.", "Ask."))))
    with pytest.raises(FailureError) as caught:
        tries.run(fail(KeyError("bug")))
    assert caught.value.failure.kind == "internal"
    assert not told


# --- control ------------------------------------------------------------------------------------


def test_a_pause_interrupts_and_holds() -> None:
    control = Control()
    control.check()
    assert control.pause()
    assert not control.pause()
    with pytest.raises(Interrupted):
        control.check()
    thread = threading.Thread(target=control.wait)
    thread.start()
    assert control.resume()
    assert not control.resume()
    thread.join(10)
    assert not thread.is_alive()
    begun = time.monotonic()
    threading.Timer(0.05, control.stop).start()
    with pytest.raises(Stopped):
        control.sleep(60)
    assert time.monotonic() - begun < 30
    with pytest.raises(Stopped):
        control.check()
    assert control.start_again()
    thread = threading.Thread(target=control.sleep, args=(600,))
    thread.start()
    time.sleep(0.1)
    control.pause()
    control.resume()  # at once: the sleeper must not miss it
    thread.join(60)
    assert not thread.is_alive()
    control.check()
    control.cancel()
    assert not control.start_again()
