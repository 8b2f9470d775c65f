"""The part of an answer that a verifier looks at."""

import re

from finetune.specs import AFTER

_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_BOXED = "\\boxed{"


def take(part: str, text: str) -> str | None:
    """That part of `text` (see `specs.PARTS`), or None where it has none."""
    if part.startswith(AFTER):
        return _after(part.removeprefix(AFTER), text)
    return _TAKERS[part](text)


def squeeze(text: str) -> str:
    """`text` with single spaces between words, whatever stood there."""
    return " ".join(text.split())


def _after(mark: str, text: str) -> str | None:
    _, found, rest = text.rpartition(mark)
    return rest.strip() or None if found else None


def _last_line(text: str) -> str | None:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else None


def _bold(text: str) -> str | None:
    spans = _BOLD.findall(text)
    return spans[-1].strip() if spans else None


def _code(text: str) -> str:
    """The last fenced block; all of it where there is none, since bare code is code too."""
    blocks = _FENCE.findall(text)
    return blocks[-1][1] if blocks else text


def _boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{}, braces inside it included."""
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    start += len(_BOXED)
    depth = 1
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start:end].strip()
    return None


_TAKERS = {
    "all": lambda text: text,
    "last line": _last_line,
    "bold": _bold,
    "boxed": _boxed,
    "code": _code,
}
