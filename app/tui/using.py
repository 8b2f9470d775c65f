"""A run's best checkpoint in the chat, and out of it again."""

from typing import TYPE_CHECKING

from app.models import resolve_model
from app.run_watch import RunWatch
from app.runs import called
from engine.config import CheckpointError

if TYPE_CHECKING:
    from app.tui.app import OrlChat


def is_used(program: "OrlChat", watch: RunWatch) -> bool:
    """Whether the chat answers with this run."""
    return program.link.adapter == called(watch.run)


def use(program: "OrlChat", watch: RunWatch) -> str | None:
    """Load the run's base with its best checkpoint and go to the chat; why not, if it cannot be."""
    info = watch.info
    if info is None:
        return watch.problem
    if watch.run.best() is None:
        return f"{watch.name} has no checkpoint yet; wait for its first check."
    model = info.model
    try:
        if not resolve_model(model).path.samefile(info.base):
            model = info.base
    except (CheckpointError, OSError):
        model = info.base
    program.models.choose(model, adapter=called(watch.run), keep=False)
    return None


def leave(program: "OrlChat") -> None:
    """Load the base without what was trained, and go to the chat."""
    program.models.choose(program.link.model, keep=False)
