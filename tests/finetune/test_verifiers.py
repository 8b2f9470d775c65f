"""Every verifier on right, wrong and strange answers, and verifiers that misbehave."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from finetune.isolation import Isolation
from finetune.prompts import Prompt, prompt_id
from finetune.verifiers import Verifier, VerifierError, check_references, make_verifier

MINE = """
import os, signal, sys, time

def right(prompt, answer): return answer == prompt[::-1]
def row(prompt, answer, row): return row["weight"] * len(answer)
def hang(prompt, answer): time.sleep(30)
def spin(prompt, answer):
    while True: pass
def crash(prompt, answer): os.kill(os.getpid(), signal.SIGSEGV)
def leave(prompt, answer): os._exit(3)
def stop(prompt, answer): sys.exit(0)
def fail(prompt, answer): return 1 / 0
def shout(prompt, answer):
    for _ in range(40): print("x" * 100_000); os.write(1, b"y" * 65536); os.write(2, b"z" * 65536)
    return True
def fork(prompt, answer):
    os.fork()
    return True
def child(prompt, answer):
    pid = os.fork()
    if pid: open(prompt, "w").write(str(pid))
    time.sleep(30)
def read(prompt, answer): return sys.stdin.read() == ""
def nothing(prompt, answer): return None
seen = []
def count(prompt, answer):
    seen.append(1)
    return len(seen) > 1
NUMBER = 7
"""


def prompt(verify: Any, answer: str | None = None, question: str = "abc", **extra: Any) -> Prompt:
    messages = ({"role": "user", "content": question},)
    return Prompt(messages, answer, verify, 1, prompt_id(messages), extra)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verifiers")
    (folder / "mine.py").write_text(MINE)
    (folder / "broken.py").write_text("import nothing_like_this")
    return folder


@pytest.fixture(scope="module")
def verifier(folder: Path) -> Any:
    with make_verifier([], folder=folder, run_code=True) as verifier:
        yield verifier


def spec(kind: str, **options: Any) -> dict[str, Any]:
    return {"kind": kind, **options}


@pytest.mark.parametrize(
    ("verify", "answer", "given", "passed"),
    [
        ("exact", "a  b", " a\nb ", True),
        ("exact", "a b", "A b", False),
        (spec("exact", ignore_case=True), "Straße", "STRASSE", True),
        (spec("exact", take="bold"), "85", "47 + 38 is **80**, no: **85**.", True),
        (spec("exact", take="bold"), "85", "it is 85", False),
        (spec("exact", take="last line"), "85", "thinking\n\n85\n", True),
        (spec("exact", take="boxed"), r"\frac{1}{2}", r"so $\boxed{\frac{1}{2}}$.", True),
        (spec("exact", take="after ####"), "72", "12 * 6\n#### 72", True),
        (spec("exact", take="after ####"), "72", "72", False),
        ("contains", "Paris", "It is Paris.", True),
        ("contains", "Paris", "It is paris.", False),
        ("number", "1234.5", "It is $1,234.50.", True),
        ("number", "-3", "so x = \u22123", True),
        ("number", "7", "7 or 8", False),
        ("number", "38", "47-38", True),
        ("number", "0.5", "1/2 of it", True),
        ("number", "15", "15%", True),
        ("number", "6e23", "about 6e23", True),
        ("number", "0.1", "0.1000000000000000055", False),
        (spec("number", tolerance=0.01), "3.14", "3.1416", True),
        (spec("number", tolerance=0.001), "3.14", "3.1416", False),
        ("number", "5", "none at all", False),
        ("number", "5", "inf nan x5 1/0", False),
        ("number", "5", "9" * 10_000, False),
        ("choice", "B", "The answer is (B).", True),
        ("choice", "B", r"$\boxed{B}$", True),
        ("choice", "b", "B", True),
        ("choice", "B", "A cat is not it, so **B**", True),
        ("choice", "B", "A is wrong. Answer: C", False),
        ("choice", "B", "it is a dog", False),
        (spec("choice", choices=["yes", "no"]), "no", "No, it is not.", True),
        (spec("choice", choices=["yes", "no"]), "no", "I know", False),
    ],
)
def test_comparing_text(
    verifier: Verifier, verify: Any, answer: str, given: str, passed: bool
) -> None:
    verdict = verifier.check(prompt(verify, answer), given)
    assert (verdict.passed, verdict.error) == (passed, False)
    assert bool(verdict.reason) is not passed
    assert verdict.seconds < 1


SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("verify", "answer", "given", "passed"),
    [
        (spec("regex", pattern=r"^\d{4}$"), None, "2026", True),
        (spec("regex", pattern=r"^\d{4}$"), None, "in 2026", False),
        (spec("regex", pattern="paris", ignore_case=True), None, "Paris", True),
        ("json", '{"a": [1, 2]}', '```json\n{ "a": [1,2] }\n```', True),
        ("json", '{"a": 1}', '{"a": 2}', False),
        ("json", '{"a": [1, 1]}', '{"a": [1.0, true]}', False),
        ("json", '{"a": [1, true]}', '{"a": [1.0, true]}', True),
        (spec("json", schema=SCHEMA), None, '{"a": 1}', True),
        (spec("json", schema=SCHEMA), None, '{"a": "1"}', False),
        (spec("json", schema=SCHEMA), None, "{a: 1}", False),
        (spec("json", schema=SCHEMA), None, "[" * 100_000, False),
        ("math", "1/2", r"It is $\frac{2}{4}$.", True),
        ("math", "x^2 + 1", r"$\boxed{1 + x^2}$", True),
        ("math", "4", "$5$", False),
        ("math", "4", "no idea", False),
    ],
)
def test_judging_in_a_process_of_its_own(
    verifier: Verifier, verify: Any, answer: str | None, given: str, passed: bool
) -> None:
    verdict = verifier.check(prompt(verify, answer), given)
    assert (verdict.passed, verdict.error) == (passed, False), verdict.reason


def test_a_regular_expression_that_would_never_end(verifier: Verifier) -> None:
    asked = prompt(spec("regex", pattern="^(a+)+$", seconds=0.3))
    verdict = verifier.check(asked, "a" * 60 + "!")
    assert (verdict.passed, verdict.error) == (False, True)
    assert verdict.reason == "the verifier took longer than 0.3 s"
    assert verifier.check(asked, "aaa").passed


def test_a_schema_does_not_fetch_anything(verifier: Verifier) -> None:
    asked = prompt(spec("json", schema={"$ref": "http://127.0.0.1:9/schema.json"}))
    verdict = verifier.check(asked, "{}")
    assert (verdict.passed, verdict.error) == (False, True)


# --- the user's own functions -------------------------------------------------------------------


def mine(verifier: Verifier, name: str, answer: str = "cba", **options: Any) -> Any:
    return verifier.check(prompt(spec(f"mine.py:{name}", **options), weight=0.25), answer)


def test_functions_that_work(verifier: Verifier) -> None:
    assert mine(verifier, "right").passed
    assert not mine(verifier, "right", "abc").passed
    assert verifier.check(prompt("mine:right"), "cba").passed
    assert mine(verifier, "row", "four").passed
    assert not mine(verifier, "row", "no").passed
    assert mine(verifier, "row", "no", at_least=0.5).passed
    assert mine(verifier, "shout").passed
    assert mine(verifier, "fork").passed
    assert mine(verifier, "fork").passed
    assert mine(verifier, "read").passed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hang", "the verifier took longer than 0.3 s"),
        ("spin", "the verifier took longer than 0.3 s"),
        ("crash", "the verifier was ended by SIGSEGV"),
        ("leave", "the verifier exited with 3"),
        ("stop", "SystemExit: 0 (mine.py, line 11)"),
        ("fail", "ZeroDivisionError: division by zero (mine.py, line 12)"),
        ("nothing", "the function must return true, false or a number, not NoneType"),
        ("missing", "mine.py has no function missing"),
        ("NUMBER", "mine.py has no function NUMBER"),
    ],
)
def test_functions_that_do_not(verifier: Verifier, name: str, reason: str) -> None:
    verdict = mine(verifier, name, seconds=0.3)
    assert (verdict.passed, verdict.error) == (False, True)
    assert verdict.reason == reason


def test_modules_that_cannot_be_imported(verifier: Verifier) -> None:
    for name, words in (("broken.py", "ModuleNotFoundError"), ("none.py", "there is no file")):
        verdict = verifier.check(prompt(f"{name}:check"), "x")
        assert verdict.error
        assert words in verdict.reason


def test_a_process_is_used_again_and_its_children_go_with_it(folder: Path) -> None:
    with make_verifier([], folder=folder, run_code=True) as own:
        assert [mine(own, "count").passed for _ in range(3)] == [False, True, True]
        told = folder / "pid"
        own.check(prompt(spec("mine.py:child", seconds=0.5), question=str(told)), "x")
        assert is_gone(int(told.read_text()))
        (process,) = own._processes._idle[("function", "mine.py:count", str(folder))]
        assert not is_gone(process._process.pid)
    assert is_gone(process._process.pid)


def is_gone(pid: int) -> bool:
    """Ended, whether or not somebody has asked for its exit code; soon is soon enough."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_several_threads(verifier: Verifier) -> None:
    asked = [prompt(spec("regex", pattern=f"^{n}$")) for n in range(8)]
    with ThreadPoolExecutor(3) as pool:
        verdicts = list(pool.map(verifier, asked, (str(n % 7) for n in range(8))))
    assert [verdict.passed for verdict in verdicts] == [True] * 7 + [False]


# --- programs -----------------------------------------------------------------------------------

TESTS = spec("python", tests=["assert f(1) == 2", "assert f(5) == 6"])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(x): return x + 1", ""),
        ("Here:\n```python\ndef f(x):\n    return x + 1\n```\nDone.", ""),
        ("def f(x): return 2", "AssertionError (test: assert f(5) == 6)"),
        ("def f(x): return x / 0", "ZeroDivisionError: division by zero (test: assert f(1) == 2)"),
        ("def f(x) return", "SyntaxError: expected ':' (line 1 of the answer)"),
        ("g = 1", "NameError: name 'f' is not defined (test: assert f(1) == 2)"),
        ("import sys; sys.exit(0)", "it ended before its tests did"),
        ("import os; os._exit(0)", "it ended before its tests did"),
        ("f = lambda x: __import__('os').kill(__import__('os').getpid(), 9)", "exit code -9"),
        ("print('x' * 9_000_000)", "it printed more than allowed"),
    ],
)
def test_python(verifier: Verifier, code: str, reason: str) -> None:
    verdict = verifier.check(prompt(TESTS), code)
    assert verdict.passed is (reason == "")
    assert reason in verdict.reason
    assert not verdict.error


def test_a_sandbox_that_fails_is_an_error_and_not_a_wrong_answer(folder: Path) -> None:
    nowhere = Isolation("none", ("it is a test",))
    with pytest.raises(VerifierError, match="Code cannot be run here: it is a test"):
        make_verifier([prompt(TESTS)], folder=folder, run_code=True, isolation=nowhere)
    with make_verifier([], folder=folder, run_code=True, isolation=nowhere) as own:
        verdict = own.check(prompt(TESTS), "def f(x): return x + 1")
    assert (verdict.passed, verdict.error) == (False, True)


# --- leave, packages, references ----------------------------------------------------------------


def test_code_needs_leave(folder: Path) -> None:
    for asked in (prompt(TESTS), prompt("mine:right")):
        with pytest.raises(VerifierError, match="which was not allowed"):
            make_verifier([asked], folder=folder)
        with make_verifier([], folder=folder) as own:
            verdict = own.check(asked, "x")
            assert verdict.error
            assert verdict.reason == "running code was not allowed"
            assert own.check_reference(asked) is None


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(VerifierError, match=r"'math' needs .*pip install math-verify jsonschema"):
        make_verifier([prompt("math", "1")])


def test_answers_that_their_own_verifier_rejects(verifier: Verifier) -> None:
    bad = [
        prompt("number", "many"),
        prompt("choice", "Z"),
        prompt(spec("regex", pattern="x"), "y"),
        prompt(spec("json", schema=SCHEMA), "[]"),
        prompt(TESTS, "def f(x): return x"),
        prompt("mine.py:right", "abc"),
        prompt("broken.py:check"),
    ]
    good = [
        prompt(spec("exact", take="bold"), "85"),
        prompt("number", "1,000"),
        prompt(spec("number", take="after ####"), "5 + 5\n#### 10"),
        prompt(TESTS, "def f(x): return x + 1"),
        prompt(spec("regex", pattern="x")),
    ]
    problems = check_references(verifier, bad)
    assert len(problems) == len(bad), problems
    assert str(problems[0]) == (
        "line 1 has an answer that it rejects itself (the reference 'many' holds no number)"
    )
    assert "makes its verifier fail" in str(problems[-1])
    assert check_references(verifier, good) == []


def test_nothing_raises(verifier: Verifier) -> None:
    strange = Prompt(({"role": "user", "content": "x"},), "1", {"kind": "no"}, 1, "x")
    verdict = verifier.check(strange, "1")
    assert verdict.error
    assert "ValueError" in verdict.reason
    for text in ("", "\0", "\ud800", "x" * 1_000_000):
        for kind in ("exact", "number", "choice"):
            assert not verifier.check(prompt(kind, "A" if kind == "choice" else "4"), text).passed
    assert os.getpid()
