"""What the installed torch was built for and which cards it offers.

torch is imported here, inside of a function, and asked only what takes no memory of a card; the
exception is a card of which NVML says nothing, whose free memory torch alone knows.
"""

import importlib
import re
import warnings
from collections.abc import Callable
from typing import Any

from engine.machine.facts import TorchBuild, TorchDevice, Version


def import_torch() -> Any:
    """The `torch` module. Raises whatever a broken installation does."""
    return importlib.import_module("torch")


def read_torch(load: Callable[[], Any] = import_torch) -> TorchBuild:
    """What torch says of itself and its cards; never raises."""
    with warnings.catch_warnings():
        # torch warns of old drivers and unknown cards; here that becomes a row.
        warnings.simplefilter("ignore")
        try:
            torch = load()
            version, cuda = str(torch.__version__), parse_version(torch.version.cuda)
            rocm = bool(getattr(torch.version, "hip", None))
        except Exception as error:
            return TorchBuild(error=_words(error))
        try:
            if not torch.cuda.is_available():
                return TorchBuild(version, cuda, rocm, error=_why_not(torch) if cuda else "")
            architectures = tuple(torch.cuda.get_arch_list())
            devices = tuple(_device(torch, index) for index in range(torch.cuda.device_count()))
        except Exception as error:
            return TorchBuild(version, cuda, rocm, error=_words(error))
        return TorchBuild(version, cuda, rocm, architectures, devices)


def free_memory(load: Callable[[], Any], index: int) -> int | None:
    """Free bytes of cuda:`index` by CUDA itself, which takes a context there; None: unknown."""
    try:
        return int(load().cuda.mem_get_info(index)[0])
    except Exception:
        return None


def parse_version(text: str | None) -> Version | None:
    """ "13.0", "3.8.0+git1" or "2.11" as its first two numbers; None for anything else."""
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def _device(torch: Any, index: int) -> TorchDevice:
    properties = torch.cuda.get_device_properties(index)
    return TorchDevice(
        index,
        str(getattr(properties, "uuid", "")),
        str(properties.name),
        (properties.major, properties.minor),
        int(properties.total_memory),
    )


def _why_not(torch: Any) -> str:
    """The first line of what CUDA says when it is made to start."""
    try:
        torch.cuda.init()
    except Exception as error:
        return _words(error)
    return ""


def _words(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
