"""What figures were measured under: they mean nothing without."""

import platform
import time
from typing import TYPE_CHECKING, Any

from app.bench.prompts import BenchSet
from app.models import ModelFolder
from app.protocol import Ready
from app.version import VERSION

if TYPE_CHECKING:
    from engine.generate import Engine

Conditions = dict[str, Any]
"""Name to text, number or None; plain data, so that two results can be held side by side."""


def bench_conditions(found: BenchSet, repeat: int, warm_up: int) -> Conditions:
    """When, by which version, and what was asked."""
    return {
        "orl_chat": VERSION,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "prompts": found.name,
        "prompts_hash": found.digest,
        "prompt_count": len(found.prompts),
        "repeat": repeat,
        "warm_up": warm_up,
    }


def engine_conditions(engine: "Engine", folder: ModelFolder, adapter: str | None) -> Conditions:
    """The machine, the software and the checkpoint behind the engine's figures."""
    import torch

    from engine.checkpoint.revision import revision
    from engine.hardware import probe

    hardware = probe()
    card = next((c for c in hardware.gpus if f"cuda:{c.torch_index}" == _device(engine)), None)
    return {
        "model": folder.name,
        "revision": revision(folder.path)[:12],
        "commit": _commit(folder),
        "adapter": adapter,
        "dtype": str(engine.dtype).removeprefix("torch."),
        "device": _device(engine),
        "card": None if card is None else card.name,
        "power_limit_watts": None if card is None else card.power_limit,
        "driver": hardware.versions["driver"],
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "python": hardware.versions["python"],
        "torch": hardware.versions["torch"],
        "cuda": hardware.versions["torch_cuda"],
        "triton": hardware.versions["triton"],
    }


def ready_conditions(ready: Ready) -> Conditions:
    """What an engine process, or a trace of one, tells of itself: not the machine."""
    return {name: getattr(ready, name) for name in ("model", "adapter", "device", "dtype")}


def processor_name() -> str:
    """The processor's model, as the system calls it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return " ".join(value.split())
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine() or "unknown"


def _device(engine: "Engine") -> str:
    device = engine.device
    return f"cuda:{device.index or 0}" if device.type == "cuda" else device.type


def _commit(folder: ModelFolder) -> str | None:
    """The commit of a snapshot in the hub's cache."""
    path = folder.path.resolve()
    return path.name if path.parent.name == "snapshots" else None
