"""What can be asked: plain lines, prompts, the forms of GSM8K and HumanEval, the shipped sets."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from app.bench import sets
from app.bench.prompts import read_set
from app.bench.sets import SHIPPED, SetError, load_set
from finetune.verifiers import check_references, make_verifier

HUMAN_EVAL = {
    "task_id": "X/0",
    "prompt": "from math import sqrt\n\ndef helper(x):\n    return x + 1\n\n"
    'def root(x: float) -> float:\n    """ The root of x. """\n',
    "entry_point": "root",
    "canonical_solution": "    return sqrt(x)\n",
    "test": "def check(candidate):\n    assert candidate(9) == 3\n    assert helper(1) == 2\n",
}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("\ufeffWhat is a block?\n\n  Why 32?  \nWhat is a block?\n", encoding="utf-8")
    found = read_set(path)
    assert [prompt.question for prompt in found.prompts] == ["What is a block?", "Why 32?"]
    assert [prompt.line for prompt in found.prompts] == [1, 3]
    assert (found.verified, found.problems, found.name) == ([], (), "mine.txt")


def test_prompts_with_and_without_a_verifier(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "2 + 2?", "answer": 4, "verify": "number"},
        {"messages": [{"role": "user", "content": "Hello"}], "answer": ["anything"]},
        {"prompt": "?", "verify": "numbers"},
        {"text": "?"},
    )
    found = read_set(path)
    assert [bool(prompt.verify) for prompt in found.prompts] == [True, False]
    assert [problem.line for problem in found.problems] == [3, 4]
    assert "did you mean 'number'" in str(found.problems[0])


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00\xff", b"PAR1\0\0", b"\xff\xfea\0", b"[1]"])
def test_what_is_neither_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes(content)
    found = read_set(path)
    assert found.prompts == ()
    assert found.problems


def test_rows_of_gsm8k(tmp_path: Path) -> None:
    path = write(
        tmp_path / "gsm8k.jsonl",
        {"question": "How many?", "answer": "6 * 7 = <<6*7=42>>1,042\n#### 1,042"},
        {"question": "How many now?", "answer": "42"},
        {"question": 1, "answer": "#### 1"},
    )
    found = read_set(path)
    (prompt,) = found.prompts
    assert prompt.question.startswith("How many?\n\n")
    assert [problem.line for problem in found.problems] == [2, 3]
    with make_verifier(found.prompts) as verifier:
        assert verifier(prompt, "First 6, then 7.\n\n1042").passed
        assert not verifier(prompt, "42").passed


def test_rows_of_humaneval_run_their_tests_behind_the_answer(tmp_path: Path) -> None:
    found = read_set(write(tmp_path / "he.jsonl", HUMAN_EVAL, {**HUMAN_EVAL, "entry_point": "x"}))
    (prompt,) = found.prompts
    assert [problem.line for problem in found.problems] == [2]
    assert "```python\nfrom math import sqrt" in prompt.question
    good = "```python\ndef root(x):\n    return x ** 0.5\n```"
    with make_verifier(found.prompts, run_code=True) as verifier:
        assert verifier(prompt, good).passed
        assert not verifier(prompt, good.replace("0.5", "2")).passed


def test_a_choice_of_prompts_does_not_depend_on_their_order(tmp_path: Path) -> None:
    lines = [f"Question {n}" for n in range(30)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(reversed(lines)))
    a, b = (read_set(tmp_path / name) for name in ("a.txt", "b.txt"))
    assert {p.id for p in a.some(5).prompts} == {p.id for p in b.some(5).prompts}
    assert len(a.some(5).prompts) == 5
    assert a.some(30) == a
    assert a.digest != a.some(5).digest


@pytest.mark.parametrize("name", list(SHIPPED))
def test_shipped_sets_are_whole(name: str) -> None:
    found = load_set(name)
    assert found.problems == ()
    assert 16 <= len(found.prompts) <= 40
    assert len(found.verified) == (0 if name == "chat" else len(found.prompts))
    if name in ("demo", "math"):
        with make_verifier(found.verified) as verifier:
            assert check_references(verifier, found.prompts) == []


@pytest.mark.slow
def test_the_shipped_programs_pass_their_tests() -> None:
    found = load_set("code")
    with make_verifier(found.verified, run_code=True) as verifier:
        assert check_references(verifier, found.prompts) == []
        assert all(verifier.check_reference(prompt) for prompt in found.prompts)
        assert not verifier(found.prompts[0], "def is_leap(year):\n    return True").passed


def test_a_set_there_is_not() -> None:
    with pytest.raises(SetError, match="no set 'gsm'; there are demo, chat, code, math, gsm8k"):
        load_set("gsm")


def test_a_set_from_the_hub_without_a_reader_or_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SetError, match="pip install pyarrow; or name a file"):
        load_set("gsm8k", offline=True)
    monkeypatch.setattr(sets, "_parquet", lambda name: None)
    with pytest.raises(SetError, match=r"could not be fetched .*; go online, or name a file"):
        load_set("gsm8k", offline=True)


def test_rows_of_a_table_are_read_as_lines_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"question": f"{n}?", "answer": f"#### {n}"} for n in range(3)]
    table = ModuleType("table")
    table.to_pylist = lambda: rows  # type: ignore[attr-defined]
    reader = ModuleType("reader")
    reader.read_table = lambda path: table  # type: ignore[attr-defined]
    hub = ModuleType("huggingface_hub")
    hub.hf_hub_download = lambda *a, **k: "file"  # type: ignore[attr-defined]
    monkeypatch.setattr(sets, "_parquet", lambda name: reader)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    found = load_set("gsm8k")
    assert [prompt.answer for prompt in found.prompts] == ["0", "1", "2"]
    assert found.name == "gsm8k"
