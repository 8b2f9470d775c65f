"""safetensors files, read by hand: a header that is checked before it is believed, and bytes that
go straight to where they belong.

The safetensors library maps a file and hands out views of the map. Reading instead saves the page
faults, keeps no file in our memory, and turns a file that shrinks meanwhile into an error where a
map would end the process.
"""

import ctypes
import io
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from engine.config import CheckpointError

TORCH_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "U8": torch.uint8,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "BOOL": torch.bool,
}  # fmt: skip
"""Those dtypes of safetensors that torch has everywhere, by their names in a header."""

Tensors = dict[str, tuple[str, tuple[int, ...]]]
"""Name to (dtype in safetensors' words, shape)."""

FLOATS = ("BF16", "F16", "F32")
"""The dtypes that a plain weight may have."""

_BITS = {name: 8 * dtype.itemsize for name, dtype in TORCH_DTYPES.items()} | {
    "U16": 16, "U32": 32, "U64": 64, "C64": 64, "F8_E8M0": 8, "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_LARGEST_HEADER = 100_000_000  # the format's own limit
_LONGEST_NAME = 500
_MOST_DIMENSIONS, _LARGEST_DIMENSION = 16, 1 << 48

# Bytes read at a time: they are checked while they are still in the processor's cache.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class TensorInfo:
    """What a header says of one tensor; `dtype` in safetensors' words, `offset` in the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return math.prod(self.shape) * _BITS[self.dtype] // 8


def read_header(file: Path) -> dict[str, TensorInfo]:
    """The tensors of `file` by name, in the order of their bytes; no tensor is read.

    Raises CheckpointError for a file that is missing, damaged or of another kind.
    """
    try:
        with open(file, "rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise ValueError("its header does not fit into it")
            text = stream.read(length)
        return _parse(text, file, 8 + length, size)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing; download the checkpoint again.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is damaged or not a safetensors file ({error}); download it again."
        ) from error


def _parse(text: bytes, file: Path, begin: int, size: int) -> dict[str, TensorInfo]:
    entries = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates)
    if not isinstance(entries, dict):
        raise ValueError("its header is no table")
    entries.pop("__metadata__", None)
    infos = [(name, *_parse_entry(name, entry, file, begin)) for name, entry in entries.items()]
    infos.sort(key=lambda item: (item[1].offset, item[2]))
    end = begin
    for name, info, last in infos:
        # No holes and no overlaps: every byte belongs to one tensor.
        if info.offset != end or last - info.offset != info.nbytes:
            raise ValueError(f"the bytes of {name} are not where they should be")
        end = last
    if end != size:
        raise ValueError(f"it has {size:,} bytes instead of {end:,}")
    return {name: info for name, info, _ in infos}


def _parse_entry(name: str, entry: Any, file: Path, begin: int) -> tuple[TensorInfo, int]:
    """A tensor's info and where its bytes end. Raises ValueError."""
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise ValueError("a tensor has a name that is none")
    try:
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its header does not describe {name}") from error
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"{name} is of the unknown kind {str(dtype)[:40]}")
    numbers = [*shape, first, last] if isinstance(shape, list) else [None]
    if len(numbers) > _MOST_DIMENSIONS + 2 or not all(
        type(n) is int and 0 <= n < _LARGEST_DIMENSION for n in numbers
    ):
        raise ValueError(f"{name} has an impossible shape or place")
    if math.prod(shape) * _BITS[dtype] % 8:
        raise ValueError(f"{name} ends inside a byte")
    return TensorInfo(file, dtype, tuple(shape), begin + first), begin + last


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands in its header twice")
    return table


class TensorFile:
    """An open safetensors file; a context manager.

    Every method raises CheckpointError when the file cannot be read to the end of a tensor.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: io.FileIO | None = None

    def __enter__(self) -> Self:
        try:
            self._stream = io.FileIO(self._path)
        except OSError as error:
            raise self._error(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._stream is not None
        self._stream.close()

    def tensor(self, info: TensorInfo, index: int | None = None) -> Tensor:
        """The tensor, or its part `index` along the first dimension, on the CPU."""
        shape = info.shape if index is None else info.shape[1:]
        out = torch.empty(shape, dtype=TORCH_DTYPES[info.dtype], device="cpu")
        self.read(info, out, first=(index or 0) * out.numel())
        return out

    def numbers(self, info: TensorInfo) -> list[float]:
        """The elements of a small tensor of FLOATS. A single one, of which a checkpoint may have
        ten thousands, does without torch."""
        if info.nbytes != _BITS[info.dtype] // 8:
            return self.tensor(info).flatten().tolist()
        assert self._stream is not None
        try:
            self._stream.seek(info.offset)
            content = self._stream.read(info.nbytes)
            if len(content) != info.nbytes:
                raise OSError("it ends early")
        except OSError as error:
            raise self._error(error) from error
        if info.dtype == "BF16":  # the upper half of a float32
            content = b"\0\0" + content
        return list(struct.unpack("<e" if info.dtype == "F16" else "<f", content))

    def read(
        self,
        info: TensorInfo,
        out: Tensor,
        *,
        first: int = 0,
        check: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Fill `out` (on the CPU, contiguous, of the tensor's dtype) with its elements from
        `first` on. `check` sees them a part at a time, flat."""
        assert out.is_contiguous()
        flat = out.view(-1)
        size = flat.element_size()
        assert self._stream is not None
        try:
            self._stream.seek(info.offset + first * size)
            for part in flat.split(_CHUNK // size):
                self._fill(part)
                if check is not None:
                    check(part)
        except OSError as error:
            raise self._error(error) from error

    def _fill(self, part: Tensor) -> None:
        view, done = memory_of(part), 0
        assert self._stream is not None
        while done < len(view):
            count = self._stream.readinto(view[done:])
            if not count:
                raise OSError("it ends early")
            done += count

    def _error(self, error: OSError) -> CheckpointError:
        why = error.strerror or error
        return CheckpointError(
            f"{self._path} cannot be read to its end ({why}); download it again."
        )


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of `tensor` (on the CPU, contiguous) as they lie, valid while it lives."""
    assert tensor.is_contiguous()
    return memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")


def check_finite(name: str, file: Path) -> Callable[[Tensor], None]:
    """A check for `TensorFile.read` that raises CheckpointError at a NaN or an infinity."""

    def check(part: Tensor) -> None:
        # One pass over the bytes; a NaN anywhere is the smallest and the largest.
        low, high = torch.aminmax(part) if part.numel() else _NOTHING
        if not (math.isfinite(low) and math.isfinite(high)):
            kind = str(part.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{file}: {name} holds values that are not finite in {kind}; download it again."
            )

    return check


_NOTHING = (0.0, 0.0)


def check_scales(name: str, file: Path) -> Callable[[Tensor], None]:
    """As `check_finite`, for E4M3 block scales: those must be numbers and not negative."""

    def check(part: Tensor) -> None:
        if part.numel() and int(part.view(torch.uint8).max()) > _LARGEST_E4M3:
            raise CheckpointError(
                f"{file}: {name} holds block scales that are no positive numbers; "
                "download it again."
            )

    return check


_LARGEST_E4M3 = 0x7E
