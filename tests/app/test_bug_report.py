"""The bug report: complete, and without anything that is private."""

from pathlib import Path

import pytest

from app.bug_report import clean, facts, save
from app.logs import tail
from app.paths import paths
from app.settings import SettingsFile
from app.version import VERSION

TOKEN = "hf_" + "a1B2" * 8


def test_what_it_says_and_what_it_does_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-token-of-another-shape")
    monkeypatch.setenv("TMUX", "x")
    paths().logs.mkdir(parents=True)
    paths().log.write_text(
        f"first\nload /srv/people/ada/m with {TOKEN} and a-token-of-another-shape\x1b[2J\n"
    )
    file = SettingsFile.open()
    file.set(system="I am Ada and ill.", temperature=0.5, endpoint="https://me:pass@hub.example")
    report = facts(file, "demo on the CPU", "100 x 30", "Chats are kept in memory.")
    for part in (
        VERSION, "demo on the CPU", "100 x 30 · tmux", "temperature = 0.5",
        "system = *** (17 characters)", "Chats are kept in memory.", "first",
        "***@hub.example", "\norl-chat.log\n",
    ):  # fmt: skip
        assert part in report
    for secret in (TOKEN, "a-token-of-another-shape", "Ada", "ada", "pass@", "people", "\x1b"):
        assert secret not in report
    assert "threshold" not in report, "settings that are as they come need no line"


def test_it_is_saved_for_its_owner_alone(home: Path) -> None:
    path = save("text")
    assert path.read_text() == "text"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent == paths().logs


def test_the_tail_of_a_log_begins_with_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log, 10) == "(No such file or directory)"
    log.write_text("")
    assert tail(log, 10) == "(empty)"
    log.write_text("one\ntwo\nthree\n")
    assert tail(log, 100) == "one\ntwo\nthree"
    assert tail(log, 9) == "three"


def test_cleaning_twice_changes_nothing() -> None:
    once = clean(f"{TOKEN} {Path.home()}/x \x07")
    assert clean(once) == once
