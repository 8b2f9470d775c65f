"""What `orl-chat bench` needs before the first answer: rows, prompts, a judge, and who answers."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.bench.endpoint import Endpoint, base_address, served_model
from app.bench.local import engine_answer
from app.bench.prompts import BenchSet, read_set
from app.bench.result import Run, decode_conditions
from app.bench.run import Answer, Judge, Setting, Turn, plan
from app.bench.sets import load_set
from app.commands.ask import load_engine
from app.commands.check_prompts import fitting, warn
from app.commands.running import CommandError, say
from app.consent import may_run
from app.decoding import DEFAULT_PRESET, decode_config
from app.hub.secret import Secret, without_user
from app.models import BUILT_IN, ModelFolder
from app.settings import Settings
from engine.config import PRESETS

if TYPE_CHECKING:
    from engine.generate import Engine

ENDPOINT = "endpoint"
"""The label of a server's row."""

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Bench:
    """What to measure. `presets` empty: all of them; `n` None: every prompt of the set."""

    model: str
    prompts: str | None = None
    set: str | None = None
    n: int | None = None
    presets: tuple[str, ...] = ()
    repeat: int = 1
    warmup: int = 2
    seed: int = 0
    max_new_tokens: int = 256
    temperature: float = 0.0
    frontier: bool = False
    endpoint: str | None = None
    endpoint_model: str | None = None
    only_endpoint: bool = False
    device: str = "auto"
    adapter: str | None = None
    residual_map: str | None = None
    allow_spill: bool = False
    run_code: bool = False
    as_json: bool = False
    out: str | None = None

    @property
    def decoding(self) -> dict[str, Any]:
        """What all rows share."""
        names = ("seed", "max_new_tokens", "temperature")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Part:
    """Rows with what answers for them."""

    runs: tuple[Run, ...]
    turns: list[Turn]
    answer: Answer


def check_out(out: str | None) -> None:
    """Raises CommandError when a result could not be written there: better before than after."""
    if out is not None and (
        Path(out).is_dir() or not os.access(Path(out).absolute().parent, os.W_OK)
    ):
        raise CommandError(f"{out} cannot be written; name a file in a folder that there is.")


def check(request: Bench) -> None:
    if request.prompts is not None and request.set is not None:
        raise CommandError("Name prompts with --prompts or with --set, not with both.")
    if request.n is not None and request.n < 1:
        raise CommandError(f"The number of prompts must be at least 1, got {request.n}.")
    if request.endpoint is None and (request.only_endpoint or request.endpoint_model is not None):
        raise CommandError("Which server? Name it with --endpoint URL.")
    if request.frontier and request.only_endpoint:
        raise CommandError("A frontier is over the engine's thresholds; a server has none.")
    check_out(request.out)


def settings_of(request: Bench) -> list[Setting]:
    """The engine's rows: presets, or thresholds for the frontier."""
    if not request.frontier:
        names = tuple(dict.fromkeys(request.presets)) or tuple(PRESETS)
        return [
            Setting(name, decode_config({"preset": name, **request.decoding})) for name in names
        ]
    if len(request.presets) > 1:
        raise CommandError("A frontier is over the thresholds of one preset; name only one.")
    preset = request.presets[0] if request.presets else DEFAULT_PRESET
    base = decode_config({"preset": preset, **request.decoding})
    return [Setting(f"threshold {t:g}", replace(base, threshold=t)) for t in THRESHOLDS]


def prompts_of(request: Bench, settings: Settings, folder: ModelFolder | None) -> BenchSet:
    if request.prompts is not None:
        try:
            found = read_set(request.prompts)
        except OSError as error:
            raise CommandError(
                f"{request.prompts} cannot be read ({error.strerror}); name a file of prompts."
            ) from error
    else:
        is_demo = folder is not None and folder.name in BUILT_IN
        name = request.set or ("demo" if is_demo else "chat")
        found = load_set(name, offline=settings.offline, endpoint=settings.endpoint)
    warn(found.problems)
    return found if request.n is None else found.some(request.n)


def server_of(request: Bench) -> Endpoint | None:
    """The server, which is there and has the model."""
    if request.endpoint is None:
        return None
    text = os.environ.get("OPENAI_API_KEY")
    key = Secret(text) if text else None
    base = base_address(request.endpoint)
    return Endpoint(base, request.endpoint_model or served_model(base, key), key)


@contextlib.contextmanager
def judging(found: BenchSet, run_code: bool) -> Iterator[tuple[BenchSet, Judge | None]]:
    """The prompts and what verifies their answers; without leave to run code, those that would
    run some are timed only."""
    from finetune.verifiers import make_verifier, needs_code

    code = needs_code(found.verified)
    if code and not may_run(found.verified, run_code=run_code):
        say(
            f"{len(code)} prompts are timed only: verifying them runs code, and --run-code "
            "allows that for this time."
        )
        bare = {prompt.id for prompt in code}
        prompts = (replace(p, verify="") if p.id in bare else p for p in found.prompts)
        found = replace(found, prompts=tuple(prompts))
    if not found.verified:
        yield found, None
        return
    allowed = bool(needs_code(found.verified))  # what was not allowed is not verified any more
    with make_verifier(found.verified, folder=found.folder, run_code=allowed) as verifier:
        yield found, verifier


def loaded(
    request: Bench, folder: ModelFolder | None, found: BenchSet
) -> "tuple[Engine | None, BenchSet]":
    """The engine, and the prompts that fit its context."""
    if folder is None:
        return None, found
    engine = load_engine(
        folder,
        request.device,
        request.adapter,
        request.residual_map,
        allow_spill=request.allow_spill,
    )
    return engine, replace(found, prompts=tuple(fitting(engine, found.prompts)))


def parts_of(
    request: Bench,
    rows: list[Setting],
    found: BenchSet,
    engine: "Engine | None",
    server: Endpoint | None,
    stop: Callable[[], bool],
) -> Iterator[Part]:
    """The engine's rows, then the server's, over the same prompts."""
    times = {"repeat": request.repeat, "warm_up": request.warmup}
    if engine is not None:
        runs = tuple(Run(row.label, decode_conditions(row)) for row in rows)
        yield Part(runs, plan(found.prompts, rows, **times), engine_answer(engine, stop))
    if server is None:
        return
    if engine is not None and engine.tokenizer is not None:
        encode, name = engine.tokenizer.encode, request.model
        server = replace(
            server, count=lambda text: len(encode(text)), counter=f"tokenizer of {name}"
        )
    told = {ENDPOINT: without_user(server.base), "model": server.model, **request.decoding}
    row = Setting(ENDPOINT, decode_config(request.decoding))
    ask = server
    yield Part(
        (Run(ENDPOINT, told),),
        plan(found.prompts, [row], **times),
        lambda prompt, config: ask.answer(prompt, config, stop),
    )
