"""`orl-chat doctor --report`: what a bug report needs and nothing about whose machine it is.

Rows that name the user's folders keep only their state. Everything else passes a filter for what
could slip in through the words of a driver, of torch or of a process list: names of user and
machine, folders, and the ids of cards, of which a short hash remains.
"""

import getpass
import hashlib
import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from app.doctor import FILES, Report
from app.paths import paths
from engine.hardware import Hardware, Row

PACKAGES = (
    "torch", "triton", "nvidia-ml-py", "safetensors", "tokenizers", "textual", "huggingface_hub",
)  # fmt: skip

# Names that say nothing about anybody, and whose replacement would garble the report.
_NOBODY = {"root", "user", "admin", "ubuntu", "debian", "test", "localhost", "nvidia", "linux"}
_SHORTEST = 3
_UUID = re.compile(r"(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PATH = re.compile(
    r"(?<![\w:/.~$])/(?!(?:dev|proc|sys|usr|lib|lib64)/)[^\s,;:()'\"]+/[^\s,;:()'\"]*"
    r"|\b[A-Za-z]:\\[^\s,;()'\"]+"
    r"|\\\\[^\s,;()'\"]+"
)


def for_bug_report(report: Report, private: Mapping[str, str] | None = None) -> Report:
    """`report` without anything that tells whose machine this is.

    `private` maps what must not appear to what stands in its place (None: this user's).
    """
    words = dict(private_words() if private is None else private)
    words.update({card.short_id: short_hash(card.uuid) for card in report.hardware.gpus})
    rows = tuple(_anonymous_row(row, words) for row in report.rows)
    return replace(
        report,
        summary=anonymous(report.summary, words),
        rows=(*rows, Row("Packages", "ok", _packages())),
        hardware=_anonymous_hardware(report.hardware, words),
    )


def anonymous(text: str, private: Mapping[str, str]) -> str:
    """`text` with the `private` strings replaced, longest first, then ids and folders."""
    for word in sorted(filter(None, private), key=len, reverse=True):
        text = private[word].join(re.split(_exactly(word), text))
    text = _UUID.sub(lambda found: short_hash(found[0]), text)
    return _PATH.sub("<folder>", text)


def private_words() -> dict[str, str]:
    """This user's names and folders, each with what takes its place."""
    words = dict.fromkeys(_user_names(), "<user>")
    words |= dict.fromkeys(_host_names(), "<host>")
    words = {
        word: place
        for word, place in words.items()
        if len(word) >= _SHORTEST and word.lower() not in _NOBODY
    }
    own = (paths().config, paths().data, paths().state, paths().cache, Path.cwd())
    folders = {str(folder): "<folder>" for folder in (*own, Path(sys.prefix))}
    homes = {str(Path.home()), os.path.realpath(Path.home())}
    folders |= dict.fromkeys(homes, "~")
    return words | {folder: place for folder, place in folders.items() if len(folder) > 1}


def short_hash(id: str) -> str:
    """Tells two cards apart in one report and says nothing about either."""
    return "#" + hashlib.sha256(id.encode()).hexdigest()[:6]


def _anonymous_row(row: Row, words: Mapping[str, str]) -> Row:
    if row.name in FILES:
        found = {"ok": "fine", "warn": "a warning", "no": "not usable"}[row.state]
        return Row(row.name, row.state, found)
    return replace(
        row,
        found=anonymous(row.found, words),
        need=anonymous(row.need, words),
        fix=anonymous(row.fix, words),
    )


def _anonymous_hardware(hardware: Hardware, words: Mapping[str, str]) -> Hardware:
    """The figures behind the rows, with programs' names filtered and hashes for ids."""
    cards = tuple(
        replace(
            card,
            uuid=short_hash(card.uuid),
            parent="",
            name=anonymous(card.name, words),
            processes=tuple(
                replace(process, name=anonymous(process.name, words)) for process in card.processes
            ),
        )
        for card in hardware.gpus
    )
    used = None
    if hardware.gpu is not None:
        used = cards[hardware.gpus.index(hardware.gpu)]
    return replace(hardware, gpus=cards, gpu=used)


def _exactly(word: str) -> str:
    """A pattern for `word` that does not begin or end within another word."""
    before = r"(?<![A-Za-z0-9])" if word[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if word[-1].isalnum() else ""
    return f"(?i:{before}{re.escape(word)}{after})"


def _user_names() -> Iterable[str]:
    yield from (os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"))
    yield Path.home().name
    try:
        yield getpass.getuser()
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_gecos.split(",")[0]
    except (ImportError, KeyError, OSError, AttributeError):
        return


def _host_names() -> Iterable[str]:
    name = socket.gethostname()
    yield name
    yield name.split(".")[0]


def _packages() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)
