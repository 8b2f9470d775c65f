"""What was planned and what was checked, kept beside the chats and not in the hub cache.

One file a repository and commit, written before the first byte is fetched and after each file that
was checked. "Ready" is decided by it: every planned file is there with its size, was read to its
end and had its hash, and was not touched since. The list of downloads is these files.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from app.hub.cache import RepoCache
from app.hub.plan import DEFAULT_REVISION, Plan, PlannedFile, is_commit
from app.paths import ensure, paths

FORMAT = 1


@dataclass(frozen=True)
class Checked:
    """A file that had its hash when it was `size` bytes, last changed at `mtime_ns`."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The file at `path` as it is now. Raises OSError."""
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class Manifest:
    """A plan with what is known of its files.

    `begun` and `finished` are Unix times; `revisions` tells when the hub said that a branch or tag
    stood at this commit.
    """

    plan: Plan
    begun: float
    finished: float | None = None
    revisions: dict[str, float] = field(default_factory=dict)
    checked: dict[str, Checked] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """What is known of `plan`, which the hub just told: what earlier downloads of its commit
        left, or nothing."""
        now = time.time()
        old = cls.load(_folder(plan.repo) / f"{plan.commit}.json")
        if old is None or set(old.plan.files) != set(plan.files):
            return cls(plan, now, revisions={plan.revision: now})
        return replace(old, plan=plan, revisions={**old.revisions, plan.revision: now})

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return _folder(self.plan.repo) / f"{self.plan.commit}.json"

    def with_checked(self, file: PlannedFile, place: Path) -> Self:
        """After `file`, which stands at `place`, was found good. Raises OSError."""
        return replace(self, checked={**self.checked, file.path: Checked.of(place)})

    def without(self, file: PlannedFile) -> Self:
        """After `file` was found bad."""
        checked = {path: mark for path, mark in self.checked.items() if path != file.path}
        return replace(self, checked=checked, finished=None)

    def is_checked(self, file: PlannedFile, place: Path) -> bool:
        """Whether the file at `place` is the one that was found good."""
        mark = self.checked.get(file.path)
        with contextlib.suppress(OSError):
            return mark is not None and mark == Checked.of(place)
        return False

    def bytes_here(self, cache: RepoCache) -> int:
        """How much of it is on this machine, parts included; hashes are not looked at."""
        found = (
            file.size
            if cache.find(file, self.plan.commit) is not None
            else min(cache.part_size(file), file.size)
            for file in self.plan.files
        )
        return sum(found)

    def place_if_ready(self, cache: RepoCache) -> Path | None:
        """The snapshot, when every file of it is there and was checked; reads no content."""
        snapshot = cache.snapshot(self.plan.commit)
        for file in self.plan.files:
            place = snapshot / file.path
            if file.size != _size(place) or not self.is_checked(file, place):
                return None
        return snapshot if self.plan.files else None

    def save(self) -> None:
        """Write it whole. Raises OSError."""
        data = {
            "format": FORMAT,
            **{name: getattr(self.plan, name) for name in _PLAN},
            "begun": self.begun,
            "finished": self.finished,
            "revisions": self.revisions,
            "files": [asdict(file) for file in self.plan.files],
            "checked": {path: asdict(mark) for path, mark in self.checked.items()},
        }
        _write_whole(self.path, json.dumps(data, indent=1))

    def remove(self) -> None:
        """Forget it; the cache is not touched."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """The manifest at `path`; None when there is none that can be read."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                return None
            files = tuple(PlannedFile(**file) for file in data["files"])
            plan = Plan(**{name: str(data[name]) for name in _PLAN}, files=files)
            checked = {name: Checked(**mark) for name, mark in data["checked"].items()}
            revisions = {str(name): float(at) for name, at in data["revisions"].items()}
            finished = data["finished"]
            return cls(plan, data["begun"], finished, revisions, checked)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


_PLAN = ("repo", "revision", "commit", "licence", "access")


def cached(repo: str, revision: str | None = None) -> Path | None:
    """The folder of `repo` in the hub cache, when it is ready; None when it is not.

    Asks nobody over the network, reads no weights, writes nothing. `revision` is a branch, a tag
    or a commit (None: "main"); of several commits that were "main" the last one that is ready
    counts, so that an update that is under way changes nothing.
    """
    cache = RepoCache(repo)
    for manifest in known(repo, revision or DEFAULT_REVISION):
        if manifest.finished and (place := manifest.place_if_ready(cache)) is not None:
            return place
    return None


def unfinished(repo: str, revision: str) -> Manifest | None:
    """The download of `repo` that was begun last for `revision` and is not finished."""
    return next((found for found in known(repo, revision) if found.finished is None), None)


def known(repo: str, revision: str) -> list[Manifest]:
    """Those of `repo` that stood at `revision` (a branch, a tag, a commit), the latest first."""

    def when(manifest: Manifest) -> float:
        return manifest.revisions.get(revision, 0.0)

    found = [one for one in manifests(repo) if when(one) or one.plan.commit == revision]
    return sorted(found, key=when, reverse=True)


def manifests(repo: str | None = None) -> Iterator[Manifest]:
    """Everything that was ever begun (of `repo`) and not removed."""
    pattern = f"{_folder(repo).name if repo else '*'}/*.json"
    for path in sorted(paths().downloads.glob(pattern)):
        manifest = Manifest.load(path)
        if manifest is not None and is_commit(path.stem) and (repo in (None, manifest.plan.repo)):
            yield manifest


def _folder(repo: str) -> Path:
    return paths().downloads / repo.replace("/", "--")


def _size(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return None


def _write_whole(path: Path, text: str) -> None:
    if not ensure(path.parent):
        raise PermissionError(13, "the folder cannot be written", str(path.parent))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
