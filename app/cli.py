"""The command line. Declares what can be typed; what is done stands in `app/commands`.

Nothing heavy is imported here: `orl-chat --version` answers at once, and torch comes in only with
a command that needs a model.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from app.cli_bench import register as register_bench
from app.cli_chats import register as register_chats
from app.cli_eval import register as register_eval
from app.cli_kernels import register as register_kernels
from app.cli_models import register as register_models
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
from app.cli_prompts import register as register_prompts
from app.cli_training import register as register_training
from app.commands.running import CommandError, guarded, prepare_streams, quiet_python, say
from app.version import VERSION

app = typer.Typer(
    name="orl-chat",
    help="Chat with a block-diffusion language model in the terminal, and watch it denoise.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The entry point; ends the process."""
    quiet_python()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    prepare_streams()
    return guarded(lambda: _dispatch(arguments))


def _dispatch(arguments: Sequence[str]) -> int:
    try:
        result = app(list(arguments), prog_name="orl-chat", standalone_mode=False)
    except typer.Abort:
        return 130
    except Exception as error:
        usage = getattr(error, "format_message", None)  # a command line that is not understood
        if usage is None:
            raise
        from app.failures import sentence

        raise CommandError(f"{sentence(usage())} See: {_help_command(error)}") from error
    return result if isinstance(result, int) else 0


def _help_command(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context is not None else 'orl-chat'} --help"


def _end(command: Callable[[], int]) -> NoReturn:
    raise typer.Exit(guarded(command))


def _version(asked: bool) -> None:
    if asked:
        print(f"orl-chat {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def chat(
    context: typer.Context,
    model: Model = None,
    mouse: Annotated[
        bool, typer.Option("--mouse/--no-mouse", help="Leave the mouse to the terminal.")
    ] = True,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Chat with a block-diffusion language model in the terminal, and watch it denoise.

    Without a command the terminal program starts.
    """
    if context.invoked_subcommand is None:
        from app.commands.screens import chat as open_chat

        _end(lambda: open_chat(model, mouse=mouse))


@app.command()
def ask(  # noqa: PLR0913 - one argument an option
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to answer; - reads it from stdin.")
    ],
    model: Model = None,
    preset: Preset = None,
    threshold: Annotated[
        float | None, typer.Option(help="Confidence that unmasks a position, in [0, 1].")
    ] = None,
    editing_threshold: Annotated[
        str | None, typer.Option(metavar="F|off", help="Probability that edits a position.")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among this many tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample within this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the sampler.")] = None,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap/--no-overlap", help="One forward for two blocks.")
    ] = True,
    device: Device = "auto",
    adapter: Adapter = None,
    residual_map: ResidualMap = None,
    allow_spill: Spill = False,
    activations: Activations = "auto",
    kernels: Kernels = "triton",
    graph: Graph = True,
    ahead: Ahead = False,
    as_json: Json = False,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Record every step.")] = None,
) -> None:
    """Answer one prompt on stdout."""
    options = {
        "preset": preset,
        "threshold": threshold,
        "editing_threshold": editing_threshold,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }

    def command() -> int:
        from app.commands.ask import Ask, Compute
        from app.commands.ask import ask as answer
        from app.commands.options import over_settings

        settings = _settings()
        decoding = over_settings(settings.decoding(), options)
        return answer(
            Ask(
                prompt=prompt,
                model=model or settings.model,
                system=settings.system if system is None else system,
                device=device,
                adapter=adapter,
                residual_map=residual_map,
                trace=trace,
                allow_spill=allow_spill,
                compute=Compute.of(activations, kernels, graph, ahead),
                as_json=as_json,
                decoding={**decoding, "overlap": overlap},
            )
        )

    _end(command)


@app.command()
def doctor(
    model: Model = None,
    as_json: Json = False,
    report: Annotated[
        bool, typer.Option("--report", help="Without personal data, for a bug report.")
    ] = False,
) -> None:
    """Say what this machine can do, and what is missing. Fails when chat cannot run at all."""

    def command() -> int:
        from app.commands.doctor import doctor as tell

        return tell(as_json=as_json, for_bug_report=report, model=model)

    _end(command)


@app.command()
def paths() -> None:
    """Print where settings, chats, runs and logs are kept."""

    def command() -> int:
        from app.paths import paths as all_paths

        for name, path in all_paths().named().items():
            print(f"{name:<12} {path}")
        return 0

    _end(command)


@app.command()
def replay(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A file that --trace wrote.")],
    speed: Annotated[float, typer.Option(help="2 is twice as fast as it was.")] = 1.0,
    tui: Annotated[bool, typer.Option("--tui", help="Step by step, in a window.")] = False,
) -> None:
    """Play a recorded answer, with its timing and its numbers."""

    def command() -> int:
        if tui:
            from app.commands.screens import replay as open_replay

            return open_replay(trace)
        from app.commands.replay import replay as play

        return play(trace, speed)

    _end(command)


def _settings() -> Any:
    """The user's settings; what is wrong with them goes to stderr."""
    from app.settings import SettingsFile

    file = SettingsFile.open()
    for notice in file.notices:
        say(notice)
    return file.settings


register_chats(app)
register_eval(app, _settings)
register_bench(app, _settings)
register_models(app, _settings)
register_prompts(app, lambda: str(_settings().model))
register_training(app, lambda: str(_settings().model))
register_kernels(app)

if __name__ == "__main__":
    main()
