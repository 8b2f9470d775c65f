"""NVIDIA's management library, read through nvidia-ml-py into plain data.

It answers where CUDA does not (a CPU build of torch, a driver that is too old) and takes no memory
of any card. Every figure is optional: laptops, MIG instances, WSL and unified memory each lack
some.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from engine.machine.facts import Card, Driver, Process, Trouble

# NVML's return codes (nvml.h), those that have a remedy of their own.
_TROUBLES: dict[int, Trouble] = {
    4: "no rights",
    8: "power",
    9: "not loaded",
    12: "no library",
    15: "lost",
    16: "lost",  # needs a reset
    17: "no rights",  # the operating system (a container's device rules) refuses
    18: "version mismatch",
}
_MEMORY_CLOCK = 2  # NVML_CLOCK_MEM
# Cards that compute in the machine's own memory, for which NVML has no figures.
_UNIFIED = {(8, 7), (11, 0), (12, 1)}


def import_nvml() -> Any:
    """The `pynvml` module. Raises ImportError."""
    import pynvml

    return pynvml


def read_driver(load: Callable[[], Any] = import_nvml) -> Driver:
    """What NVML knows of the driver and its cards; never raises."""
    try:
        nvml = load()
    except Exception as error:
        return Driver(trouble="no package", detail=_words(error))
    try:
        nvml.nvmlInit()
    except Exception as error:
        return Driver(trouble=_trouble(error), detail=_words(error))
    try:
        return _read(nvml)
    except Exception as error:
        return Driver(trouble=_trouble(error), detail=_words(error))
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def _read(nvml: Any) -> Driver:
    number = ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    if number is None:
        number = ask(nvml, "nvmlSystemGetCudaDriverVersion")
    version = ask(nvml, "nvmlSystemGetDriverVersion")
    cards: list[Card] = []
    trouble: Trouble | None = None
    detail = ""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:  # one dead card must not hide the others
            trouble, detail = _trouble(error), f"GPU {index}: {_words(error)}"
        else:
            cards += _read_cards(nvml, handle, index)
    cuda = None if not isinstance(number, int) else (number // 1000, number % 1000 // 10)
    return Driver(_text(version) or None, cuda, tuple(cards), trouble, detail)


def _read_cards(nvml: Any, handle: Any, index: int) -> list[Card]:
    """The card, or its MIG instances when it is in that mode and has some."""
    card = _read_card(nvml, handle, index)
    mode = ask(nvml, "nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != 1:
        return [card]
    count = ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = (ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(count))
    instances = [_read_card(nvml, part, index, whole=card) for part in found if part is not None]
    return instances or [_read_card(nvml, handle, index, mig_empty=True)]


def _read_card(
    nvml: Any, handle: Any, index: int, *, whole: Card | None = None, mig_empty: bool = False
) -> Card:
    """The card behind `handle`; a MIG instance of `whole` has that one's capability."""
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    if whole is not None:
        capability = whole.capability
    capability = tuple(capability) if capability else None
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    total = getattr(memory, "total", None) or None
    return Card(
        index=index,
        uuid=_text(ask(nvml, "nvmlDeviceGetUUID", handle)),
        name=_text(ask(nvml, "nvmlDeviceGetName", handle)) or "NVIDIA card",
        capability=capability,
        total=total,
        free=memory.free if total else None,
        parent="" if whole is None else whole.uuid,
        unified=total is None and capability in _UNIFIED,
        display=ask(nvml, "nvmlDeviceGetDisplayActive", handle) == 1,
        mig_empty=mig_empty,
        power_limit=_watts(ask(nvml, "nvmlDeviceGetPowerManagementLimit", handle)),
        power_default=_watts(ask(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        bandwidth=_bandwidth(nvml, handle),
        processes=_processes(nvml, handle),
    )


def _bandwidth(nvml: Any, handle: Any) -> float | None:
    """Peak of the card's memory in bytes/s: two transfers a clock, over the whole bus."""
    bits = ask(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    megahertz = ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, _MEMORY_CLOCK)
    return 2.0 * bits / 8 * megahertz * 1e6 if bits and megahertz else None


def _processes(nvml: Any, handle: Any) -> tuple[Process, ...]:
    """Other programs on the card, the largest first. One may be listed as computing and as
    drawing; it counts once."""
    memory: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):
        for entry in ask(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            used = getattr(entry, "usedGpuMemory", None)
            memory[entry.pid] = max(used or 0, memory.get(entry.pid) or 0) or None
    memory.pop(os.getpid(), None)
    found = (Process(_process_name(nvml, pid), used) for pid, used in memory.items())
    return tuple(sorted(found, key=lambda process: -(process.memory or 0)))


def _process_name(nvml: Any, pid: int) -> str:
    """The program's file name: its folder and arguments are nobody's business."""
    command = _text(ask(nvml, "nvmlSystemGetProcessName", pid))
    path = command.split(" -", 1)[0].split("\0", 1)[0].strip()
    name = path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return name.split(" ", 1)[0] or f"process {pid}"


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """NVML's answer to a question by the function's name, or None: for this card, driver or
    package there is none."""
    try:
        return getattr(nvml, name)(*arguments)
    except Exception:
        return None


def _watts(milliwatts: Any) -> float | None:
    return milliwatts / 1000 if milliwatts else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _trouble(error: Exception) -> Trouble:
    return _TROUBLES.get(getattr(error, "value", 0), "other")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
