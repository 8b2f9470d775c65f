"""Text files in a message: what is taken, how it is written down, and how it is found again."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.attachment import MOST_BYTES, Attachment, AttachmentError, join, read, split
from app.completion import common_start, matches


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        ("größe\n".encode(), "größe", "utf-8"),
        (b"\xef\xbb\xbfbom", "bom", "utf-8"),
        ("größe".encode("utf-16"), "größe", "utf-16"),
        ("größe".encode("cp1252"), "größe", "cp1252"),
        (b"\x81 old", "\x81 old".replace("\x81", ""), "latin-1"),
        (b"a\r\nb\rc", "a\nb\nc", "utf-8"),
        (b"\x1b[31mred\x1b[0m", "[31mred[0m", "utf-8"),
    ],
)
def test_a_text_file_is_read_whatever_wrote_it(
    tmp_path: Path, data: bytes, text: str, encoding: str
) -> None:
    path = tmp_path / "a b.txt"
    path.write_bytes(data)
    assert read(path) == Attachment("a b.txt", text, encoding)


def test_what_is_refused_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (MOST_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\x7fELF\x00\x01")
    (tmp_path / "empty").write_bytes(b" \n")
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        "big": "256,001 bytes",
        "binary": "no text file",
        "empty": "is empty",
        "pipe": "no plain file",
        "none": "There is no file",
        ".": "is a folder",
        "a\0b": "cannot be read",
    }.items():
        with pytest.raises(AttachmentError, match=words):
            read(tmp_path / name)


def test_a_message_with_files_reads_as_text() -> None:
    message = join("Look:", [Attachment("a.py", "x = 1"), Attachment("b.md", "--- hr\ntext")])
    assert message == (
        "Look:\n\n---- file: a.py ----\nx = 1\n---- end of file ----\n\n"
        "---- file: b.md ----\n--- hr\ntext\n---- end of file ----"
    )
    assert split(message)[0] == "Look:"
    assert join("as typed \n", []) == "as typed \n"


@given(
    st.text(alphabet="ab-\n #:file"), st.lists(st.text(alphabet="-ab \nend of file", min_size=1))
)
def test_what_is_joined_can_be_split(text: str, bodies: list[str]) -> None:
    files = [Attachment(f"{number}.txt", body) for number, body in enumerate(bodies)]
    said, found = split(join(text, files))
    assert [file.text for file in found] == bodies
    assert said == (text.rstrip() if bodies else text)


def test_paths_are_completed(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for name in ("notes.txt", "Nothing.md", ".hidden", "other"):
        (tmp_path / name).write_text("x")
    root = f"{tmp_path}/"
    assert matches(root + "no") == [root + "notes/", root + "Nothing.md", root + "notes.txt"]
    assert matches(root + ".") == [root + ".hidden"]
    assert matches(root + "nowhere/") == []
    assert common_start(matches(root + "note")) == root + "notes"
    assert common_start([]) == ""
