"""Text files that go along with a message: read, checked, and put into its text between two lines.

What is sent and stored is plain text that says what it is, so a chat with files can be read, copied
and searched like any other; `split` finds the files again.
"""

import codecs
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.text import printable

MOST_BYTES = 256_000
"""Of one file: some 60,000 tokens, more than the contexts of today's block-diffusion models."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_FILE = re.compile(
    r"\n*^(?P<rule>-{3,}) file: (?P<name>[^\n]*) (?P=rule)\n"
    r"(?P<text>.*?)\n(?P=rule) end of file (?P=rule)$",
    re.MULTILINE | re.DOTALL,
)


class AttachmentError(Exception):
    """A file that cannot go along; the message is a sentence for the user."""


@dataclass(frozen=True)
class Attachment:
    """A text file: its name without the folder, which is nobody's business, and what it holds."""

    name: str
    text: str
    encoding: str = "utf-8"


def read(path: Path) -> Attachment:
    """The file at `path`. Raises AttachmentError: no plain file, too large, binary, empty."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise AttachmentError(f"{path} is a folder; name a file in it.")
        if not stat.S_ISREG(found.st_mode):
            raise AttachmentError(f"{path} is no plain file.")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise AttachmentError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise AttachmentError(f"{path} cannot be read: {why}.") from error
    if len(data) > MOST_BYTES:
        raise AttachmentError(
            f"{path.name} has {max(found.st_size, len(data)):,} bytes; {MOST_BYTES:,} are the most "
            "that can go along. Attach a part of it."
        )
    text, encoding = _decode(data)
    if _BINARY.search(text):
        raise AttachmentError(f"{path.name} is no text file.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise AttachmentError(f"{path.name} is empty.")
    return Attachment(_one_line(path.name), printable(text).rstrip("\n"), encoding)


def join(text: str, attachments: Sequence[Attachment]) -> str:
    """The message: `text`, then every file between two lines such as occur nowhere in it."""
    rule, whole = "---", "\n".join([text, *(a.text for a in attachments)])
    while f"\n{rule}" in f"\n{whole}":
        rule += "-"
    files = [
        f"{rule} file: {a.name} {rule}\n{a.text}\n{rule} end of file {rule}" for a in attachments
    ]
    return "\n\n".join(part for part in (text.rstrip() if files else text, *files) if part)


def split(message: str) -> tuple[str, list[Attachment]]:
    """What was joined: the text and the files."""
    files = [Attachment(found["name"], found["text"]) for found in _FILE.finditer(message)]
    return (_FILE.sub("", message), files) if files else (message, [])


def _decode(data: bytes) -> tuple[str, str]:
    """The text and the encoding it was read with: the one a byte order mark names, else UTF-8, else
    the one that old Windows files have, in which every byte stands for something."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace"), encoding.removesuffix("-sig")
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1"), "latin-1"


def _one_line(name: str) -> str:
    return " ".join(printable(name).split()) or "file"
