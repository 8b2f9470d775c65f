"""Files and folders that appear whole or not at all, whatever ends the process that writes them."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder that appears at `path`, in place of any before, only when the body succeeds."""
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for file in part.iterdir():
            _sync(file)
        shutil.rmtree(path, ignore_errors=True)
        os.replace(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Replace a file by JSON, whole or not at all."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file by UTF-8 text, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        _sync(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
