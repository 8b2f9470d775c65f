"""A block's steps as what they changed: nothing that a picture shows is lost on the way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol import Block, Step, encode
from app.steps import Picture, changes, unfold
from tests.app.tui.recording import denoising, tokens_of

TEXT = "The list is sorted first by name, which keeps\nthe order of equal names: that is stable."


def block(pictures: list[Picture], **fields: Any) -> Block:
    return Block(
        "a", 2, TEXT, 20, len(pictures), len(pictures), 0, 0.1, 0.5,
        positions=len(pictures[0].slots), changes=changes(pictures), **fields,
    )  # fmt: skip


def shown(slots: Any) -> list[Any]:
    """What a picture shows of its slots: undecided ones have no token, settled ones no colour."""
    return [
        None if state == "u" else (token, text, confidence if state in "ne" else None, state)
        for token, text, confidence, state in slots
    ]


def test_pictures_come_back_from_the_changes() -> None:
    pictures = [
        Picture(number / 10, number + 7, slots)
        for number, slots in enumerate(denoising(tokens_of(TEXT)), start=1)
    ]
    steps = unfold(block(pictures), before=64)
    assert [shown(step.slots) for step in steps] == [shown(p.slots) for p in pictures]
    assert [(s.block, s.step, s.forwards, s.seconds) for s in steps] == [
        (2, number, number + 7, number / 10) for number in (1, 2, 3, 4)
    ]
    assert [(s.unmasked, s.edited) for s in steps] == [(8, 0), (8, 0), (8, 0), (8, 1)]
    assert [s.tokens for s in steps] == [72, 80, 88, 96]


STATES = st.lists(st.sampled_from("unsep"), min_size=3, max_size=3)


@given(st.lists(STATES, min_size=1, max_size=6))
def test_any_order_of_states_comes_back(history: list[list[str]]) -> None:
    pictures = [
        Picture(float(number), number, [[number, "" if s == "u" else "w", 0.5, s] for s in states])
        for number, states in enumerate(history)
    ]
    steps = unfold(block(pictures))
    assert [shown(step.slots) for step in steps] == [shown(p.slots) for p in pictures]


def test_a_block_with_its_steps_is_as_small_as_one_picture() -> None:
    pictures = [Picture(0.0, 1, slots) for slots in denoising(tokens_of(TEXT), steps=16)]
    whole = len(encode(block(pictures))) - len(encode(Block("a", 2, TEXT, 20, 16, 16, 0, 0.1, 0.5)))
    picture = len(encode(Step("a", 2, 1, list(pictures[-1].slots), 8, 0, 8, 1, 0.1)))  # type: ignore[arg-type]
    assert whole < 2 * picture


@pytest.mark.parametrize(
    "broken",
    [None, [], [0.1], [0.1, 1], [0.1, 1, 5], [0.1, 1, [[99, 1, "x", 0.5, "n"]]], ["x", 1, []],
     [0.1, 1, [[0, 1, "x", "much", "n"]]]],
)  # fmt: skip
def test_what_is_malformed_ends_the_list(broken: Any) -> None:
    good = [0.1, 1, [[0, 1, "x", 0.5, "n"]]]
    message = Block("a", 0, "x", 1, 2, 2, 0, 0.1, 0.1, positions=2, changes=[good, broken])
    assert [step.step for step in unfold(message)] == [1]
