"""To the clipboard of the terminal that the user sits at, also over SSH and inside tmux.

OSC 52 asks that terminal to copy, wherever the program runs. tmux takes it from a program only with
`set-clipboard on`, which is not its default; asked by its own command it always does, and hands the
text on. No terminal answers, so what is said afterwards names the way and not the result.
"""

import asyncio
import contextlib
import os
import shutil

PATIENCE = 5.0
LARGE = 74_000
"""Characters beyond which some terminals take nothing."""


def in_tmux() -> bool:
    """Whether this runs inside tmux and can ask it."""
    return bool(os.environ.get("TMUX")) and shutil.which("tmux") is not None


async def hand_to_tmux(text: str) -> None:
    """Make `text` tmux's newest buffer, and let tmux copy it (from version 3.2). A tmux that does
    not take it changes nothing."""
    with contextlib.suppress(OSError, TimeoutError):
        process = await asyncio.create_subprocess_exec(
            *("tmux", "load-buffer", "-w", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), PATIENCE)


def copied(what: str, text: str, *, tmux: bool) -> str:
    """The word about a copy."""
    way = "to tmux and your terminal" if tmux else "to your terminal by OSC 52"
    size = f"{len(text):,} character{'s' if len(text) != 1 else ''}"
    doubt = "; that much is refused by some" if len(text) > LARGE else ""
    return f"Copied {what}, {size}, {way}{doubt}."
