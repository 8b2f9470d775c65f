"""Whether a model fits, in words: for the hardware table, and as the refusal before a load."""

from pathlib import Path

from engine.config import ModelConfig, read_json
from engine.machine.facts import DISPLAY_RESERVE, Card, Process, Row, State, System
from engine.machine.memory_plan import (
    LINEARS,
    SHORT_CONTEXT,
    UNQUANTISED,
    Fit,
    Kind,
    MemoryPlan,
    memory_plan,
)
from engine.machine.system import read_system

_NAMED_PROCESSES = 4
_QUICK = 2 << 30  # bytes of a model that a processor is fast enough for, its runtime included


class NotEnoughRoomError(ValueError):
    """A model that will not fit; nothing was loaded. The message says what to do."""


def gib(count: float) -> str:
    """Bytes as text, in GiB."""
    return f"{count / 2**30:.1f} GiB"


def room(card: Card | None, system: System) -> int | None:
    """Bytes a model may take of the card, or of the machine's memory without one; None: unknown."""
    if card is None or card.unified:
        return system.memory_free
    return card.spare


def require_room_for(folder: Path, device: str, width: int) -> None:
    """`require_room` for the checkpoint in `folder` and what is free on `device` now.

    Raises:
        NotEnoughRoomError: as `require_room`.
        CheckpointError: config.json cannot be used.
    """
    config, quantised = ModelConfig.from_pretrained(folder), quantised_in(folder)
    require_room(config, device=device, free=_free_now(device), width=width, quantised=quantised)


def _free_now(device: str) -> int:
    """Free bytes by CUDA itself, which takes the context there that the load needs anyway."""
    if device == "cpu":
        return read_system().memory_free
    import torch

    free: int = torch.cuda.mem_get_info(torch.device(device))[0]
    return free


def quantised_in(folder: Path) -> frozenset[Kind]:
    """The most that a checkpoint may hold in NVFP4, by its own word: a refusal must be certain."""
    declared = read_json(folder / "config.json").get("quantization_config")
    return LINEARS if declared or (folder / "hf_quant_config.json").exists() else UNQUANTISED


def require_room(
    config: ModelConfig,
    *,
    device: str,
    free: int,
    width: int,
    quantised: frozenset[Kind] = UNQUANTISED,
) -> None:
    """Refuse a model of which even a short chat does not fit into `free` bytes of `device`.

    On Windows a card's driver moves what does not fit to the machine's memory, and Linux moves
    memory to disk: neither fails, both crawl, so it has to be said before.

    Raises:
        NotEnoughRoomError: with what is needed by part, what is free and what to do.
    """
    plan = memory_plan(
        config, quantised, device=device, width=width, context_length=SHORT_CONTEXT, running=True
    )
    if plan.total <= free:
        return
    where = "of memory" if device == "cpu" else f"on {device}"
    raise NotEnoughRoomError(
        f"This model needs {gib(plan.total)} {where} ({parts(plan)}), and {gib(free)} are free. "
        "Close programs that hold memory, choose a smaller model, or load it all the same with "
        "orl-chat ask --allow-spill, which may fail or be very slow."
    )


def parts(plan: MemoryPlan) -> str:
    """A plan's parts in GiB, in one line."""
    named = (f"{part.name} {part.bytes / 2**30:.1f}" for part in plan.parts)
    return ", ".join(named)


def chat_row(model: str, fit: Fit, card: Card | None, system: System) -> Row:
    """What chat with `model` takes against what is free, before anything is loaded."""
    name, found = "Chat memory", _needed(model, fit, card)
    if fit.free is None:
        return Row(name, "warn", found)
    if fit.fits:
        found += f", enough for {fit.context:,} tokens of context"
        slow = card is None and fit.plan.total > _QUICK
        return Row(name, "ok", f"{found}, but a processor is very slow with it" if slow else found)
    found, need = found + held_by(card), f"{gib(fit.missing)} more"
    if fit.usable:
        return Row(name, "warn", found, need, f"a context of up to {fit.context:,} tokens fits.")
    state: State = "no" if card else "warn"  # nobody expects it of a processor
    return Row(name, state, found, need, _make_room(fit, card, system))


def finetune_row(model: str, fit: Fit, card: Card | None, system: System) -> Row:
    """What finetuning `model` takes, by estimate. Nobody trains it on a processor."""
    name = "Finetune memory"
    if card is None and fit.plan.total > _QUICK:
        return Row(name, "warn", f"{model} is too large for a processor; the demo model is not")
    found = f"by estimate {_needed(model, fit, card)}"
    if fit.fits:
        return Row(name, "ok" if fit.free is not None else "warn", found)
    return Row(name, "no", found, f"{gib(fit.missing)} more", _make_room(fit, card, system))


def _needed(model: str, fit: Fit, card: Card | None) -> str:
    where = "of this machine's memory" if card is None else f"on {card.label}"
    free = "what is free is not known" if fit.free is None else f"{gib(fit.free)} free"
    needs = f"{model} needs {gib(fit.plan.total)} {where} ({parts(fit.plan)})"
    return f"{needs}; {free}{_reserved(card)}"


def _reserved(card: Card | None) -> str:
    return f" after {gib(DISPLAY_RESERVE)} for the display" if card and card.display else ""


def held_by(card: Card | None) -> str:
    """Who holds the card's memory, by name."""
    if card is None or not card.processes:
        return ""
    named = ", ".join(_process(process) for process in card.processes[:_NAMED_PROCESSES])
    more = len(card.processes) - _NAMED_PROCESSES
    return f"; held by {named}" + (f" and {more} more" if more > 0 else "")


def _process(process: Process) -> str:
    return process.name if process.memory is None else f"{process.name} ({gib(process.memory)})"


def _make_room(fit: Fit, card: Card | None, system: System) -> str:
    if card is None:
        return "use the demo model, or a machine with more memory."
    if card.total is not None and fit.plan.total > card.total:
        return "this card is too small for it: use the demo model, or another card."
    close = f"close {card.processes[0].name}" if card.processes else "close what uses this card"
    spill = (
        "it spills into slow memory" if system.wsl or system.name == "Windows" else "it may fail"
    )
    return f"{close}, or load it all the same with --allow-spill ({spill})."
