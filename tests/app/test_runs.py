"""Runs from outside: what became of them, what can be done, and their events read as they come."""

import json
import os
from pathlib import Path

import pytest

from app.commands.progress import Progress, summary
from app.commands.runs import list_runs
from app.run_watch import RunWatch, best_checks
from app.runs import LOG, can_resume, delete_run, every_run, seen_status
from finetune.runs import RunError, RunFolder, Status
from tests.app.training import add, check, make_run, of_process, trainer, update, whole_state


def test_a_killed_trainer_has_failed_and_says_why() -> None:
    run = make_run()
    with trainer(run, 3) as process:
        assert seen_status(run).state == "running"
        process.kill()
        # Nobody has collected it yet: its pid is taken, but it trains no more.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        status = seen_status(run)
    assert (status.state, status.update) == ("failed", 3)
    assert "was killed" in status.message
    assert "memory" in status.message


def test_the_cause_is_what_the_log_says_or_a_restart() -> None:
    run = make_run()
    run.write_status(Status("running", pid=1 << 22, started=9e9, updates=20))
    (run.path / LOG).write_text("Fatal Python error: Segmentation fault\n\nThread 0x1\n")
    assert seen_status(run).message == "Its process crashed (Segmentation fault)."
    run.write_status(Status("running", pid=1 << 22, started=1.0, updates=20))
    assert "restarted" in seen_status(run).message


def test_a_failure_that_the_run_worded_itself_stays() -> None:
    run = make_run()
    run.write_status(Status("failed", message="Memory ran out; lower row_tokens.", updates=20))
    assert seen_status(run).message == "Memory ran out; lower row_tokens."


@pytest.mark.parametrize("damage", [None, "cut", "empty", "no state.json", "garbage"])
def test_going_on_needs_a_whole_state(damage: str | None) -> None:
    run = make_run()
    status = Status("failed", updates=20)
    assert not can_resume(run, status)
    state = whole_state(run, 5)
    weights = state / "optimizer.safetensors"
    match damage:
        case "cut":
            weights.write_bytes(weights.read_bytes()[:-1])
        case "empty":
            weights.write_bytes(b"")
        case "no state.json":
            (state / "state.json").unlink()
        case "garbage":
            weights.write_bytes(b"\xff" * 64)
    assert can_resume(run, status) == (damage is None)
    whole_state(run, 6)
    assert can_resume(run, status)


@pytest.mark.parametrize("state", ["new", "running", "paused", "done"])
def test_only_what_ended_early_can_go_on(state: str) -> None:
    run = make_run()
    whole_state(run, 5)
    assert not can_resume(run, Status(state))  # type: ignore[arg-type]
    assert can_resume(run, Status("stopped"))


def test_deleting(tmp_path: Path) -> None:
    run, other = make_run("one"), make_run("two")
    with trainer(run), pytest.raises(RunError, match="stop it first"):
        delete_run(run)
    with pytest.raises(RunError, match="not a run"):
        delete_run(RunFolder(tmp_path))
    delete_run(run)
    assert [found.name for found in every_run()] == [other.name]
    assert [path.name for path in other.path.parent.iterdir()] == ["two"]


def test_what_a_deletion_that_was_cut_short_left_is_no_run() -> None:
    run = make_run("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.runs.shutil.rmtree", lambda path, ignore_errors=False: None)
        delete_run(run)
    assert every_run() == []
    delete_run(make_run("one"))
    assert list(run.path.parent.iterdir()) == []


def test_a_name_that_steers_the_terminal_or_needs_quotes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, elsewhere = make_run("a\x1b[2J b"), make_run("my run", folder=tmp_path)
    add(run, check(0, 5, 8.0))
    add(elsewhere, check(0, 5, 8.0))
    assert list_runs() == 0
    out = capsys.readouterr().out + Progress(run).closing() + Progress(elsewhere).closing()
    assert "\x1b" not in out
    assert f"--adapter '{tmp_path}/my run' " in out, "its name alone would not be found"


def test_a_run_with_damaged_figures_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    good, odd, other = make_run("good"), make_run("odd"), make_run("other")
    add(odd, {**check(0, 5, 8.0), "passes": 5}, {**check(0, 5, 8.0), "interval": "?"})
    data = json.loads((other.path / "run.json").read_text())
    (other.path / "run.json").write_text(json.dumps({**data, "base": 5}))
    assert list_runs() == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == [good.name]
    assert [str(run.path) in line for run, line in zip((odd, other), err.splitlines(), strict=True)]
    assert err.count(" are damaged (") == err.count(" is damaged (") == 1


def test_a_loss_that_was_no_number_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(make_run())
    progress.tell(update(10, prediction=None, grad_norm=None, skipped=True))
    assert "loss not a number" in capsys.readouterr().err


def test_events_are_read_as_they_come() -> None:
    run = make_run()
    watch = RunWatch(run)
    assert watch.events == []
    add(run, check(0, 5, 8.0), update(1))
    assert watch.look()
    assert not watch.look()
    with (run.path / "events.jsonl").open("a") as file:
        file.write('not json\n[1]\n{"kind": "update", "do')
    assert not watch.look()
    with (run.path / "events.jsonl").open("a") as file:
        file.write('ne": 2}\n')
    assert watch.look()
    assert [event["done"] for event in watch.events] == [0, 1, 2]
    assert watch.events == RunWatch(run).events


def test_a_resumed_run_takes_its_last_updates_back() -> None:
    run = make_run()
    add(run, check(0, 5, 8.0), update(1), update(2), update(3))
    watch = RunWatch(run)
    run.keep_events(2)
    add(run, update(3, kept=1))
    watch.look()
    assert watch.events == RunWatch(run).events
    assert [event.get("kept") for event in watch.of("update")] == [6, 6, 1]


def test_the_best_check_is_the_runs_own_choice() -> None:
    run = make_run()
    add(run, check(0, 5, 8.0), check(5, 6, 9.0), check(10, 2, 20.0))
    with trainer(run) as process:
        status = of_process(run, process.pid, 10)
        run.write_status(Status(**{**vars(status), "best": 5}))
        start, best = best_checks(RunWatch(run))
    assert (start, best) == (check(0, 5, 8.0), check(5, 6, 9.0))


def test_what_cannot_be_read_is_said() -> None:
    run = make_run()
    (run.path / "run.json").write_text("{")
    watch = RunWatch(run)
    assert watch.info is None
    assert "damaged" in watch.problem


def test_what_the_time_went_to_in_runs_of_either_version() -> None:
    run, old = make_run(), make_run("old")
    add(run, check(0, 5, 8.0), update(1, card={"power_watts": 388.0}), update(2))
    first = update(1)
    del first["verify_seconds"]
    add(old, first, update(2))
    told = summary(run)
    assert told["parts"] == {"answers": 2.5, "verifiers": 0.5, "learning": 1.0, "checks": 3.0}
    assert (told["seconds"], told["card"]) == (4.0, None)
    assert summary(old)["parts"]["verifiers"] is None
    assert summary(old)["seconds"] == 4.0


def test_events_of_another_kind_hide_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    good, odd = make_run("good"), make_run("odd")
    add(good, check(0, 5, 8.0))
    lines = ("[1]", "7", '{"kind": "update"}', '{"kind": "check", "done": 0}', '{"kind": "alarm"}')
    (odd.path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert list_runs() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["good", "odd"]
    assert summary(odd)["start"] is None
