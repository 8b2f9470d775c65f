"""The command line's training part: finetune, runs, compare, export. Declarations only."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from app.commands.running import CommandError, guarded

if TYPE_CHECKING:
    from finetune.config import Train

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
RunCode = Annotated[
    bool, typer.Option("--run-code", help="Allow verifiers to run code, for this time.")
]
Progress = Annotated[
    bool, typer.Option("--progress", help="JSON lines about how far it is, ahead of the result.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name or folder.")]


def register(app: typer.Typer, default_model: Callable[[], str]) -> None:
    """Add the commands to `app`; `default_model` reads the user's settings."""
    app.command()(_finetune(default_model))
    app.command()(runs)
    app.command()(compare)
    app.command()(export)


def _end(command: Callable[[], int]) -> NoReturn:
    raise typer.Exit(guarded(command))


def _finetune(default_model: Callable[[], str]) -> Callable[..., None]:
    def finetune(  # noqa: PLR0913 - one argument an option
        prompts: Annotated[
            str | None, typer.Argument(metavar="PROMPTS.jsonl", help="Verified prompts.")
        ] = None,
        model: Annotated[
            str | None, typer.Option(metavar="demo|DIR|REPO", help="The model to start from.")
        ] = None,
        recipe: Annotated[
            str, typer.Option(metavar="quick|normal|long", help="How long to train.")
        ] = "normal",
        updates: Annotated[int | None, typer.Option(help="Updates, in place of the recipe's.")] = (
            None
        ),
        full: Annotated[
            bool, typer.Option("--full", help="Train every weight: usual for small models.")
        ] = False,
        lora: Annotated[
            bool, typer.Option("--lora", help="Train LoRA matrices: usual for large models.")
        ] = False,
        adapter_only: Annotated[
            bool, typer.Option("--adapter-only", help="Train the residual adapter alone.")
        ] = False,
        seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
        lr: Annotated[float | None, typer.Option(help="Learning rate of the trunk.")] = None,
        out: Annotated[str | None, typer.Option(metavar="DIR", help="The run's folder.")] = None,
        resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a run.")] = None,
        detach: Annotated[bool, typer.Option("--detach", help="Train in the background.")] = False,
        plan: Annotated[
            bool, typer.Option("--plan", help="Say what memory it takes, and do nothing.")
        ] = False,
        dry_step: Annotated[
            bool, typer.Option("--dry-step", help="Measure one update, and throw it away.")
        ] = False,
        run_code: RunCode = False,
        device: Device = "auto",
        progress: Progress = False,
        as_json: Json = False,
    ) -> None:
        """Make the model faster on your verified prompts (ORL)."""

        def command() -> int:
            from app.commands.finetune import Finetune
            from app.commands.finetune import finetune as begin

            asked = {"full": full, "lora": lora, "adapter": adapter_only}
            trains = [name for name, wanted in asked.items() if wanted]
            if len(trains) > 1:
                raise CommandError("--full, --lora and --adapter-only exclude each other.")
            changes: dict[str, Any] = {"updates": updates, "seed": seed, "lr": lr}
            return begin(
                Finetune(
                    prompts=prompts,
                    resume=resume,
                    model=model or default_model(),
                    recipe=recipe,
                    train=cast("Train", trains[0]) if trains else None,
                    out=out,
                    device=device,
                    run_code=run_code,
                    detach=detach,
                    plan=plan,
                    dry_step=dry_step,
                    progress=progress,
                    as_json=as_json,
                    changes={k: v for k, v in changes.items() if v is not None},
                )
            )

        _end(command)

    return finetune


def runs(
    action: Annotated[
        str | None, typer.Argument(metavar="[pause|continue|save|stop", help="What to ask for,")
    ] = None,
    run: Annotated[str | None, typer.Argument(metavar="RUN]", help="and of which run.")] = None,
    as_json: Json = False,
) -> None:
    """List the runs, or ask one that trains for something."""

    def command() -> int:
        from app.commands.runs import ask_run, list_runs

        if action is None:
            return list_runs(as_json=as_json)
        if run is None:
            raise CommandError(f"Name the run: orl-chat runs {action} RUN")
        return ask_run(action, run)

    _end(command)


def compare(
    run: Run,
    prompts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Other prompts than the held-out ones.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="speed|quality|careful", help="Thresholds.")
    ] = None,
    run_code: RunCode = False,
    device: Device = "auto",
    progress: Progress = False,
    as_json: Json = False,
) -> None:
    """The model before and after a run: accuracy, TPF, tokens per second."""

    def command() -> int:
        from app.commands.compare import Compare
        from app.commands.compare import compare as measure

        return measure(Compare(run, prompts, preset, device, run_code, as_json, progress))

    _end(command)


def export(
    run: Run,
    destination: Annotated[str, typer.Argument(metavar="DST", help="A folder to write.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the whole model, adapter merged in.")
    ] = False,
    quantize: Annotated[
        bool, typer.Option("--quantize", help="And pack the whole model in NVFP4.")
    ] = False,
    progress: Progress = False,
    as_json: Json = False,
) -> None:
    """Write a run's best adapter, or the whole model, to a folder."""

    def command() -> int:
        from app.commands.export import Export
        from app.commands.export import export as write

        return write(Export(run, destination, merge, quantize, as_json, progress))

    _end(command)
