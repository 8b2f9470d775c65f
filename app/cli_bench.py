"""The command line's part for measuring: bench, bench compare. Declarations only."""

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from app.commands.running import guarded

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RunCode = Annotated[
    bool, typer.Option("--run-code", help="Allow verifiers to run code, for this time.")
]


def register(app: typer.Typer, settings: Callable[[], Any]) -> None:
    """Add the commands to `app`; `settings` reads the user's settings."""
    bench = typer.Typer(
        help="Measure speed over a set of prompts, preset by preset; compare results."
    )
    bench.callback(invoke_without_command=True)(_bench(settings))
    bench.command()(compare)
    app.add_typer(bench, name="bench")


def _end(command: Callable[[], int]) -> NoReturn:
    raise typer.Exit(guarded(command))


def _bench(settings: Callable[[], Any]) -> Callable[..., None]:
    def bench(  # noqa: PLR0913 - one argument an option
        context: typer.Context,
        model: Annotated[
            str | None,
            typer.Option(metavar="demo|DIR|REPO", help="The model; default: your settings."),
        ] = None,
        prompts: Annotated[
            str | None, typer.Option(metavar="FILE", help="Plain lines or JSON Lines.")
        ] = None,
        set: Annotated[
            str | None, typer.Option(metavar="demo|chat|code|math|gsm8k|humaneval")
        ] = None,
        n: Annotated[int | None, typer.Option("--n", help="Only so many of the prompts.")] = None,
        preset: Annotated[
            list[str] | None,
            typer.Option(metavar="speed|quality|careful", help="May be repeated; default: all."),
        ] = None,
        repeat: Annotated[int, typer.Option(help="How often each prompt is measured.")] = 1,
        warmup: Annotated[int, typer.Option(help="Answers before each row, not counted.")] = 2,
        seed: Annotated[int, typer.Option(help="Of the sampler.")] = 0,
        max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 256,
        temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
        frontier: Annotated[
            bool, typer.Option("--frontier", help="Accuracy against TPF, over thresholds.")
        ] = False,
        endpoint: Annotated[
            str | None, typer.Option(metavar="URL", help="An OpenAI-compatible server to measure.")
        ] = None,
        endpoint_model: Annotated[
            str | None, typer.Option(metavar="NAME", help="What it calls its model.")
        ] = None,
        only_endpoint: Annotated[
            bool, typer.Option("--only-endpoint", help="Measure the server and no model here.")
        ] = False,
        trace: Annotated[
            str | None, typer.Option(metavar="FILE", help="The figures of a recorded trace.")
        ] = None,
        device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
        adapter: Annotated[
            str | None, typer.Option(metavar="DIR", help="An adapter to put onto it.")
        ] = None,
        residual_map: Annotated[str | None, typer.Option(metavar="FILE")] = None,
        allow_spill: Annotated[bool, typer.Option("--allow-spill")] = False,
        run_code: RunCode = False,
        as_json: Json = False,
        out: Annotated[str | None, typer.Option(metavar="FILE", help="Save the result.")] = None,
    ) -> None:
        """Measure speed over a set of prompts, preset by preset.

        With verified prompts accuracy is measured too. Ctrl+C prints what was measured until then.
        """
        if context.invoked_subcommand is not None:
            return

        def command() -> int:
            if trace is not None:
                from app.commands.bench_compare import bench_trace

                return bench_trace(trace, as_json=as_json, out=out)
            from app.commands.bench import bench as measure
            from app.commands.bench_setup import Bench

            own = settings()
            return measure(
                Bench(
                    model=model or own.model,
                    prompts=prompts,
                    set=set,
                    n=n,
                    presets=tuple(preset or ()),
                    repeat=repeat,
                    warmup=warmup,
                    seed=seed,
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    frontier=frontier,
                    endpoint=endpoint,
                    endpoint_model=endpoint_model,
                    only_endpoint=only_endpoint,
                    device=device,
                    adapter=adapter,
                    residual_map=residual_map,
                    allow_spill=allow_spill,
                    run_code=run_code,
                    as_json=as_json,
                    out=out,
                ),
                own,
            )

        _end(command)

    return bench


def compare(
    a: Annotated[str, typer.Argument(metavar="A.json", help="What --out wrote.")],
    b: Annotated[str, typer.Argument(metavar="B.json")],
    as_json: Json = False,
) -> None:
    """Ratios of two results, with intervals, and what differed about their conditions."""

    def command() -> int:
        from app.commands.bench_compare import compare_results

        return compare_results(a, b, as_json=as_json)

    _end(command)
