"""`orl-chat prompts`: check, test and make from the shell, and the question before code is run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app import consent
from app.cli import run
from app.consent import may_run
from app.settings import SettingsFile
from finetune.isolation import Isolation
from finetune.prompts import read_prompts

ROOT = Path(__file__).parents[2]
GOOD = {"prompt": "What is 2 + 2?", "answer": "4", "verify": "number"}
CODE = {"prompt": "Write f.", "verify": {"kind": "python", "tests": "f"}, "answer": "f = 1"}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(*rows: object) -> str:
        path = tmp_path / "prompts.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return write


def test_nothing_of_a_file_can_steer_the_terminal(cli: Any, file: Any) -> None:
    c1 = "\x9b2J"  # an escape sequence in eight bits, which JSON need not escape
    path = file({**GOOD, "prompt": f"What is 2 + 2?{c1}"})
    for option in ([], ["--json"], ["--show"]):
        code, out, err = cli("prompts", "test", path, "--model", "demo", "--k", "1", *option)
        assert (code, "\x9b" in out + err) == (0, False)
        assert "What is 2 + 2?" in out + err


def test_python_s_remarks_on_a_file_are_not_shown(file: Any) -> None:
    tests = {"kind": "python", "tests": "assert 1 is 1"}
    path = file(
        {"prompt": "a", "verify": tests}, {**GOOD, "verify": {"kind": "regex", "pattern": "[[4]"}}
    )
    command = [sys.executable, "-m", "app.cli", "prompts", "check", path, "--model", "demo"]
    done = subprocess.run([*command, "--run-code"], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert "usable prompts" in done.stdout


# --- check --------------------------------------------------------------------------------------


def test_a_good_file(cli: Any, file: Any, tiny_checkpoint: Path) -> None:
    path = file(GOOD, {**GOOD, "prompt": "4?", "verify": "exact"})
    code, out, err = cli("prompts", "check", path, "--model", str(tiny_checkpoint))
    assert (code, err) == (0, "")
    assert f"{path}: 2 usable prompts" in out
    assert "number 1 · exact 1" in out
    assert "min " in out


def test_problems_by_line_and_a_bad_exit_code(cli: Any, file: Any, tiny_checkpoint: Path) -> None:
    path = file(
        GOOD, {"x": 1}, GOOD, {"prompt": "long " * 200, "answer": "1", "verify": "number"},
        {"prompt": "p", "answer": "many", "verify": "number"}, {"x": 1},
    )  # fmt: skip
    code, out, _ = cli("prompts", "check", path, "--model", str(tiny_checkpoint))
    assert code == 1
    assert "1 usable prompts" in out
    assert "2 lines: has no `prompt`: lines 2, 6" in out
    assert "line 3 is a duplicate of line 1" in out
    assert "line 4 is too long for this model, whose context is 512 tokens" in out
    assert "line 5 has an answer that it rejects itself" in out
    code, out, _ = cli("prompts", "check", path, "--json", "--model", str(tiny_checkpoint))
    told = json.loads(out)
    assert [problem["line"] for problem in told["problems"]] == [2, 3, 4, 5, 6]
    assert (code, told["usable"]) == (1, 1)


def test_files_that_are_not_there_or_empty(cli: Any, file: Any, tiny_checkpoint: Path) -> None:
    code, out, err = cli("prompts", "check", "/no/such/file")
    assert (code, out) == (1, "")
    assert err == "/no/such/file cannot be read (No such file or directory); name a prompts file.\n"
    code, out, _ = cli("prompts", "check", file(), "--model", str(tiny_checkpoint))
    assert code == 1
    assert "line 1 is missing: the file is empty" in out


# --- consent ------------------------------------------------------------------------------------


def test_code_is_not_run_without_leave(cli: Any, file: Any, tiny_checkpoint: Path) -> None:
    path = file(CODE, GOOD)
    code, out, err = cli("prompts", "check", path, "--model", str(tiny_checkpoint))
    assert code == 0
    assert "1 answers were not checked: that would run code" in out
    assert "These prompts run programs that the model writes." in err
    code, _, err = cli("prompts", "test", path, "--model", str(tiny_checkpoint), "--n", "all")
    assert code == 1
    assert "--run-code" in err


def test_leave_is_asked_for_once(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = read_prompts(file(CODE, GOOD)).prompts
    asked: list[str] = []

    def answer(yes: bool) -> Any:
        return lambda text: asked.append(text) or yes

    kept_in = Isolation("namespaces")
    monkeypatch.setattr("finetune.sandbox.sandbox_kind", lambda: kept_in)
    assert may_run(prompts[1:], ask=answer(False))
    assert asked == []
    assert not may_run(prompts, ask=answer(False))
    assert SettingsFile.open().settings.run_code == "ask"
    assert may_run(prompts, ask=answer(True))
    assert may_run(prompts, ask=answer(False))
    assert len(asked) == 2
    assert SettingsFile.open().settings.run_code == "isolated"
    weak = Isolation("limits", ("use the network",))
    monkeypatch.setattr("finetune.sandbox.sandbox_kind", lambda: weak)
    assert not may_run(prompts, ask=answer(False))
    assert "could use the network" in asked[-1]


def test_functions_need_more_leave_than_programs(file: Any) -> None:
    prompts = read_prompts(file({"prompt": "p", "verify": "mine.py:check"})).prompts
    needed = consent.consent_needed(prompts, "isolated")
    assert needed is not None
    assert needed.level == "anywhere"
    assert "mine.py:check" in needed.text
    assert "your rights" in needed.text
    assert consent.consent_needed(prompts, "anywhere") is None


# --- test ---------------------------------------------------------------------------------------


def test_trying_prompts(cli: Any, file: Any, tiny_checkpoint: Path) -> None:
    rows = [{"prompt": f"Say {n}", "verify": {"kind": "regex", "pattern": ""}} for n in range(3)]
    path = file(*rows, {"prompt": "q", "answer": "never", "verify": "exact"}, {"x": 1})
    arguments = (
        "prompts", "test", path, "--model", str(tiny_checkpoint), "--device", "cpu", "--n", "all",
        "--k", "2", "--max-new-tokens", "32",
    )  # fmt: skip
    code, out, err = cli(*arguments, "--json")
    assert code == 0
    assert "line 5 has no `prompt`" in err
    told = json.loads(out)
    assert (told["answers"], told["prompts"], told["verifier_errors"]) == (8, 4, 0)
    assert 4 in told["never_passed"]
    assert len(told["attempts"]) == 8
    code, out, err = cli(*arguments, "--temperature", "0", "--show")
    assert code == 0
    assert "each is made once" in err
    assert "[4/4]" in err
    assert "of 4 answers" in out
    assert "Never right:" in out


def test_what_cannot_be_tried(cli: Any, file: Any) -> None:
    for arguments, words in (
        (("--k", "0"), "at least 1"),
        (("--n", "some"), "a number or all"),
        (("--preset", "fast"), "Preset must be"),
    ):
        code, out, err = cli("prompts", "test", file(GOOD), *arguments)
        assert (code, out) == (1, "")
        assert words in err
    code, _, err = cli("prompts", "test", file({"x": 1}))
    assert code == 1
    assert "no prompt that can be used" in err


# --- make ---------------------------------------------------------------------------------------


def test_making_the_demo_s_prompts(cli: Any, tmp_path: Path, tiny_checkpoint: Path) -> None:
    path = tmp_path / "demo.jsonl"
    code, out, err = cli("prompts", "make", "demo", "--n", "60", "--out", str(path))
    assert (code, out) == (0, "")
    assert "60 prompts" in err
    found = read_prompts(path)
    assert (len(found.prompts), found.problems) == (60, ())
    text = path.read_text(encoding="utf-8")
    code, _, err = cli("prompts", "make", "demo", "--n", "60", "--out", str(path))
    assert code == 1
    assert "exists already" in err
    other = tmp_path / "again.jsonl"
    cli("prompts", "make", "demo", "--n", "60", "--out", str(other))
    assert other.read_text(encoding="utf-8") == text


def test_what_cannot_be_made(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "x.jsonl")
    assert cli("prompts", "make", "demo", "--n", "0", "--out", path)[0] == 1
    code, _, err = cli("prompts", "make", "demo", "--n", "2", "--out", "/no/such/folder/x")
    assert code == 1
    assert "cannot be written" in err
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
    code, _, err = cli("prompts", "make", "leg_counting", "--n", "2", "--out", path)
    assert code == 1
    assert "pip install reasoning-gym" in err
