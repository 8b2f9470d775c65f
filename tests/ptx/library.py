"""The emulator as a shared object: built once for the sources in `emulator`, called by ctypes."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "emulator"
COMPILER = "g++"
# A product and a sum are fused only where the PTX says so, on hosts too that could.
OPTIONS = ("-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-shared", "-fPIC")


class Refused(RuntimeError):
    """What the emulator says of a kernel: the program, what is wrong, and the instruction."""


class Counters(ctypes.Structure):
    """Of one instruction, over all programs of a launch; as `emulated::Counters`."""

    _fields_ = [
        (name, ctypes.c_int64) for name in ("executed", "bytes", "sectors", "wavefronts", "least")
    ]


class _Request(ctypes.Structure):
    """As `emulated::Request`."""

    _fields_ = [
        ("grid", ctypes.c_int * 3),
        ("warps", ctypes.c_int),
        ("shared", ctypes.c_int),
        ("seed", ctypes.c_uint32),
        ("arguments", ctypes.POINTER(ctypes.c_uint64)),
        ("allocations", ctypes.POINTER(ctypes.c_uint64)),
        ("allocation_count", ctypes.c_int),
        ("finds_races", ctypes.c_int),
        ("counters", ctypes.POINTER(Counters)),
    ]


@dataclass(frozen=True)
class Grid:
    """How a kernel is launched. Equal seeds are equal runs: of programs and warps in their order,
    and of copies that arrive early or late."""

    size: tuple[int, int, int]
    warps: int
    shared: int
    seed: int = 0
    finds_races: bool = True


def can_build() -> bool:
    """Whether there is a compiler for it."""
    return shutil.which(COMPILER) is not None


def cache_folder() -> Path:
    """Where what is built, and what Triton compiles for the emulator, is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "orl-chat-tests"


def build() -> Path:
    """The shared object for the sources as they are. Several processes may build it at once: each
    writes a file of its own, and the last to put it in place wins."""
    digest = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    target = cache_folder() / f"emulator-{digest.hexdigest()[:16]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            command = [COMPILER, *OPTIONS, str(SOURCES / "emulator.cpp"), "-o", str(made)]
            subprocess.run(command, check=True)
            made.replace(target)
    return target


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build()))
    library.emulator_error.restype = ctypes.c_char_p
    library.emulator_load.argtypes = [ctypes.c_char_p]
    library.emulator_text.restype = ctypes.c_char_p
    library.emulator_run.argtypes = [ctypes.c_int, ctypes.POINTER(_Request)]
    library.emulator_run.restype = ctypes.c_longlong
    return library


def _refused() -> Refused:
    return Refused(_library().emulator_error().decode())


class Kernel:
    """PTX of one kernel, ready to run."""

    def __init__(self, ptx: str) -> None:
        library = _library()
        self._number = library.emulator_load(ptx.encode())
        if self._number < 0:
            raise _refused()
        self.parameters: int = library.emulator_parameters(self._number)
        self._instructions: int = library.emulator_instructions(self._number)

    @property
    def texts(self) -> list[str]:
        """Its instructions as they stand in the PTX."""
        text = _library().emulator_text
        return [text(self._number, i).decode() for i in range(self._instructions)]

    def run(
        self,
        grid: Grid,
        arguments: Sequence[int],
        allocations: Sequence[tuple[int, int]],
        *,
        count: bool = False,
    ) -> list[Counters]:
        """Run it on arguments that are given as bits, with the parts of memory that it may touch
        (begin and end). Raises Refused; gives counters of each instruction where asked to."""
        if len(arguments) != self.parameters:
            raise TypeError(f"{self.parameters} parameters, but {len(arguments)} arguments")
        flat = [address for one in sorted(allocations) for address in one]
        counters = (Counters * self._instructions)() if count else None
        request = _Request(
            (ctypes.c_int * 3)(*grid.size), grid.warps, grid.shared, grid.seed,
            (ctypes.c_uint64 * len(arguments))(*arguments), (ctypes.c_uint64 * len(flat))(*flat),
            len(allocations), int(grid.finds_races),
            counters,
        )  # fmt: skip
        if _library().emulator_run(self._number, ctypes.byref(request)) < 0:
            raise _refused()
        return list(counters or ())
