"""Which device is there, what it can do, and what is missing, in words.

Importable without torch; torch is imported only to ask it what it was built for. The work is in
`engine/machine`: facts are read from three sources, and everything said here follows from them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine.config import ModelConfig
from engine.machine.cards import Fp4, choose, fp4_plan, merge
from engine.machine.facts import Card, Facts, Row, State, System
from engine.machine.memory_plan import (
    EXPERTS,
    MINI,
    SHORT_CONTEXT,
    Fit,
    Kind,
    MemoryPlan,
    memory_plan,
)
from engine.machine.nvml import import_nvml, read_driver
from engine.machine.room import chat_row, finetune_row, room
from engine.machine.rows_cards import card_rows, why_not
from engine.machine.rows_driver import driver_rows, has_conditional_nodes
from engine.machine.rows_software import best_on_bus, blocking_rows, software_rows
from engine.machine.system import read_system
from engine.machine.torch_build import free_memory, import_torch, read_torch

if TYPE_CHECKING:
    import torch

__all__ = ["Card", "Hardware", "Row", "Sources", "State", "pick_device", "probe", "set_threads"]


@dataclass(frozen=True)
class Sources:
    """Where facts come from; tests put stand-ins here.

    `nvml` and `torch` give the modules `pynvml` and `torch`, or raise.
    """

    nvml: Callable[[], Any] = import_nvml
    torch: Callable[[], Any] = import_torch
    system: Callable[[], System] = read_system


@dataclass(frozen=True)
class Large:
    """The model that the machine is measured by: its name, its numbers, what of it is NVFP4.

    `finetuning` plans the memory of a run (for the model, what of it is NVFP4, and "cpu" or
    "cuda"); it comes from whoever finetunes. Without it nothing is said of finetuning.
    """

    name: str = "LLaDA2.1-mini in NVFP4"
    config: ModelConfig = MINI
    quantised: frozenset[Kind] = EXPERTS
    finetuning: Callable[[ModelConfig, frozenset[Kind], str], MemoryPlan] | None = None

    def fits(self, card: Card | None, system: System) -> tuple[Fit, Fit | None]:
        """Chat and finetuning held against the free memory of `card`, or of the machine."""
        device, longest = "cpu" if card is None else "cuda", self.config.max_position_embeddings
        free = room(card, system)
        chat = memory_plan(self.config, self.quantised, device=device)
        if self.finetuning is None:
            return Fit(chat, free, longest), None
        finetune = self.finetuning(self.config, self.quantised, device)
        return Fit(chat, free, longest), Fit(finetune, free, longest)


@dataclass(frozen=True)
class Hardware:
    """The machine in rows, and in one sentence. `device` is what "auto" means here.

    Attributes:
        can_chat, can_finetune: with any model; the demo on the processor counts.
        gpu: the card that is used, None for the processor; `gpus` are all there are.
        chat_memory, finetune_memory: what the large model takes against what is free.
        runs_large, finetunes_large: on the card that is used, it fits.
        fp4: how that card multiplies NVFP4 weights.
        conditional_nodes: a CUDA graph can loop by itself.
        streaming: whether each step can be shown from within a running graph, or each block.
    """

    rows: tuple[Row, ...]
    device: str
    can_chat: bool
    can_finetune: bool
    summary: str
    gpu: Card | None = None
    gpus: tuple[Card, ...] = ()
    chat_memory: Fit | None = None
    finetune_memory: Fit | None = None
    runs_large: bool = False
    finetunes_large: bool = False
    fp4: Fp4 | None = None
    conditional_nodes: bool = False
    streaming: Literal["step", "block"] = "step"
    versions: dict[str, str | None] = field(default_factory=dict)


def pick_device(device: str) -> torch.device:
    """The torch device for "auto", "cpu", "cuda" or "cuda:N". Raises ValueError in words."""
    import torch

    if device == "auto":
        return torch.device(_auto_device(torch))
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}") from error
    if target.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("No CUDA device can be used here; run `orl-chat doctor` to see why.")
    if target.type == "cuda" and (target.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"There is no {device}; this machine has {torch.cuda.device_count()}.")
    return target


def _auto_device(torch: Any) -> str:
    """What `probe` calls `device`; without a card nothing else has to be asked."""
    if not torch.cuda.is_available():
        return "cpu"
    facts = look(Sources())
    return _device(choose(facts.cards, facts.torch, _need(Large())))


_ONE_THREAD = 20_000_000


def set_threads(parameters: int) -> None:
    """Choose torch's threads in this process for a model of so many parameters on the CPU.

    A small model's products are over before a second thread has woken up, and the threads then
    wait for each other in a busy loop (measured in tests/benchmarks/README.md). OMP_NUM_THREADS,
    where the user has set it, stands.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ and parameters < _ONE_THREAD:
        torch.set_num_threads(1)


def look(sources: Sources) -> Facts:
    """Read all sources; never raises for what they hold or lack."""
    driver = read_driver(sources.nvml)
    torch = read_torch(sources.torch)
    cards = merge(driver.cards, torch.devices, lambda index: free_memory(sources.torch, index))
    return Facts(sources.system(), driver, torch, cards)


def probe(sources: Sources | None = None, large: Large | None = None) -> Hardware:
    """Look at the machine and say whether `large` (LLaDA2.1-mini in NVFP4) runs on it. Imports
    torch; never raises for what it finds, loads nothing and computes nothing."""
    large = large or Large()
    facts = look(sources or Sources())
    card = choose(facts.cards, facts.torch, _need(large))
    chat, finetune = large.fits(card, facts.system)
    usable = not (blocking := blocking_rows(facts))
    runs_large = usable and card is not None and chat.usable
    finetunes_large = usable and card is not None and finetune is not None and finetune.fits
    rows = (
        *software_rows(facts),
        *driver_rows(facts),
        *card_rows(facts, card),
        chat_row(large.name, chat, card, facts.system),
        *((finetune_row(large.name, finetune, card, facts.system),) if finetune else ()),
    )
    return Hardware(
        rows=rows,
        device=_device(card),
        can_chat=usable,
        can_finetune=usable,
        summary=_blocked(blocking[0]) if blocking else _summary(large, facts, card, chat, finetune),
        gpu=card,
        gpus=facts.cards,
        chat_memory=chat,
        finetune_memory=finetune,
        runs_large=runs_large,
        finetunes_large=finetunes_large,
        fp4=None if card is None or facts.torch.rocm else fp4_plan(card.capability),
        conditional_nodes=has_conditional_nodes(facts.driver),
        streaming="block" if facts.system.wsl else "step",
        versions=_versions(facts),
    )


def _need(large: Large) -> int:
    """Bytes for the shortest chat with it on a card."""
    plan = memory_plan(large.config, large.quantised, context_length=SHORT_CONTEXT)
    return plan.total


def _device(card: Card | None) -> str:
    return "cpu" if card is None else f"cuda:{card.torch_index}"


def _blocked(row: Row) -> str:
    return f"orl-chat cannot run here: {row.name} {row.found}. To mend it: {row.fix}"


def _summary(large: Large, facts: Facts, card: Card | None, chat: Fit, finetune: Fit | None) -> str:
    if card is None:
        why = "No NVIDIA card can be used here"
        if facts.cards:
            best = best_on_bus(facts.cards)
            why = f"{best.label} ({best.name}) cannot be used: {why_not(best, facts)[0]}"
        return (
            f"{why}, so the demo model runs on the processor: "
            "a real block-diffusion model, but a very small one."
        )
    where = f"{card.label} ({card.name})"
    if not chat.usable:
        return (
            f"{where} has too little free memory for {large.name}; "
            "the demo model runs, a real block-diffusion model, but a very small one."
        )
    if finetune is None:
        return f"Chat with {large.name} can run on {where}."
    if not finetune.fits:
        return f"Chat with {large.name} can run on {where}; for finetuning it memory is too short."
    return f"Chat with {large.name} and finetuning it can run on {where}."


def _versions(facts: Facts) -> dict[str, str | None]:
    """What a bug report needs to name."""
    cuda, driver = facts.torch.cuda, facts.driver.cuda
    return {
        "python": ".".join(map(str, facts.system.python)),
        "torch": facts.torch.version,
        "torch_cuda": None if cuda is None else f"{cuda[0]}.{cuda[1]}",
        "driver": facts.driver.version,
        "driver_cuda": None if driver is None else f"{driver[0]}.{driver[1]}",
        "triton": facts.system.triton,
    }
