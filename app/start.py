"""The entry point. Without arguments the screens start at once: the library that reads command
lines takes as long to import as a fifth of what there is until the first frame."""

import sys

from app.commands.running import guarded, prepare_streams, quiet_python
from app.commands.screens import chat


def main() -> None:
    """Run the command line; ends the process."""
    quiet_python()
    arguments = sys.argv[1:]
    if not arguments:
        prepare_streams()
        sys.exit(guarded(lambda: chat(None, mouse=True)))
    from app.cli import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
