"""The chat's own recordings: every step of every answer, one small file each, kept for replay.

They lie in the traces folder as files that `orl-chat replay` reads, named `<chat>-<turn>.gz`; an
answer's figures name its turn. An answer of 1,000 tokens takes about 10 kB. Together they stay
below a limit, oldest first to go, and go with their chat. A convenience: where they cannot be
written nothing is said but in the log, and nothing else suffers.
"""

import contextlib
import logging
import re
from collections.abc import Iterable, Set
from pathlib import Path

from app.paths import ensure
from app.protocol import Chat, Ready
from app.trace import Timed, TraceError, TraceWriter

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 2**20
"""Of all recordings together; some thousands of answers."""
_NAME = re.compile(r"(\d+)-([0-9a-f]+)\.gz")


class AnswerTraces:
    """The recordings in one folder."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def keep(
        self, chat_id: int, request: Chat, ready: Ready | None, messages: Iterable[Timed]
    ) -> bool:
        """Write an answer down, in a thread; False where that is impossible."""
        name = f"{chat_id}-{request.id}.gz"
        if not _NAME.fullmatch(name) or not ensure(self._folder):
            return False
        try:
            writer = TraceWriter(self._folder / name)
        except TraceError as error:
            log.warning("%s", error)
            return False
        if ready is not None:
            writer.put(0.0, ready)
        writer.put(0.0, request)
        for timed in messages:
            writer.put(timed.seconds, timed.message)
        writer.close(timeout=0.0)
        return True

    def find(self, chat_id: int, turn: object) -> Path | None:
        """The file of a recording, if it is still there; `turn` comes from an answer's figures."""
        name = f"{chat_id}-{turn}.gz"
        path = self._folder / name
        return path if _NAME.fullmatch(name) and path.is_file() else None

    def prune(self, chats: Set[int]) -> None:
        """Remove the recordings of chats that are not among `chats`, then the oldest beyond the
        limit. Ask for the chats after this object was made: a new one must not be missed."""
        kept: list[tuple[float, int, Path]] = []
        for path, chat_id in self._files():
            if chat_id not in chats:
                _remove(path)
                continue
            with contextlib.suppress(OSError):
                found = path.stat()
                kept.append((found.st_mtime, found.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self._most_bytes:
                return
            _remove(path)
            total -= size

    def _files(self) -> list[tuple[Path, int]]:
        """The recordings and their chats; whatever else lies in the folder is somebody else's."""
        try:
            paths = list(self._folder.iterdir())
        except OSError:
            return []
        named = ((path, _NAME.fullmatch(path.name)) for path in paths)
        return [(path, int(match[1])) for path, match in named if match]


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
