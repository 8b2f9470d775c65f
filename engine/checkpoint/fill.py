"""A checkpoint's bytes into a model's memory: file by file, each byte copied once where it can be.

Besides the model itself this takes a megabyte, or one matrix where one must be unpacked, converted
out of order or turned round.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from engine.checkpoint.names import model_tensors
from engine.checkpoint.nvfp4 import NVFP4Tensor, dequantize
from engine.checkpoint.stored import Layout, Move, Weight
from engine.checkpoint.tensor_file import (
    TORCH_DTYPES,
    TensorFile,
    TensorInfo,
    check_finite,
    check_scales,
)
from engine.config import CheckpointError
from engine.model.quantised import packed_modules
from engine.model.transformer import LLaDA2Model

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""

Check = Callable[[Tensor], None]

_BOUNCE = 1 << 18  # elements converted at a time


class Filler:
    """Fills `model` as `layout` says from the tensors in `headers`."""

    def __init__(self, model: LLaDA2Model, layout: Layout, headers: dict[str, TensorInfo]) -> None:
        self._model = model
        self._layout = layout
        self._headers = headers
        self._tensors = model_tensors(model)
        self._inputs: dict[str, float] = {}  # buffer to its largest input scale so far

    def run(self, progress: Progress | None = None) -> None:
        """Read everything. Raises CheckpointError naming the file at the first fault in it."""
        headers = self._headers
        total, done = sum(info.nbytes for info in headers.values()), 0
        by_file: dict[Path, list[str]] = {}
        for name, info in headers.items():
            by_file.setdefault(info.file, []).append(name)
        for path, names in by_file.items():
            with TensorFile(path) as file:
                for name in names:
                    if name in self._layout.moves:
                        self._move(file, name, self._layout.moves[name])
                    done += headers[name].nbytes
                    if progress is not None:
                        progress(done, total)
        self._set_inputs()

    def _move(self, file: TensorFile, name: str, move: Move) -> None:
        info = self._headers[name]
        if move.role in ("copy", "scales"):
            self._copy(file, name, move)
        elif move.role == "unpack":
            if name == move.weight.values:
                self._unpack(move)
        else:
            values = _positive(name, info, file.numbers(info), move.role.endswith("divisor"))
            if move.role.startswith("input"):
                target = move.place.target
                self._inputs[target] = max(*values, self._inputs.get(target, 0.0))
            else:
                _spread(values, move.place.view(self._tensors), name, info)

    def _copy(self, file: TensorFile, name: str, move: Move) -> None:
        info = self._headers[name]
        out = move.place.view(self._tensors)
        check: Callable[[Tensor], None] = _unchecked
        if move.role == "scales":
            check = check_scales(name, info.file)
        elif not move.weight.packed:
            check = check_finite(name, info.file)
        dtype = TORCH_DTYPES[info.dtype]
        if out.dtype == dtype and out.device.type == "cpu" and out.is_contiguous():
            file.read(info, out, check=check)
        elif out.is_contiguous():
            _convert(file, info, out.view(-1), 0, check)
        elif out.dim() == 3:
            for index, part in enumerate(out):
                _turn(file, info, part, index * part.numel(), check)
        else:
            _turn(file, info, out, 0, check)

    def _unpack(self, move: Move) -> None:
        """Dequantise a weight whose place is plain, a matrix at a time."""
        out, weight = move.place.view(self._tensors), move.weight
        matrices = [out] if out.dim() == 2 else list(out)
        info = self._headers[weight.global_scale]
        with TensorFile(info.file) as file:
            scale = torch.tensor(_positive(weight.global_scale, info, file.numbers(info)))
        for index, part in enumerate(matrices):
            at = None if out.dim() == 2 else index
            packed = self._look_up(weight.values, at)
            scales = self._look_up(weight.scales, at)
            check_scales(weight.scales, self._headers[weight.scales].file)(scales.view(-1))
            if move.place.transposed:
                part, packed, scales = part.mT, packed.mT.contiguous(), scales.mT.contiguous()
            part.copy_(_values(packed, scales, _of_matrix(scale, index, len(matrices)), weight))

    def _look_up(self, name: str, index: int | None) -> Tensor:
        info = self._headers[name]
        with TensorFile(info.file) as file:
            return file.tensor(info, index)

    def _set_inputs(self) -> None:
        """Input scales into their buffers; a module that got none loses its own."""
        named = {m: name for name, m in self._model.named_modules()}
        for module in packed_modules(self._model):
            for buffer in module.input_scale_names:
                value = self._inputs.get(f"{named[module]}.{buffer}")
                if value is None:
                    setattr(module, buffer, None)
                else:
                    getattr(module, buffer).fill_(value)


def _convert(file: TensorFile, info: TensorInfo, out: Tensor, first: int, check: Check) -> None:
    """Elements from `first` on into flat `out`, of another dtype or on another device.

    They are checked as what they become: a float32 may be finite where a float16 is not.
    """
    bounce = torch.empty(
        min(_BOUNCE, out.numel()), dtype=TORCH_DTYPES[info.dtype], pin_memory=out.is_cuda
    )
    for start in range(0, out.numel(), _BOUNCE):
        part = out[start : start + _BOUNCE]
        source = bounce[: part.numel()]
        file.read(info, source, first=first + start)
        if out.device.type == "cpu":
            part.copy_(source)
            check(part)
        else:
            check(source if source.dtype == out.dtype else source.to(out.dtype))
            part.copy_(source)


def _turn(file: TensorFile, info: TensorInfo, out: Tensor, first: int, check: Check) -> None:
    """A matrix from element `first` on into `out`, whose rows may lie anywhere."""
    if out.is_contiguous():
        _convert(file, info, out.view(-1), first, check)
        return
    whole = torch.empty(out.shape, dtype=TORCH_DTYPES[info.dtype])
    file.read(info, whole, first=first)
    whole = whole.to(out.dtype)
    check(whole.view(-1))
    out.copy_(whole)


def _unchecked(part: Tensor) -> None:
    """Every byte is a pair of codes."""


def _positive(
    name: str, info: TensorInfo, values: list[float], divides: bool = False
) -> list[float]:
    """`values`, or where they divide their reciprocals: all positive float32 numbers."""
    if all(value > 0 for value in values):  # not so for NaN
        # Doubles: rounded to float32 once more, a reciprocal is what float32 would have given.
        factors = [1 / value for value in values] if divides else values
        if all(0 < factor <= _LARGEST for factor in factors):
            return factors
    raise CheckpointError(
        f"{info.file}: {name} holds a scale that is no positive number; download it again."
    )


_LARGEST = torch.finfo(torch.float32).max


def _spread(values: list[float], out: Tensor, name: str, info: TensorInfo) -> None:
    """`values` (one number, one an expert, or gate and up of each) into alphas `out`."""
    if len(values) == 1:
        out.fill_(values[0])
        return
    shapes = {out.numel(): tuple(out.shape)}
    if out.dim() == 2:
        shapes.setdefault(out.shape[0], (out.shape[0], 1))
    shape = shapes.get(len(values))
    if shape is None:
        raise CheckpointError(
            f"{info.file}: {name} is {list(info.shape)}, which does not fit its weight; "
            "download it again."
        )
    out.copy_(torch.tensor(values).reshape(shape).expand(out.shape))


def _of_matrix(scale: Tensor, index: int, count: int) -> Tensor:
    """The global scales of matrix `index` of `count`: one, or two (upper and lower rows)."""
    flat = scale.reshape(-1)
    if flat.numel() == 1:
        return flat
    each = flat.numel() // count
    return flat[index * each : (index + 1) * each]


def _values(packed: Tensor, scales: Tensor, scale: Tensor, weight: Weight) -> Tensor:
    """A plain matrix of `packed` and `scales`, whose rows have the scales in `scale` [1] or [2]."""
    factor, divisor = (1 / scale, scale) if weight.divides else (scale, None)
    count = len(scale)
    both = NVFP4Tensor(
        packed.unflatten(0, (count, -1)), scales.unflatten(0, (count, -1)), factor, divisor
    )
    return dequantize(both).flatten(0, 1)
