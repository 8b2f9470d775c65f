"""The personal set: verifiers guessed from answers, and the file they are kept in."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.keeping import Guess, KeepingError, guess, keep, verdict
from finetune.prompts import read_prompts

CHOICE = "Which is largest?\nA) a cat\nB) a whale\nC) a mouse"


@pytest.mark.parametrize(
    ("question", "answer", "found"),
    [
        ("47 + 38?", "Tens: 70\n\nTogether: **85**", Guess("number", "bold", "85")),
        ("Sort 3 1", "From small to large: **1, 3**", Guess("exact", "bold", "1, 3")),
        ("Half of 5?", "It is 2.5", Guess("number", "all", "2.5")),
        ("Of what?", r"So $\boxed{1,234}$", Guess("number", "boxed", "1,234")),
        (CHOICE, "The answer is B) a whale.", Guess("choice", "all", "B")),
        ("As JSON", '```json\n{"a": [1]}\n```', Guess("json", "all", '{"a": [1]}')),
        ("Capital of Italy?", "Rome", Guess("exact", "all", "Rome")),
        ("Why?", "First this.\nThen  that.", Guess("contains", "all", "Then that.")),
    ],
)
def test_guesses(question: str, answer: str, found: Guess) -> None:
    assert guess(question, answer) == found
    assert verdict(found, answer) == (True, verdict(found, answer)[1])


@given(st.text(), st.text(min_size=1).filter(str.strip))
def test_whatever_is_guessed_passes(question: str, answer: str) -> None:
    found = guess(question, answer)
    assert verdict(found, answer)[0]


def test_a_verifier_that_does_not_pass_says_why() -> None:
    assert "got 85" in verdict(Guess("number", "bold", "86"), "**85**")[1]
    assert "no part 'bold'" in verdict(Guess("number", "bold", "86"), "85")[1]
    assert "cannot be used" in verdict(Guess("json", "all", "{"), "{}")[1]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_kept_prompts_are_a_prompts_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kept.jsonl"
    assert keep(path, [user("1 + 1?")], Guess("number", "bold", "2")) == 1
    chat = [user("Hi"), {"role": "assistant", "content": "Hello"}, user("2 + 2?")]
    assert keep(path, chat, Guess("number", "all", "4")) == 2
    found = read_prompts(path)
    assert found.problems == ()
    assert [p.question for p in found.prompts] == ["1 + 1?", "2 + 2?"]
    assert found.prompts[0].verify == {"kind": "number", "take": "bold"}
    assert found.prompts[1].messages == tuple(chat)


def test_the_same_question_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text("what somebody wrote by hand")  # without a line's end
    keep(path, [user("1 + 1?")], Guess("number", "all", "3"))
    assert keep(path, [user("1 + 1?")], Guess("number", "all", "2")) == 2
    first, second = path.read_text().splitlines()
    assert first == "what somebody wrote by hand"
    assert json.loads(second)["answer"] == "2"


def test_what_cannot_be_kept_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    keep(path, [user("1 + 1?")], Guess("number", "all", "2"))
    before = path.read_bytes()
    with pytest.raises(KeepingError, match="right answer holds"):
        keep(path, [user("2?")], Guess("exact", "all", " "))
    with pytest.raises(KeepingError, match="which there is not"):
        keep(path, [user("2?")], Guess("exactly", "all", "2"))
    assert path.read_bytes() == before
    with pytest.raises(KeepingError, match="cannot be written"):
        keep(path / "under a file", [user("2?")], Guess("exact", "all", "2"))
