"""Does a file hold what the hub says it holds? Its size and hash, read from the disk."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from app.hub.plan import PlannedFile

PIECE = 1 << 20
"""Bytes that are read at once."""


def is_good(path: Path, file: PlannedFile, on_bytes: Callable[[int], None]) -> bool:
    """Whether the file at `path` has the size and hash of `file`.

    `on_bytes` is told the bytes read so far, after each piece; it may wait, and raise to end the
    check. Raises OSError.
    """
    digest = _digest(file)
    done = 0
    with open(path, "rb", buffering=0) as stream:
        while piece := stream.read(PIECE):
            digest.update(piece)
            done += len(piece)
            on_bytes(done)
    return done == file.size and digest.hexdigest() == file.blob


def _digest(file: PlannedFile) -> "hashlib._Hash":
    if file.sha256 is not None:
        return hashlib.sha256()
    # Git hashes small files with their length in front; it is a check against damage here, the
    # large files have sha256.
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % file.size)
    return digest
