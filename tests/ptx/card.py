"""The emulated card: Triton compiles for a card that is not there, and what it would hand to the
driver, PTX, runs in the emulator on tensors in the host's memory.

`emulated` puts it in the place of Triton's driver, for the whole process. NVIDIA's assembler is
passed by, so that what is run is PTX and not machine code: registers, spills and the scheduling of
instructions are not seen. Each launch is checked for races, for misaligned addresses, for addresses
outside of the tensors that it was given, and where it waits for the launch before by itself, that
it does so in every program, before it touches memory.
"""

import itertools
import os
import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.driver import driver

from engine.kernels import expert_memory, triton_experts
from engine.kernels.launch import Launch
from engine.kernels.offline import ARCHITECTURES, SHARED_LIMIT
from engine.kernels.plans import Capability
from tests.ptx.library import Counters, Grid, Kernel, cache_folder

_DEVICES = itertools.count()

SCRATCH = 2
"""Parameters that Triton appends: memory for a kernel's own use, and for profiling."""


@dataclass
class Card:
    """What is emulated, and how.

    Attributes:
        arch: a key of `engine.kernels.offline.ARCHITECTURES`.
        seed: of the orders that launches draw.
        finds_races: it costs memory and half of the time.
        ahead: all kernels wait by themselves, not only those of graphs that ask for it.
        ledger: where launches are counted, if they are to be.
        stream: the current one, on which launches go.
        captured: of each stream that captures, where its launches are written down instead.
    """

    arch: str
    seed: int = 0
    finds_races: bool = True
    ahead: bool = False
    ledger: "list[Run] | None" = None
    stream: int = 0
    captured: dict[int, list[Any]] = field(default_factory=dict)
    _beside: dict[int, list[torch.UntypedStorage]] = field(default_factory=dict)

    @property
    def capability(self) -> Capability:
        return ARCHITECTURES[self.arch]

    def between(self, base: Tensor, other: Tensor) -> int:
        """The engine's own distance from one tensor to another, which a kernel that is given `base`
        may go: so it may touch `other` too, though that is not among its arguments."""
        self._beside.setdefault(base.data_ptr(), []).append(other.untyped_storage())
        return expert_memory.between(base, other)

    def memory(self, arguments: Iterable[Any]) -> list[tuple[int, int]]:
        """Begin and end of what a launch with these arguments may touch, each once."""
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        for tensor in tensors:
            storages += self._beside.get(tensor.data_ptr(), [])
        parts = {(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages}
        return sorted(part for part in parts if part[0] < part[1])


@dataclass(frozen=True)
class Run:
    """One launch in figures: those of each instruction."""

    name: str
    grid: Grid
    texts: list[str]
    counters: list[Counters]


@contextmanager
def emulated(card: Card) -> Iterator[Card]:
    """Make `card` the one that Triton compiles for and launches on, within. Its compiled kernels go
    to a cache of their own, for they are no machine code."""
    with ExitStack() as undo:
        undo.callback(driver.set_active, driver._active)
        undo.enter_context(patch.dict(os.environ, TRITON_CACHE_DIR=str(cache_folder() / "triton")))
        undo.enter_context(patch.object(CUDABackend, "make_cubin", _keep_ptx))
        driver.set_active(_Driver(card))
        undo.enter_context(patch.object(triton_experts, "between", card.between))
        if card.ahead:
            constants = property(lambda self: {**self.constants, "AHEAD": True})
            undo.enter_context(patch.object(Launch, "all_constants", constants))
        yield card


def _keep_ptx(self: CUDABackend, src: str, metadata: Any, options: Any, capability: int) -> bytes:
    return src.encode()


class _Driver:
    """What Triton asks of a driver, for one device."""

    def __init__(self, card: Card) -> None:
        launches: Counter[str] = Counter()
        self.launcher_cls = lambda source, metadata: _Launcher(card, launches, source, metadata)
        self.utils = SimpleNamespace(
            load_binary=_load, unload_module=lambda _: None,
            get_device_properties=lambda _: {"max_shared_mem": limit},
        )  # fmt: skip
        limit = SHARED_LIMIT[card.arch]
        major, minor = card.capability
        self._target = GPUTarget("cuda", 10 * major + minor, 32)
        self._card = card
        # Triton keeps what it has compiled and loaded by a device's number: each card has its own.
        self._device = next(_DEVICES)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, device: int) -> int:
        return self._card.stream

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def _load(name: str, ptx: bytes, shared: int, device: int) -> tuple[Kernel, Kernel, int, int, int]:
    """A module, a function, and the registers, spills and threads that it may have at most."""
    kernel = Kernel(ptx.decode())
    return kernel, kernel, 0, 0, 1024


class _Launcher:
    """Launches one kernel: arguments become bits, tensors the memory that may be touched."""

    def __init__(self, card: Card, launches: Counter[str], source: Any, metadata: Any) -> None:
        if metadata.num_ctas != 1 or metadata.global_scratch_size:
            raise NotImplementedError("clusters and scratch memory are not emulated")
        self._card, self._launches, self._metadata = card, launches, metadata
        self._types = list(source.signature.values())

    def __call__(  # noqa: PLR0913 - Triton's own arguments
        self, x: int, y: int, z: int, stream: int, kernel: Kernel, packed: Any, launched: Any,
        enter: Any, leave: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        name = self._metadata.name
        seed = random.Random(f"{self._card.seed} {name} {self._launches[name]}").getrandbits(32)
        self._launches[name] += 1
        grid = Grid(
            (x, y, z), self._metadata.num_warps, self._metadata.shared, seed,
            self._card.finds_races,
        )  # fmt: skip
        given = [
            (kind, value)
            for kind, value in zip(self._types, arguments, strict=True)
            if kind != "constexpr"
        ]
        bits = [_bits(kind, value) for kind, value in given] + SCRATCH * [0]
        memory = self._card.memory(arguments)
        if stream in self._card.captured:
            self._card.captured[stream].append(partial(kernel.run, grid, bits, memory))
            return
        ledger = self._card.ledger
        counters = kernel.run(grid, bits, memory, count=ledger is not None)
        if ledger is not None:
            ledger.append(Run(name, grid, kernel.texts, counters))


def _bits(kind: str, value: Any) -> int:
    """An argument as its parameter's bits."""
    if kind[0] == "*":
        return value.data_ptr()
    if kind in ("fp32", "f32"):
        return int.from_bytes(struct.pack("<f", value), "little")
    if kind[0] not in "iu":
        raise NotImplementedError(f"arguments of type {kind} are not emulated")
    return int(value) & (1 << 64) - 1
