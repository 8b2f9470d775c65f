"""The models on this machine, for the tab that lists them: the demo, what the hub cache holds, the
folder in use. Only checkpoints that this program's engine could load are listed.

Nothing is loaded and nobody is asked over the network. Reading a cache takes a moment; do it in a
thread.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from app.hub.cache import RepoCache, hub_cache
from app.hub.manifest import cached, manifests
from app.models import BUILT_IN, is_whole, resolve_model
from app.paths import paths
from engine.config import CheckpointError, ModelConfig
from finetune.runs import RunError, RunFolder

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo

State = Literal["built in", "whole", "unchecked", "partial", "folder", "not here"]


class LibraryError(Exception):
    """A model cannot be deleted or checked; the message is a sentence."""


@dataclass(frozen=True)
class LibraryModel:
    """One model. `name` is what `--model` takes; `size` is bytes on disk; `revision` the commit.

    States: "whole" was checked file by file here, "unchecked" is there but was fetched by another
    program or changed since, "partial" is a download that has not ended.
    """

    name: str
    state: State
    path: Path | None
    size: int
    revision: str = ""

    @property
    def usable(self) -> bool:
        """Whether it can be loaded as it is."""
        return self.state in ("built in", "whole", "unchecked", "folder")


@dataclass(frozen=True)
class LibraryAdapter:
    """A run's best checkpoint. `name` is what `--adapter` takes, `model` the base's name."""

    name: str
    model: str
    update: int
    size: int


def models(in_use: str | None) -> list[LibraryModel]:
    """The demos, the hub cache's models by name, then the folder `in_use` where it is one."""
    demos = map(resolve_model, BUILT_IN)
    found = [LibraryModel(m.name, "built in", m.path, folder_size(m.path)) for m in demos]
    found += sorted(_cached_models(), key=lambda model: model.name.lower())
    if in_use is not None and (folder := Path(in_use).expanduser()).is_absolute():
        state: State = "folder" if is_whole(folder) else "not here"
        found.append(LibraryModel(in_use, state, folder, folder_size(folder)))
    return found


def adapters() -> list[LibraryAdapter]:
    """What the runs in their usual place have brought, in alphabetical order."""
    found = []
    root = paths().runs
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        run = RunFolder(path)
        try:
            best, model = run.best(), run.info().model
        except RunError:
            continue
        if best is not None:
            found.append(LibraryAdapter(run.name, model, int(best.name), folder_size(best)))
    return found


def delete(model: LibraryModel) -> int:
    """Remove a repository from the hub cache, and what was begun of it; the bytes freed.

    Raises:
        LibraryError: it is not the hub cache's, or the disk refused.
    """
    if model.state in ("built in", "folder", "not here"):
        raise LibraryError(f"{model.name} is not in the hub cache; delete its folder yourself.")
    cache = RepoCache(model.name)
    freed = sum(path.stat().st_size for path in (cache.folder / "blobs").glob("*"))
    freed = freed or folder_size(cache.folder)  # where links are not possible there are no blobs
    try:
        shutil.rmtree(cache.folder)
        shutil.rmtree(cache.locks, ignore_errors=True)
    except OSError as error:
        raise LibraryError(f"{model.name} cannot be deleted: {error.strerror}.") from error
    for manifest in manifests(model.name):
        manifest.remove()
    return freed


def forget_checks(name: str) -> None:
    """Let the next download of `name` read every file again. Raises LibraryError."""
    try:
        for manifest in manifests(name):
            replace(manifest, checked={}, finished=None).save()
    except OSError as error:
        raise LibraryError(f"{name} cannot be checked again: {error.strerror}.") from error


def folder_size(folder: Path) -> int:
    """Bytes of the files in `folder`, links followed; what cannot be read counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _cached_models() -> Iterator[LibraryModel]:
    repos = _repos()
    begun = {manifest.plan.repo for manifest in manifests()}
    for name in sorted({*repos, *begun}):
        if (ready := cached(name)) is not None:
            yield LibraryModel(name, "whole", ready, folder_size(ready), ready.name)
        elif name in begun:
            size = max(manifest.bytes_here(RepoCache(name)) for manifest in manifests(name))
            yield LibraryModel(name, "partial", None, size)
        else:
            yield from _of_others(name, repos[name])


def _of_others(name: str, repo: "CachedRepoInfo") -> Iterator[LibraryModel]:
    """What another program downloaded; the newest revision stands for all."""
    newest = max(repo.revisions, key=lambda revision: revision.last_modified, default=None)
    if newest is None or not _is_ours(newest.snapshot_path):
        return
    state: State = "unchecked" if is_whole(newest.snapshot_path) else "partial"
    yield LibraryModel(name, state, newest.snapshot_path, repo.size_on_disk, newest.commit_hash)


def _repos() -> "dict[str, CachedRepoInfo]":
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        found = scan_cache_dir(hub_cache()).repos
    except (CacheNotFound, OSError, ValueError):
        return {}
    return {repo.repo_id: repo for repo in found if repo.repo_type == "model"}


def _is_ours(folder: Path) -> bool:
    try:
        ModelConfig.from_pretrained(folder)
    except CheckpointError:
        return False
    return True
