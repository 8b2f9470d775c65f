"""How numbers are written, and the line under an answer."""

import pytest

from app.protocol import Done, Gpu
from app.tui.ascii_only import AsciiOnly, ascii_text
from app.tui.conversation import Conversation, Entry
from app.tui.figures import DEFINITIONS, NOTHING, count, duration, rate, ratio, size, stats_line
from app.tui.live import Live
from app.tui.panel import one_line, rows
from app.tui.slots import plain
from app.tui.spark import meter, spark
from app.tui.state import EngineState, Phase, Turn
from tests.app.tui.recording import READY
from tests.app.tui.test_live import block, step

STATS = {"tokens": 268, "forwards": 32, "tpf": 8.375, "tokens_per_second": 1514.4,
         "decode_seconds": 0.177}  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, NOTHING), (0.0, "0 ms"), (0.0554, "55 ms"), (0.0995, "0.10 s"), (0.177, "0.18 s"),
     (9.99, "9.99 s"), (9.996, "10.0 s"), (59.9, "59.9 s"), (59.96, "1 min 00 s"),
     (245.2, "4 min 05 s")],
)  # fmt: skip
def test_durations(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_rates_counts_and_sizes() -> None:
    assert [rate(v) for v in (None, 0.5, 8.4, 84.04, 1503.6)] == [
        NOTHING,
        "0.50",
        "8.40",
        "84.0",
        "1,504",
    ]
    assert (ratio(None), ratio(8.4), count(None), count(32768)) == (
        NOTHING,
        "8.40",
        NOTHING,
        "32,768",
    )
    assert [size(v) for v in (12, 1200, 10_500_000, 10.9e9)] == [
        "12 B",
        "1.2 kB",
        "10.5 MB",
        "10.9 GB",
    ]


def test_the_line_under_an_answer() -> None:
    assert stats_line(STATS, "end") == "268 tok · 1,514 tok/s · TPF 8.38 · 32 fwd · 0.18 s"
    assert stats_line(STATS, "stopped").endswith(" · 0.18 s · stopped")
    assert stats_line(STATS, "length").endswith(" · reached the answer limit")
    slow = {**STATS, "measured": False}
    assert (
        stats_line(slow, "end") == "268 tok · TPF 8.38 · 32 fwd · slow motion: speed not measured"
    )
    assert stats_line(None, "interrupted") == "interrupted"
    assert stats_line({"tokens": "many", "tpf": None}, "end") == ""
    assert stats_line({"tokens": 3, "tokens_per_second": True, "tpf": []}, None) == "3 tok"


def test_every_number_on_screen_has_a_definition() -> None:
    words = " ".join(name for name, _ in DEFINITIONS)
    assert all(n in words for n in ("tok/s", "TPF", "forward", "first block", "edits", "context"))


def turn(live: Live) -> Turn:
    answer = Entry("assistant", "")
    return Turn(Conversation(entries=[answer]), Entry("user", "q"), answer, {}, live=live)


def test_the_panel_while_an_answer_is_written() -> None:
    live = Live(prompt_tokens=516)
    for index in range(3):
        live.close_block(block(index, 0.2))
    live.advance(step(3, 2, tokens=104))
    engine = EngineState(
        Phase.READY, ready=READY, gpu=Gpu(11_800_000_000, 31_800_000_000, 412, 61, 97)
    )
    assert plain(rows(turn(live), None, engine, 29)) == [
        "tok/s           160  ██",
        "TPF            8.00  ██",
        "forwards/s     20.0  ██",
        "",
        "first block  0.20 s",
        "this answer  104 tok / 14 fwd",
        "block        4, step 2",
        "edits        3",
        "",
        "context      620 / 2,048",
        "━━━━━━━━━────────────────────",
        "",
        "VRAM         11.8 / 31.8 GB",
        "GPU          97 %  412 W  61 °C",
    ]
    assert plain([one_line(turn(live), engine, 78)]) == [
        "tok/s 160   TPF 8.00   context 620 / 2,048   block 4, step 2"
    ]
    assert plain([one_line(turn(live), engine, 44)]) == [
        "tok/s 160   TPF 8.00   context 620 / 2,048"
    ]


def test_the_panel_before_and_after_and_in_slow_motion() -> None:
    empty = plain(rows(None, None, EngineState(), 29))
    assert empty[0] == f"tok/s        {NOTHING}"
    assert empty[5] == f"this answer  {NOTHING}"
    assert empty[9] == f"context      {NOTHING}"
    done = Live()
    done.close_block(block(0, 0.177, tokens=268, forwards=32))
    done.finish(Done("a", "end", "", STATS))
    shown = plain(rows(turn(done), None, EngineState(), 29))
    assert shown[0] == "tok/s         1,514"
    assert "blocks       1" in shown
    slow = Live()
    slow.close_block(block(0, 1.0, measured=False))
    slow.close_block(block(1, 1.0, measured=False))
    shown = plain(rows(turn(slow), turn(done), EngineState(), 29))
    assert shown[0] == "tok/s        not measured"
    assert shown[1] == "TPF            8.00"
    assert shown[4] == f"first block  {NOTHING}"
    assert shown[-1] == "before  1,514 tok/s  TPF 8.38"


def test_context_turns_amber_at_four_fifths() -> None:
    engine = EngineState(Phase.READY, ready=READY)
    looks = [
        {look for row in rows(turn(Live(prompt_tokens=used)), None, engine, 29) for _, look in row}
        for used in (1600, 1700, 5000)
    ]
    assert ["warning" in found for found in looks] == [False, True, True]


def test_sparks_and_meters() -> None:
    assert spark([1, 2, None, 4], 6) == "▃▅ █  "
    assert spark(range(20), 4) == "▇▇██"
    assert spark([0, 0], 3) == spark([], 3) == "   "
    assert meter(0.0, 4) == ("", "────")
    assert meter(0.001, 4) == ("━", "───")
    assert meter(7.0, 4) == ("━━━━", "")


def test_ascii_mode_replaces_our_glyphs_cell_for_cell() -> None:
    ours = "░░░ ↵ ␣ \u203a · \u2013 … ▁▂▃▄▅▆▇█ ━─ ╭╮╰╯ │ ├ ⠿ ✓ ● ▊ ⇥ ↑"
    text = ascii_text(ours)
    assert text.isascii()
    assert len(text) == len(ours)
    assert ascii_text("漢字 é") == "漢字 é"
    assert AsciiOnly().apply([], None) == []  # type: ignore[arg-type]
