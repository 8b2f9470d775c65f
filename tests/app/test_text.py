"""Nothing a model writes may steer the terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb\rc", "a\nbc"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]52;c;aGk=\x07", "]52;c;aGk="),
        ("\x9b2J\x7f\x00\x08", "2J"),
        ("admin\u202etxt.exe\u2066x\u2069", "admintxt.exex"),
        ("\ud83d lone", "\ufffd lone"),
        ("ä 你好 עברית 👩‍👩‍👧 e\u0301 [b]markup[/b]", "ä 你好 עברית 👩‍👩‍👧 e\u0301 [b]markup[/b]"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_only_harmless_characters_are_left(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    assert printable(shown) == shown
