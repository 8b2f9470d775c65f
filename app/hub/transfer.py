"""The bytes of one file, over as many connections as it takes, into the part that is kept.

huggingface_hub gives the session (proxies, offline mode), the headers (token) and the errors; the
loop over the body is ours, because its own download (2.4) writes into a file of a random name that
it deletes at the first error and never continues, keeps up to 10 MB in memory before it writes, and
waits between retries where nobody can interrupt it. Plain HTTP also for files in xet storage: its
client starts such a file from nothing each time, and has no order of bytes that could be kept.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.hub.control import Control
from app.hub.faults import Failure, FailureError
from app.hub.limits import Limits
from app.hub.plan import PlannedFile

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Transfer:
    """Fetches into one part. `on_size` is told the bytes of the part when that is not by adding
    to it; `on_bytes` is told what was added."""

    def __init__(
        self,
        file: PlannedFile,
        part: Path,
        *,
        url: str,
        headers: dict[str, str],
        limits: Limits,
        control: Control,
        on_bytes: Callable[[int], None],
        on_size: Callable[[int, str], None],
    ) -> None:
        self.file = file
        self.part = part
        self.url = url
        self.headers = {**headers, "Accept-Encoding": "identity"}
        self.limits = limits
        self.control = control
        self.on_bytes = on_bytes
        self.on_size = on_size

    def run(self) -> None:
        """One connection: go on where the part ends, until it has its size.

        Raises:
            FailureError: the server answers something that is not this file.
            Interrupted, Stopped: as `control` says; what came is in the part.
            OSError: the disk.
            Exception: whatever the session raises.
        """
        with self._open() as handle:
            have = os.fstat(handle).st_size
            if have > self.file.size:
                have = self._restart(handle, "it is longer than the file")
            if have < self.file.size:
                with self._ask(have) as response:
                    have = self._place(handle, response, have)
                    for piece in response.iter_bytes():
                        self.control.check()
                        have += self._write(handle, piece, have)
            if have != self.file.size:
                raise FailureError(_cut(self.file, have))
            os.fsync(handle)

    @contextmanager
    def _open(self) -> Iterator[int]:
        handle = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def _ask(self, have: int) -> Iterator[Any]:
        from huggingface_hub import get_session
        from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

        self.control.check()
        headers = {**self.headers, "Range": f"bytes={have}-"} if have else self.headers
        timeout = _timeout(self.limits)
        with get_session().stream("GET", self.url, headers=headers, timeout=timeout) as response:
            if response.status_code == 416:  # the server's file ends before our part does
                raise FailureError(_not_the_file(self.file, "it ends earlier there"))
            hf_raise_for_status(response)
            yield response

    def _place(self, handle: int, response: Any, have: int) -> int:
        """Where in the file the answer's first byte belongs: the size of the part from there on."""
        total, start = _length(response)
        if total is not None and total != self.file.size:
            raise FailureError(_not_the_file(self.file, f"it has {total:,} bytes there"))
        if start == have:
            return have
        if start == 0:
            return self._restart(handle, "the server does not continue a file")
        raise FailureError(_not_the_file(self.file, "the server sent another place of it"))

    def _restart(self, handle: int, why: str) -> int:
        os.ftruncate(handle, 0)
        self.on_size(0, why)
        return 0

    def _write(self, handle: int, piece: bytes, have: int) -> int:
        """Append `piece`; its length. A full disk takes a part of it first."""
        if have + len(piece) > self.file.size:
            raise FailureError(_not_the_file(self.file, "more bytes came than it has"))
        view = memoryview(piece)
        while view:
            written = os.write(handle, view)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.part))
            self.on_bytes(written)
            view = view[written:]
        return len(piece)


def _timeout(limits: Limits) -> Any:
    """Seconds for (connect, read, write, pool), in the order the session's library takes."""
    return (limits.connect, limits.stall, limits.stall, None)


def _length(response: Any) -> tuple[int | None, int]:
    """Bytes of the whole file as the server sees it (None: not told), and the place of the first
    byte that it sends."""
    headers = response.headers
    if response.status_code == 206:
        found = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
        if found is None:
            return None, -1
        return (None if found[2] == "*" else int(found[2])), int(found[1])
    length = headers.get("Content-Length", "")
    encoded = headers.get("Content-Encoding", "identity").lower() not in ("", "identity")
    return (int(length) if length.isdigit() and not encoded else None), 0


def _cut(file: PlannedFile, have: int) -> Failure:
    return Failure(
        "network",
        f"The connection ended after {have:,} of {file.size:,} bytes of {file.path}.",
        "Check the network; what came is kept.",
        passing=True,
    )


def _not_the_file(file: PlannedFile, why: str) -> Failure:
    return Failure(
        "server",
        f"The server does not send {file.path} as it was planned: {why}.",
        "Start again later; if it stays so, check HF_ENDPOINT and the proxy.",
        passing=True,
    )
