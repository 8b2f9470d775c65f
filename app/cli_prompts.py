"""The command line's part for prompts: check, test, make. Declarations only."""

from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from app.commands.running import CommandError, guarded

File = Annotated[str, typer.Argument(metavar="FILE", help="Prompts, JSON Lines.")]
Model = Annotated[
    str | None, typer.Option(metavar="demo|DIR|REPO", help="The model; default: your settings.")
]
RunCode = Annotated[
    bool, typer.Option("--run-code", help="Allow verifiers to run code, for this time.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer, default_model: Callable[[], str]) -> None:
    """Add the commands to `app`; `default_model` reads the user's settings."""
    prompts = typer.Typer(
        help="Prompts with verifiable answers: check a file, try it, make one.",
        no_args_is_help=True,
    )
    prompts.command()(_check(default_model))
    prompts.command()(_test(default_model))
    prompts.command()(make)
    app.add_typer(prompts, name="prompts")


def _end(command: Callable[[], int]) -> NoReturn:
    raise typer.Exit(guarded(command))


def _check(default_model: Callable[[], str]) -> Callable[..., None]:
    def check(
        file: File, model: Model = None, run_code: RunCode = False, as_json: Json = False
    ) -> None:
        """Say what is wrong with a file, line by line. Loads no model; exit code 1 if anything."""

        def command() -> int:
            from app.commands.check_prompts import Check
            from app.commands.check_prompts import check as examine

            return examine(Check(file, model or default_model(), run_code, as_json))

        _end(command)

    return check


def _test(default_model: Callable[[], str]) -> Callable[..., None]:
    def test(  # noqa: PLR0913 - one argument an option
        file: File,
        k: Annotated[int, typer.Option("--k", help="Answers to each prompt.")] = 4,
        n: Annotated[str, typer.Option("--n", metavar="N|all", help="How many prompts.")] = "8",
        model: Model = None,
        preset: Annotated[
            str, typer.Option(metavar="speed|quality|careful", help="Thresholds.")
        ] = "quality",
        temperature: Annotated[float, typer.Option(help="0 gives one answer a prompt.")] = 0.8,
        max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 512,
        seed: Annotated[int, typer.Option(help="Of the sampler.")] = 0,
        device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
        adapter: Annotated[str | None, typer.Option(metavar="DIR", help="An adapter.")] = None,
        run_code: RunCode = False,
        show: Annotated[bool, typer.Option("--show", help="Show each answer.")] = False,
        progress: Annotated[
            bool, typer.Option("--progress", help="JSON lines ahead of the result.")
        ] = False,
        as_json: Json = False,
    ) -> None:
        """Answer some prompts and verify: pass rate, prompts without a pass, verifier errors."""
        decoding = {
            "preset": preset,
            "temperature": temperature,
            "max_new_tokens": max_new_tokens,
            "seed": seed,
        }

        def command() -> int:
            from app.commands.try_prompts import Test
            from app.commands.try_prompts import test as try_them

            return try_them(
                Test(
                    path=file,
                    model=model or default_model(),
                    k=k,
                    n=_count(n),
                    device=device,
                    adapter=adapter,
                    run_code=run_code,
                    show=show,
                    as_json=as_json,
                    progress=progress,
                    decoding=decoding,
                )
            )

        _end(command)

    return test


def make(
    task: Annotated[str, typer.Argument(metavar="TASK", help="demo, or a task of reasoning-gym.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The file to write.")],
    n: Annotated[int, typer.Option("--n", help="How many prompts.")] = 256,
    seed: Annotated[int, typer.Option(help="Which prompts.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a file of prompts with their verifiers."""

    def command() -> int:
        from app.commands.make_prompts import make as write

        return write(task, n, out, seed, as_json=as_json)

    _end(command)


def _count(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"--n takes a number or all, got {text!r}.") from None
