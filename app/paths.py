"""Where the program keeps its files, on every platform, and nothing else about them.

Nothing is created when this module is imported or when a path is asked for; `ensure` makes a
folder when something is about to be written into it. `ORL_CHAT_HOME` puts everything under one
folder (tests, a stick, a machine whose home is read-only).
"""

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

NAME = "orl-chat"
HOME_VARIABLE = "ORL_CHAT_HOME"


@dataclass(frozen=True)
class Paths:
    """The four folders, and the files in them that have a fixed name."""

    config: Path
    data: Path
    state: Path
    cache: Path

    @property
    def settings(self) -> Path:
        """The user's settings, TOML."""
        return self.config / "config.toml"

    @property
    def store(self) -> Path:
        """Chats, SQLite."""
        return self.data / "chats.db"

    @property
    def traces(self) -> Path:
        """Recorded answers."""
        return self.data / "traces"

    @property
    def runs(self) -> Path:
        """One folder a finetuning run."""
        return self.data / "runs"

    @property
    def prompts(self) -> Path:
        """Files of verified prompts that were made here."""
        return self.data / "prompts"

    @property
    def kept(self) -> Path:
        """The prompts that were kept in the chat."""
        return self.prompts / "kept.jsonl"

    @property
    def demo_prompts(self) -> Path:
        """The demo's prompts, for trying things."""
        return self.prompts / "demo.jsonl"

    @property
    def downloads(self) -> Path:
        """What was planned and checked of each download, one folder a repository."""
        return self.data / "downloads"

    @property
    def exports(self) -> Path:
        """What was saved from a screen: figures, pictures."""
        return self.data / "exports"

    @property
    def draft(self) -> Path:
        """The message that was typed and not sent."""
        return self.data / "draft.txt"

    @property
    def logs(self) -> Path:
        """Log files, rotated."""
        return self.state / "log"

    @property
    def log(self) -> Path:
        """What the command line and the screens log, tracebacks included."""
        return self.logs / "orl-chat.log"

    @property
    def engine_log(self) -> Path:
        """What the engine process writes to stderr."""
        return self.logs / "engine.log"

    @property
    def download_log(self) -> Path:
        """What the download process writes to stderr."""
        return self.logs / "download.log"

    def named(self) -> dict[str, Path]:
        """Every path by name, for `orl-chat paths` and the screens."""
        names = (
            "settings", "store", "traces", "runs", "prompts", "downloads", "exports", "draft",
            "log", "engine_log", "download_log", "cache",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def paths() -> Paths:
    """The folders for this environment; read anew each time, so that tests can move them."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(root / "config", root / "data", root / "state", root / "cache")
    return Paths(
        config=platformdirs.user_config_path(NAME, appauthor=False),
        data=platformdirs.user_data_path(NAME, appauthor=False),
        state=platformdirs.user_state_path(NAME, appauthor=False),
        cache=platformdirs.user_cache_path(NAME, appauthor=False),
    )


def ensure(folder: Path) -> bool:
    """Make `folder` (mode 0700) where it is missing; False when it cannot be made or written."""
    try:
        _make_private(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _make_private(folder: Path) -> None:
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        _make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
