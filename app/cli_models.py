"""The command line's part for checkpoints: download, quantize. Declarations only."""

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from app.commands.running import guarded

ExpertsOnly = Annotated[bool, typer.Option("--experts-only", help="Only the routed experts.")]
Format = Annotated[str, typer.Option("--format", metavar="modelopt|compressed-tensors")]


def register(app: typer.Typer, settings: Callable[[], Any]) -> None:
    """Add the commands to `app`; `settings` reads the user's settings."""
    app.command()(_download(settings))
    app.command()(quantize)


def _end(command: Callable[[], int]) -> NoReturn:
    raise typer.Exit(guarded(command))


def _download(settings: Callable[[], Any]) -> Callable[..., None]:
    def download(
        repo: Annotated[str | None, typer.Argument(metavar="REPO", help="owner/name.")] = None,
        revision: Annotated[str, typer.Option(help="A branch, tag or commit.")] = "main",
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only say what is missing.")
        ] = False,
        recheck: Annotated[bool, typer.Option("--recheck", help="Hash every file again.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print events, one a line.")] = False,
    ) -> None:
        """Fetch a model, whole and checked; goes on where an earlier download ended."""

        def command() -> int:
            from app.commands.download import Download
            from app.commands.download import download as fetch

            return fetch(Download(repo, revision, dry_run, recheck, as_json), settings())

        _end(command)

    return download


def quantize(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A bf16 checkpoint.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A new folder.")],
    experts_only: ExpertsOnly = False,
    style: Format = "modelopt",
) -> None:
    """Make an NVFP4 checkpoint of a bf16 one; run it again to go on after an interruption."""

    def command() -> int:
        from app.commands.quantize import Quantization
        from app.commands.quantize import quantize as run_quantization

        return run_quantization(Quantization(source, target, experts_only, style))

    _end(command)
