"""The machine around the cards: system, cores, memory, power, and who may open what."""

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import psutil

from engine.machine.facts import System

_DEVICE_FILES = ("nvidiactl", "nvidia-uvm")
_CGROUP = Path("/sys/fs/cgroup")
_NVIDIA = "0x10de"  # its PCI vendor id


def read_system() -> System:
    """What can be learnt without asking a driver; never raises."""
    memory, free, limited = _memory()
    denied, group = _denied()
    release = platform.release()
    return System(
        python=sys.version_info[:3],
        name=platform.system(),
        release=release,
        architecture=platform.machine(),
        distribution=_distribution(),
        wsl="microsoft" in release.lower(),
        container=any(Path(name).exists() for name in ("/.dockerenv", "/run/.containerenv")),
        cores=_cores(),
        memory=memory,
        memory_free=free,
        limited=limited,
        on_battery=_on_battery(),
        nvidia_on_bus=_nvidia_on_bus(),
        denied=denied,
        denied_group=group,
        no_uvm=Path("/dev/nvidiactl").exists() and not Path("/dev/nvidia-uvm").exists(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        uv_tool=Path(sys.prefix, "uv-receipt.toml").is_file(),
        triton=installed_version("triton"),
    )


def installed_version(distribution: str) -> str | None:
    """A distribution's version by its metadata, which imports nothing; None: not installed."""
    try:
        return metadata.version(distribution)
    except Exception:
        return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> tuple[int, int, bool]:
    """Bytes in all, bytes free, and whether a container's limit is what counts."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    limit, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if not (limit.isdigit() and used.isdigit()) or int(limit) >= total:
        return total, free, False
    # File pages that nobody uses count as the container's until somebody needs the room.
    cache = dict(
        line.split() for line in _read(_CGROUP / "memory.stat").splitlines() if line.count(" ") == 1
    )
    held = int(used) - int(cache.get("inactive_file", 0))
    return int(limit), max(min(free, int(limit) - held), 0), True


def _on_battery() -> bool | None:
    try:
        battery = psutil.sensors_battery()
    except Exception:  # not on every platform, and some firmware lies
        return None
    return None if battery is None or battery.power_plugged is None else not battery.power_plugged


def _nvidia_on_bus() -> bool:
    """Display controllers (class 03) of NVIDIA on the PCI bus of a Linux machine."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        if _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith("0x03"):
            return True
    return False


def _denied() -> tuple[tuple[str, ...], str]:
    """Device files of the driver that may not be opened, and the group that may."""
    files = [Path("/dev", name) for name in _DEVICE_FILES]
    files += sorted(Path("/dev").glob("nvidia[0-9]*"))
    closed = [file for file in files if file.exists() and not os.access(file, os.R_OK | os.W_OK)]
    if not closed:
        return (), ""
    try:
        group = closed[0].group()
    except (OSError, KeyError, NotImplementedError):
        group = ""
    return tuple(str(file) for file in closed), group


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
