"""What a card does now: memory, power, heat, and why it is slowed. Read again and again by NVML.

NVML is opened once and takes no memory of the card. Every figure is optional, as in `nvml.py`; a
machine without NVML, or without the card, has no gauges.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from engine.machine.nvml import ask, import_nvml

if TYPE_CHECKING:
    import torch

# Bits of nvmlClocksEventReasons (nvml.h), the gravest first. Those that somebody asked for (idle,
# clocks set by hand, those of a display) are none.
_REASONS = (
    (0x80, "power supply"),
    (0x40, "heat"),
    (0x20, "heat"),
    (0x08, "hardware"),
    (0x04, "power limit"),
)
_REASON_CALLS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",  # until driver 535
)
_TEMPERATURE_OF_GPU = 0  # NVML_TEMPERATURE_GPU


@dataclass(frozen=True)
class Reading:
    """A card's figures: bytes, watts, degrees Celsius, per cent of the time with work. `throttle`
    says in a word what holds its clocks down. None where the driver does not tell."""

    memory_used: int | None = None
    memory_total: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None
    throttle: str | None = None


@dataclass(frozen=True)
class Mark:
    """A moment: its time by the monotonic clock, and joules that the card had taken by then."""

    seconds: float
    joules: float | None


class Gauges:
    """One card's gauges. `close` when they are no longer read."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def of(cls, uuid: str, load: Callable[[], Any] = import_nvml) -> Self | None:
        """Those of the card that torch or NVML calls `uuid`; None where NVML does not know it."""
        try:
            nvml = load()
            nvml.nvmlInit()
        except Exception:
            return None
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        for name in (f"GPU-{bare}", f"MIG-{bare}") if bare else ():
            handle = ask(nvml, "nvmlDeviceGetHandleByUUID", name)
            if handle is not None:
                return cls(nvml, handle)
        ask(nvml, "nvmlShutdown")
        return None

    def read(self) -> Reading:
        """The figures now; never raises."""
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        total = getattr(memory, "total", None) or None
        load = self._ask("nvmlDeviceGetUtilizationRates")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return Reading(
            memory_used=memory.used if total else None,
            memory_total=total,
            power_watts=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", _TEMPERATURE_OF_GPU),
            utilisation=getattr(load, "gpu", None),
            throttle=self._throttle(),
        )

    def mark(self) -> Mark:
        """This moment, for `since`."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return Mark(time.monotonic(), None if millijoules is None else millijoules / 1000)

    def since(self, mark: Mark) -> Reading:
        """The figures now, but the power is the mean since `mark` where the card counts energy."""
        reading, now = self.read(), self.mark()
        seconds = now.seconds - mark.seconds
        if mark.joules is None or now.joules is None or seconds <= 0:
            return reading
        return replace(reading, power_watts=(now.joules - mark.joules) / seconds)

    def close(self) -> None:
        """Let NVML go."""
        with contextlib.suppress(Exception):
            self._nvml.nvmlShutdown()

    def _throttle(self) -> str | None:
        bits = next((b for name in _REASON_CALLS if (b := self._ask(name)) is not None), 0)
        return next((words for bit, words in _REASONS if bits & bit), None)

    def _ask(self, name: str, *arguments: Any) -> Any:
        return ask(self._nvml, name, self._handle, *arguments)


def gauges_of(device: "torch.device") -> Gauges | None:
    """The gauges of a device that torch computes on; None for the processor."""
    if device.type != "cuda":
        return None
    import torch

    return Gauges.of(str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
