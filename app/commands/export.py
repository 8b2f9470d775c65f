"""`orl-chat export`: a run's best adapter as a folder of its own, or merged into its checkpoint,
which may be quantised on the way."""

import contextlib
import json
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from app.commands.finetune import check_unchanged
from app.commands.running import CommandError
from app.commands.steps import Steps
from app.runs import find_run
from app.text import printable
from finetune.files import whole_folder
from finetune.runs import RunFolder

_NOT_EXPORTED = ("check.json",)
MERGED_ERROR = 0.02
"""Largest difference of the logits, as a share of them (root mean square)."""


@dataclass(frozen=True)
class Export:
    """Which run, where to, and in which form."""

    run: str
    destination: str
    merge: bool = False
    quantize: bool = False
    as_json: bool = False
    progress: bool = False


def export(request: Export) -> int:
    """Write the run's best checkpoint to the destination; the exit code."""
    run, destination = find_run(request.run), request.destination
    whole = run.info().config.train == "full"
    if request.quantize and not (request.merge or whole):
        raise CommandError("Only a whole model can be quantised; add --merge.")
    best = run.best()
    if best is None:
        raise CommandError(f"The run {run.name} has no checkpoint yet; wait for its first check.")
    target = Path(destination).resolve()
    part = target.with_name(target.name + ".part")  # where it is written first
    for place, taken in ((destination, _is_taken(target)), (str(part), _is_taken(part))):
        if taken:
            raise CommandError(f"There is something at {place} already; name another folder.")
    steps = Steps(request.progress)
    if request.quantize:
        # Its table is for people; where programs read, it goes to stderr.
        quietly = contextlib.redirect_stdout(sys.stderr)
        with quietly if request.as_json else contextlib.nullcontext():
            _merge_and_quantise(run, best, target, steps)
    elif request.merge and not whole:
        _merge(run, best, target, steps)
    else:
        _copy(best, target)
    option = "--model" if request.merge or whole else "--adapter"
    told = f"{destination} holds update {int(best.name)} of {run.name}; use it with {option} "
    told += shlex.quote(destination)
    print(json.dumps({"folder": destination, "told": told}) if request.as_json else printable(told))
    return 0


def _is_taken(path: Path) -> bool:
    """Whether writing a folder at `path` would take the place of something."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def _copy(best: Path, target: Path) -> None:
    with whole_folder(target) as folder:
        for file in best.iterdir():
            if file.name not in _NOT_EXPORTED:
                shutil.copy(file, folder / file.name)


def _merge_and_quantise(run: RunFolder, best: Path, target: Path, steps: Steps) -> None:
    """The whole model in NVFP4. Its bf16 form lies beside it meanwhile, and is removed."""
    from app.commands.quantize import Quantization, quantize

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as beside:
        whole = Path(beside) / "whole"
        if run.info().config.train == "full":
            _copy(best, whole)
        else:
            _merge(run, best, whole, steps)
        tell = None if not steps.wanted else lambda done, of: steps.tell("packing", done, of)
        quantize(Quantization(str(whole), str(target)), quiet=True, progress=tell)


def _merge(run: RunFolder, adapter: Path, target: Path, steps: Steps) -> None:
    """Base and adapter as one checkpoint, checked to say what the two of them say."""
    import torch

    from engine.generate import Engine
    from finetune.merge import save_merged

    steps.tell("merging")
    check_unchanged(run)
    base = Path(run.info().base)
    engine = Engine.load(base, device="cpu", adapter=adapter)
    ids = torch.arange(min(256, engine.config.vocab_size // 2))
    before = engine.logits(ids)
    with whole_folder(target) as folder:
        save_merged(engine, base, folder)
        steps.tell("checking the merged model")
        after = Engine.load(folder, device="cpu").logits(ids)
        # Merged weights are rounded to the checkpoint's type once more, which flips an expert here
        # and there: that moves single positions far, and the whole little.
        if (before - after).norm() > MERGED_ERROR * before.norm():
            raise CommandError("The merged model does not say what base and adapter say together.")
