"""Stand-ins for NVML, torch and the system: a machine of any kind, for the hardware check to find.

They have the shape of the modules `pynvml` and `torch`, with the functions that are asked; what a
real card lacks (a laptop's power limit, unified memory) raises here as it does there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from engine.hardware import Hardware, Large, Row, Sources, probe
from engine.machine.facts import System
from finetune.plan import usual_run

GIB = 1 << 30
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED = 3, 4, 9
LIBRARY_NOT_FOUND, LOST, OPERATING_SYSTEM, MISMATCH, UNKNOWN = 12, 15, 17, 18, 999

ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
"""What torch's CUDA 13 wheels are built for."""


class NvmlError(Exception):
    """As `pynvml.NVMLError`: the code in `value`."""

    def __init__(self, value: int, words: str = "") -> None:
        self.value = value
        super().__init__(words or f"code {value}")


@dataclass
class Gpu:
    """One card; sizes in GiB, power in watts, None where NVML does not support the question."""

    name: str = "NVIDIA GeForce RTX 5090"
    capability: tuple[int, int] = (12, 0)
    total: float | None = 31.8
    free: float = 29.9
    uuid: str = "GPU-4c1f7a20-0000-1111-2222-333344445555"
    display: bool = False
    power: float | None = 575
    default_power: float | None = 575
    bus: int | None = 512
    clock: int | None = 14001
    processes: list[tuple[int, float | None]] = field(default_factory=list)
    mig: list[Gpu] | None = None
    dead: bool = False
    draw: float | None = 388.0
    joules: float | None = 1000.0
    reasons: int | None = 0


RTX_3090 = Gpu("NVIDIA GeForce RTX 3090", (8, 6), 24.0, 23.5, "GPU-3090aaaa-0000", bus=384)
H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 79.6, 79.0, "GPU-1000bbbb-0000", bus=5120, clock=2619)
LAPTOP = Gpu(
    "NVIDIA GeForce RTX 5090 Laptop GPU", (12, 0), 23.9, 23.0, "GPU-1a97cccc-0000",
    power=None, default_power=None, bus=256,
)  # fmt: skip


class Nvml:
    """The module `pynvml`. `fail` raises at nvmlInit; `names` are programs by process id."""

    def __init__(
        self,
        *gpus: Gpu,
        driver: str = "590.44",
        cuda: int = 13010,
        fail: Exception | None = None,
        names: dict[int, str] | None = None,
    ) -> None:
        self.gpus, self.driver, self.cuda, self.fail = gpus, driver, cuda, fail
        self.names = names or {}
        self.open = False

    def nvmlInit(self) -> None:
        if self.fail is not None:
            raise self.fail
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        if pid not in self.names:
            raise NvmlError(NO_PERMISSION)
        return self.names[pid]

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        if self.gpus[index].dead:
            raise NvmlError(LOST, "GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu: Gpu) -> str:
        return gpu.name

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetCudaComputeCapability(self, gpu: Gpu) -> list[int]:
        if gpu.uuid.startswith("MIG"):
            raise NvmlError(NOT_SUPPORTED)
        return list(gpu.capability)

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> Any:
        total = _supported(gpu.total)
        free = int(gpu.free * GIB)
        return SimpleNamespace(total=int(total * GIB), free=free, used=int(total * GIB) - free)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        every = [part for gpu in self.gpus for part in (gpu, *(gpu.mig or ()))]
        for gpu in every:
            if gpu.uuid == uuid:
                return gpu
        raise NvmlError(6, "Not Found")

    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> Any:
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
        return int(_supported(gpu.draw) * 1000)

    def nvmlDeviceGetTemperature(self, gpu: Gpu, sensor: int) -> int:
        assert sensor == 0, "the chip's"
        return 66

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Gpu) -> int:
        return int(_supported(gpu.joules) * 1000)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Gpu) -> int:
        return int(_supported(gpu.reasons))

    def nvmlDeviceGetDisplayActive(self, gpu: Gpu) -> int:
        return int(gpu.display)

    def nvmlDeviceGetPowerManagementLimit(self, gpu: Gpu) -> int:
        return int(_supported(gpu.power) * 1000)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, gpu: Gpu) -> int:
        return int(_supported(gpu.default_power) * 1000)

    def nvmlDeviceGetMemoryBusWidth(self, gpu: Gpu) -> int:
        return int(_supported(gpu.bus))

    def nvmlDeviceGetMaxClockInfo(self, gpu: Gpu, clock: int) -> int:
        assert clock == 2, "the memory's clock"
        return int(_supported(gpu.clock))

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Gpu) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if used is None else int(used * GIB))
            for pid, used in gpu.processes
        ]

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:
        return [int(gpu.mig is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:
        if gpu.mig is None or index >= len(gpu.mig):
            raise NvmlError(6, "Not Found")
        return gpu.mig[index]


class Torch:
    """The module `torch`, offering `gpus` in its own order."""

    def __init__(
        self,
        *gpus: Gpu,
        version: str = "2.13.0+cu130",
        cuda: str | None = "13.0",
        hip: str | None = None,
        architectures: list[str] | None = None,
        error: str = "",
    ) -> None:
        self.__version__ = version
        self.version = SimpleNamespace(cuda=cuda, hip=hip)
        self.cuda = Cuda(gpus, ARCHITECTURES if architectures is None else architectures, error)


class Cuda:
    """The module `torch.cuda`."""

    def __init__(self, gpus: tuple[Gpu, ...], architectures: list[str], error: str) -> None:
        self._gpus, self._architectures, self._error = gpus, architectures, error

    def is_available(self) -> bool:
        return bool(self._gpus)

    def init(self) -> None:
        if not self._gpus:
            raise RuntimeError(self._error or "No CUDA GPUs are available")

    def device_count(self) -> int:
        return len(self._gpus)

    def get_arch_list(self) -> list[str]:
        return self._architectures if self._gpus else []

    def get_device_properties(self, index: int) -> Any:
        gpu = self._gpus[index]
        return SimpleNamespace(
            uuid=gpu.uuid.partition("-")[2],
            name=gpu.name,
            major=gpu.capability[0],
            minor=gpu.capability[1],
            total_memory=int((gpu.total or 0) * GIB),
        )

    def mem_get_info(self, index: int) -> tuple[int, int]:
        gpu = self._gpus[index]
        return int(gpu.free * GIB), int((gpu.total or 0) * GIB)


def _supported(value: float | None) -> float:
    if value is None:
        raise NvmlError(NOT_SUPPORTED, "Not Supported")
    return value


def no_nvml(code: int = LIBRARY_NOT_FOUND, words: str = "NVML Shared Library Not Found") -> Nvml:
    """NVML that does not come up."""
    return Nvml(fail=NvmlError(code, words))


CPU_TORCH = Torch(version="2.13.0+cpu", cuda=None)


def raising(error: BaseException) -> Callable[[], Any]:
    """A source that fails to import."""

    def load() -> Any:
        raise error

    return load


def machine(nvml: Any = None, torch: Any = None, large: Large | None = None, **system: Any) -> Any:
    """The hardware found on a machine; without arguments a workstation with one RTX 5090.

    `nvml` and `torch` are stand-ins, or callables that raise instead of giving one.
    """
    gpu = Gpu()
    nvml, torch = nvml or Nvml(gpu), torch or Torch(gpu)
    facts = {
        "python": (3, 12, 3), "cores": 16, "memory": 64 * GIB, "memory_free": 51 * GIB,
        "triton": "3.7.1", "nvidia_on_bus": True, **system,
    }  # fmt: skip
    sources = Sources(
        nvml=nvml if not isinstance(nvml, Nvml) else lambda: nvml,
        torch=torch if not isinstance(torch, Torch) else lambda: torch,
        system=lambda: System(**facts),
    )
    return probe(sources, large or Large(finetuning=usual_run))


def row(hardware: Hardware, name: str) -> Row:
    """The one row of that name."""
    (found,) = [row for row in hardware.rows if row.name == name]
    return found


def only_the_demo(hardware: Hardware) -> None:
    """Chat runs, with the demo at least, and nothing of the large model is promised."""
    assert hardware.can_chat
    assert hardware.can_finetune
    assert not hardware.runs_large
    assert "demo" in hardware.summary


NO_TORCH_GPU = Torch(error="CUDA driver initialization failed, you might not have a CUDA gpu.")
"""Built for CUDA, and CUDA does not start."""
