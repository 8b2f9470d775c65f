"""What somebody types into a search field, as words to look for and as places to mark in a text.

Letters are compared without case and without diacritics, the last word as the beginning of one.
A search that the index of words cannot answer (signs, or scripts that put no spaces between words)
looks for its words anywhere instead. Nothing that is typed is an operator, so nothing is an error.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 200
"""Characters of a search that are looked at."""

_WORD = re.compile(r"(?:[^\W_][\u0300-\u036f]*)+")
_MARKS = re.compile(r"[\u0300-\u036f]+")
_INDEXED = re.compile(
    r"[\u0000-\u037e\u0380-\u0529\u0531-\u0556\u0561-\u0587\u05d0-\u05ea\u1e00-\u1fff\u2010-\u205e]*"
)
"""Latin, Greek, Cyrillic, Armenian, Hebrew, and signs: scripts that put spaces between words, in
the letters of them that every SQLite knows."""


def fold(text: str) -> str:
    """`text` as it is compared: no case, no diacritics."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return _MARKS.sub("", apart).casefold()


@dataclass(frozen=True)
class Search:
    """A search as typed; without any `parts` there is nothing to look for or to mark."""

    text: str

    @property
    def parts(self) -> list[str]:
        """What was typed, cut at spaces, without what no file can hold."""
        return self.text.replace("\x00", " ")[:LONGEST].split()

    @property
    def in_index(self) -> bool:
        """Whether an index of words can answer it."""
        return all(_WORD.search(p) and _INDEXED.fullmatch(p) for p in self.parts)

    @property
    def expression(self) -> str:
        """The search in FTS5's language: all of its words, the last one as a beginning."""
        return " ".join(f'"{word}"' for word in _WORD.findall(" ".join(self.parts))) + "*"

    def titles(self, title: str) -> bool:
        """Whether a title holds every part."""
        folded = fold(title)
        return all(fold(part) in folded for part in self.parts)

    def marks(self, text: str) -> list[tuple[int, int]]:
        """Where in `text` the words stand, as (start, end), in order and apart."""
        if not self.parts:
            return []
        marks = list(self._words(text)) if self.in_index else []
        return marks or list(self._anywhere(text))

    def snippet(self, text: str, length: int) -> tuple[str, list[tuple[int, int]]]:
        """About `length` characters of `text` on one line around the first mark, with the marks
        in them; "…" stands for what was cut."""
        first = self._first(text)
        start = max(0, first - length // 3)
        if start:
            start = text.find(" ", start, first) + 1 or start
        line = " ".join(text[start : start + length].split())
        before = "…" if text[:start].strip() else ""
        after = "…" if text[start + length :].strip() else ""
        cut = f"{before}{line}{after}"
        return cut, self.marks(cut)

    def _first(self, text: str) -> int:
        """Where the first mark begins; spelt as typed it is found without looking at each word."""
        typed = re.search(rf"\b{re.escape(self.parts[-1])}", text, re.IGNORECASE)
        if typed is not None:
            return typed.start()
        return next(iter(self.marks(text)), (0, 0))[0]

    def _words(self, text: str) -> Iterator[tuple[int, int]]:
        words = [fold(word) for word in _WORD.findall(" ".join(self.parts))]
        whole, start = set(words), words[-1]
        for match in _WORD.finditer(text):
            word = fold(match[0])
            if word in whole or word.startswith(start):
                yield match.span()

    def _anywhere(self, text: str) -> Iterator[tuple[int, int]]:
        longest_first = sorted(self.parts, key=len, reverse=True)
        pattern = "|".join(re.escape(part) for part in longest_first)
        return (match.span() for match in re.finditer(pattern, text, re.IGNORECASE))
