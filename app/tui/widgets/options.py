"""A list of options whose page keys are harmless while it has no place on the screen."""

import contextlib
from typing import Literal

from textual.widgets import OptionList


class Options(OptionList):
    """As Textual's, which looks for the lines of what is marked and ends the program where there
    are none yet, or none in a window that is too small."""

    def _move_page(self, direction: Literal[-1, 1]) -> None:
        with contextlib.suppress(KeyError):
            super()._move_page(direction)
