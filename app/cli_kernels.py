"""The command line's part for kernels. Declarations only."""

from typing import Annotated

import typer

from app.commands.running import guarded


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(kernels)


def kernels(
    arch: Annotated[str, typer.Option(metavar="sm_80|...|sm_120", help="The card's architecture.")],
    activations: Annotated[
        str, typer.Option(metavar="auto|bf16|nvfp4", help="auto: NVFP4 where there are FP4 units.")
    ] = "auto",
    tokens: Annotated[int, typer.Option(help="Positions of a forward.")] = 32,
    experts_only: Annotated[
        bool, typer.Option("--experts-only", help="Only the routed experts are NVFP4.")
    ] = False,
    z: Annotated[
        str, typer.Option(metavar="none|whole|top-k", help="The residual context of a step.")
    ] = "whole",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compile every kernel for a card that need not be there, and say what a step costs."""

    def command() -> int:
        from app.commands.kernels import Kernels
        from app.commands.kernels import kernels as compile_kernels

        return compile_kernels(Kernels(arch, activations, tokens, experts_only, z, as_json))

    raise typer.Exit(guarded(command))
