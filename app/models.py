"""From what a user names ("demo", "auto", a folder, a repository) to a folder with a checkpoint.

Nothing is downloaded here, and nothing large is imported unless a repository has to be looked up.
"""

import importlib.resources
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.config import CheckpointError

DEMO = "demo"
AUTO = "auto"
DEFAULT_REPO = "yifanyu/LLaDA2.1-mini-ORL-NVFP4"

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class ModelFolder:
    """A checkpoint on this machine; `name` is what users call it."""

    name: str
    path: Path


def resolve_model(model: str, can_chat: Callable[[], bool] | None = None) -> ModelFolder:
    """The folder that `model` stands for.

    `can_chat` tells whether the hardware runs the large checkpoint (None: ask the hardware, which
    imports torch); it is asked only for "auto", and only when that checkpoint is there.

    Raises:
        CheckpointError: there is no such folder, or the repository was not downloaded.
    """
    if model == AUTO:
        return _auto(can_chat or _hardware_can_chat)
    if model == DEMO:
        return _demo()
    if not model:
        raise CheckpointError("There is no folder without a name; name one, or 'demo'.")
    path = Path(os.path.expanduser(model))  # Path.expanduser raises for a user there is not
    if path.is_dir():
        return ModelFolder(path.resolve().name, path)
    if path.exists():
        raise CheckpointError(f"{model} is a file; name the folder that holds the checkpoint.")
    if not _REPO.fullmatch(model) or model.count("/") != 1:
        raise CheckpointError(f"There is no folder {model!r}; name a checkpoint folder or 'demo'.")
    return _repository(model)


def is_whole(folder: Path) -> bool:
    """Whether every file that the checkpoint names is there (not whether it is undamaged)."""
    try:
        if not (folder / "config.json").is_file() or not (folder / "tokenizer.json").is_file():
            return False
        index = folder / "model.safetensors.index.json"
        if not index.exists():
            return (folder / "model.safetensors").is_file()
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return all((folder / name).is_file() for name in set(names))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _auto(can_chat: Callable[[], bool]) -> ModelFolder:
    try:
        found = _repository(DEFAULT_REPO)
    except CheckpointError:
        return _demo()
    return found if is_whole(found.path) and can_chat() else _demo()


def _demo() -> ModelFolder:
    folder = Path(str(importlib.resources.files("assets") / "demo"))
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"The demo model is not where it belongs ({folder}); install orl-chat again."
        )
    return ModelFolder(DEMO, folder)


def _repository(repo: str) -> ModelFolder:
    """The downloaded snapshot: the one that was checked here, or else one that another program
    downloaded and that nothing is known to be wrong with."""
    try:
        from huggingface_hub import snapshot_download

        from app.hub.manifest import cached, manifests

        folder = cached(repo)
        if folder is None and next(manifests(repo), None) is not None:
            raise CheckpointError(
                f"{repo} is not whole yet, or was changed since it was checked; run: "
                f"orl-chat download {repo} (what is there is kept)."
            )
        folder = folder or Path(snapshot_download(repo, local_files_only=True))
    except ImportError as error:
        raise CheckpointError(
            f"{repo} looks like a repository, but huggingface_hub is not installed; name a folder."
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"There is no folder {repo}, and no repository of that name was downloaded; "
            f"fetch it first (orl-chat download {repo})."
        ) from error
    return ModelFolder(repo, folder)


def _hardware_can_chat() -> bool:
    from engine.hardware import probe

    return probe().runs_large
