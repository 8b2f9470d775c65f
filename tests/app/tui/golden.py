"""Screens as golden text: what stands in `golden/NAME.WIDTHxHEIGHT.txt` is what must be drawn.

To rewrite them after a change that was meant, look at the differences and commit them:

    GOLDEN=rewrite pytest -n 0 tests/app/tui/test_golden.py && git diff tests/app/tui/golden

A screen that differs is put beside its file as .svg, to be looked at in a browser (git ignores it).
Clocks stand still, the machine is a made-up one, and answers come from `answer.jsonl`, which was
recorded from the demo model by `orl-chat ask --preset careful --trace` (its steps are read out of
its blocks).
"""

import asyncio
import difflib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.protocol import Block, Step
from app.trace import RecordedAnswer, read_recording
from app.tui.welcome import Machine
from tests.app.tui.driver import Window

FOLDER = Path(__file__).parent / "golden"
ANSWER = FOLDER / "answer.jsonl"
SIZES = ((100, 30), (80, 24), (60, 20), (160, 45))
MACHINE = Machine(cores=8, memory=16_000_000_000, gpus=())
NOW = time.struct_time((2026, 11, 30, 14, 21, 0, 0, 334, 0))
PATIENCE = 30.0


def still_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is always the same minute, on the same machine."""
    monkeypatch.setattr(time, "localtime", lambda *_: NOW)
    for module in ("app.tui.welcome", "app.tui.screens.models"):
        monkeypatch.setattr(f"{module}.this_machine", lambda: MACHINE)


def recorded() -> RecordedAnswer:
    """The recorded answer, every step of it."""
    return read_recording(ANSWER).answers[0]


async def told(shown: Window, until: tuple[int, int] | None = None) -> None:
    """Ask what was asked when the answer was recorded, and let the session hear the answer: to its
    end, or up to a step of a block (from 0 and 1)."""
    answer = recorded()
    assert answer.request is not None
    session = shown.session
    await shown.ready()
    session.send = lambda request: None
    await shown.ask(answer.request.messages[-1]["content"])
    await shown.until(lambda: session.turn)
    turn = session.turn
    assert turn is not None
    for timed in answer.messages:
        message: Any = timed.message
        session.handle(type(message)(**{**vars(message), "id": turn.id}))
        if isinstance(message, Step) and (message.block, message.step) == until:
            break
        if isinstance(message, Block):
            await shown.pilot.pause()


async def check(shown: Window, name: str, sizes: Sequence[tuple[int, int]] = SIZES) -> None:
    """The screen at every size, against its files."""
    wrong = []
    for width, height in sizes:
        await shown.pilot.resize_terminal(width, height)
        await shown.until(lambda size=(width, height): _drawn_at(shown) == size)
        path = FOLDER / f"{name}.{width}x{height}.txt"
        if os.environ.get("GOLDEN") == "rewrite":
            path.write_text(await _settled(shown) + "\n", encoding="utf-8")
        elif difference := await _difference(shown, path):
            path.with_suffix(".svg").write_text(shown.app.export_screenshot(), encoding="utf-8")
            wrong.append(difference)
        else:
            path.with_suffix(".svg").unlink(missing_ok=True)
    assert not wrong, "\n".join(wrong)


async def _difference(shown: Window, path: Path) -> str:
    """Nothing once the screen is as the file has it; else, in the end, what differs."""
    wanted = path.read_text(encoding="utf-8").rstrip("\n") if path.exists() else ""
    give_up = time.monotonic() + (PATIENCE if wanted else 0.0)
    while _text(shown) != wanted:
        if time.monotonic() > give_up:
            lines = (wanted.split("\n"), _text(shown).split("\n"), path.name, "the screen")
            return "\n".join(difflib.unified_diff(*lines, lineterm="", n=0))
        await asyncio.sleep(0.02)
    return ""


def _text(shown: Window) -> str:
    """What is drawn; of a window over another screen the window and the keys alone, because what
    lies behind it is laid out again when it pleases."""
    over = shown.app.screen.query(".window")
    if not over:
        return shown.text.rstrip("\n")
    region = over.first().region
    strips = shown.app.screen._compositor.render_strips()
    lines = [
        " " * region.x + strip.crop(region.x, region.right).text
        if region.y <= y < region.bottom
        else ""
        for y, strip in enumerate(strips[:-1])
    ]
    return "\n".join(line.rstrip() for line in [*lines, strips[-1].text])


def _drawn_at(shown: Window) -> tuple[int, int]:
    """The size that the screen was drawn for."""
    strips = shown.app.screen._compositor.render_strips()
    return max(strip.cell_length for strip in strips), len(strips)


async def _settled(shown: Window) -> str:
    """The screen once it has stopped changing."""
    before, same = "", 0
    while same < 20:
        await shown.pilot.pause()
        await asyncio.sleep(0.02)
        now = _text(shown)
        same = same + 1 if now == before else 0
        before = now
    return before
