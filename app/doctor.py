"""`orl-chat doctor`: the machine, the files and the models, each with what to do about it."""

import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.hub.plan import KNOWN
from app.models import AUTO, BUILT_IN, DEFAULT_REPO, DEMO, is_repo, is_whole, resolve_model
from app.paths import ensure, paths
from app.settings import SettingsFile
from app.text import printable
from app.version import VERSION
from engine.config import CheckpointError, ModelConfig
from engine.hardware import Hardware, Large, Row, probe
from engine.machine.facts import Card
from engine.machine.memory_plan import MINI, UNQUANTISED, Fit, weight_bytes
from engine.machine.room import gib, quantised_in
from engine.machine.self_test import self_test
from finetune.plan import usual_run

MARKS = {"ok": "ok", "warn": "!", "no": "NO"}
WIDTH = 100
DEFAULT = Large(finetuning=usual_run)
"""The checkpoint that the program is made for."""
FILES = ("Demo model", "Large model", "Disk", "Settings", "Chats")
"""Rows that name folders of this user."""


@dataclass(frozen=True)
class Report:
    """Everything that was looked at; `hardware` holds the figures behind the rows."""

    version: str
    summary: str
    can_chat: bool
    can_finetune: bool
    rows: tuple[Row, ...]
    hardware: Hardware

    def to_json(self) -> dict[str, Any]:
        """The report as plain data; memory in bytes."""
        hardware = self.hardware
        names = ("version", "summary", "can_chat", "can_finetune")
        more = ("device", "runs_large", "finetunes_large", "fp4", "conditional_nodes", "streaming")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: getattr(hardware, name) for name in more},
            "versions": hardware.versions,
            "gpus": [_card(card, used=card == hardware.gpu) for card in hardware.gpus],
            "memory": {
                "chat": _fit(hardware.chat_memory),
                "finetune": _fit(hardware.finetune_memory),
            },
            "rows": [asdict(row) for row in self.rows],
        }

    def to_text(self, width: int = WIDTH) -> str:
        """The report as lines of about `width` columns; commands to copy are never broken."""
        lines = [f"orl-chat {self.version}", *textwrap.wrap(self.summary, width), ""]
        column = max(len(row.name) for row in self.rows)
        for row in self.rows:
            need = f" (need {row.need})" if row.need else ""
            text = textwrap.wrap(
                row.found + need, max(width - column - 6, 30), break_on_hyphens=False
            )
            lines.append(f"{MARKS[row.state]:>2}  {row.name:<{column}}  {(text or [''])[0]}")
            lines += [f"{'':{column + 6}}{line}" for line in text[1:]]
            if row.fix and row.state != "ok":
                lines.append(f"{'':{column + 6}}-> {row.fix}")
        return printable("\n".join(lines))


def examine(
    hardware: Hardware | None = None,
    test: Callable[[str], Row] | None = None,
    *,
    model: str | None = None,
) -> Report:
    """The hardware's rows (None: this machine's), those of a self-test (None: the real one) on its
    device, and those of the files and models.

    `model` is what memory and disk are judged by (None: the settings' model; the checkpoint that
    the program is made for, where that is the demo or left open).
    """
    model = model or SettingsFile.open().settings.model
    if model in (AUTO, *BUILT_IN):
        model = DEFAULT_REPO
    wanted = large_of(model)
    hardware, tests = _tested(hardware or probe(large=wanted), test or self_test)
    demo = _model_row("Demo model", DEMO, "reinstall orl-chat.", missing="no")
    large = _model_row("Large model", model, _mend(model, hardware), missing="warn")
    disk = _disk_rows(hardware, large, wanted)
    files = [demo, large, *disk, _settings_row(), _store_row()]
    rows = (*hardware.rows, *tests, *files, _terminal_row())
    any_model = demo.state == "ok" or (large.state == "ok" and hardware.runs_large)
    can_chat = hardware.can_chat and any_model
    return Report(VERSION, hardware.summary, can_chat, hardware.can_finetune, rows, hardware)


def large_of(model: str) -> Large:
    """What `model` takes: by its own config where it is on this machine, by LLaDA2.1-mini's where
    it is one of the known repositories. Anything else counts as the default checkpoint."""
    if model == DEFAULT_REPO:
        return DEFAULT
    try:
        found = resolve_model(model)
        config, quantised = ModelConfig.from_pretrained(found.path), quantised_in(found.path)
    except CheckpointError:
        if model in KNOWN:
            return Large(f"{model.partition('/')[2]} in bf16", MINI, UNQUANTISED, usual_run)
        return DEFAULT
    name = f"{found.name} in NVFP4" if quantised else found.name
    return Large(name, config, quantised, usual_run)


def _mend(model: str, hardware: Hardware) -> str:
    """The command that brings `model` here, where it would run."""
    if is_repo(model):
        return f"orl-chat download {model}" if hardware.runs_large else ""
    return "choose another model: Ctrl+P, Models."


def _tested(hardware: Hardware, test: Callable[[str], Row]) -> tuple[Hardware, list[Row]]:
    """The hardware as it is after a self-test on its device: a card that multiplies wrongly is not
    used, and a processor that does is the end."""
    if not hardware.can_chat:
        return hardware, []
    row = test(hardware.device)
    if row.state == "ok":
        return hardware, [row]
    rows = [row]
    if hardware.device != "cpu":
        rows.append(test("cpu"))
    fine = rows[-1].state == "ok"
    summary = (
        "The card does not compute as it should (see the self-test), so use --device cpu."
        if fine
        else "orl-chat cannot run here: this machine does not compute as it should."
    )
    hardware = replace(
        hardware, device="cpu", can_chat=fine, can_finetune=fine, summary=summary,
        runs_large=False, finetunes_large=False,
    )  # fmt: skip
    return hardware, rows


def _card(card: Card, *, used: bool) -> dict[str, Any]:
    data = asdict(card)
    for name in ("uuid", "parent"):
        del data[name]
    return {"label": card.label, "id": card.short_id, "used": used, **data}


def _fit(fit: Fit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "parts": {part.name: part.bytes for part in fit.plan.parts},
        "total": fit.plan.total,
        "free": fit.free,
        "fits": fit.fits,
        "context": fit.context,
    }


def _model_row(name: str, model: str, fix: str, *, missing: Any) -> Row:
    try:
        folder = resolve_model(model).path
    except CheckpointError:
        return Row(name, missing, "not on this machine", "", fix)
    if not is_whole(folder):
        return Row(name, missing, f"{folder} is not whole", "", fix)
    return Row(name, "ok", str(folder))


def _disk_rows(hardware: Hardware, large: Row, wanted: Large) -> list[Row]:
    """Room for the large model, where it would run and is not there yet."""
    if large.state == "ok" or not hardware.runs_large:
        return []
    try:
        from huggingface_hub.constants import HF_HUB_CACHE

        folder = Path(HF_HUB_CACHE)
        there = next(place for place in (folder, *folder.parents) if place.is_dir())
        free = shutil.disk_usage(there).free
    except (ImportError, OSError, StopIteration):
        return []
    size = sum(weight_bytes(wanted.config, wanted.quantised).values())
    found, need = f"{gib(free)} free in {folder}", f"{gib(size)} for {wanted.name}"
    if free > size:
        return [Row("Disk", "ok", found, need)]
    return [Row("Disk", "warn", found, need, "free some, or set HF_HOME to a larger disk.")]


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
