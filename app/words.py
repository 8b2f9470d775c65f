"""What somebody types into a search field, as words to look for and as places to mark in a text.

Letters are compared without case and without diacritics, the last word as the beginning of one.
A search that the index of words cannot answer (signs, or scripts that put no spaces between words)
looks for its words anywhere instead. Nothing that is typed is an operator, so nothing is an error.
"""

import re
import unicodedata
from dataclasses import dataclass

LONGEST = 200
"""Characters of a search that are looked at."""

_WORD = re.compile(r"(?:[^\W_][\u0300-\u036f]*)+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]"
)


def fold(text: str) -> str:
    """`text` as it is compared: no case, no diacritics."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in apart if not unicodedata.combining(letter)).casefold()


@dataclass(frozen=True)
class Search:
    """A search as typed."""

    text: str

    @property
    def parts(self) -> list[str]:
        """What was typed, cut at spaces, without what no file can hold."""
        return self.text.replace("\x00", " ")[:LONGEST].split()

    @property
    def needles(self) -> list[str]:
        """The parts as they are compared."""
        return [folded for part in self.parts if (folded := fold(part))]

    @property
    def in_index(self) -> bool:
        """Whether an index of words can answer it."""
        return all(_WORD.search(p) and not _UNSPACED.search(p) for p in self.parts)

    @property
    def expression(self) -> str:
        """The search in FTS5's language: each part a quoted phrase, the last one a prefix."""
        return " ".join('"' + part.replace('"', " ") + '"' for part in self.parts) + "*"

    def titles(self, title: str) -> bool:
        """Whether a title holds every part."""
        folded = fold(title)
        return all(needle in folded for needle in self.needles)

    def marks(self, text: str) -> list[tuple[int, int]]:
        """Where in `text` the words stand, as (start, end), in order and apart."""
        marks = self._words(text) if self.in_index else []
        return marks or self._anywhere(text)

    def snippet(self, text: str, length: int) -> tuple[str, list[tuple[int, int]]]:
        """About `length` characters of `text` on one line around the first mark, with the marks
        in them; "…" stands for what was cut."""
        first = next(iter(self.marks(text)), (0, 0))[0]
        start = first - length // 3
        if start > 0:
            start = max(start, text.find(" ", start, first) + 1)
        start = max(0, start)
        line = " ".join(text[start : start + length].split())
        before = "…" if text[:start].strip() else ""
        after = "…" if text[start + length :].strip() else ""
        cut = f"{before}{line}{after}"
        return cut, self.marks(cut)

    def _words(self, text: str) -> list[tuple[int, int]]:
        words = [fold(word) for part in self.parts for word in _WORD.findall(part)]
        if not words:
            return []
        whole, start = set(words), words[-1]
        return [
            match.span()
            for match in _WORD.finditer(text)
            if (word := fold(match[0])) in whole or word.startswith(start)
        ]

    def _anywhere(self, text: str) -> list[tuple[int, int]]:
        parts = sorted(self.parts, key=len, reverse=True)
        pattern = "|".join(re.escape(part) for part in parts)
        return [m.span() for m in re.finditer(pattern, text, re.IGNORECASE)] if parts else []
