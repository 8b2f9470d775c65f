"""From what a user names ("demo", "auto", a folder, a repository) to a folder with a checkpoint.

Nothing is downloaded here, and nothing large is imported unless a repository has to be looked up.
"""

import importlib.resources
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.config import CheckpointError, ModelConfig

DEMO = "demo"
TUNED = "demo-tuned"
BUILT_IN = (DEMO, TUNED)
"""What comes with the program: the demo model, and the same one after ORL."""
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
    if model in BUILT_IN:
        return _built_in(model)
    if not model:
        raise CheckpointError("There is no folder without a name; name one, or 'demo'.")
    path = Path(os.path.expanduser(model))  # Path.expanduser raises for a user there is not
    if (found := _is_folder(path)) is True:
        return ModelFolder(path.resolve().name, path)
    if found is False:
        raise CheckpointError(f"{model} is a file; name the folder that holds the checkpoint.")
    if not is_repo(model):
        names = " or ".join(f"'{name}'" for name in BUILT_IN)
        raise CheckpointError(f"There is no folder {model!r}; name a checkpoint folder, {names}.")
    return _repository(model)


def is_whole(folder: Path) -> bool:
    """Whether every file that the checkpoint names is there (not whether it is undamaged)."""
    return missing_from(folder) is None


def missing_from(folder: Path) -> str | None:
    """What a checkpoint in `folder` lacks, as the end of a sentence ("has no config.json"); None
    when every file that it names is there."""
    try:
        for name in ("config.json", "tokenizer.json"):
            if not (folder / name).is_file():
                return f"has no {name}"
        index = folder / "model.safetensors.index.json"
        if not index.exists():
            whole = (folder / "model.safetensors").is_file()
            return None if whole else "has no model.safetensors and no index of several"
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        lacking = sorted(name for name in names if not (folder / name).is_file())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return "cannot be read as a checkpoint"
    if not lacking:
        return None
    others = len(lacking) - 1
    more = f" and {others} more file{'s' if others > 1 else ''}" if others else ""
    return f"lacks {lacking[0]}{more} that its index names"


def check_folder(text: str) -> Path:
    """The absolute folder that a user means by `text`, which holds a checkpoint that can be tried.

    Reads config.json and the index, no weights, and asks nobody: what it refuses is refused within
    a moment.

    Raises:
        CheckpointError: in one sentence.
    """
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if (found := _is_folder(path)) is False:
        raise CheckpointError(f"{path} is a file; name the folder that holds it.")
    if found is None:
        raise CheckpointError(f"There is no folder {path}.")
    if (lack := missing_from(path)) is not None:
        raise CheckpointError(f"{path} {lack}{_nearby(path)}.")
    ModelConfig.from_pretrained(path)
    return path


def _is_folder(path: Path) -> bool | None:
    """Whether a folder is there; False is something else, None nothing.

    Raises CheckpointError where the system does not let us look.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: a zero in the name
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened: {error.strerror}.") from error


def _nearby(path: Path) -> str:
    """Where the checkpoint may be instead: people name the folder above it, or the hub cache's."""
    for pattern in ("*", "snapshots/*"):
        for inner in sorted(path.glob(pattern)):
            if is_whole(inner):
                return f"; a checkpoint is in {inner}"
    return ""


def is_repo(text: str) -> bool:
    """Whether `text` could be the name of a repository: owner/name."""
    return _REPO.fullmatch(text) is not None


def _auto(can_chat: Callable[[], bool]) -> ModelFolder:
    try:
        found = _repository(DEFAULT_REPO)
    except CheckpointError:
        return _built_in(DEMO)
    return found if is_whole(found.path) and can_chat() else _built_in(DEMO)


def _built_in(name: str) -> ModelFolder:
    folder = Path(str(importlib.resources.files("assets") / name))
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"The model {name} is not where it belongs ({folder}); install orl-chat again."
        )
    return ModelFolder(name, folder)


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
