"""Text of a model on its way to a terminal: nothing in it may steer the terminal."""

import re

# C0 without tab and newline, DEL, C1 (an 8-bit CSI among them), the bidirectional embeddings,
# overrides and isolates (text that shows in another order than it is), and lone surrogates,
# which no terminal encoding can carry.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` without control, escape and bidirectional override characters; tabs, newlines and
    every other character stay."""
    return without_surrogates(_STEERING.sub("", text))


def without_surrogates(text: str) -> str:
    """`text` as UTF-8 can hold it: bytes of the command line that were no UTF-8 become U+FFFD."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
