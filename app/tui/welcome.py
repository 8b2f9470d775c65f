"""The words of the start card: what this machine can do, what the model is, what to ask it.

Nothing here waits: the facts are those that a file tells at once. What the engine found out
replaces them when it is ready.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from app.models import BUILT_IN
from app.protocol import Ready
from app.tui.figures import size
from app.tui.state import EngineState

TAGLINE = "The model writes a whole block at once, then repairs it."

DEMO_QUESTIONS = (
    "What is 47 + 38?",
    "Tom has 23 apples and buys 48 more. How many apples does Tom have now?",
    "Sort these numbers: 42, 7, 19, 88, 3",
    "How do you work?",
)
QUESTIONS = (
    "Write a Python function that merges two sorted lists.",
    "Explain block diffusion to a programmer in five sentences.",
    "A train leaves at 9:40 and arrives at 13:05. How long does it take?",
    "Turn this into JSON: Ada Lovelace, born 1815, mathematician.",
)

_GPU_FOLDER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Machine:
    """What can be known without a library: cores, memory in bytes, names of NVIDIA cards."""

    cores: int
    memory: int
    gpus: tuple[str, ...]


def this_machine(gpu_folder: Path = _GPU_FOLDER) -> Machine:
    """Look."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        memory = 0
    return Machine(cores or 1, memory, _gpu_names(gpu_folder))


def _gpu_names(folder: Path) -> tuple[str, ...]:
    names = []
    for path in sorted(folder.glob("*/information")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        names += [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model:")]
    return tuple(names)


def is_demo(ready: Ready) -> bool:
    """Whether the model is the small one that comes with the program."""
    return ready.model in BUILT_IN


def machine_words(machine: Machine, ready: Ready | None) -> str:
    """What this machine can do, in words."""
    cores = f"{machine.cores} CPU core{'s' if machine.cores != 1 else ''}"
    memory = f" and {size(machine.memory)} of memory" if machine.memory else ""
    if machine.gpus:
        cards = ", ".join(machine.gpus)
        if ready is not None and ready.device.startswith("cpu"):
            return f"{cards} is here, but the model runs on the CPU ({cores})."
        return f"{cards}, {cores}{memory}."
    return f"{cores}{memory}, no NVIDIA GPU: enough for the demo model. LLaDA2.1-mini wants a GPU."


def model_words(engine: EngineState) -> str:
    """What answers, in words."""
    ready = engine.ready
    if ready is None and not engine.coming:
        return "None is loaded. Sending a message starts the engine again."
    if ready is None:
        return "The engine is loading it. You can type meanwhile: the first message waits."
    if is_demo(ready):
        return (
            "The demo: a real block-diffusion model, but a very small one, with "
            f"{parameters(ready.parameters)} parameters. It does sums, word problems, lists, "
            "units and a few facts; it knows nothing else, and makes mistakes."
        )
    return f"{ready.model}: {parameters(ready.parameters)} parameters, {ready.dtype}."


def questions(ready: Ready | None) -> tuple[str, ...]:
    """Things to ask that show something."""
    return QUESTIONS if ready is not None and not is_demo(ready) else DEMO_QUESTIONS


def parameters(number: int) -> str:
    """`16.3 billion`, `2.6 million`."""
    for name, scale in (("billion", 1e9), ("million", 1e6)):
        if number >= scale:
            return f"{number / scale:.1f} {name}"
    return f"{number:,}"
