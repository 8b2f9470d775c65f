"""What a download consists of: one commit, and of its files those that the engine reads.

A plan is pinned: it names a commit, never a branch, and the size and hash that each file must
have, as the hub publishes them (sha256 of large files, git's own hash of small ones). Code is never
part of it: no .py, and no pickled weights, which run code when they are read.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.hub.faults import Failure, FailureError
from app.models import DEFAULT_REPO

if TYPE_CHECKING:
    from huggingface_hub import HfApi

KNOWN = (
    DEFAULT_REPO,
    "yifanyu/LLaDA2.1-mini-ORL",
    "inclusionAI/LLaDA2.1-mini",
    "inclusionAI/LLaDA2.0-mini",
)
"""Repositories that this program offers by itself; any other can be named."""

DEFAULT_REVISION = "main"
INDEX = "model.safetensors.index.json"
"""Names the weight files, where there are several."""
LARGEST_TEXT = 1 << 20
"""Bytes of a README or licence beyond which it is no reading matter."""
LARGEST_DATA = 256 << 20
"""Bytes of a .json, .txt or .model file beyond which it is no tokenizer and no configuration."""

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.+-]*(/[\w.+-]+)*", re.ASCII)
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DATA = re.compile(r".*\.(json|jinja|txt|model)", re.IGNORECASE)
_TEXT = re.compile(r"(readme|licen[cs]e|notice)([._-].*)?", re.IGNORECASE)
_CONFIGURATIONS = {"config.json", "adapter_config.json", "residual_config.json"}


@dataclass(frozen=True)
class PlannedFile:
    """One file. `sha256` or `git` is the hash it must have; the other may be None."""

    path: str
    size: int
    sha256: str | None = None
    git: str | None = None

    @property
    def blob(self) -> str:
        """The name that the hub cache gives to the content."""
        name = self.sha256 or self.git
        assert name is not None
        return name

    @property
    def is_large(self) -> bool:
        """Whether it is one of those that take the time."""
        return self.size > 1 << 24


@dataclass(frozen=True)
class Plan:
    """A repository at one commit. `revision` is what was asked for ("main")."""

    repo: str
    revision: str
    commit: str
    files: tuple[PlannedFile, ...]
    licence: str = ""
    access: str = "public"

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def in_order(self) -> list[PlannedFile]:
        """Small files first: what they tell (no access, a strange configuration) should not come
        after an hour."""
        return sorted(self.files, key=lambda file: (file.is_large, file.path))


def check_names(repo: str, revision: str) -> None:
    """Refuse what can be no repository or revision, before it becomes part of a path or address.

    Raises:
        FailureError: of kind "bad_request".
    """
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo or repo.endswith((".git", ".")):
        raise FailureError(
            Failure(
                "bad_request",
                f"{repo!r} is not the name of a repository.",
                f"Name it as owner/name, such as {DEFAULT_REPO}.",
            )
        )
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise FailureError(
            Failure(
                "bad_request",
                f"{revision!r} is not a revision.",
                "Name a branch, a tag or a commit of 40 characters, such as main.",
            )
        )


def is_commit(revision: str) -> bool:
    """Whether `revision` is a whole commit hash, which can never move."""
    return _COMMIT.fullmatch(revision) is not None


def is_wanted(path: str, size: int) -> bool:
    """Whether the engine (or a reader) can use the file: at the top of the repository, weights in
    safetensors, configuration, tokenizer, chat template, readme, licence."""
    if not _NAME.fullmatch(path) or path.startswith("."):
        return False
    if path.endswith(".safetensors"):
        return True
    if _DATA.fullmatch(path):
        return size <= LARGEST_DATA
    return _TEXT.fullmatch(path) is not None and not _is_code(path) and size <= LARGEST_TEXT


def make_plan(api: "HfApi", repo: str, revision: str, timeout: float) -> Plan:
    """Ask the hub; one request, so that the commit and the list of files belong together.

    Raises:
        FailureError: the repository is nothing that the engine can use.
        Exception: whatever huggingface_hub raises; `app.hub.faults.classify` puts it into words.
    """
    info = api.model_info(repo, revision=revision, files_metadata=True, timeout=timeout)
    if info.sha is None or not is_commit(info.sha):
        raise FailureError(_not_a_hub("tells no commit"))
    files = tuple(
        _file(entry) for entry in info.siblings or () if is_wanted(entry.rfilename, entry.size or 0)
    )
    _require_checkpoint(repo, files)
    card: Any = getattr(info, "card_data", None)
    licence = str(getattr(card, "license", None) or "")
    access = "private" if info.private else "gated" if info.gated else "public"
    return Plan(repo, revision, info.sha, files, licence, access)


def require_whole_index(plan: Plan, index: Path) -> None:
    """The weight files that the downloaded index names are all in the plan.

    Raises:
        FailureError: of kind "unsuitable".
        OSError: the index cannot be read.
    """
    try:
        named = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FailureError(
            Failure("unsuitable", f"{INDEX} of {plan.repo} is no index.", _ANOTHER)
        ) from error
    if missing := sorted(str(name) for name in named - {file.path for file in plan.files}):
        raise FailureError(
            Failure(
                "unsuitable",
                f"{plan.repo} lacks {len(missing)} weight files that its index names, "
                f"{missing[0]} among them.",
                _ANOTHER,
            )
        )


_ANOTHER = "Name another repository or revision."


def _file(entry: Any) -> PlannedFile:
    sha256 = entry.lfs.sha256 if entry.lfs is not None else None
    size = entry.lfs.size if entry.lfs is not None else entry.size
    name = sha256 or entry.blob_id
    if size is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name or ""):
        raise FailureError(_not_a_hub("tells no size or no hash of its files"))
    return PlannedFile(entry.rfilename, int(size), sha256, None if sha256 else name)


def _require_checkpoint(repo: str, files: tuple[PlannedFile, ...]) -> None:
    names = {file.path for file in files}
    if not names & _CONFIGURATIONS or not any(name.endswith(".safetensors") for name in names):
        raise FailureError(
            Failure(
                "unsuitable",
                f"{repo} holds no model that orl-chat can read (a config.json and .safetensors "
                "files at its top).",
                _ANOTHER,
            )
        )


def _is_code(path: str) -> bool:
    return path.lower().endswith((".py", ".sh", ".bat", ".exe", ".so"))


def _not_a_hub(what: str) -> Failure:
    return Failure(
        "not_a_hub",
        f"What answers at the hub's address {what}.",
        "Check HF_ENDPOINT, and whether a login page or a proxy stands in between.",
    )
