"""The program's tabs: their keys, their names, and the screen that each one is.

A tab's screen is made when it is first opened and then kept, so that what it shows is still there.
The chat lies under all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from textual.binding import Binding
from textual.screen import Screen

CHAT = "chat"


@dataclass(frozen=True)
class Tab:
    """One tab: `id` is its screen's name, `help` is what F1 says of its key."""

    id: str
    key: str
    title: str
    help: str


TABS = (
    Tab(CHAT, "f2", "Chat", "the chat"),
    Tab("speed", "f3", "Speed", "the last answers' figures, and a benchmark"),
    Tab("finetune", "f4", "Finetune", "train on your prompts, watch and compare runs"),
    Tab("models", "f5", "Models & settings", "models on this machine, and every setting"),
)


def bindings() -> list[Binding]:
    """A key a tab; they work wherever no dialog is open."""
    return [
        Binding(
            tab.key, f"tab('{tab.id}')", tab.title.lower(), id=f"tab.{tab.id}",
            show=False, tooltip=tab.help,
        )
        for tab in TABS
    ]  # fmt: skip


def _speed() -> Screen[None]:
    from app.tui.screens.speed import SpeedScreen

    return SpeedScreen()


def _finetune() -> Screen[None]:
    from app.tui.screens.finetune import FinetuneScreen

    return FinetuneScreen()


def _library() -> Screen[None]:
    from app.tui.screens.library import LibraryScreen

    return LibraryScreen()


SCREENS: dict[str, Callable[[], Screen[None]]] = {
    "speed": _speed,
    "finetune": _finetune,
    "models": _library,
}
"""Imported when first opened: none of them is needed for the first frame."""
