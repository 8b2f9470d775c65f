"""What the reader tells the engine loop arrives at once, also in the middle of a wait."""

import threading
import time

from app.control import Control
from app.protocol import Chat, Unload


def chat(id: str) -> Chat:
    return Chat(id, [])


def test_work_is_done_in_order_and_quit_overtakes() -> None:
    control = Control()
    assert control.add(Unload())
    assert control.add(chat("a"))
    assert control.next_work() == Unload()
    control.quit()
    assert control.next_work() is None


def test_an_id_is_open_once() -> None:
    control = Control()
    assert control.add(chat("a"))
    assert not control.add(chat("a"))
    control.close("a")
    assert control.add(chat("a"))


def test_stop_reaches_a_queued_chat_and_no_later_one() -> None:
    control = Control()
    control.add(chat("a"))
    control.stop("a")
    control.stop("unknown")
    assert control.is_stopped("a")
    control.close("a")
    control.add(chat("a"))
    assert not control.is_stopped("a")


def test_full_speed_does_not_wait() -> None:
    control = Control()
    control.add(chat("a"))
    assert not control.wait("a")


def waiting(control: Control, seconds: float | None = None) -> tuple[threading.Thread, list[bool]]:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(control.wait("a", seconds)))
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    return thread, results


def test_stop_pace_and_quit_end_a_wait() -> None:
    control = Control()
    control.add(chat("a"))
    control.set_pace(600)
    thread, results = waiting(control)
    control.set_pace(0)
    thread.join(10)
    assert results == [False]

    thread, results = waiting(control, 600)
    control.stop("a")
    thread.join(10)
    assert results == [True]

    control.close("a")
    control.add(chat("a"))
    thread, results = waiting(control, 600)
    control.quit()
    thread.join(10)
    assert results == [True]
