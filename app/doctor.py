"""`orl-chat doctor`: the machine, the files and the models, each with what to do about it."""

import sys
from dataclasses import asdict, dataclass
from typing import Any

from app.models import DEFAULT_REPO, DEMO, is_whole, resolve_model
from app.paths import ensure, paths
from app.settings import SettingsFile
from app.text import printable
from app.version import VERSION
from engine.config import CheckpointError
from engine.hardware import Hardware, Row, probe

MARKS = {"ok": "ok", "warn": "!", "no": "NO"}


@dataclass(frozen=True)
class Report:
    """Everything that was looked at. Holds no secrets: it is meant to be pasted."""

    version: str
    summary: str
    can_chat: bool
    can_finetune: bool
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """The report as lines."""
        lines = [f"orl-chat {self.version}", self.summary, ""]
        width = max(len(row.name) for row in self.rows)
        for row in self.rows:
            need = f" ({row.need})" if row.need and row.state != "ok" else ""
            lines.append(f"{MARKS[row.state]:>2}  {row.name:<{width}}  {row.found}{need}")
            if row.fix and row.state != "ok":
                lines.append(f"    {'':<{width}}  -> {row.fix}")
        return printable("\n".join(lines))


def examine(hardware: Hardware | None = None) -> Report:
    """The hardware's rows (None: this machine's) and those of the files and models."""
    hardware = hardware or probe()
    demo = _model_row("Demo model", DEMO, "reinstall orl-chat.", missing="no")
    fetch = f"orl-chat download {DEFAULT_REPO}" if hardware.device != "cpu" else ""
    large = _model_row("Large model", DEFAULT_REPO, fetch, missing="warn")
    rows = (*hardware.rows, demo, large, _settings_row(), _store_row(), _terminal_row())
    can_chat = hardware.can_chat and "ok" in (demo.state, large.state)
    return Report(VERSION, hardware.summary, can_chat, hardware.can_finetune, rows)


def _model_row(name: str, model: str, fix: str, *, missing: Any) -> Row:
    try:
        folder = resolve_model(model).path
    except CheckpointError:
        return Row(name, missing, "not on this machine", "", fix)
    if not is_whole(folder):
        return Row(name, missing, f"{folder} is not whole", "", fix)
    return Row(name, "ok", str(folder))


def _settings_row() -> Row:
    file = SettingsFile.open()
    if file.notices:
        return Row("Settings", "warn", " ".join(file.notices), "", f"edit {file.path}")
    return Row("Settings", "ok", str(file.path))


def _store_row() -> Row:
    folder = paths().data
    if ensure(folder):
        return Row("Chats", "ok", str(paths().store))
    fix = f"make {folder} writable; until then chats are kept in memory only."
    return Row("Chats", "warn", f"{folder} cannot be written", "", fix)


def _terminal_row() -> Row:
    encoding = (sys.stdout.encoding or "ascii").lower()
    if "utf" in encoding:
        return Row("Terminal", "ok", f"{encoding}")
    return Row("Terminal", "warn", f"{encoding}", "UTF-8", "set LANG to a UTF-8 locale.")
