"""What a model may write, in whatever pieces: it is drawn as in one piece, and steers nothing."""

import asyncio
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from app.protocol import (
    Block,
    Done,
    EngineMessage,
    Error,
    Gpu,
    Loading,
    Prefill,
    Step,
    decode_engine,
    encode,
)
from app.store import Store
from app.tui.widgets import messages
from app.tui.widgets.safe_markdown import SafeMarkdown
from tests.app.tui.driver import PATIENCE, Window, window
from tests.app.tui.recording import READY, Script, stats

PIECES = (
    "word ", "two words ", "\n", "\n\n", "# head\n", "## \n", "- item\n", "  - inner\n", "1. one\n",
    "3) three\n", "> quote\n", ">> deep\n", "```python\n", "```\n", "~~~\n", "    code\n", "`a`",
    "`",
    "**", "*", "_", "~~", "[link](http://x)", "![i](y)", "[", "](", "| a | b |\n", "|---|---|\n",
    "| c | d |\n", "---\n", "***\n", "<b>x</b>", "<!-- ", "-->", "&amp;", "\\*", "  \n", "\t",
    "=\n",
    "https://e.x/?q=1 ", "[x] ", "- [ ] task\n", "[^1]", "$x$ ", "\r\n", "a" * 30,
)  # fmt: skip
HOSTILE = (
    "\x1b[31m", "\x1b]52;c;aGk=\x07", "\x1b[2J", "\x1bc", "\x9b2J", "\x9d0;t\x9c", "\x00", "\x07",
    "\x08",
    "\x7f", "\x85", "\r", "\x0b", "\x0c", "&#27;[2J", "&#x9b;2J", "&#x202e;", "\u202e", "\u2066",
    "\ufffd", "\ud83d", "\udc80", "你好", "👩‍👩‍👧", "🇨🇭", "e\u0301\u0302", "\u0301", "\u200b",
    "\u200d",
    "עברית", "\ufe0f", "\u2028", "[bold red]", "[/]", "[@click=app.quit]x[/]", "[link=file:///x]",
    "\\[", "]", "{", "%s", "\x1b", "\x1bP", "\x1b_", "<|endoftext|>", "\U0010ffff", "\u0600",
)  # fmt: skip
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
OWN = re.compile(
    r"\x1b\[(?:[0-9;]*[mH]|\?[0-9;]*(?:[hl]|\$p)|[<>]?[0-9]*u|[0-9]*[JK])|\x1b\[>[0-9;]*[a-z]|\r\n"
    r"|\x1b\]22;[a-z-]*\x07"
)
"""What Textual itself writes: colours, places, modes, the keyboard protocol, the mouse pointer."""


def document(random_: random.Random, pieces: tuple[str, ...], longest: int) -> str:
    return "".join(random_.choices(pieces, k=random_.randint(1, longest)))


def cut(random_: random.Random, text: str) -> list[str]:
    """`text` in pieces of one character up to all of it."""
    places = sorted(random_.choices(range(len(text) + 1), k=random_.randint(1, 8)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


class Page(App[None]):
    """One text, in a window that is high enough for all of it."""

    async def shows(self, texts: list[str], pilot: Pilot[None], begun: int = 0) -> list[str]:
        """The lines of the screen once `texts` were appended one after the other to what was there
        from the start, the first `begun` of them."""
        await self.screen.remove_children()
        markdown = SafeMarkdown("".join(texts[:begun]))
        await self.screen.mount(markdown)
        for text in texts[begun:]:
            await markdown.append(text)
        await pilot.pause()
        strips = self.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]


async def compare(first: int, count: int) -> None:
    app = Page()
    async with app.run_test(size=(60, 160)) as pilot:
        for seed in range(first, first + count):
            random_ = random.Random(seed)
            text = document(random_, PIECES, 25)
            pieces = cut(random_, text)
            whole = await app.shows([text], pilot)
            begun = random_.randint(0, len(pieces) // 2)
            assert await app.shows(pieces, pilot, begun) == whole, (seed, begun, pieces)


async def test_markdown_in_pieces_is_drawn_as_in_one() -> None:
    await compare(0, 12)


async def test_an_item_that_was_none_goes_back_into_the_list() -> None:
    """`*` below an item is another item, `**` is more of its words."""
    app = Page()
    async with app.run_test(size=(60, 40)) as pilot:
        pieces = ["- item\n*", "*bo", "ld** words\n\nmore\n", "# ", "head"]
        shown = await app.shows(pieces, pilot)
        assert next(line for line in shown if line).strip() == "• item bold words"
        assert shown == await app.shows(["".join(pieces)], pilot)


async def test_an_answer_that_was_there_grows_without_losing_its_list() -> None:
    app = Page()
    async with app.run_test(size=(60, 40)) as pilot:
        shown = await app.shows(["- one\n- two", " and\n- three\n"], pilot, begun=1)
        assert [line.strip() for line in shown if line] == ["• one", "• two and", "• three"]


@pytest.mark.slow
async def test_markdown_in_pieces_is_drawn_as_in_one_at_length() -> None:
    await compare(1000, 300)


class Written:
    """What reached the terminal beyond Textual's own sequences, looked at frame by frame."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames = 0
        self.bad: list[str] = []
        monkeypatch.setattr(HeadlessDriver, "write", lambda driver, data: self.take(data))
        monkeypatch.setattr(App, "is_headless", property(lambda app: False))

    def take(self, data: str) -> None:
        self.frames += 1
        left = OWN.sub("", data)
        self.bad += [left[max(0, m.start() - 30) : m.end() + 30] for m in CONTROL.finditer(left)]
        data.encode()


async def stream(shown: Window, random_: random.Random) -> None:
    """One conversation of hostile texts, from the engine's messages to the screen."""
    session, tokens = shown.session, PIECES + HOSTILE

    def hear(message: EngineMessage) -> None:
        session.handle(decode_engine(encode(message)))

    def text(longest: int = 8) -> str:
        return document(random_, tokens, longest)

    session.new_chat()
    hear(Loading(text(3), 1, 2))
    hear(replace(READY, model=text(3), device=text(1), adapter=text(2)))
    session.send = lambda request: None
    session.ask(text(6) + "?")
    turn = session.turn
    assert turn is not None
    hear(Prefill(turn.id, 40, 40, 0, 0.1, 40))
    whole = ""
    for index in range(random_.randint(1, 3)):
        slots = [[0, text(1), random_.random(), random_.choice("unsep")] for _ in range(32)]
        hear(Step(turn.id, index, 1, slots, 8, 1, 32, 4, 0.1))
        added = text()
        whole += added
        hear(Block(turn.id, index, added, 32, 4, 4, 0, 0.1, 0.2, [8] * 4, [0] * 4))
        await asyncio.sleep(0)
    if random_.random() < 0.1:
        hear(Gpu(1, 2, 3.0, 4.0, 5.0, throttle=text(2)))
        hear(Error("internal", text(4), text(3), text(3), turn.id))
    else:
        hear(Done(turn.id, random_.choice(("end", "length", text(1))), whole, stats(32, 4, 0.2)))
    for _ in range(2):
        drawn = asyncio.Event()
        shown.app.call_after_refresh(drawn.set)
        await asyncio.wait_for(drawn.wait(), PATIENCE)


async def hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range, size: tuple[int, int]
) -> None:
    written = Written(monkeypatch)
    monkeypatch.setattr(messages, "PAUSE", 0.0)
    trace = Script().answer("Well.").write(tmp_path / "t")
    async with window(trace, store=Store.open(None), size=size) as shown:
        await shown.ready()
        for seed in seeds:
            await stream(shown, random.Random(seed))
            assert written.bad == [], seed
            assert shown.app._exception is None, seed
    assert written.frames > 2 * len(seeds)


async def test_hostile_streams_steer_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hostile(tmp_path, monkeypatch, range(12), (90, 26))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
async def test_ten_thousand_hostile_streams_steer_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    size = (90, 26) if part % 4 == 0 else (60, 20)
    await hostile(tmp_path, monkeypatch, range(500 * (part + 1), 500 * (part + 2)), size)
