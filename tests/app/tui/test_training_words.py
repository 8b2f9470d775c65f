"""What the Finetune tab says, from the folders of runs and the JSON of commands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.run_watch import RunWatch
from app.tui import compare_words, run_words, setup_words
from app.tui.panel import Row
from app.tui.run_pace import Pace
from app.tui.setup import Setup
from app.tui.widgets.plot import Frame, Line, draw
from finetune.runs import RunFolder, Status
from tests.app.training import add, check, make_run, update

HOSTILE = "\x1b[2J[red]\u202e**x**\n\ttwo"


def said(rows: list[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def value(rows: list[Row], label: str) -> str:
    line = next(line for line in said(rows) if line.startswith(label))
    return line[len(label) :].strip()


@pytest.fixture
def run() -> RunFolder:
    run = make_run()
    sample = {"prompt": "?", "text": HOSTILE, "passed": False, "reason": HOSTILE}
    add(run, check(0, 5, 8.0), update(1), update(2, kept=0, tokens=160, samples=[sample]))
    run.write_status(Status("stopped", update=2, updates=20, best=0))
    return run


def test_how_learning_goes(run: RunFolder) -> None:
    rows = run_words.health_rows(RunWatch(run))
    assert value(rows, "answers kept") == "0 of 8"
    assert rows[0][1][1] == "warning"
    assert value(rows, "prompts without pass") == "25 % of 16"
    assert value(rows, "answer length") == "20 tokens (40 at first)"
    assert value(rows, "cut, errors") == "1, 0"
    assert value(rows, "positions trained") == "30 % of 100"
    assert value(rows, "loss CE, AEC, KL") == ".400  <.001  .020"


def test_where_a_run_stands(run: RunFolder) -> None:
    add(run, check(10, 7, 9.0))
    run.write_status(Status("stopped", update=10, updates=20, best=10))
    watch = RunWatch(run)
    rows = run_words.now_rows(watch, 60, 0.0, 5_000_000)
    assert value(rows, "state") == "stopped"
    assert value(rows, "update 10/20").endswith("50 %")
    assert value(rows, "an update") == "2.00 s"
    assert value(rows, "answer+verify+learn") == "1.25 s, 0.25 s, 0.50 s"
    assert value(rows, "held out, start") == "50 %  TPF 8.00"
    assert value(rows, "held out, best") == "70 %  TPF 9.00 at 10"
    assert value(rows, "memory") == "5.0 MB"
    assert not any(line.startswith("left") for line in said(rows))
    (line,) = said([run_words.list_row(watch, 120)])
    assert "pass 50 % \u2192 70 %, TPF 8.00 \u2192 9.00" in line


def test_a_run_of_an_older_version_shows_what_it_timed() -> None:
    run = make_run("old")
    event = update(1)
    del event["verify_seconds"]
    add(run, event)
    rows = run_words.now_rows(RunWatch(run), 60, 0.0, None)
    assert value(rows, "an update") == "2.00 s (1.50 s answers)"
    assert not any(line.startswith(("answer+", "VRAM", "GPU")) for line in said(rows))


def test_the_card_is_shown_as_the_update_left_it(run: RunFolder) -> None:
    card = {
        "memory_used": 24_100_000_000, "memory_total": 31_800_000_000, "power_watts": 388.4,
        "temperature_c": 66, "utilisation": None, "throttle": HOSTILE,
    }  # fmt: skip
    add(run, update(3, card=card))
    rows = run_words.now_rows(RunWatch(run), 60, 0.0, None)
    assert value(rows, "VRAM") == "24.1 / 31.8 GB"
    assert value(rows, "GPU") == "388 W  66 °C"
    assert "\x1b" not in value(rows, "throttled")


def test_what_is_left_counts_the_checks_to_come(run: RunFolder) -> None:
    pace = Pace(1.5, 0.25, 0.5, check=3.0, check_every=8)
    assert pace.left(0, 20) == 20 * 2.0 + 3 * 3.0  # after 8, 16 and the last
    assert pace.left(8, 16) == 8 * 2.0 + 3.0
    assert pace.left(20, 20) == 0.0
    assert Pace.of(RunWatch(run)) == Pace(1.5, 0.25, 0.5, 3.0, run.info().config.check_every)


def test_a_failed_run_says_why_in_the_list_and_above_its_figures(run: RunFolder) -> None:
    why = "Memory ran out with rows of 64 tokens; lower row_tokens."
    run.write_status(Status("failed", update=2, updates=20, message=why))
    watch = RunWatch(run)
    assert why in said([run_words.list_row(watch, 120)])[0]
    assert run_words.notice(watch) == f"{why} It reached update 2."


def test_the_newest_alarm_is_told(run: RunFolder) -> None:
    assert run_words.notice(RunWatch(run)) == ""
    for text in ("Old.", "Nothing was kept in 5 updates."):
        add(run, {"kind": "alarm", "done": 2, "name": "x", "text": text})
    assert run_words.notice(RunWatch(run)) == "Nothing was kept in 5 updates."


def test_curves_are_points_over_updates(run: RunFolder) -> None:
    curves = run_words.series(RunWatch(run))
    assert curves["train"] == [(1, 0.75), (2, 0.0)]
    assert curves["held"] == [(0, 0.5)]
    assert curves["held tpf"] == [(0, 8.0)]


def test_answers_of_a_model_are_text(run: RunFolder) -> None:
    watch = RunWatch(run)
    trial = {"attempts": [{"line": 1, "question": HOSTILE, "text": HOSTILE, "reason": HOSTILE}]}
    checked = {"usable": 1, "problems": [{"line": 1, "text": HOSTILE}]}
    setup = Setup("x")
    setup.checked, setup.trial = checked, {"advice": [HOSTILE], **trial}
    compared = {"items": [{"question": HOSTILE, "base": {"text": HOSTILE}, "tuned": {}}]}
    item = compare_words.items(compared)[0]
    texts = [
        *said(run_words.sample_rows(watch, 90)), *said(setup_words.prompt_rows(setup, 90)),
        *said(setup_words.verifier_rows(setup, 90)), setup_words.answers_text(trial),
        setup_words.problem_text(setup), compare_words.answer_text(item, "base"),
        compare_words.question(item),
    ]  # fmt: skip
    assert sum("[red]" in text for text in texts) >= 7
    assert not any(sign in text for text in texts for sign in "\x1b\u202e")


DAMAGED: list[Any] = [{}, {"items": 7, "problems": [1], "tokens": [], "verifiers": 3}, {"base": 1}]


@pytest.mark.parametrize("data", DAMAGED)
def test_damaged_figures_are_missing_figures(data: dict[str, Any]) -> None:
    setup = Setup("x")
    setup.checked = setup.trial = setup.step = data
    for rows in (setup_words.prompt_rows, setup_words.verifier_rows, setup_words.fit_rows):
        assert said(rows(setup, 60))
    assert said(compare_words.table_rows(data, 80))
    run = make_run()
    odd = {"rollout_seconds": float("inf"), "learn_seconds": float("nan"), "kept": 10**400}
    (run.path / "events.jsonl").write_text(
        '{"kind": "update"}\n{"kind": "check", "n": "x"}\n' + json.dumps(update(1, **odd)) + "\n"
    )
    watch = RunWatch(run)
    words: tuple[Callable[[RunWatch], object], ...] = (
        run_words.health_rows, run_words.notice, run_words.series, run_words.from_to,
        lambda w: run_words.now_rows(w, 60, 0.0, None), lambda w: run_words.sample_rows(w, 60),
    )  # fmt: skip
    for told in words:
        told(watch)


def test_before_and_after() -> None:
    row = {"accuracy": 0.5, "interval": [0.2, 0.8], "tpf": 8.0, "tokens_per_second": 100.0}
    right, wrong = {"right": True}, {"right": False}
    data = {
        "base": row, "tuned": {**row, "accuracy": 0.75, "tpf": 9.0}, "change": 0.25,
        "change_interval": [-0.1, 0.6], "speedup": 1.125, "threshold": 0.9, "held_out": True,
        "items": [
            {"question": "a", "base": wrong, "tuned": right},
            {"question": "b", "base": right, "tuned": wrong},
            {"question": "c", "base": right, "tuned": right},
        ],
    }  # fmt: skip
    lines = said(compare_words.table_rows(data, 98))
    assert lines[1].split()[:3] == ["base", "50", "%"]
    assert "right +25.0 (-10.0 to +60.0), TPF times 1.12" in lines[3]
    assert lines[4] == "1 fixed, 1 broken, 1 as before"
    assert [i["question"] for i in compare_words.items(data, "fixed")] == ["a"]
    assert [i["question"] for i in compare_words.items(data, "broken")] == ["b"]


def test_what_is_missing_before_a_run() -> None:
    setup = Setup()
    assert "Name a file" in setup.missing()
    setup.take_path("x.jsonl")
    setup.checked = {"usable": 1}
    assert setup.missing().startswith("1 prompt can be used")
    assert setup.testable
    setup.checked = {"usable": 3}
    assert setup.missing() == ""
    assert "checks need 4" in said(setup_words.recipe_rows(setup, 90))[0]
    setup.trouble = "It cannot be read."
    assert setup.missing() == "It cannot be read."


def test_a_result_is_about_what_it_was_asked_of(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("1")
    setup = Setup(str(path))
    parts = ("checked", "trial", "plan", "step")
    before = [setup.about(part) for part in parts]
    setup.updates = 7
    assert [setup.about(part) == was for part, was in zip(parts, before, strict=True)] == [
        True, True, True, False,
    ]  # fmt: skip
    setup.train = "full"
    assert [setup.about(part) == was for part, was in zip(parts, before, strict=True)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not setup.stale
    path.write_text("1 and more")
    assert setup.stale
    setup.take_path(str(path))
    assert not any(setup.about(part) == was for part, was in zip(parts, before, strict=True))


def test_a_frame_holds_all_points_and_no_impossible_ones() -> None:
    lines = [Line([(0, 0.9), (5, 1.0)]), Line([(1, 0.5)], "dots")]
    frame = Frame.around(lines, 10, 0.2, 1.0)
    assert (frame.right, frame.high) == (10, 1.0)
    assert frame.low < 0.5
    assert Frame.around([], 0, 1.0).high > Frame.around([], 0, 1.0).low


def test_lines_connect_and_dots_stand_alone() -> None:
    frame = Frame(7, 0, 7)
    (row,) = draw([Line([(0, 0), (7, 7)])], Frame(7, 0, 3), 4, 1)
    assert "".join(cell for cell, _ in row).strip()
    rows = draw([Line([(0, 0), (7, 7)])], frame, 4, 2)
    assert all(cell.strip() for cell, _ in rows[0][2:] + rows[1][:2])
    rows = draw([Line([(0, 0), (7, 7)], "dots")], frame, 4, 2)
    assert [cell for row in rows for cell, _ in row if cell.strip()] == ["\u2808", "\u2840"]
    assert draw([Line([(99, 99)], "dots")], frame, 4, 2)[0][3] == ("\u2808", "dots")
