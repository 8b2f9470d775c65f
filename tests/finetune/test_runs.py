"""The run folder: what is read back, and what is refused in words."""

import errno
import json
import os
import random
from pathlib import Path

import pytest

from finetune.alarms import alarms
from finetune.checks import best_check, should_end
from finetune.config import FinetuneConfig
from finetune.evaluate import Comparison, Evaluation
from finetune.files import whole_folder, write_json
from finetune.intervals import not_worse, paired_change
from finetune.runs import RunError, RunFolder, RunInfo, Status, own_status
from tests.finetune.test_evaluate import result
from tests.finetune.tiny import tiny_config


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    info = RunInfo("run", "demo", "/base", "abc", "/p.jsonl", tiny_config(), ("1",))
    return RunFolder.create(tmp_path / "run", info, b'{"prompt": "x"}\n')


def test_what_is_written_is_read(run: RunFolder) -> None:
    info = run.info()
    assert (info.name, info.model, info.revision, info.held_out) == ("run", "demo", "abc", ("1",))
    assert info.config == tiny_config()
    assert run.prompts.read_text() == '{"prompt": "x"}\n'
    assert run.status().state == "new"
    assert run.events() == []
    assert run.best() is None


def test_a_folder_that_is_not_empty_is_not_taken(run: RunFolder) -> None:
    with pytest.raises(RunError, match="--resume"):
        RunFolder.create(run.path, run.info(), b"")


def test_a_newer_version_s_run_is_refused_in_words(run: RunFolder) -> None:
    data = json.loads((run.path / "run.json").read_text())
    write_json(run.path / "run.json", {**data, "version": 99, "unheard": 1})
    with pytest.raises(RunError, match="newer version of orl-chat"):
        run.info()
    write_json(run.path / "run.json", {**data, "surprise": 1})
    with pytest.raises(RunError, match="damaged"):
        run.info()
    with pytest.raises(RunError, match="is not a run"):
        RunFolder(run.path / "nowhere").info()


def test_a_run_whose_process_is_gone_was_interrupted(run: RunFolder) -> None:
    run.write_status(own_status(state="running", update=3, updates=6))
    assert run.status().state == "running"
    assert run.status().alive
    # The same pid, but a process that began at another time.
    run.write_status(Status("running", os.getpid(), 12.0, 3, 6))
    assert run.status().state == "interrupted"
    run.write_status(own_status(state="done"))
    assert run.status().state == "done"
    assert not run.status().alive


def test_requests_are_taken_once_and_only_known_words(run: RunFolder) -> None:
    assert run.take_requests() == ()
    with pytest.raises(RunError, match="is not running"):
        run.request("stop")
    run.write_status(own_status(state="running"))
    run.request("stop")
    run.request("save")  # takes nothing back
    assert run.take_requests() == ("stop", "save")
    assert run.take_requests() == ()
    (run.path / "request").write_bytes(b"explode\n\xff\n")
    assert run.take_requests() == ()
    assert not list(run.path.glob("request*"))


def test_a_run_that_cannot_be_made_leaves_nothing(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "new"
    target.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("finetune.runs.write_json", no_room)
        with pytest.raises(OSError, match="No space left"):
            RunFolder.create(target, run.info(), b"x\n")
    assert not target.exists()
    RunFolder.create(target, run.info(), b"\xe4\r\n")
    assert RunFolder(target).prompts.read_bytes() == b"\xe4\r\n"


def no_room(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "damage",
    [b"", b"\xff\x00", b"[]", b"{}", b'{"pid": "7", "state": "running"}', b'{"update": null}',
     b'{"best": "x"}', b'{"pid": []}', b'{"started": {}}', b'{"pid": -1, "state": "running"}',
     b'{"updates": 1e9}', b'{"state": "sleeping"}', b'{"message": 7}', b'{"new": 1}', b"[" * 9999],
)  # fmt: skip
def test_a_damaged_status_or_events_are_none(run: RunFolder, damage: bytes) -> None:
    (run.path / "status.json").write_bytes(damage)
    assert run.status() == Status()
    run.add_event({"kind": "update", "done": 1})
    with (run.path / "events.jsonl").open("ab") as file:
        file.write(damage + b'\n{"kind": "check", "done": "soon"}\n')
    assert [event["kind"] for event in run.events()] == ["update"]
    run.keep_events(1)
    assert len((run.path / "events.jsonl").read_bytes().splitlines()) == 1


def test_events_beyond_the_state_are_dropped(run: RunFolder) -> None:
    for done in range(4):
        run.add_event({"kind": "update", "done": done})
    with (run.path / "events.jsonl").open("a") as file:
        file.write('{"kind": "upda')
    assert [event["done"] for event in run.events()] == [0, 1, 2, 3]
    run.keep_events(2)
    run.add_event({"kind": "update", "done": 3})
    assert [event["done"] for event in run.events()] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="JSON"):
        run.add_event({"loss": float("nan")})


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "x"

    def cut_short() -> None:
        with whole_folder(target) as folder:
            (folder / "file").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert list(tmp_path.iterdir()) == []
    for text in ("one", "two"):
        with whole_folder(target) as folder:
            (folder / "file").write_text(text)
    assert (target / "file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_old_checkpoints_go_but_the_best_stays(run: RunFolder) -> None:
    for done in (0, 10, 20, 30, 40):
        with whole_folder(run.checkpoint(done)) as folder:
            (folder / "check.json").write_text("{}")
    (run.path / "checkpoints" / "000050.part").mkdir()
    run.prune(keep=2, best=10)
    assert [path.name for path in run.checkpoints()] == ["000010", "000030", "000040"]
    run.write_status(Status("done", best=10))
    assert run.best() == run.checkpoint(10)


# --- checks ---------------------------------------------------------------------------------------


def check(done: int, passes: str, tpf: float) -> dict:
    flags = [letter == "1" for letter in passes]
    return {"kind": "check", "done": done, "passes": flags, "tpf": tpf, "n": len(flags),
            "right": sum(flags)}  # fmt: skip


def test_the_best_is_the_fastest_whose_accuracy_held() -> None:
    start = check(0, "1" * 30 + "0" * 2, 3.0)
    good = check(10, "1" * 29 + "0" * 2 + "1", 5.0)
    sloppy = check(20, "1" * 24 + "0" * 8, 7.0)
    assert best_check([start, good, sloppy]) is good
    assert best_check([start, sloppy]) is start
    config = FinetuneConfig(patience=2, check_every=10)
    assert not should_end([start, good, sloppy], config)
    assert should_end([start, good, sloppy, check(30, "1" * 24 + "0" * 8, 7.0)], config)


def test_accuracy_held_is_a_paired_question() -> None:
    assert not_worse([True, True], [True, True])
    assert not_worse([True, False], [False, True])
    assert not_worse([True] * 20, [True] * 19 + [False])
    assert not not_worse([True] * 20, [True] * 17 + [False] * 3)
    assert not_worse([False] * 5, [True] * 5)


def test_before_and_after() -> None:
    before = Evaluation((result("a", True, 30, 10), result("a", False, 30, 10)) * 4)
    after = Evaluation((result("a", True, 30, 5), result("a", True, 30, 5)) * 4)
    compared = Comparison(before, after)
    assert compared.fixed == (1, 3, 5, 7)
    assert compared.broken == ()
    gained, low, high = compared.change
    assert gained == 0.5
    assert low < 0.5 < high < 1
    assert compared.speedup == pytest.approx(2.0)


def test_the_interval_of_a_change_holds_the_truth() -> None:
    gained, low, high = paired_change(0, 0, 16)
    assert (gained, low) == (0, -high)
    assert 0.1 < high < 0.12, "no change in 16 prompts does not prove that there is none"
    assert paired_change(4, 0, 4)[2] == 1, "nothing gains more than all"
    held, tries, rng = 0, 1000, random.Random(3)
    for _ in range(tries):
        drawn = rng.choices(("fixed", "broken", "same"), (0.02, 0.05, 0.93), k=40)
        _, low, high = paired_change(drawn.count("fixed"), drawn.count("broken"), 40)
        held += low <= -0.03 <= high
    assert held >= 0.95 * tries


# --- alarms ---------------------------------------------------------------------------------------


def update(number: int, **changes: object) -> dict:
    base = {"kind": "update", "done": number + 1, "update": number, "answers": 10, "kept": 8,
            "errors": 0, "tokens": 400, "skipped": False}  # fmt: skip
    return base | changes


def test_no_alarm_in_a_run_that_goes_well() -> None:
    events = [check(0, "1110", 3.0), *map(update, range(40)), check(40, "1111", 5.0)]
    assert alarms(events) == {}
    assert alarms([]) == {}


def test_chance_is_no_overfitting() -> None:
    falls = [check(10, "111000", 3.1), check(20, "110000", 3.2)]
    for last, ends in ((6, falls), (9, [falls[0], check(20, "111100", 3.2)])):
        first, rest = (
            [update(n, kept=kept) for n in range(at, at + 10)] for at, kept in ((0, 5), (10, last))
        )
        events = [check(0, "111110", 3.0), *first, ends[0], *rest, ends[1]]
        assert alarms(events) == {}, "60 of 100 after 50, or one of six prompts, says nothing"


def test_alarms_in_words() -> None:
    well = [update(n) for n in range(20)]
    cases = {
        "nothing kept": [update(n, kept=0) for n in range(5)],
        "errors": [update(0, errors=2)],
        "length": [*well, *(update(n, tokens=150) for n in range(20, 30))],
        "not finite": [*well, update(20, skipped=True)],
        "overfitting": [
            check(0, "111110", 3.0), *(update(n, kept=5) for n in range(10)),
            check(10, "111000", 3.1), *(update(n, kept=9) for n in range(10, 20)),
            check(20, "110000", 3.2),
        ],
        "speed for accuracy": [check(0, "1" * 30, 3.0), check(10, "1" * 20 + "0" * 10, 5.0)],
    }  # fmt: skip
    for name, events in cases.items():
        found = alarms(events)
        assert name in found, name
        assert found[name].endswith((".", "test")), found[name]
    assert "2 of the last 10 answers" in alarms(cases["errors"])["errors"]
