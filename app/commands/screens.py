"""The terminal program's start, as far as nothing is drawn: is there a terminal, and who waits."""

import gc
import sys

from app.commands.running import CommandError


def chat(model: str | None, *, mouse: bool) -> int:
    """The chat, in a child process, until the user quits; the exit code. Raises CommandError."""
    need_terminal("orl-chat ask PROMPT")
    from app.launcher import in_child

    def screens() -> int:
        gc.disable()  # until the chat is there: what is imported is not garbage, but is looked at
        from app.tui.app import run

        return run(model, mouse=mouse)

    return in_child(screens)


def replay(trace: str) -> int:
    """A recorded answer in a window; the exit code. Raises CommandError."""
    need_terminal("orl-chat replay TRACE")
    from app.tui.replay_app import run

    return run(trace)


def need_terminal(otherwise: str) -> None:
    """Before a screen is drawn: a terminal that can show it, and a log for what goes wrong."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(f"The terminal program needs a terminal; without one use: {otherwise}")
    from app.logs import log_to_file
    from app.paths import paths
    from app.terminal import refusal

    if (why := refusal(otherwise)) is not None:
        raise CommandError(why)
    log_to_file(paths().log)
