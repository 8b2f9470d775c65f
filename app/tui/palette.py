"""Ctrl+P: Textual's list of commands, which keys in quick succession do not bring down."""

import contextlib

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit


def _nothing() -> None:
    """What a second press runs."""


class Palette(CommandPalette):
    """All commands. A page key that comes before the list has its place would look for its lines
    in vain; a second Enter would take the screen below and run the command again."""

    def _action_command_list(self, action: str) -> None:
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Go, once."""
        if self.is_active:
            return super().dismiss(result)
        self._selected_command = DiscoveryHit("", _nothing)
        return AwaitComplete()
