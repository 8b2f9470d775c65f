"""The command of a Python child process that runs this program's code, wherever it was started."""

import sys
from pathlib import Path


def cli_command(*arguments: str) -> list[str]:
    """The command that runs `orl-chat` with `arguments`."""
    return python_command("from app.cli import run; sys.exit(run(sys.argv[1:]))", *arguments)


def python_command(code: str, *arguments: str) -> list[str]:
    """Run `code`, with the packages of this program importable and `arguments` in sys.argv.

    Not `-m`: that would put the user's working directory, and an `app.py` in it, first.
    """
    root = str(Path(__file__).resolve().parents[1])
    reach = f"import sys; {root!r} in sys.path or sys.path.insert(0, {root!r}); "
    return [sys.executable, "-P", "-c", reach + code, *arguments]
