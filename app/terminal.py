"""What the terminal can take, by what the environment says of it. Nothing is asked of it here."""

import os
import sys
from collections.abc import Mapping

DUMB = ("dumb", "unknown")
ASCII_LOCALES = ("C", "POSIX")
ASCII_ENCODINGS = ("ascii", "ansi_x3.41968", "646")


def refusal(otherwise: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why the terminal program cannot run here, in a sentence that names the command to use
    `otherwise`; None where it can."""
    term = environ.get("TERM", "")
    if term in DUMB:
        return (
            f"This terminal (TERM={term}) cannot place text on the screen; "
            f"use another one, or: {otherwise}"
        )
    return None


def is_without_drawing(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether its font has letters but no lines: the Linux console."""
    return environ.get("TERM") == "linux"


def is_ascii_only(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing but ASCII can be shown: the streams' encoding, or a locale that says so.

    Python itself reads the C locale as UTF-8 and then sets LC_CTYPE; a locale that nobody set is
    what containers have, whose terminal is UTF-8 all the same. So only a C or POSIX that somebody
    wrote down counts.
    """
    encodings = [getattr(stream, "encoding", None) for stream in (sys.__stdout__, sys.__stderr__)]
    if any(_plain(encoding or "") in ASCII_ENCODINGS for encoding in encodings):
        return True
    if everything := environ.get("LC_ALL"):
        return everything in ASCII_LOCALES
    characters = environ.get("LC_CTYPE", "")
    if characters and characters != "C.UTF-8":
        return characters in ASCII_LOCALES
    return environ.get("LANG", "") in ASCII_LOCALES


def _plain(encoding: str) -> str:
    return encoding.lower().replace("-", "")
