"""Which device is there, what it can do, and what is missing, in words.

Importable without torch; torch is imported only to ask it what it was built for.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Literal

import psutil

if TYPE_CHECKING:
    import torch

State = Literal["ok", "warn", "no"]


@dataclass(frozen=True)
class Row:
    """One thing that was looked at: what was found, what is needed, and how to mend it."""

    name: str
    state: State
    found: str
    need: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Hardware:
    """The machine in rows, and in one sentence. `device` is what "auto" means here."""

    rows: tuple[Row, ...]
    device: str
    can_chat: bool
    can_finetune: bool
    summary: str


def pick_device(device: str) -> torch.device:
    """The torch device for "auto", "cpu", "cuda" or "cuda:N". Raises ValueError in words."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
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


def probe() -> Hardware:
    """Look at the machine. Imports torch; never raises for what it finds."""
    rows = [_python_row(), _cpu_row(), _memory_row(), _torch_row(), _gpu_row()]
    gpu = rows[-1].state == "ok"
    usable = all(row.state != "no" for row in rows)
    device = "cuda" if gpu else "cpu"
    if not usable:
        summary = "orl-chat cannot run here: " + next(r.fix for r in rows if r.state == "no")
    elif gpu:
        summary = "Chat runs on the graphics card, in plain torch operations."
    else:
        summary = (
            "No NVIDIA card can be used here, so the demo model runs on the processor: "
            "a real block-diffusion model, but a very small one."
        )
    return Hardware(tuple(rows), device, usable, usable, summary)


def _python_row() -> Row:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    ok = sys.version_info >= (3, 11)
    return Row("Python", "ok" if ok else "no", found, "3.11 or newer", "install Python 3.11.")


def _cpu_row() -> Row:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Row("Processor", "ok", f"{cores} cores usable")


def _memory_row() -> Row:
    memory = psutil.virtual_memory()
    found = f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free"
    enough = memory.available > 2**30
    return Row(
        "Memory", "ok" if enough else "warn", found, "1 GiB free for the demo", "close programs."
    )


def _torch_row() -> Row:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Row("PyTorch", "no", f"does not import ({error})", "2.11", "reinstall torch.")
    version = metadata.version("torch")
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    state: State = "ok" if release >= (2, 11) else "no"
    return Row("PyTorch", state, f"{version}, {build}", "2.11 or newer", "upgrade torch.")


def _gpu_row() -> Row:
    try:
        import torch

        if not torch.cuda.is_available():
            return Row("Graphics card", "warn", "none that torch can use", "optional")
        major, minor = torch.cuda.get_device_capability()
        name = torch.cuda.get_device_name()
        free, total = torch.cuda.mem_get_info()
    except Exception as error:  # a broken driver raises whatever it likes
        return Row("Graphics card", "warn", f"cannot be used ({error})", "optional")
    found = f"{name}, compute {major}.{minor}, {total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free"
    return Row("Graphics card", "ok", found, "optional")
