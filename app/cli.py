"""The command line. Declares what can be typed; what is done stands in `app/commands`.

Nothing heavy is imported here: `orl-chat --version` answers at once, and torch comes in only with
a command that needs a model.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from app.cli_bench import register as register_bench
from app.cli_chats import register as register_chats
from app.cli_kernels import register as register_kernels
from app.cli_models import register as register_models
from app.cli_prompts import register as register_prompts
from app.cli_training import register as register_training
from app.commands.running import CommandError, guarded, say
from app.version import VERSION

app = typer.Typer(
    name="orl-chat",
    help="Chat with a block-diffusion language model in the terminal, and watch it denoise.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    str | None, typer.Option(metavar="demo|DIR|REPO", help="The model; default: your settings.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Adapter = Annotated[str | None, typer.Option(metavar="DIR", help="An adapter to put onto it.")]
ResidualMap = Annotated[
    str | None, typer.Option(metavar="FILE", help="Says which tensors are the residual adapter.")
]
Spill = Annotated[bool, typer.Option("--allow-spill", help="Load although memory looks too short.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Preset = Annotated[str | None, typer.Option(metavar="speed|quality|careful", help="Thresholds.")]


def main() -> None:
    """The entry point; ends the process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    _prepare_streams()
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


def _prepare_streams() -> None:
    """Neither a stream that is closed nor text that its encoding lacks must end a command."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


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
        _end(lambda: _chat(model, mouse=mouse))


def _chat(model: str | None, *, mouse: bool) -> int:
    _need_terminal("orl-chat ask PROMPT")
    from app.tui.app import run as run_terminal

    return run_terminal(model, mouse=mouse)


def _need_terminal(otherwise: str) -> None:
    """Before a screen is drawn: a terminal that can show it, and a log for what goes wrong."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(f"The terminal program needs a terminal; without one use: {otherwise}")
    from app.logs import log_to_file
    from app.paths import paths
    from app.terminal import refusal

    if (why := refusal(otherwise)) is not None:
        raise CommandError(why)
    log_to_file(paths().log)


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
        from app.commands.ask import Ask
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
                as_json=as_json,
                decoding={**decoding, "overlap": overlap},
            )
        )

    _end(command)


@app.command(name="eval")
def evaluate(
    model: Model = None,
    n: Annotated[int, typer.Option("--n", help="How many held-out questions.")] = 400,
    preset: Preset = None,
    device: Device = "auto",
    adapter: Adapter = None,
    residual_map: ResidualMap = None,
    allow_spill: Spill = False,
    as_json: Json = False,
) -> None:
    """Accuracy and tokens per forward on the demo's held-out questions, preset by preset."""

    def command() -> int:
        from app.commands.evaluate import Eval
        from app.commands.evaluate import evaluate as run_evaluation

        name = model or _settings().model
        return run_evaluation(
            Eval(name, n, preset, device, adapter, residual_map, allow_spill, as_json)
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
            _need_terminal("orl-chat replay TRACE")
            from app.tui.replay_app import run as run_replay

            return run_replay(trace)
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
register_bench(app, _settings)
register_models(app, _settings)
register_prompts(app, lambda: str(_settings().model))
register_training(app, lambda: str(_settings().model))
register_kernels(app)

if __name__ == "__main__":
    main()
