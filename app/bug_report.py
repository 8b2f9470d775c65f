"""What a bug report needs of a running program: versions, settings, the end of the logs. Nothing in
it says whose machine this is, opens anything, or repeats what was said in a chat.
"""

import os
import platform
import time
from pathlib import Path

from app.hub.secret import HIDDEN, environment_token, scrub
from app.logs import all_tails
from app.paths import ensure, paths
from app.report import anonymous, private_words
from app.settings import PREFIX, Settings, SettingsFile
from app.text import printable
from app.version import VERSION

TAIL = 6_000
"""Bytes of each log."""

_TOLD_BY_LENGTH = ("system",)
"""Settings that are the user's own words."""
_TERMINAL = ("TERM", "COLORTERM", "TERM_PROGRAM", "NO_COLOR", "LANG", "LC_ALL")


def facts(file: SettingsFile, engine: str, screen: str, notice: str | None) -> str:
    """The report as text; `engine` and `screen` in words, `notice` what the store has to say."""
    terminal = " ".join(f"{name}={os.environ[name]}" for name in _TERMINAL if name in os.environ)
    inside = [word for word, name in (("tmux", "TMUX"), ("ssh", "SSH_TTY")) if name in os.environ]
    rows = {
        "orl-chat": VERSION,
        "Python": f"{platform.python_version()} on {platform.system()} {platform.release()}",
        "Engine": engine,
        "Screen": " · ".join([screen, *inside, terminal]),
        "Settings": "\n".join(_settings(file.settings)) or "all as they come",
        "Variables": ", ".join(sorted(n for n in os.environ if n.startswith(PREFIX))) or "none",
        "Notices": "\n".join([*file.notices, *([notice] if notice else [])]) or "none",
    }
    text = "\n".join(f"{name}: {_indented(value)}" for name, value in rows.items())
    return clean(f"{text}\n\n{all_tails(TAIL, with_folder=False)}")


def clean(text: str) -> str:
    """`text` without secrets, names and folders, and without what could steer a terminal."""
    return printable(anonymous(scrub(text, environment_token()), private_words()))


def save(text: str) -> Path:
    """Write the report beside the logs, readable by its owner alone. Raises OSError."""
    folder = paths().logs
    if not ensure(folder):
        raise PermissionError(13, f"the folder {folder} cannot be written")
    path = folder / f"bug-report-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def _settings(settings: Settings) -> list[str]:
    """Those that are not as they come; of words only how many there are."""
    default = Settings.model_construct()
    lines = []
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if value == getattr(default, name):
            continue
        told = f"{HIDDEN} ({len(value)} characters)" if name in _TOLD_BY_LENGTH else repr(value)
        lines.append(f"{name} = {told}")
    return lines


def _indented(text: str) -> str:
    lines = text.split("\n")
    return lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
