"""Where a repository's files stand in the ordinary hub cache, so that every other program finds
what was downloaded here and nothing is downloaded twice:

    models--owner--name/blobs/<hash>                  content, named by its hash
    models--owner--name/blobs/<hash>.incomplete       the part that came so far
    models--owner--name/snapshots/<commit>/<file>     links to the content
    models--owner--name/refs/<branch>                 the commit that a branch stood at
    .locks/models--owner--name/<hash>.lock            who fetches

A snapshot is linked, and a branch recorded, when every file of it is there and checked: nobody can
mistake half a download for a model.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from app.hub.plan import PlannedFile, is_commit

PART = ".incomplete"


def hub_cache() -> Path:
    """The folder that holds all repositories, as HF_HUB_CACHE, HF_HOME or the default say."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser().absolute()


class RepoCache:
    """The place of one repository in the cache; nothing is made before something is written."""

    def __init__(self, repo: str, root: Path | None = None) -> None:
        self.root = root if root is not None else hub_cache()
        name = "models--" + repo.replace("/", "--")
        self.folder = self.root / name
        self.locks = self.root / ".locks" / name

    def snapshot(self, commit: str) -> Path:
        """The folder that the engine reads."""
        return self.folder / "snapshots" / commit

    def blob(self, file: PlannedFile) -> Path:
        """The content of `file`."""
        return self.folder / "blobs" / file.blob

    def part(self, file: PlannedFile) -> Path:
        """The beginning of `file`'s content."""
        return self.folder / "blobs" / (file.blob + PART)

    def part_size(self, file: PlannedFile) -> int:
        """Bytes that came so far and are not a whole file yet."""
        return _size(self.part(file)) or 0

    def find(self, file: PlannedFile, commit: str) -> Path | None:
        """Where `file` stands with its right size, whoever put it there; its hash is not read.

        The snapshot comes first: where links are not possible the content stands there.
        """
        for path in (self.snapshot(commit) / file.path, self.blob(file)):
            if _size(path) == file.size:
                return path
        return None

    def prepare(self) -> None:
        """Make the folders that a download writes into. Raises OSError."""
        for folder in (self.folder / "blobs", self.locks):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lock(self, file: PlannedFile) -> Iterator[bool]:
        """Hold the lock that huggingface_hub holds while it fetches `file`; False when somebody
        else does. Where the file system has no locks, nobody else is assumed."""
        handle = _open_lock(self.locks / f"{file.blob}.lock")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            mine = False
        except OSError:
            mine = True
        try:
            yield mine
        finally:
            os.close(handle)

    def keep(self, file: PlannedFile) -> Path:
        """Turn the part of `file`, which is whole, into its content. Raises OSError."""
        blob = self.blob(file)
        os.replace(self.part(file), blob)
        return blob

    def link(self, file: PlannedFile, commit: str) -> None:
        """Let `file` appear in the snapshot. Raises OSError."""
        blob, place = self.blob(file), self.snapshot(commit) / file.path
        if _size(place) == file.size and (not blob.exists() or place.samefile(blob)):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            os.symlink(os.path.relpath(blob, place.parent), temporary)
        except OSError:  # a file system without links (exFAT): the content moves there
            shutil.move(blob, temporary)
        os.replace(temporary, place)

    def record(self, revision: str, commit: str) -> None:
        """Remember that the branch `revision` stands at `commit`. Raises OSError."""
        if is_commit(revision):
            return
        path = self.folder / "refs" / revision
        with contextlib.suppress(OSError):
            if path.read_text() == commit:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(commit)
        os.replace(temporary, path)


def _open_lock(path: Path) -> int:
    """A lock file, which in a shared cache may be somebody else's. Raises OSError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o664)
    except PermissionError:
        return os.open(path, os.O_RDONLY)


def free_bytes(folder: Path) -> int:
    """Bytes that can be written into `folder`, or into the nearest folder above that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _size(path: Path) -> int | None:
    """Bytes of the file at `path`, None where there is no file."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None
