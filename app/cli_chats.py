"""The command line's part for saved chats: chats, chats export, chats import. Declarations only."""

from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from app.commands.running import guarded

Words = Annotated[list[str], typer.Argument(metavar="[ID...] DST", help="Chats, then a new file.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="md|json", help="Default: the name's ending.")
]

chats = typer.Typer(
    help="List and search the saved chats; export and import them.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(chats, name="chats")


def _end(command: Callable[[], int]) -> NoReturn:
    raise typer.Exit(guarded(command))


@chats.callback()
def list_chats(
    context: typer.Context,
    search: Annotated[str, typer.Option(metavar="TEXT", help="Only chats that hold it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List the saved chats, the newest first; export and import them."""

    def command() -> int:
        from app.commands.chats import list_chats as tell

        return tell(search, as_json=as_json)

    if context.invoked_subcommand is None:
        _end(command)


@chats.command()
def export(
    words: Words,
    everything: Annotated[bool, typer.Option("--all", help="Every chat, in place of ids.")] = False,
    style: Format = None,
) -> None:
    """Write chats to a new file (- is stdout): Markdown to read, JSON to import again."""

    def command() -> int:
        from app.commands.chats import export as write

        return write(words, everything=everything, style=style)

    _end(command)


@chats.command(name="import")
def bring_in(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A JSON export of chats.")],
) -> None:
    """Add the chats of a file; those that are here already are left alone."""

    def command() -> int:
        from app.commands.chats import bring_in as read

        return read(source)

    _end(command)
