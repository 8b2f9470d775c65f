"""What happens when the terminal goes away while the program runs (SIGHUP)."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

SECONDS_TO_QUIT = 3.0
EXIT_CODE = 128 + signal.SIGHUP


def on_hangup(quit_soon: Callable[[], object]) -> None:
    """From now on a hangup calls `quit_soon`, and ends the process a few seconds later whatever
    happens.

    Textual writes from a thread of its own, which dies of the first error; the event loop would
    then wait for it for ever. So the output goes nowhere from here on, and where the thread was
    quicker, a timer ends the process: messages and finished blocks are in the store already. A
    plain handler, since one of the event loop would not run while that waits.
    """

    def hang_up(_: int, __: FrameType | None) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        last = threading.Timer(SECONDS_TO_QUIT, os._exit, (EXIT_CODE,))
        last.daemon = True
        last.start()
        quit_soon()

    signal.signal(signal.SIGHUP, hang_up)
