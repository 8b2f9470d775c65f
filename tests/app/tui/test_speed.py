"""The Speed tab: what it says of an answer, and the tab itself."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from app.bench.result import read_result
from app.paths import paths
from app.protocol import Gpu
from app.store import Store
from app.tui import speed
from app.tui.panel import Row
from app.tui.screens.replay import ReplayScreen
from tests.app.tui.driver import window
from tests.app.tui.recording import Script

STATS: dict[str, Any] = {
    "tokens": 40, "steps": 6, "commits": 1, "forwards": 5, "tpf": 8.0, "tpf_steps": 40 / 6,
    "tokens_per_second": 400.0, "tokens_per_second_whole": 320.0, "prefill_seconds": 0.025,
    "decode_seconds": 0.1, "waste_tokens": 7, "edits": 2, "measured": True,
    "model_seconds": 0.07, "pick_seconds": 0.02, "commit_seconds": 0.004,
    "blocks": [
        {"tokens": 32, "steps": 3, "forwards": 3, "seconds": 0.06,
         "unmasked_per_step": [32, 0, 0], "edits_per_step": [0, 2, 0]},
        {"tokens": 8, "steps": 3, "forwards": 2, "seconds": 0.04,
         "unmasked_per_step": [1, 7, 0], "edits_per_step": [0, 0, 0]},
    ],
}  # fmt: skip


def said(rows: list[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def value(rows: list[Row], label: str) -> str:
    return next(line for line in said(rows) if line.startswith(label)).split()[-1]


def test_the_figures_are_the_answers_own() -> None:
    rows = speed.figure_rows(STATS, 24)
    assert value(rows, "tok/s") == "400"
    assert value(rows, "with prompt") == "320"
    assert value(rows, "TPF") == "8.00"
    assert value(rows, "tokens/step") == "6.67"
    assert value(rows, "forwards/s") == "50.0"
    assert value(rows, "ms a forward") == "20.0"
    assert value(rows, "after the end") == "7"


def test_slow_motion_has_counts_and_no_speeds() -> None:
    slow = {**STATS, "measured": False}
    rows = speed.figure_rows(slow, 24)
    assert [value(rows, name) for name in ("tok/s", "with prompt", "forwards/s")] == ["\u2013"] * 3
    assert value(rows, "TPF") == "8.00"
    assert speed.rate_of(slow) == speed.Rate(None, 8.0)
    assert "not measured" in said(speed.time_rows(slow, 60))[0]


def test_the_parts_of_the_loop_add_up_to_its_time() -> None:
    lines = said(speed.time_rows(STATS, 60))
    names = [" ".join(line[: speed.LABEL].split()) for line in lines]
    assert names == ["prompt", "model", "pick tokens", "commit only", "host gap"]
    assert "6 ms" in lines[-1]  # 100 - 70 - 20 - 4


def test_what_was_not_measured_is_said() -> None:
    unknown = {**STATS, "model_seconds": None}
    assert said(speed.time_rows(unknown, 60))[-1] == "The loop's parts were not measured."


def test_a_block_shows_what_each_step_did() -> None:
    head, first, second = said(speed.block_rows(STATS, 60))
    assert "tokens set a step" in head
    assert first.split()[:2] == ["1", "█*·"]
    assert second.split()[:2] == ["2", "▁▂·"]
    assert first.split()[-4:] == ["32", "3", "60", "ms"]


def test_damaged_figures_show_as_missing() -> None:
    for stats in ({}, {"blocks": 7, "tpf": "x"}, {"blocks": ["x", {"unmasked_per_step": "abc"}]}):
        assert said(speed.figure_rows(stats, 60))
        assert said(speed.block_rows(stats, 60))
        assert said(speed.time_rows(stats, 60))
    assert value(speed.figure_rows({"tpf": "x"}, 24), "TPF") == "\u2013"


async def test_the_tab_follows_the_chat(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer("Together: 85").answer("Hello").write(tmp_path / "t")
    async with window(trace, store=Store.open(None)) as shown:
        await shown.ready()
        await shown.press("f3")
        await shown.shows("figures are here.")
        assert "replay" not in shown.text
        await shown.press("space", "c", "e", "down", "left", "escape")
        for number in (1, 2):
            await shown.ask("again")
            await shown.press("f3")  # it ends while the tab is looked at
            await shown.shows(f"Answer {number} of {number}")
            await shown.press("f2")
        await shown.press("f3")
        await shown.press("left")
        await shown.shows("Answer 1 of 2")
        shown.session.handle(Gpu(11_800_000_000, 31_800_000_000, 388.0, 66, 97, "power limit"))
        for words in ("11.8 / 31.8 GB", "97 %  388 W  66 °C", "power limit"):
            await shown.shows(words)
        await shown.press("f1")
        await shown.shows("older answer")


async def test_the_shown_answer_is_replayed_and_then_shown_again(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer("Together: 85").answer("Hello").write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        for question in ("How many?", "And then?"):
            await shown.ask(question)
            await shown.answered()
        await shown.press("f3")
        await shown.shows("Answer 2 of 2")
        for number, question in ((2, "And then?"), (1, "How many?")):
            await shown.press("space")
            await shown.until(lambda: isinstance(shown.app.screen, ReplayScreen))
            await shown.shows(question)
            await shown.press("escape")
            await shown.shows(f"Answer {number} of 2")
            await shown.press("left")
            await shown.shows("Answer 1 of 2")
        for path in paths().traces.glob("*.gz"):
            path.unlink()
        await shown.press("space")
        await shown.shows("No recording of this answer")


async def test_a_benchmark_is_measured_stopped_and_saved(tmp_path: Path) -> None:
    script = Script(pace=0.001)
    for _ in range(60):
        script = script.answer("Together: 85")
    async with window(script.write(tmp_path / "t"), store=Store.open(None)) as shown:
        await shown.ready()
        await shown.press("f3")
        await shown.shows("No answer yet")
        await shown.press("b")
        await shown.shows("Done.")
        for words in ("tok/s (decode)", "p50", "careful", "12 prompts"):
            assert words in shown.text
        await shown.press("e")
        await shown.until(lambda: list(paths().exports.glob("bench-*.json")))
        (path,) = paths().exports.glob("bench-*.json")
        result = read_result(path)
        assert [len(run.samples) for run in result.runs] == [12, 12, 12]
        assert not result.interrupted
        await shown.press("escape")
        await shown.shows("esc chat")


async def test_one_question_with_every_preset(tmp_path: Path) -> None:
    script = Script(pace=0.001)
    for _ in range(30):
        script = script.answer("Together: 85")
    async with window(script.write(tmp_path / "t"), store=Store.open(None)) as shown:
        await shown.ready()
        await shown.ask("What is 47 + 38?")
        await shown.answered()
        await shown.press("f3")
        await shown.shows("Answer 1 of 1")
        await shown.press("e")
        await shown.until(lambda: list(paths().exports.glob("answer-*.svg")))
        (saved,) = paths().exports.glob("answer-*.json")
        assert json.loads(saved.read_text())["tokens"] > 0
        await shown.press("c")
        await shown.shows("Done.")
        run = shown.app.screen._run  # type: ignore[attr-defined]
        assert {r.label: len(r.samples) for r in run.result.runs} == {
            "speed": 3, "quality": 3, "careful": 3
        }  # fmt: skip
        assert set(run.answers.values()) == {"Together: 85"}


async def test_a_benchmark_ends_with_the_engine_and_leaves_it_to_the_chat(tmp_path: Path) -> None:
    script = Script(pace=0.05)
    for _ in range(30):
        script = script.answer("Together: 85")
    async with window(script.write(tmp_path / "t"), store=Store.open(None)) as shown:
        await shown.ready()
        await shown.press("f3")
        await shown.shows("No answer yet")
        await shown.press("b")
        await shown.shows("answer 2 of")
        await shown.press("escape")
        await shown.shows("Stopped")
        await shown.press("escape", "escape")
        await shown.ask("Hello")
        await shown.answered()
        await shown.press("f3")
        await shown.shows("Answer 1 of 1")
        await shown.press("b")
        await shown.shows("answer 2 of")
        pid = shown.app.link.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await shown.shows("The engine stopped")
