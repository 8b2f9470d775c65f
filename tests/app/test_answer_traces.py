"""The chat's own recordings: written, found, bounded, and gone with their chat."""

import os
from collections.abc import Callable
from pathlib import Path

from app.answer_traces import AnswerTraces
from app.protocol import Block, Chat, Done, Step
from app.replay import STAND_IN
from app.trace import Timed, read_recording

CHANGES = [[0.1, 1, [[0, 7, "a", 0.9, "n"]]], [0.2, 2, [[1, 8, "b", 0.8, "n"]]]]
BLOCK = Block("abc", 0, "ab", 2, 2, 2, 0, 0.2, 0.2, positions=2, changes=CHANGES)
MESSAGES = [Timed(0.2, BLOCK), Timed(0.2, Done("abc", "end", "ab", {"tokens": 2}))]


def kept(traces: AnswerTraces, chat_id: int, turn: str) -> Path:
    assert traces.keep(chat_id, Chat(turn, []), STAND_IN, MESSAGES)
    path = traces.find(chat_id, turn)
    assert path is not None
    wait_for(lambda: "done" in [t.message.type for t in whole(path)])
    return path


def whole(path: Path) -> list[Timed]:
    try:
        return read_recording(path).answers[-1].messages
    except Exception:
        return []


def wait_for(what: Callable[[], bool]) -> None:
    """The writer is a thread of its own."""
    for _ in range(100_000):
        if what():
            return
    raise AssertionError("it never came")


def test_a_recording_is_a_trace_with_every_step(tmp_path: Path) -> None:
    path = kept(AnswerTraces(tmp_path / "traces"), 3, "abc")
    recording = read_recording(path)
    assert recording.ready == STAND_IN
    messages = [timed.message for timed in recording.answers[-1].messages]
    assert [message.type for message in messages] == ["step", "step", "block", "done"]
    step = messages[1]
    assert isinstance(step, Step)
    assert [slot[1:] for slot in step.slots] == [["a", 0.9, "s"], ["b", 0.8, "n"]]


def test_only_our_own_names_are_found(tmp_path: Path) -> None:
    traces = AnswerTraces(tmp_path)
    (tmp_path.parent / "other.gz").touch()
    (tmp_path / "mine.gz").touch()
    found = [traces.find(1, name) for name in ("/../../other", None, 5, "../other", "zz")]
    assert found == [None] * 5
    traces.prune(set())
    assert (tmp_path / "mine.gz").exists()


def test_recordings_go_with_their_chat_and_the_oldest_first(tmp_path: Path) -> None:
    traces = AnswerTraces(tmp_path)
    gone, old, new = kept(traces, 1, "a1"), kept(traces, 2, "b2"), kept(traces, 2, "c3")
    os.utime(old, (1, 1))
    traces.prune({2, 5})
    assert [path.exists() for path in (gone, old, new)] == [False, True, True]
    AnswerTraces(tmp_path, most_bytes=new.stat().st_size).prune({2})
    assert [path.exists() for path in (old, new)] == [False, True]


def test_a_folder_that_cannot_be_used_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    traces = AnswerTraces(tmp_path / "file")
    assert not traces.keep(1, Chat("a1", []), None, MESSAGES)
    assert traces.find(1, "a1") is None
    traces.prune(set())
