"""What identifies a checkpoint's content, so that an adapter can refuse another one.

The hash covers config.json, every safetensors header, each file's size and samples of its bytes:
a retrained model of the same shape differs, and 16 GB need not be read to see it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from engine.config import CheckpointError, read_json

BASE_FILE = "base.json"
_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16


def revision(folder: str | Path) -> str:
    """The checkpoint's revision: a hash in hex digits. Raises CheckpointError."""
    path = Path(folder)
    digest = hashlib.sha256()
    try:
        config = read_json(path / "config.json")
        digest.update(json.dumps(config, sort_keys=True).encode())
        for file in sorted(path.glob("*.safetensors")):
            _add_file(digest, file)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()[:32]


def _add_file(digest: Any, file: Path) -> None:
    size = file.stat().st_size
    digest.update(f"{file.name} {size}".encode())
    step = max(_SAMPLE_BYTES, size // _SAMPLES)
    with file.open("rb") as stream:
        # The first sample holds the header, or its beginning; names and shapes stand there.
        for offset in range(0, size, step):
            stream.seek(offset)
            digest.update(stream.read(_SAMPLE_BYTES))


def base_of(adapter: str | Path) -> dict[str, str]:
    """What an adapter folder says of the checkpoint it was trained on: "model" and "revision".

    Empty for an adapter that says nothing (one that other software made).
    """
    path = Path(adapter) / BASE_FILE
    if not path.exists():
        return {}
    data = read_json(path)
    return {name: str(data[name]) for name in ("model", "revision") if name in data}


def check_base(adapter: str | Path, folder: str | Path) -> None:
    """Raises CheckpointError when `adapter` names another checkpoint than the one in `folder`."""
    named = base_of(adapter)
    if named.get("revision", "") not in ("", revision(folder)):
        raise CheckpointError(
            f"The adapter {adapter} was trained on another checkpoint "
            f"({named.get('model', 'unknown')}, revision {named['revision'][:12]}) than {folder}; "
            "use it with that one."
        )
