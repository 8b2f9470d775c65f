"""A run's best checkpoint in the chat, and out of it again."""

from typing import TYPE_CHECKING

from app.models import resolve_model
from app.run_watch import RunWatch
from app.tui.tabs import CHAT
from engine.config import CheckpointError

if TYPE_CHECKING:
    from app.tui.app import OrlChat


def is_used(program: "OrlChat", watch: RunWatch) -> bool:
    """Whether the chat answers with this run."""
    return program.link.adapter == str(watch.run.path)


def use(program: "OrlChat", watch: RunWatch) -> str | None:
    """Load the run's base with its best checkpoint and go to the chat; why not, if it cannot be."""
    info = watch.info
    if info is None:
        return watch.problem
    if watch.run.best() is None:
        return f"{watch.name} has no checkpoint yet; wait for its first check."
    base, model = info.base, info.model
    try:
        if not resolve_model(model).path.samefile(base):
            model = base
    except (CheckpointError, OSError):
        model = base
    _load(program, model, base, str(watch.run.path))
    return None


def leave(program: "OrlChat", watch: RunWatch) -> None:
    """Load the run's base without what was trained."""
    if watch.info is not None:
        _load(program, program.link.model, watch.info.base, None)


def _load(program: "OrlChat", model: str, base: str, adapter: str | None) -> None:
    if not program.link.put_on(model, base, adapter):
        program.start_engine()
    program.action_tab(CHAT)
