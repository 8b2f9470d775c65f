"""From what a user calls an adapter (a folder, a run, a run's name) to what is to be loaded.

A run means its best checkpoint. A run that trained every weight is a whole model: it takes the
base's place, after a look at whether that is the base it began with.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from app.models import ModelFolder
from app.paths import paths
from engine.config import CheckpointError


@dataclass(frozen=True)
class Loadable:
    """The checkpoint folder to load, and the adapter folder to put onto it, if any."""

    folder: ModelFolder
    adapter: Path | None


def with_adapter(folder: ModelFolder, adapter: str | None) -> Loadable:
    """What to load for the model in `folder` with the adapter called `adapter`.

    Raises CheckpointError when there is no such adapter, or it belongs to another checkpoint.
    """
    if adapter is None:
        return Loadable(folder, None)
    found = adapter_folder(adapter)
    if not (found / "config.json").is_file():
        return Loadable(folder, found)
    from engine.checkpoint.revision import check_base

    check_base(found, folder.path)
    return Loadable(ModelFolder(folder.name, found), None)


def adapter_folder(adapter: str) -> Path:
    """The folder that `adapter` stands for."""
    if not adapter:
        raise CheckpointError("There is no adapter without a name; name a folder or a run.")
    path = Path(os.path.expanduser(adapter))
    run = path if path.is_dir() else paths().runs / adapter
    if not run.is_dir() or (not path.is_dir() and Path(adapter).name != adapter):
        raise CheckpointError(
            f"There is no adapter folder and no run called {adapter!r}; see: orl-chat runs"
        )
    if not (run / "run.json").is_file():
        return run
    from finetune.runs import RunFolder

    best = RunFolder(run).best()
    if best is None:
        raise CheckpointError(f"The run {adapter} has no checkpoint yet; wait for its first check.")
    return best
