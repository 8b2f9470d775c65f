"""What was found on a machine, as plain data; the rows that people read are made from it.

Whoever reads a source fills in one of these and never raises: what could not be read is None.
Memory is in bytes, power in watts, bandwidth in bytes a second.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "no"]
Capability = tuple[int, int]
"""A card's CUDA compute capability, major and minor."""
Version = tuple[int, int]
"""A CUDA version, major and minor."""


@dataclass(frozen=True)
class Row:
    """One thing that was looked at: what was found, what is needed, and how to mend it.

    "no" means that what the row names cannot be used; whether chat can run without it is the
    summary's business. `fix` is a sentence, or the one command that mends it.
    """

    name: str
    state: State
    found: str
    need: str = ""
    fix: str = ""


DISPLAY_RESERVE = 1 << 30
"""Bytes left to a card's display, whose windows come and go while a model is loaded."""


@dataclass(frozen=True)
class Process:
    """A program that holds memory of a card; None where the driver does not say how much."""

    name: str
    memory: int | None = None


@dataclass(frozen=True)
class Card:
    """One NVIDIA card, or one MIG instance of it.

    Attributes:
        index: as nvidia-smi counts; None when only torch has seen the card.
        parent: UUID of the card that a MIG instance is a part of, else "".
        unified: its memory is the machine's own.
        display: a screen is drawn with it.
        mig_empty: it is in MIG mode and has no instance that a program could use.
        torch_index: N of "cuda:N"; None when torch does not offer it.
    """

    index: int | None
    uuid: str
    name: str
    capability: Capability | None = None
    total: int | None = None
    free: int | None = None
    parent: str = ""
    unified: bool = False
    display: bool = False
    mig_empty: bool = False
    power_limit: float | None = None
    power_default: float | None = None
    bandwidth: float | None = None
    processes: tuple[Process, ...] = ()
    torch_index: int | None = None

    @property
    def label(self) -> str:
        """What the card is called in rows."""
        return f"GPU {self.torch_index if self.index is None else self.index}"

    @property
    def spare(self) -> int | None:
        """Bytes that a model may take of the card's own memory; None: unknown, or it has none."""
        if self.free is None:
            return None
        return max(self.free - DISPLAY_RESERVE, 0) if self.display else self.free

    @property
    def short_id(self) -> str:
        """Enough of the UUID to tell two cards apart and to find one in `nvidia-smi -L`."""
        kind, _, rest = self.uuid.partition("-")
        return f"{kind}-{rest[:4]}" if rest else self.uuid[:4]


Trouble = Literal[
    "no package", "no library", "not loaded", "no rights", "version mismatch", "lost", "power",
    "other",
]  # fmt: skip
"""Why NVML does not answer."""


@dataclass(frozen=True)
class Driver:
    """What NVML says. `trouble` with `detail`, its own words, when it does not answer."""

    version: str | None = None
    cuda: Version | None = None
    cards: tuple[Card, ...] = ()
    trouble: Trouble | None = None
    detail: str = ""


@dataclass(frozen=True)
class TorchDevice:
    """A card as torch sees it. `uuid` has no "GPU-" in front."""

    index: int
    uuid: str
    name: str
    capability: Capability
    total: int


@dataclass(frozen=True)
class TorchBuild:
    """The installed torch.

    Attributes:
        version: None when it does not import; `error` then says why.
        cuda: the CUDA version it was built for; None for a CPU build.
        rocm: it was built for AMD cards.
        architectures: "sm_90", "compute_120", ...: what it holds kernels for.
        error: in torch's words why it does not import, or why it offers no card.
    """

    version: str | None = None
    cuda: Version | None = None
    rocm: bool = False
    architectures: tuple[str, ...] = ()
    devices: tuple[TorchDevice, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class System:
    """The machine without its cards.

    Attributes:
        distribution: ID of /etc/os-release, "" elsewhere.
        wsl: Linux inside of Windows (WSL 2).
        limited: memory figures are those of a container's limit.
        on_battery: None where there is none.
        nvidia_on_bus: a card of NVIDIA is plugged in, whatever the drivers say.
        denied: device files of the driver that this user may not open.
        denied_group: the group that may.
        no_uvm: the driver's memory module has no device file, so that CUDA cannot start.
        visible_devices: CUDA_VISIBLE_DEVICES; None when it is not set.
        uv_tool: this program was installed by `uv tool install`.
    """

    python: tuple[int, int, int] = (3, 11, 0)
    name: str = "Linux"
    release: str = ""
    architecture: str = "x86_64"
    distribution: str = ""
    wsl: bool = False
    container: bool = False
    cores: int = 1
    memory: int = 0
    memory_free: int = 0
    limited: bool = False
    on_battery: bool | None = None
    nvidia_on_bus: bool = False
    denied: tuple[str, ...] = ()
    denied_group: str = ""
    no_uvm: bool = False
    visible_devices: str | None = None
    uv_tool: bool = False
    triton: str | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that was found; `cards` is NVML's and torch's view in one."""

    system: System
    driver: Driver
    torch: TorchBuild
    cards: tuple[Card, ...] = ()
