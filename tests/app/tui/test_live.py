"""Rates and counts on hand-made sequences of messages."""

from typing import Any

import pytest

from app.protocol import Block, Done, Prefill, Step
from app.tui.live import NO_RATES, Live, rates


def block(index: int, seconds: float, tokens: int = 32, forwards: int = 4, **more: Any) -> Block:
    fields: dict[str, Any] = {
        "steps": 4, "commits": 0, "elapsed": (index + 1) * seconds, "edits_per_step": [0, 0, 1, 0],
    }  # fmt: skip
    fields |= more
    return Block("a", index, "text", tokens, forwards=forwards, seconds=seconds, **fields)


def step(block: int, step: int, tokens: int, *, edited: int = 0, measured: bool = True) -> Step:
    slots = [[1, "x", 0.9, "n"]] * 8 + [[0, "", 0.1, "u"]] * 24
    return Step("a", block, step, slots, 8, edited, tokens, 4 * block + step, 0.1, measured)


def test_one_block_is_no_rate() -> None:
    assert rates([]) == NO_RATES
    assert rates([block(0, 3.0)]) == NO_RATES


def test_two_blocks_are_a_rate_however_long_they_took() -> None:
    figures = rates([block(0, 2.0), block(1, 2.0, forwards=12)])
    assert figures.tokens_per_second == pytest.approx(64 / 4)
    assert figures.forwards_per_second == pytest.approx(16 / 4)
    assert figures.tpf == pytest.approx(64 / 16)


def test_the_window_is_the_last_half_second() -> None:
    slow = [block(i, 1.0) for i in range(3)]
    fast = [block(i, 0.1) for i in range(3, 20)]
    assert rates([*slow, *fast]).tokens_per_second == pytest.approx(320)


def test_a_block_without_time_gives_no_speed_but_a_tpf() -> None:
    figures = rates([block(0, 0.0), block(1, 0.0)])
    assert figures.tokens_per_second is None
    assert figures.tpf == 8


def test_slow_motion_has_no_speed() -> None:
    figures = rates([block(0, 1.0), block(1, 1.0, measured=False)])
    assert figures.tokens_per_second is None
    assert figures.forwards_per_second is None
    assert figures.tpf == 8


def test_an_answer_from_prefill_to_done() -> None:
    live = Live()
    assert live.context is None
    live.prefill(Prefill("a", tokens=64, total=96, cached=32, seconds=0.1))
    assert (live.prompt_done, live.context) == (96, 96)
    live.advance(step(0, 1, tokens=8, edited=2))
    assert (live.tokens, live.forwards, live.edits, live.decided) == (8, 1, 2, 8)
    assert live.first_block_seconds is None
    live.close_block(block(0, 0.5))
    assert (live.tokens, live.forwards, live.edits) == (32, 4, 1)
    assert (live.final, live.first_block_seconds, live.context) == (True, 0.5, 128)
    live.advance(step(1, 1, tokens=40))
    assert (live.tokens, live.final, live.picture) == (40, False, (1, 1))
    live.close_block(block(1, 0.5, tokens=20))
    live.finish(
        Done("a", "end", "text", {"text": "text", "tokens": 52, "forwards": 8, "tpf": 6.5,
                                  "tokens_per_second": 52.0, "decode_seconds": 1.0, "edits": 3})
    )  # fmt: skip
    assert live.stats is not None
    assert "text" not in live.stats
    assert live.stats["measured"] is True
    assert (live.tokens, live.edits) == (52, 3)
    assert live.rates.tokens_per_second == 52.0
    assert live.rates.forwards_per_second == 8.0


def test_a_last_look_at_a_final_block_changes_no_count() -> None:
    live = Live()
    live.close_block(block(0, 0.5))
    live.advance(step(0, 4, tokens=30, edited=5))
    assert (live.tokens, live.edits, live.picture, live.final) == (32, 1, (0, 4), False)


def test_an_answer_that_died_keeps_exact_counts_only() -> None:
    live = Live()
    live.advance(step(0, 3, tokens=24))
    assert live.counts() is None
    live.close_block(block(0, 0.5, tokens=30))
    live.advance(step(1, 1, tokens=44))
    assert live.counts() == {"tokens": 30, "forwards": 4, "tpf": 7.5, "trace": "a"}


def test_slow_motion_is_remembered_to_the_end() -> None:
    live = Live()
    live.advance(step(0, 1, tokens=8, measured=False))
    live.close_block(block(0, 0.5))
    live.close_block(block(1, 0.5))
    live.finish(Done("a", "end", "", {"tokens": 64, "tokens_per_second": 64.0, "forwards": 8,
                                      "decode_seconds": 1.0, "tpf": 8.0}))  # fmt: skip
    assert live.stats is not None
    assert live.stats["measured"] is False
    assert live.rates.tokens_per_second is None
    assert live.rates.tpf == 8.0
