"""Terminals of every kind: sizes, colours, ASCII, keys, big pastes, scripts of the world."""

import itertools
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.segment import Segment
from textual._xterm_parser import XTermParser
from textual.color import Color as ScreenColor

from app.tui.ascii_only import AsciiOnly, strictly_ascii
from app.tui.theme import sixteen_colours
from app.tui.widgets.block_view import BlockView
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script

PLAIN = "Counting the apples gives forty seven, and adding the pears makes eighty five. " * 4
SCRIPTS = "汉字かな 한국어 😀👩‍💻🇩🇪 e\u0301a\u0308 שלום עליכם مرحبا بالعالم"


def trace_of(tmp_path: Path, *texts: str, pace: float = 0.001) -> Path:
    script = Script(pace=pace)
    for text in texts:
        script.answer(text)
    return script.write(tmp_path / "t")


async def typed(shown: Window, data: str) -> None:
    """Bytes as a terminal sends them."""
    shown._arrive(*XTermParser().feed(data))  # type: ignore[arg-type]


def widths(shown: Window) -> set[int]:
    strips = shown.app.screen._compositor.render_strips()
    return {cell_len(strip.text) for strip in strips}


async def test_resizing_while_an_answer_is_written(tmp_path: Path) -> None:
    """Every line is as wide as the window, at every size, and nothing of the answer is lost."""
    sizes = itertools.cycle([(60, 20), (200, 60), (80, 24), (59, 19), (100, 30), (61, 23)])
    async with window(trace_of(tmp_path, PLAIN * 6, pace=0.03), size=(100, 30)) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.writing(0)
        count = 0
        while shown.session.turn is not None:
            width, height = next(sizes)
            await shown.pilot.resize_terminal(width, height)
            assert widths(shown) == {width}
            count += 1
        assert count > 0
        await shown.pilot.resize_terminal(200, 60)
        await shown.answered()
        assert shown.session.conversation.entries[-1].content == PLAIN * 6
        await shown.shows("makes eighty five.")


@pytest.mark.parametrize(
    ("protocol", "enter", "newline"),
    [
        ("plain", "\r", "\n"),
        ("kitty", "\x1b[13u", "\x1b[106;5u"),
        ("kitty with shift", "\x1b[13u", "\x1b[13;2u"),
        ("kitty with alt", "\x1b[13u", "\x1b[13;3u"),
    ],
)
async def test_enter_sends_and_newline_breaks_the_line_in_every_key_protocol(
    tmp_path: Path, protocol: str, enter: str, newline: str
) -> None:
    async with window(trace_of(tmp_path, "Yes.")) as shown:
        prompt = shown.app.chat.query_one(Prompt)
        await shown.until(lambda: prompt.has_focus)
        await typed(shown, "one")
        await typed(shown, newline)
        await typed(shown, "two")
        await shown.until(lambda: prompt.text == "one\ntwo")
        await typed(shown, enter)
        await shown.until(lambda: shown.session.conversation.prompts == ["one\ntwo"])


async def test_a_paste_of_100_kb_is_counted_and_kept(tmp_path: Path) -> None:
    text = "\n".join("y" * 79 for _ in range(1250))
    async with window(trace_of(tmp_path, "Long.")) as shown:
        prompt = shown.app.chat.query_one(Prompt)
        await shown.until(lambda: prompt.has_focus)
        await typed(shown, f"\x1b[200~{text}\x1b[201~")
        await shown.shows("99,999 characters in 1,250 lines")
        assert prompt.text == text
        await shown.press("x")
        await shown.shows("100,000 characters in 1,250 lines")
        await shown.ready()
        await shown.press("enter")
        await shown.answered()
        assert shown.session.conversation.prompts == [text + "x"]
        await shown.until(lambda: "characters" not in shown.text)


@pytest.mark.parametrize("size", [(100, 30), (60, 24)])
async def test_scripts_of_the_world_in_prompt_answer_and_block(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with window(trace_of(tmp_path, SCRIPTS), size=size) as shown:
        prompt = shown.app.chat.query_one(Prompt)
        await shown.until(lambda: prompt.has_focus)
        await typed(shown, SCRIPTS)
        await shown.until(lambda: prompt.text == SCRIPTS)
        assert widths(shown) == {size[0]}
        await shown.ready()
        await shown.press("enter")
        await shown.answered()
        assert shown.session.conversation.entries[-1].content == SCRIPTS
        await shown.until(lambda: shown.app.chat.query_one(BlockView).is_on_screen)
        for word in ("汉字かな", "한국어", "שלום", "مرحبا", "e\u0301a\u0308"):
            await shown.shows(word)
        assert widths(shown) == {size[0]}


async def test_no_color_leaves_every_state_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with window(trace_of(tmp_path, PLAIN)) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.answered()
        await shown.press("f6")
        await shown.press("right", "right", "right")
        await shown.shows("Block 1 · step 4 of 4")
        segments = [s for strip in shown.app.screen._compositor.render_strips() for s in strip]
        colours = {
            part.get_truecolor()
            for segment in segments
            if segment.style is not None
            for part in (segment.style.color, segment.style.bgcolor)
            if part is not None
        }
        assert all(red == green == blue for red, green, blue in colours)
        new = [s for s in segments if s.style and s.style.bold and s.text == "makes"]
        edited = [s for s in segments if s.style and s.style.underline and s.text.endswith("*")]
        assert new
        assert edited


async def test_confidence_colours_can_be_turned_off(tmp_path: Path) -> None:
    async with window(trace_of(tmp_path, PLAIN), confidence_colours=False) as shown:
        await shown.ready()
        await shown.ask("Go")
        await shown.answered()
        await shown.press("f6")
        await shown.shows("Block 1 · step 1 of 4")
        block = shown.app.screen.query_one(BlockView)
        plain = block.get_component_rich_style("block--set").color
        lines = [block.render_line(y) for y in range(1, 5)]
        new = [s for line in lines for s in line if s.style and s.style.bold]
        assert new
        assert {s.style.color for s in new if s.style} == {plain}


def test_sixteen_colours_tell_the_certainties_apart() -> None:
    for dark in (True, False):
        names = ("text-success", "text-warning", "text-error")
        found = sixteen_colours(dark=dark)
        numbers = {
            ScreenColor.parse(found[name]).rich_color.downgrade(ColorSystem.STANDARD).number
            for name in names
        }
        assert len(numbers) == 3
        assert Color.parse(found["line"]).downgrade(ColorSystem.STANDARD).number in (7, 8)


def test_where_only_ascii_can_be_shown_every_cell_is_one() -> None:
    text = f"─ {SCRIPTS} ░░░ é"
    plain = strictly_ascii(text)
    assert plain.isascii()
    assert cell_len(plain) == cell_len(text)
    assert strictly_ascii("漢字 ok") == "???? ok"
    (line,) = AsciiOnly(strict=True).apply([Segment("é─")], ScreenColor(0, 0, 0))
    assert line.text == "?-"


async def test_in_a_c_locale_no_other_byte_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    async with window(trace_of(tmp_path, SCRIPTS), size=(80, 24)) as shown:
        await shown.ready()
        await shown.ask("漢字?")
        await shown.answered()
        await shown.until(lambda: shown.app.chat.query_one(Transcript).border_title)
        app = shown.app
        drawn = [
            segment.text
            for y in range(app.size.height)
            for segment in app.screen._compositor.render_strips()[y].apply_filter(
                app._filters[-1], ScreenColor(0, 0, 0)
            )
        ]
        assert "".join(drawn).isascii()
