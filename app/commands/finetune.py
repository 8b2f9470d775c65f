"""`orl-chat finetune`: begin a run or go on with one, here or detached, or only plan it."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.child import cli_command
from app.commands.check_prompts import fitting, read, warn
from app.commands.progress import Progress, summary
from app.commands.running import INTERRUPTED, CommandError, ctrl_c_asks
from app.consent import may_run, open_verifier
from app.models import resolve_model
from app.paths import paths
from app.runs import LOG, called, find_run
from app.text import printable
from engine.config import ModelConfig
from engine.machine.memory_plan import parameters
from engine.machine.room import quantised_in
from finetune.config import FinetuneConfig, Train, recipe, usual_train
from finetune.runs import RunError, RunFolder, RunInfo

if TYPE_CHECKING:
    from finetune.prompts import Prompt
    from finetune.session import Session

HELD_OUT_SHARE = 4
"""One prompt in so many is held out,"""
HELD_OUT_MOST = 100
"""but no more than this many."""
DETACH_SECONDS = 20.0


@dataclass(frozen=True)
class Finetune:
    """What to train on what. `changes` are recipe fields by name; `train` None: by the model."""

    prompts: str | None = None
    resume: str | None = None
    model: str = "auto"
    recipe: str = "normal"
    train: Train | None = None
    out: str | None = None
    device: str = "auto"
    run_code: bool = False
    detach: bool = False
    plan: bool = False
    dry_step: bool = False
    progress: bool = False
    as_json: bool = False
    changes: dict[str, Any] = field(default_factory=dict)


def finetune(request: Finetune) -> int:
    """Do it; the exit code."""
    if request.plan:
        return plan(request)
    if request.dry_step:
        return try_step(request)
    if (request.prompts is None) == (request.resume is None):
        raise CommandError("Name a file of prompts, or a run to go on with (--resume RUN).")
    run = new_run(request) if request.resume is None else ended_run(request)
    if request.detach:
        return detach(run, request)
    try:
        return train(run, request)
    except BaseException:
        _drop_unbegun(run, request)
        raise


def _drop_unbegun(run: RunFolder, request: Finetune) -> None:
    """Away with a new run that could not begin: it would stand among the others for ever."""
    if request.resume is None and run.status().state == "new":
        shutil.rmtree(run.path, ignore_errors=True)


def ended_run(request: Finetune) -> RunFolder:
    """The run to go on with. Raises CommandError for one that trains, or that is to be changed."""
    assert request.resume is not None
    run = find_run(request.resume)
    status = run.status()
    if status.alive:
        raise CommandError(f"The run {run.name} is already running (pid {status.pid}).")
    if request.changes or request.out is not None:
        raise CommandError(
            f"The run {run.name} goes on in its folder, with the recipe that it began with: leave "
            "out --updates, --seed, --lr and --out, or begin a new run."
        )
    return run


def new_run(request: Finetune) -> RunFolder:
    """Check everything that can be before a weight is read, and make the run's folder."""
    from engine.checkpoint.revision import revision
    from finetune.prompts import split

    assert request.prompts is not None
    folder = resolve_model(request.model)
    found = usable_prompts(request.prompts)
    if not may_run(found, run_code=request.run_code):
        raise CommandError(
            "Without leave to run code these prompts cannot be verified; --run-code gives it."
        )
    config = run_config(request, folder.path, len(found))
    _, held = split(found, config.held_out, config.seed)
    path = Path(request.out) if request.out else free_name(printable(Path(request.prompts).stem))
    info = RunInfo(
        name=path.name,
        model=folder.name,
        base=str(folder.path.resolve()),
        revision=revision(folder.path),
        prompts=str(Path(request.prompts).resolve()),
        config=config,
        held_out=tuple(prompt.id for prompt in held),
    )
    return RunFolder.create(path, info, Path(request.prompts).read_bytes())


def usable_prompts(path: str) -> "tuple[Prompt, ...]":
    """The prompts of a file; what is wrong with others goes to stderr."""
    found = read(path)
    warn(found.problems)
    if len(found.prompts) < 2:
        raise CommandError(f"{path} has {len(found.prompts)} usable prompts; give at least two.")
    return found.prompts


def run_config(request: Finetune, model: Path, prompts: int) -> FinetuneConfig:
    """The recipe for the checkpoint in `model` and this many prompts, with what the user set."""
    config, packed = ModelConfig.from_pretrained(model), bool(quantised_in(model))
    if packed and request.train == "full":
        raise CommandError(
            f"The weights of {request.model} are packed in NVFP4, so not all can be trained; "
            "leave --full out, or start from its bf16 checkpoint."
        )
    train = request.train or usual_train(sum(parameters(config).values()), packed=packed)
    held = min(HELD_OUT_MOST, prompts // HELD_OUT_SHARE)
    return recipe(
        request.recipe, train, config.hidden_size, **{"held_out": held, **request.changes}
    )


def free_name(stem: str) -> Path:
    """A folder below the runs that is not there yet: the prompts' name and the day."""
    base = f"{stem}-{time.strftime('%Y-%m-%d')}"
    for number in range(1, 10_000):
        path = paths().runs / (base if number == 1 else f"{base}-{number}")
        if not path.exists():
            return path
    raise CommandError(f"There are too many runs called {base}; name a folder with --out.")


def train(run: RunFolder, request: Finetune) -> int:
    """Run it in this process, with a line of progress an update."""
    progress = Progress(run, quiet=request.as_json)
    with ctrl_c_asks() as asked, opened(run, request, progress.tell, asked.is_set) as session:
        progress.begin(run.status().update)
        session.go()
        interrupted = asked.is_set()
    print(json.dumps(summary(run)) if request.as_json else progress.closing())
    return INTERRUPTED if interrupted else 0


@contextmanager
def opened(
    run: RunFolder,
    request: Finetune,
    tell: Callable[[dict[str, Any]], None],
    stop: Callable[[], bool],
) -> "Iterator[Session]":
    """The run with its model, prompts and verifier. Raises RunError when the base is another one
    by now."""
    from engine.generate import Engine
    from finetune.prompts import read_prompts
    from finetune.session import Session
    from finetune.trainer import Trainer

    info = run.info()
    check_unchanged(run)
    engine = Engine.load(info.base, device=request.device, activations="bf16")
    prompts = fitting(engine, read_prompts(run.prompts).prompts)
    held = [prompt for prompt in prompts if prompt.id in info.held_out]
    training = [prompt for prompt in prompts if prompt.id not in info.held_out]
    with open_verifier(prompts, info.prompts, run_code=request.run_code) as verifier:
        trainer = Trainer(engine, training, verifier, info.config)
        yield Session(run, trainer, held, tell=tell, stop=stop)


def check_unchanged(run: RunFolder) -> None:
    """Raises RunError when the run's base is not there or not what it was."""
    from engine.checkpoint.revision import revision

    info = run.info()
    if not Path(info.base).is_dir():
        raise RunError(f"The model of {run.name} is no longer at {info.base}; put it back there.")
    if revision(info.base) != info.revision:
        raise RunError(
            f"The checkpoint {info.base} has changed since {run.name} began, so the run cannot go "
            "on; start a new one."
        )


def detach(run: RunFolder, request: Finetune) -> int:
    """Start a process of its own that goes on with the run, and see it begin."""
    options = ["--device", request.device, *(["--run-code"] if request.run_code else [])]
    command = cli_command("finetune", "--resume", str(run.path.resolve()), *options)
    with (run.path / LOG).open("ab") as log:
        before = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=run.path,
            # The log of a run that crashes in native code then says so.
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        )
    end = time.monotonic() + DETACH_SECONDS
    while time.monotonic() < end and process.poll() is None and run.status().pid != process.pid:
        time.sleep(0.05)
    if process.poll() not in (None, 0):
        words = _last_words(run, before, process.returncode)
        _drop_unbegun(run, request)
        raise CommandError(words)
    if request.as_json:
        print(json.dumps({**summary(run), "pid": process.pid}))
        return 0
    name = shlex.quote(called(run))
    look = "orl-chat runs" if name == shlex.quote(run.name) else str(run.path.absolute() / LOG)
    told = [f"{run.name} trains in the background (pid {process.pid}).", f"see:   {look}"]
    print(printable("\n".join([*told, f"stop:  orl-chat runs stop {name}"])))
    return 0


def _last_words(run: RunFolder, before: int, code: int) -> str:
    """Why a process that wrote into the log from byte `before` on could not go on with the run."""
    if code < 0:
        return f"The process of the run {run.name} was ended by {signal.Signals(-code).name}."
    with (run.path / LOG).open("rb") as log:
        log.seek(before)
        lines = log.read().decode("utf-8", "replace").splitlines()
    return lines[-1] if lines else f"The run {run.name} ended at once."


def try_step(request: Finetune) -> int:
    """Measure one update of such a run, and forget it."""
    from app.commands.dry_step import DryStep, dry_step

    if request.prompts is None:
        raise CommandError("Name a file of prompts to try one update on.")
    folder = resolve_model(request.model)
    prompts = usable_prompts(request.prompts)
    config = run_config(request, folder.path, len(prompts))
    step = DryStep(
        folder, request.prompts, config, request.device, request.run_code, request.as_json,
        request.progress,
    )  # fmt: skip
    return dry_step(step, prompts)


def plan(request: Finetune) -> int:
    """Say what a run would take, without reading a weight."""
    from app.commands.finetune_plan import show

    folder = resolve_model(request.model)
    prompts = len(usable_prompts(request.prompts)) if request.prompts is not None else 2
    config = run_config(request, folder.path, prompts)
    return show(folder, config, as_json=request.as_json)
