"""`orl-chat export`: a run's best adapter as a folder of its own, or merged into its checkpoint,
which may be quantised on the way."""

import shutil
import tempfile
from pathlib import Path

from app.commands.finetune import check_unchanged, find_run
from app.commands.running import CommandError
from finetune.runs import RunFolder, whole_folder

_NOT_EXPORTED = ("check.json",)


def export(name: str, destination: str, *, merge: bool = False, quantize: bool = False) -> int:
    """Write the run's best checkpoint to `destination`; the exit code."""
    run = find_run(name)
    whole = run.info().config.train == "full"
    if quantize and not (merge or whole):
        raise CommandError("Only a whole model can be quantised; add --merge.")
    best = run.best()
    if best is None:
        raise CommandError(f"{run.name} has no checkpoint yet; wait for its first check.")
    target = Path(destination)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandError(f"{destination} is there already and not empty; name another folder.")
    if quantize:
        _merge_and_quantise(run, best, target)
    elif merge and not whole:
        _merge(run, best, target)
    else:
        _copy(best, target)
    option = f"--model {destination}" if merge or whole else f"--adapter {destination}"
    print(f"{destination} holds update {int(best.name)} of {run.name}; use it with {option}")
    return 0


def _copy(best: Path, target: Path) -> None:
    with whole_folder(target.absolute()) as folder:
        for file in best.iterdir():
            if file.name not in _NOT_EXPORTED:
                shutil.copy(file, folder / file.name)


def _merge_and_quantise(run: RunFolder, best: Path, target: Path) -> None:
    """The whole model in NVFP4. Its bf16 form lies beside it meanwhile, and is removed."""
    from app.commands.quantize import Quantization, quantize

    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.absolute().parent) as beside:
        whole = Path(beside) / "whole"
        if run.info().config.train == "full":
            _copy(best, whole)
        else:
            _merge(run, best, whole)
        quantize(Quantization(str(whole), str(target)), quiet=True)


def _merge(run: RunFolder, adapter: Path, target: Path) -> None:
    """Base and adapter as one checkpoint, checked to say what the two of them say."""
    import torch

    from engine.generate import Engine
    from finetune.merge import save_merged

    check_unchanged(run)
    base = Path(run.info().base)
    engine = Engine.load(base, device="cpu", adapter=adapter)
    ids = torch.arange(min(256, engine.config.vocab_size // 2))
    before = engine.logits(ids)
    with whole_folder(target.absolute()) as folder:
        save_merged(engine, base, folder)
        after = Engine.load(folder, device="cpu").logits(ids)
        # Merged weights are rounded to the checkpoint's type once more.
        if (before - after).abs().max() > 0.05 * before.abs().max():
            raise CommandError("The merged model does not say what base and adapter say together.")
