"""A recorded answer as frames, the projector that shows them, the heat strip, and the export."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.protocol import Block, Step
from app.trace import RecordedAnswer, Timed, read_recording
from app.tui import heat
from app.tui.film import SPEEDS, Film, Projector
from app.tui.film_export import as_json
from app.tui.slots import plain
from tests.app.tui.recording import Script

TEXT = "The list is sorted first by name, which keeps the order of equal names stable. " * 5


@pytest.fixture
def recorded(tmp_path: Path) -> RecordedAnswer:
    """Three blocks of four steps each, 20 ms a step."""
    return read_recording(Script().answer(TEXT).write(tmp_path / "t")).answers[0]


def projector(recorded: RecordedAnswer, speed: int = 0) -> Projector:
    found = Projector(Film.of(recorded), speed_index=speed)
    found.toggle()
    return found


def test_a_block_has_a_frame_a_step_and_one_when_it_is_final(recorded: RecordedAnswer) -> None:
    film = Film.of(recorded)
    assert [(f.block, f.step, f.final) for f in film.frames[:6]] == [
        (0, 1, False), (0, 2, False), (0, 3, False), (0, 4, False), (0, 4, True), (1, 1, False),
    ]  # fmt: skip
    assert film.frames[4].slots == film.frames[3].slots
    assert film.note == ""
    assert film.text_before(2) == film.blocks[0].text + film.blocks[1].text


def test_steps_back_and_forward_stay_within_the_film(recorded: RecordedAnswer) -> None:
    show = Projector(Film.of(recorded))
    show.move(-1)
    assert show.index == 0
    show.move(3)
    show.move(-1)
    assert (show.frame.block, show.frame.step) == (0, 3)  # type: ignore[union-attr]
    show.move(1000)
    assert show.at_end
    show.go(1, 3)
    assert (show.frame.block, show.frame.step) == (1, 3)  # type: ignore[union-attr]
    show.go(99)
    assert show.frame.block == 2  # type: ignore[union-attr]
    show.go(-5)
    assert show.index == 0


def test_playing_takes_the_time_of_its_speed(recorded: RecordedAnswer) -> None:
    show = projector(recorded)  # one step a second
    assert not show.advance(0.75)
    assert show.advance(0.5)
    assert show.index == 1
    show.faster(1)  # two a second
    assert show.advance(1.0)
    assert show.index == 3
    show.toggle()
    assert not show.advance(100)
    show.toggle()
    assert show.advance(100)
    assert show.at_end
    assert not show.playing
    show.toggle()
    assert (show.index, show.playing) == (0, True)


def test_the_recorded_time_is_kept_and_frames_too_quick_to_see_are_left_out(
    recorded: RecordedAnswer,
) -> None:
    show = projector(recorded, speed=len(SPEEDS) - 1)
    assert show.speed == "as it was"
    show.advance(0.055)  # steps come each 20 ms
    assert show.frame is not None
    assert show.frame.seconds == pytest.approx(0.07)


def test_an_empty_film_can_be_handled() -> None:
    show = Projector(Film.of(RecordedAnswer(None)))
    show.toggle()
    show.move(1)
    show.go(3)
    show.faster(-10)
    assert not show.advance(1.0)
    assert (show.frame, show.playing, show.place()) == (None, False, "nothing was recorded")


def test_what_is_missing_or_not_to_the_letter_is_said(recorded: RecordedAnswer) -> None:
    sampled = [
        timed
        for timed in recorded.messages
        if not (isinstance(timed.message, Step) and timed.message.step == 2)
    ]
    film = Film.of(RecordedAnswer(None, sampled))
    assert film.note == "9 of 12 steps recorded: pictures were sampled"
    together = [
        Timed(0.5, replace(timed.message, seconds=0.5))
        if isinstance(timed.message, Step)
        else timed
        for timed in recorded.messages
    ]
    film = Film.of(RecordedAnswer(None, together))
    assert film.note == "blocks timed, steps evenly drawn"
    assert [round(f.seconds, 3) for f in film.frames[:4]] == [0.44, 0.46, 0.48, 0.5]
    slow = [
        Timed(timed.seconds, replace(timed.message, measured=False))
        if isinstance(timed.message, Block)
        else timed
        for timed in recorded.messages
    ]
    assert "speeds not measured" in Film.of(RecordedAnswer(None, slow)).note


def test_the_heat_strip_is_a_row_a_block_and_a_cell_a_step() -> None:
    def block(unmasked: list[int], edits: list[int], tokens: int = 32, index: int = 0) -> Block:
        steps = len(unmasked)
        return Block("a", index, "", tokens, steps, steps, 0, 0.021, 0.1, unmasked, edits)

    blocks = [block([16, 8, 1, 0], [0, 0, 2, 1]), block([2, 0], [], tokens=2, index=11)]
    most = heat.top(blocks)
    assert most == 16
    assert plain([heat.row(b, 24, most) for b in blocks]) == [
        "  1 █▄▁*              32",
        " 12 ▁·                 2",
    ]
    assert plain([heat.row(blocks[0], 40, most)]) == [
        "  1 █▄▁*                      32   21 ms",
    ]
    looks = [look for _, look in heat.row(blocks[0], 24, most, at=(0, 2))]
    assert looks == ["here", "bar", "bar-at", "edited", "edited", "label"]
    (long,) = plain([heat.row(block([1] * 100, []), 24, 1)])
    assert long == "  1 ██████████████…   32"


def test_the_export_holds_every_picture_and_figure(recorded: RecordedAnswer) -> None:
    told = json.loads(as_json(Film.of(recorded)))
    assert told["replay"] == 1
    assert told["answer"] == TEXT
    assert [len(block["pictures"]) for block in told["blocks"]] == [4, 4, 4]
    first = told["blocks"][0]
    assert first["unmasked_per_step"] == [8, 8, 8, 8]
    assert len(first["pictures"][0]["slots"]) == 32
    assert told["stats"]["forwards"] == 12
