"""The command line's part for accuracy: eval. Declarations only."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from app.cli_options import (
    Activations,
    Adapter,
    Ahead,
    Device,
    Graph,
    Json,
    Kernels,
    Model,
    Preset,
    ResidualMap,
    Spill,
)
from app.commands.running import guarded


def register(app: typer.Typer, settings: Callable[[], Any]) -> None:
    """Add the command to `app`; `settings` reads the user's settings."""
    app.command(name="eval")(_evaluate(settings))


def _evaluate(settings: Callable[[], Any]) -> Callable[..., None]:
    def evaluate(  # noqa: PLR0913 - one argument an option
        model: Model = None,
        n: Annotated[int, typer.Option("--n", help="How many held-out questions.")] = 400,
        preset: Preset = None,
        device: Device = "auto",
        adapter: Adapter = None,
        residual_map: ResidualMap = None,
        allow_spill: Spill = False,
        activations: Activations = "auto",
        kernels: Kernels = "triton",
        graph: Graph = True,
        ahead: Ahead = False,
        as_json: Json = False,
    ) -> None:
        """Accuracy and tokens per forward on the demo's held-out questions, preset by preset."""

        def command() -> int:
            from app.commands.ask import Compute
            from app.commands.evaluate import Eval
            from app.commands.evaluate import evaluate as run_evaluation

            name = model or settings().model
            return run_evaluation(
                Eval(
                    model=name,
                    n=n,
                    preset=preset,
                    device=device,
                    adapter=adapter,
                    residual_map=residual_map,
                    allow_spill=allow_spill,
                    as_json=as_json,
                    compute=Compute.of(activations, kernels, graph, ahead),
                )
            )

        raise typer.Exit(guarded(command))

    return evaluate
