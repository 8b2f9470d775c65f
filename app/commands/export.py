"""`orl-chat export`: a run's best adapter as a folder of its own, or merged into its checkpoint."""

import shutil
from pathlib import Path

from app.commands.finetune import find_run
from app.commands.running import CommandError
from finetune.runs import whole_folder

_NOT_EXPORTED = ("check.json",)


def export(name: str, destination: str, *, merge: bool = False) -> int:
    """Write the run's best checkpoint to `destination`; the exit code."""
    run = find_run(name)
    best = run.best()
    if best is None:
        raise CommandError(f"{run.name} has no checkpoint yet; wait for its first check.")
    target = Path(destination)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandError(f"{destination} is there already and not empty; name another folder.")
    if merge and run.info().config.train != "full":
        _merge(Path(run.info().base), best, target)
        print(f"{destination} holds the whole model; use it with --model {destination}")
        return 0
    with whole_folder(target.absolute()) as folder:
        for file in best.iterdir():
            if file.name not in _NOT_EXPORTED:
                shutil.copy(file, folder / file.name)
    option = "--model" if run.info().config.train == "full" else "--adapter"
    print(f"{destination} holds update {int(best.name)} of {run.name}; use it with {option}")
    return 0


def _merge(base: Path, adapter: Path, target: Path) -> None:
    """Base and adapter as one checkpoint, checked to say what the two of them say."""
    import torch

    from engine.generate import Engine
    from finetune.merge import save_merged

    engine = Engine.load(base, device="cpu", adapter=adapter)
    ids = torch.arange(min(256, engine.config.vocab_size // 2))
    before = engine.logits(ids)
    with whole_folder(target.absolute()) as folder:
        save_merged(engine, base, folder)
        after = Engine.load(folder, device="cpu").logits(ids)
        # Merged weights are rounded to the checkpoint's type once more.
        if (before - after).abs().max() > 0.05 * before.abs().max():
            raise CommandError("The merged model does not say what base and adapter say together.")
