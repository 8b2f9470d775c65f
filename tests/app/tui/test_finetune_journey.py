"""The whole way with real keys and real processes on the demo: the first start, a benchmark,
prompts kept in the chat, their verifier tested, a run watched, killed, resumed, compared, loaded
and asked."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from app.client import worker_command
from app.runs import every_run
from app.tui.screens.compare import CompareScreen
from app.tui.screens.finetune import FinetuneScreen
from app.tui.screens.keep import KeepScreen
from app.tui.screens.run import RunScreen
from app.tui.widgets.run_list import RunList
from tests.app.tui.driver import Window, window

QUESTIONS = ("What is 47 + 38?", "What is 12 + 29?", "What is 31 + 64?", "What is 55 + 17?")


async def keep_answer(shown: Window, question: str, count: int) -> None:
    await shown.ask(question)
    await shown.answered()
    await shown.press("ctrl+s")
    await shown.until(lambda: isinstance(shown.app.screen, KeepScreen))
    await shown.shows("this answer passes")
    await shown.press("enter")
    await shown.shows(f"your set holds {count} prompt")
    await shown.press("ctrl+n")


async def set_updates(shown: Window, number: str) -> None:
    field = shown.app.screen.query_one("#tune-updates", Input)
    field.focus()
    await shown.until(lambda: shown.app.screen.focused is field)
    await shown.press(*number)
    await shown.shows(f"Ready: s begins {number} updates on 4 prompts")
    await shown.press("escape")
    await shown.until(lambda: isinstance(shown.app.screen.focused, RunList))


async def choose_the_demo(shown: Window) -> None:
    """The first start; the demo is the last of its choices, whatever the machine is."""
    await shown.shows("Use the demo")
    await shown.until(lambda: isinstance(shown.app.focused, OptionList))
    await shown.press("end", "enter")
    await shown.ready()


async def benchmark(shown: Window) -> None:
    await shown.press("f3")
    await shown.shows("Answer 1 of 1")
    await shown.press("b")
    await shown.shows("Done.")
    for words in ("p50", "careful", "12 prompts of demo"):
        assert words in shown.text
    await shown.press("escape")
    await shown.shows("esc chat")
    await shown.press("f2")


def run_screen(shown: Window) -> RunScreen | None:
    screen = shown.app.screen
    return screen if isinstance(screen, RunScreen) else None


async def kill_and_resume(shown: Window, screen: RunScreen) -> None:
    pid = screen.seen.status.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(5):  # seen by itself, within the time that was promised
        await shown.shows("was killed")
    await shown.shows("r resume")
    done = len(screen.seen.of("update"))
    await shown.press("r")
    await shown.until(lambda: screen.seen.status.alive)
    await shown.until(lambda: len(screen.seen.of("update")) > done)
    assert [u["done"] for u in screen.seen.of("update")] == list(
        range(1, len(screen.seen.of("update")) + 1)
    )


@pytest.mark.slow
async def test_from_the_chat_to_a_tuned_chat(tmp_path: Path) -> None:
    first = {"first": True, "model": "auto"}
    async with window(tmp_path, command=worker_command(), size=(100, 40), options=first) as shown:
        await choose_the_demo(shown)
        await keep_answer(shown, QUESTIONS[0], 1)
        await benchmark(shown)
        for count, question in enumerate(QUESTIONS[1:], start=2):
            await keep_answer(shown, question, count)
        await shown.press("f4")
        await shown.until(lambda: isinstance(shown.app.screen, FinetuneScreen))
        await shown.shows("4 prompts can be used")
        await shown.shows("Ready")
        await shown.press("t")
        await shown.shows("answers passed")
        await set_updates(shown, "40")
        await shown.press("s")
        await shown.until(lambda: run_screen(shown))
        screen = run_screen(shown)
        assert screen is not None
        await shown.until(lambda: len(screen.seen.of("update")) >= 2)
        await shown.shows("answers kept")
        await kill_and_resume(shown, screen)
        await shown.press("x")
        await shown.shows("stopped")
        await shown.press("c")
        await shown.until(lambda: isinstance(shown.app.screen, CompareScreen))
        await shown.shows("as before")
        await shown.press("l")
        name = every_run()[0].name
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        await shown.until(
            lambda: (r := shown.session.engine.ready) and str(r.adapter).endswith(name)
        )
        await shown.shows(name)
        await shown.ask(QUESTIONS[0])
        await shown.answered()
        assert "85" in shown.session.conversation.entries[-1].content
