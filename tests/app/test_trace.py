"""Traces: written beside the answer, read back whole or up to where they break, played in time."""

import gzip
import math
from pathlib import Path

import pytest

from app.protocol import Block, Chat, Done, Error, Prefill, Ready, Step
from app.replay import STAND_IN
from app.trace import Timed, TraceError, TraceWriter, play, read_recording, read_trace

CHAT = Chat("a", [{"role": "user", "content": "hi"}])
PREFILL = '"type": "prefill", "id": "a", "tokens": 1, "total": 1, "cached": 0, "seconds": 0.5'


def step(number: int, id: str = "a") -> Step:
    return Step(id, 0, number, [[5, "w", 0.9, "n"]] * 32, 4, 0, number * 4, number, number / 10)


def block(index: int, id: str = "a") -> Block:
    return Block(id, index, f"block {index} ", 32, 4, 4, 0, 0.1, 0.5)


def written(path: Path, steps: int = 8) -> Path:
    writer = TraceWriter(path)
    writer.put(0.0, STAND_IN)
    writer.put(0.0, CHAT)
    writer.put(0.05, Prefill("a", 32, 32, 0, 0.05))
    for number in range(1, steps + 1):
        writer.put(number / 10, lambda number=number: step(number))
    writer.put(0.9, block(0))
    writer.put(1.0, Done("a", "end", "block 0 ", {"tokens": 32}))
    writer.close()
    assert writer.problem is None
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl.gz")
    timed = list(read_trace(path))
    assert timed[0] == Timed(0.0, STAND_IN)
    assert timed[1] == Timed(0.0, CHAT)
    assert timed[3] == Timed(0.1, step(1))
    assert len(timed) == 13
    recording = read_recording(path)
    assert recording.ready == STAND_IN
    (answer,) = recording.answers
    assert answer.request == CHAT
    assert [t.message.type for t in answer.messages] == ["prefill"] + ["step"] * 8 + [
        "block",
        "done",
    ]


def test_a_file_cut_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    data = written(tmp_path / "whole.gz").read_bytes()
    whole = list(read_trace(tmp_path / "whole.gz"))
    counts = set()
    for size in range(0, len(data), 7):
        path = tmp_path / "cut.gz"
        path.write_bytes(data[:size])
        try:
            read = list(read_trace(path))
        except TraceError:
            continue
        assert read == whole[: len(read)]
        counts.add(len(read))
    assert len(counts) > 1


def test_a_running_trace_can_be_read(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.gz")
    writer.put(0.0, CHAT)
    writer.put(0.1, block(0))
    for _ in range(200):
        if (
            len(list(read_trace(tmp_path / "t.gz"))) == 2
            if (tmp_path / "t.gz").stat().st_size
            else False
        ):
            break
        writer._thread.join(0.01)
    else:
        pytest.fail("nothing was flushed after a block")
    writer.close()


def test_plain_lines_and_broken_lines(tmp_path: Path) -> None:
    path = tmp_path / "by_hand.jsonl"
    path.write_text(
        '{"trace": 1}\nnonsense\n{"t": 1, "type": "dance"}\n{"type": "block"}\n[]\n'
        f'{{"t": 0.5, {PREFILL}}}\n'
        f'{{"t": "x", {PREFILL}}}\n'
        '{"t": 2, "type": "pre'
    )
    assert list(read_trace(path)) == [Timed(0.5, Prefill("a", 1, 1, 0, 0.5))]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no trace"),
        (b"\x89PNG", "no trace"),
        (b"\x1f\x8b\x08\x00garbage", "no trace"),
        (b'{"type": "hello"}\n', "no trace"),
        (b'{"trace": 99}\n', "format 99"),
        (b'{"trace": 1}\n', "no answer"),
        (gzip.compress(b'{"trace": 1}\n', mtime=0), "no answer"),
    ],
)
def test_what_is_no_trace_is_a_sentence(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=why):
        read_recording(path)


def test_missing_and_unwritable(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        list(read_trace(tmp_path / "none.gz"))
    with pytest.raises(TraceError, match="cannot be written: No such file"):
        TraceWriter(tmp_path / "none" / "t.gz")
    with pytest.raises(TraceError, match="cannot be written"):
        TraceWriter(tmp_path)
    with pytest.raises(TraceError, match="cannot be written"):
        TraceWriter("a\0b")


def test_a_full_disk_ends_the_trace_and_nothing_else() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    writer = TraceWriter(full)
    for number in range(100):
        writer.put(0.1, step(number))
        writer.put(0.1, block(number))
    writer.close()
    assert writer.problem is not None
    assert "No space left" in writer.problem


def test_answers_are_told_apart_by_id(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.gz")
    for id in ("a", "b"):
        writer.put(0.0, Chat(id, []))
        writer.put(0.1, block(0, id))
        writer.put(0.2, Error("internal", "broke", id=id))
    writer.put(0.0, block(7, "a"))
    writer.close()
    answers = read_recording(tmp_path / "t.gz").answers
    assert [a.request.id if a.request else None for a in answers] == ["a", "b", None]


def test_timing() -> None:
    messages = [Timed(0.5, step(1)), Timed(0.4, step(2)), Timed(2.5, block(0))]
    waits: list[float] = []
    assert len(list(play(messages, lambda s: bool(waits.append(s)), speed=2.0))) == 3
    assert waits == [0.25, 0.0, 1.0]
    assert len(list(play(messages, lambda s: s > 0, speed=1.0))) == 0
    waits.clear()
    assert len(list(play(messages, lambda s: bool(waits.append(s)), math.inf))) == 3
    assert waits == [0.0, 0.0, 0.0]


def test_ready_is_a_message_of_its_own() -> None:
    assert isinstance(STAND_IN, Ready)
