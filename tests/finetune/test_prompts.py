"""Files of prompts: what is read, what is refused with which line number, and the split."""

import json
from pathlib import Path
from typing import Any

import pytest

from finetune import prompts as module
from finetune.prompts import PromptSet, read_prompts, split

GOOD: dict[str, Any] = {"prompt": "What is 2 + 2?", "answer": "4", "verify": "number"}


def write(path: Path, *rows: object) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def nested(depth: int) -> str:
    """A row whose schema is as deep as that."""
    schema = '{"not": ' * depth + "true" + "}" * depth
    return '{"prompt": "p", "verify": {"kind": "json", "schema": ' + schema + "}}"


def numbered(n: int) -> list[dict[str, Any]]:
    return [{"prompt": f"What is {i} + 1?", "answer": i + 1, "verify": "number"} for i in range(n)]


def told(tmp_path: Path, row: object) -> str:
    """The one problem of a file whose second line is `row`."""
    found = read_prompts(write(tmp_path / "p.jsonl", {**GOOD, "prompt": "other"}, row))
    assert len(found.prompts) == 1
    (problem,) = found.problems
    assert problem.line == 2
    return str(problem)


def test_a_good_file(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "6 x 7"},
        {"role": "assistant", "content": "42"},
        {"role": "user", "content": "plus 1"},
    ]
    rows = [
        GOOD,
        {"messages": chat, "answer": 43, "verify": {"kind": "number", "tolerance": 0.5}, "x": [1]},
        {"prompt": "An object", "answer": {"a": 1}, "verify": "json"},
        {"prompt": "f", "verify": {"kind": "python", "tests": ["assert f(1) == 2"]}},
        {"prompt": "g", "verify": "mine.check:right"},
    ]
    found = read_prompts(write(tmp_path / "p.jsonl", *rows))
    assert found.problems == ()
    assert [prompt.line for prompt in found.prompts] == [1, 2, 3, 4, 5]
    assert found.prompts[0].messages == ({"role": "user", "content": "What is 2 + 2?"},)
    assert found.prompts[1].messages == tuple(chat)
    assert found.prompts[1].question == "plus 1"
    assert found.prompts[1].extra == {"x": [1]}
    assert [prompt.answer for prompt in found.prompts] == ["4", "43", '{"a": 1}', None, None]
    assert len({prompt.id for prompt in found.prompts}) == 5


def test_bom_line_ends_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [json.dumps(row).encode() for row in numbered(2)]
    path.write_bytes(b"\xef\xbb\xbf" + rows[0] + b"\r\n\r\n  \n" + rows[1])
    found = read_prompts(path)
    assert [prompt.line for prompt in found.prompts] == [1, 4]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{not json", "line 2 is not JSON ("),
        ("[1]", "is not a JSON object"),
        ('"text"', "is not a JSON object"),
        ("[" * 100_000, "is JSON that cannot be read"),
        ({"answer": "4", "verify": "number"}, "has no `prompt`"),
        ({"prompt": " ", "answer": "4", "verify": "number"}, "is empty or no text"),
        ({"prompt": 7, "answer": "4", "verify": "number"}, "is empty or no text"),
        ({**GOOD, "messages": [{"role": "user", "content": "x"}]}, "both `prompt` and `messages`"),
        ({"messages": [], "answer": "4", "verify": "number"}, "empty or no list"),
        ({"messages": ["x"], "answer": "4", "verify": "number"}, "exactly `role` and `content`"),
        ({"messages": [{"role": "bot", "content": "x"}], "verify": "number"}, "whose role is"),
        (
            {"messages": [{"role": "assistant", "content": "x"}], "answer": 1, "verify": "number"},
            "do not end with the user's",
        ),
        ({"prompt": "p", "answer": "4"}, "has no `verify`"),
        ({"prompt": "p", "verify": "number"}, "has no `answer`"),
        ({**GOOD, "answer": ["4"]}, "neither text nor a number"),
        ({**GOOD, "answer": ""}, "neither text nor a number"),
        ({**GOOD, "verify": "numbr"}, "did you mean 'number'?"),
        ({**GOOD, "verify": "function"}, "which there is not"),
        ({**GOOD, "verify": 3}, "neither a name nor an object"),
        ({**GOOD, "verify": {"tolerance": 1}}, "without the `kind`"),
        ({**GOOD, "verify": {"kind": "number", "pattern": "x"}}, "the option 'pattern'"),
        ({**GOOD, "verify": {"kind": "number", "tolerance": -1}}, "no number from 0"),
        ({**GOOD, "verify": {"kind": "exact", "take": "italic"}}, "`take` that is none of"),
        ({**GOOD, "verify": "regex"}, "has no `pattern`"),
        ({**GOOD, "verify": {"kind": "regex", "pattern": "(("}}, "no regular expression"),
        ({**GOOD, "verify": {"kind": "choice", "choices": ["A"]}}, "at least two"),
        ({"prompt": "p", "verify": "json"}, "neither an `answer` nor a `schema`"),
        ({"prompt": "p", "verify": {"kind": "json", "schema": {"type": 7}}}, "no JSON schema"),
        ({"prompt": "p", "verify": {"kind": "json", "schema": {"$schema": []}}}, "no JSON schema"),
        (nested(500), "too deeply"),
        ({**GOOD, "verify": {"kind": "number", "tolerance": 10**400}}, "no number from 0"),
        ({"prompt": "p", "verify": "python"}, "has no `tests`"),
        ({"prompt": "p", "verify": {"kind": "python", "tests": "def"}}, "is no Python"),
        ({"prompt": "p", "verify": {"kind": "a:b", "seconds": 0}}, "no number from 0 to 600"),
        ({"prompt": "p", "verify": "a b:c"}, "module:function or file.py:function"),
        ('{"prompt": "\\ud800", "answer": 1, "verify": "number"}', "half a character"),
    ],
)
def test_bad_lines(tmp_path: Path, row: object, words: str) -> None:
    assert words in told(tmp_path, row)


def test_wrong_encodings(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"prompt": "Gr\xf6\xdfe"}\n')
    assert [str(p) for p in read_prompts(path).problems] == ["line 2 is not UTF-8 text (byte 15)"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (json.dumps(GOOD).encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08 gzip", "gzip"),
        (b"PK\x03\x04 zip", "zip"),
        (json.dumps([GOOD], indent=1).encode(), "JSON list"),
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(data)
    found = read_prompts(path)
    assert found.prompts == ()
    (problem,) = found.problems
    assert problem.line == 1
    assert words in str(problem)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(OSError, match=str(path)):
            read_prompts(path)


def test_duplicates_name_the_first_line(tmp_path: Path) -> None:
    found = read_prompts(write(tmp_path / "p.jsonl", GOOD, {**GOOD, "x": 1}, {**GOOD, "answer": 5}))
    assert len(found.prompts) == 1
    assert [str(problem) for problem in found.problems] == [
        "line 2 is a duplicate of line 1",
        "line 3 asks what another line asks, with another answer or verifier (line 1)",
    ]


def test_problems_are_grouped(tmp_path: Path) -> None:
    found = read_prompts(write(tmp_path / "p.jsonl", GOOD, {"x": 1}, GOOD, {"y": 1}, GOOD))
    assert found.grouped() == {"has no `prompt`": [2, 4], "is a duplicate": [3, 5]}


def test_huge_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE", 1000)
    monkeypatch.setattr(module, "MOST_PROMPTS", 3)
    monkeypatch.setattr(module, "HOPELESS", 5)
    long = {**GOOD, "prompt": "x" * 5000}
    rows = numbered(9)
    found = read_prompts(write(tmp_path / "p.jsonl", rows[0], long, *rows[1:]))
    assert [prompt.line for prompt in found.prompts] == [1, 3, 4]
    assert [problem.line for problem in found.problems] == [2, 4]
    assert "longer than" in str(found.problems[0])
    assert "too large" in str(found.problems[1])
    hopeless = read_prompts(write(tmp_path / "q.jsonl", *["no"] * 100))
    assert len(hopeless.problems) == 6
    assert "nothing up to it" in str(hopeless.problems[-1])


def found(tmp_path: Path, n: int) -> PromptSet:
    return read_prompts(write(tmp_path / "p.jsonl", *numbered(n)))


def test_the_split_depends_on_content_and_seed_alone(tmp_path: Path) -> None:
    prompts = found(tmp_path, 100).prompts
    train, held = split(prompts, 20, seed=1)
    assert (len(train), len(held)) == (80, 20)
    assert sorted(p.line for p in (*train, *held)) == list(range(1, 101))
    assert [p.line for p in held] == sorted(p.line for p in held)
    again = split(prompts[::-1], 20, seed=1)
    assert {p.id for p in again[1]} == {p.id for p in held}
    assert {p.id for p in split(prompts, 20, seed=2)[1]} != {p.id for p in held}
    assert {p.id for p in split(prompts, 10, seed=1)[1]} < {p.id for p in held}
    assert split(prompts, 0, seed=1) == (list(prompts), [])


def test_a_split_that_leaves_nothing(tmp_path: Path) -> None:
    prompts = found(tmp_path, 3).prompts
    with pytest.raises(ValueError, match="3 of 3 prompts cannot be held out"):
        split(prompts, 3, seed=0)
    assert split([], 0, seed=0) == ([], [])
