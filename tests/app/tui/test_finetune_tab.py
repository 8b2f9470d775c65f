"""The Finetune tab with real keys: a run's folder shown live, what can be done, and setting up with
the shell's own commands as child processes."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from textual.widget import Widget
from textual.widgets import Input

from app.paths import paths
from app.runs import every_run
from app.store import Store
from app.tui.screens.compare import CompareScreen
from app.tui.screens.finetune import FinetuneScreen
from app.tui.screens.keep import KeepScreen
from app.tui.screens.run import RunScreen
from app.tui.widgets.choice import Choice
from app.tui.widgets.run_list import RunList
from finetune.prompts import read_prompts
from finetune.runs import Status
from tests.app.training import add, check, make_run, of_process, trainer, update, whole_state
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import READY, Script

SIZES = [(100, 30), (80, 24), (60, 20)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return (
        Script(pace=0.001).answer("Together: **85**").answer("It is **12**").write(tmp_path / "t")
    )


async def open_tab(shown: Window) -> None:
    await shown.press("f4")
    await shown.until(lambda: isinstance(shown.app.screen, FinetuneScreen))
    await shown.shows("Runs")


async def marked(shown: Window) -> None:
    """The list of runs has the focus and a run is marked: Enter opens it."""
    await shown.until(
        lambda: (
            isinstance(shown.app.screen.focused, RunList)
            and shown.app.screen.focused.highlighted is not None
        )
    )


async def focus(shown: Window, widget: Widget) -> None:
    widget.focus()
    await shown.until(lambda: widget.has_focus)


def curves(shown: Window) -> list[str]:
    """The curves, and what stands under them."""
    return shown.text.splitlines()[1:14]


async def test_a_run_is_watched_killed_and_kept(trace: Path) -> None:
    run = make_run()
    add(run, check(0, 5, 8.0))
    async with window(trace, store=Store.open(None)) as shown:
        with trainer(run, 0) as process:
            await open_tab(shown)
            await shown.shows("running")
            await marked(shown)
            await shown.press("enter")
            await shown.shows(f"(pid {process.pid})")
            add(run, update(1), update(2, kept=3))
            run.write_status(of_process(run, process.pid, 2))
            await shown.shows("3 of 8")
            await shown.shows("update 2/20")
            await shown.press("p")
            await shown.shows("asked to pause")
            assert run.take_requests() == ("pause",)
            await shown.press("x")
            await shown.until(lambda: run.take_requests() == ("stop",))
            assert "resume" not in shown.text
            os.kill(process.pid, signal.SIGKILL)
            await shown.shows("was killed")
            await shown.shows("no whole state")
            assert "resume" not in shown.text
            whole_state(run, 2)
            await shown.shows("r resume")
            before = curves(shown)
        await shown.press("escape")
        await shown.shows("failed")
        await shown.press("enter")
        await shown.until(lambda: curves(shown) == before)


async def test_deleting_wants_the_key_twice(trace: Path) -> None:
    for name in ("first", "second"):
        make_run(name).write_status(Status("done", update=20, updates=20))
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        await shown.shows("first")
        await shown.press("delete")
        await shown.shows("Once more deletes")
        await shown.press("down")
        await shown.press("delete")
        assert len(every_run()) == 2
        await shown.press("delete")
        await shown.until(lambda: len(every_run()) == 1)
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, RunScreen))
        await shown.press("delete")
        await shown.shows("Once more deletes")
        await shown.press("delete")
        await shown.until(lambda: every_run() == [])
        await shown.shows("No runs yet")


async def test_a_runs_name_is_text(trace: Path) -> None:
    run = make_run("[red]sums[", updates=5)
    (run.path / "checkpoints" / "000005").mkdir(parents=True)
    run.write_status(Status("done", update=5, updates=5, best=5))
    (run.path / "compare.json").write_text(json.dumps({"update": 5}))
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        await shown.shows("[red]sums[")
        await marked(shown)
        await shown.press("enter")
        await shown.shows("\u2500[red]sums[\u2500")
        await shown.press("c")
        await shown.shows("Before and after [red]sums[")
        await shown.press("e")
        await shown.shows("Export [red]sums[")


async def test_only_fixed_and_only_broken(trace: Path) -> None:
    run = make_run()
    (run.path / "checkpoints" / "000005").mkdir(parents=True)
    run.write_status(Status("done", update=5, updates=5, best=5))
    right, wrong = {"right": True, "text": "yes"}, {"right": False, "text": "\x1b[31mno"}
    items = [
        {"question": "the first", "base": wrong, "tuned": right},
        {"question": "the second", "base": right, "tuned": wrong},
    ]
    (run.path / "compare.json").write_text(json.dumps({"update": 5, "items": items}))
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        await marked(shown)
        await shown.press("enter")
        await shown.shows("compare")
        await shown.press("c")
        await shown.until(lambda: isinstance(shown.app.screen, CompareScreen))
        await shown.shows("1 fixed, 1 broken, 0 as before")
        await shown.shows("the first")
        await shown.shows("[31mno")
        await shown.press("right")
        await shown.shows("the second")
        await shown.press("f")
        await shown.shows("Prompt 1 of 1, only fixed")
        await shown.press("b")
        await shown.shows("the second")
        await shown.press("escape", "escape", "escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)


@pytest.mark.parametrize("size", SIZES)
async def test_every_size_shows_what_counts(trace: Path, size: tuple[int, int]) -> None:
    run = make_run()
    add(run, check(0, 5, 8.0), update(1))
    with trainer(run, 1):
        async with window(trace, store=Store.open(None), size=size) as shown:
            await open_tab(shown)
            await shown.shows("Name a file of prompts")
            shown.app.screen.query_one("RunList").scroll_visible(animate=False)
            await shown.shows("1/20")
            await shown.press("enter")
            await shown.shows("Pass rate")
            await shown.shows("running")
            await shown.shows("update 1/20")
            await shown.press("pagedown", "pagedown")
            await shown.shows("answers kept")


async def test_an_answer_is_kept_and_offered(trace: Path) -> None:
    async with window(trace, store=Store.open(None)) as shown:
        await shown.ready()
        await shown.press("ctrl+s")
        await shown.ask("What is 47 + 38?")
        await shown.answered()
        await shown.press("ctrl+s")
        await shown.until(lambda: isinstance(shown.app.screen, KeepScreen))
        await shown.shows("this answer passes")
        await shown.shows("number: the last number")
        await shown.press("6")
        await shown.shows("this answer fails: expected '856'")
        await shown.press("backspace")
        await shown.shows("this answer passes")
        shown.app.screen.query_one("#keep-part", Choice).focus()
        await shown.press("left")
        await shown.shows("the whole answer")
        await shown.press("ctrl+s")
        await shown.shows("Kept: your set holds 1 prompt")
        (kept,) = read_prompts(paths().kept).prompts
        assert (kept.question, kept.answer, kept.verify) == ("What is 47 + 38?", "85", "number")
        await open_tab(shown)
        field = shown.app.screen.query_one("#tune-path", Input)
        await shown.until(lambda: field.value == str(paths().kept))
        await shown.shows("1 prompt can be used")


async def test_a_run_gets_the_card_and_the_next_message_the_engine(tmp_path: Path) -> None:
    script = Script(ready=replace(READY, device="cuda:0"), pace=0.001)
    trace = script.answer("One").answer("Two", hold=0).write(tmp_path / "t")
    async with window(trace, store=Store.open(None)) as shown:
        await shown.ready()
        await open_tab(shown)
        tab = shown.app.screen
        assert isinstance(tab, FinetuneScreen)
        assert tab.make_room()
        await shown.until(lambda: shown.app.link.pid is None)
        await shown.press("escape")
        await shown.ask("again")
        await shown.answered()
        await shown.ask("more")
        await shown.writing(0)
        assert not tab.make_room()
        assert shown.app.link.pid is not None


@pytest.mark.slow
async def test_setting_up_from_nothing(trace: Path) -> None:
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        await shown.press("d")
        await shown.shows("256 prompts can be used")
        await shown.shows("fits a 24 GB card")
        await shown.shows("Ready: s begins 30 updates")
        shown.app.screen.query_one("#tune-length", Choice).focus()
        await shown.press("right")
        await shown.shows("Ready: s begins 100 updates")
        field = shown.app.screen.query_one("#tune-updates", Input)
        await focus(shown, field)
        await shown.press("7")
        await shown.shows("Ready: s begins 7 updates")
        # What runs when the window closes ends with it.
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen.focused, RunList))
        await shown.press("m")
        await shown.shows("Measuring one update")
        children = psutil.Process().children(recursive=True)
        await shown.press("ctrl+q")
        await shown.until(lambda: not any(child.is_running() for child in children))


async def test_a_long_look_at_prompts_can_be_ended(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def run_job(arguments: Sequence[str], tell: object) -> object:
        begun.append(Path(arguments[2]).name)
        return await asyncio.Event().wait()

    monkeypatch.setattr("app.tui.screens.working.run_job", run_job)
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        tab, field = shown.app.screen, shown.app.screen.query_one("#tune-path", Input)
        for name in ("huge", "mine"):  # the second does not wait for the first
            await focus(shown, field)
            field.value = str(tmp_path / name)
            await shown.press("enter")
            await shown.until(lambda name=name: begun[-1:] == [name])  # type: ignore[misc]
        await shown.until(lambda: isinstance(tab.focused, RunList))
        await shown.press("x")
        await shown.shows("were not looked at")
        assert "being looked at" not in shown.text
    assert begun == ["huge", "mine"]


async def test_what_is_wrong_with_a_file_is_told_by_line(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    good = [json.dumps({"prompt": f"{n}?", "answer": "1", "verify": "number"}) for n in range(2)]
    path.write_text("\n".join([*good, "{", good[0], '{"prompt": "x"}', ""]))
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        field = shown.app.screen.query_one("#tune-path", Input)
        await focus(shown, field)
        await shown.paste(str(path)[:-4])
        await shown.press("f2", "f4")  # half a path is not forgotten for that
        await focus(shown, field)
        await shown.press("end", "tab")
        await shown.until(lambda: field.value == str(path))
        await shown.press("enter")
        await shown.shows("2 prompts can be used")
        await shown.shows("3 lines cannot, 1 of them duplicates")
        await shown.shows("line 4")
        await shown.press("p")
        await shown.shows("line 5 has no `verify`")
        await shown.press("escape")
        await focus(shown, field)
        await shown.paste("x")
        await shown.press("enter")
        await shown.shows("cannot be read")


@pytest.mark.slow
async def test_code_runs_only_after_leave_was_given(trace: Path, tmp_path: Path) -> None:
    paths().prompts.mkdir(parents=True)
    verify = {"kind": "python", "tests": "assert f(1) == 1"}
    rows = [{"prompt": f"Write f {n}", "verify": verify} for n in range(2)]
    paths().kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with window(trace, store=Store.open(None)) as shown:
        await open_tab(shown)
        await shown.shows("These run code")
        await shown.shows("Ready")
        await shown.press("t")
        await shown.shows("Leave to run code")
        await shown.press("enter")  # No has the focus
        await shown.until(lambda: isinstance(shown.app.screen, FinetuneScreen))
        assert shown.session.settings.run_code == "ask"
        await shown.press("t")
        await shown.shows("Leave to run code")
        await shown.press("y")
        await shown.shows("Testing the verifier")
        assert shown.session.settings.run_code != "ask"
        await shown.press("x")
        await shown.shows("Ready")
