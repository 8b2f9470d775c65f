"""Triton's interpreter, made right for bf16, E4M3 and NVFP4. For tests only.

It keeps bf16 and fp8 numbers as their bits and then calculates with the bits, cuts conversions off
instead of rounding them, and reads NVFP4's scales as powers of two; none of this raises. Here every
operation on such numbers takes their values, computes in float32 and rounds once, as a GPU does.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

NARROW = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn}
_LARGEST = {tl.float8e4nv: 448.0}
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_CODES = np.concatenate((_E2M1, -_E2M1))


def _bits(dtype: tl.dtype) -> tuple[type, torch.dtype]:
    return (np.uint8, torch.uint8) if dtype.primitive_bitwidth == 8 else (np.uint16, torch.int16)


def values(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """What the bits of a narrow number are worth, as float32; other data as it is."""
    if dtype not in NARROW:
        return data
    stored, held = _bits(dtype)
    bits = torch.from_numpy(
        np.array(data, dtype=stored).view(np.int16 if held.itemsize == 2 else stored)
    )
    return bits.view(NARROW[dtype]).float().numpy()


def narrow(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """Numbers as the bits of `dtype`, to the nearest, ties to even; E4M3 saturates."""
    wide = torch.from_numpy(np.array(data, dtype=np.float32))
    if dtype in _LARGEST:
        wide = wide.clamp(-_LARGEST[dtype], _LARGEST[dtype])
    stored, held = _bits(dtype)
    return wide.to(NARROW[dtype]).view(held).numpy().view(stored)


def _cast(self, source, target):
    old, new = source.dtype.scalar, target.scalar
    if old not in NARROW and new not in NARROW:
        return _plain_cast(self, source, target)
    data = values(source.data, old)
    if new in NARROW:
        return TensorHandle(narrow(data, new), new)
    return TensorHandle(data.astype(interpreter._get_np_dtype(new)), new)


def _convert(self, source, target, rounding):
    if source.dtype.scalar in NARROW or target.scalar in NARROW:
        return _cast(self, source, target)
    return _plain_convert(self, source, target, rounding)


def _binary(self, left, right, op):
    dtype = left.dtype.scalar
    if dtype not in NARROW:
        return _plain_binary(self, left, right, op)
    result = op(values(left.data, dtype), values(right.data, right.dtype.scalar))
    if result.dtype == bool:
        return TensorHandle(result, tl.int1)
    return TensorHandle(narrow(result, dtype), dtype)


def _unary(self, operand, op):
    dtype = operand.dtype.scalar
    if dtype not in NARROW:
        return _plain_unary(self, operand, op)
    return TensorHandle(narrow(op(values(operand.data, dtype)), dtype), dtype)


def _dot(self, a, b, acc, precision, imprecise):
    left, right = (values(t.data, t.dtype.scalar).astype(np.float32) for t in (a, b))
    return TensorHandle(acc.data + left @ right, acc.dtype.scalar)


def _scaled_operand(handle, scale, form, axis):
    """The numbers of an operand whose columns `axis` (-1 or -2) are the ones summed over."""
    data = np.moveaxis(handle.data, axis, -1)
    if form == ir.ScaleDotElemTypeTY.E2M1:
        data = data.view(np.uint8)
        data = _CODES[np.stack((data & 15, data >> 4), axis=-1)].reshape(*data.shape[:-1], -1)
    else:
        data = values(data, handle.dtype.scalar)
    if scale is not None:
        assert scale.dtype.scalar == tl.float8e4nv, "only NVFP4's scales are repaired"
        factor = values(scale.data, tl.float8e4nv)
        data = data * np.repeat(factor, data.shape[-1] // factor.shape[-1], axis=-1)
    return np.moveaxis(data, -1, axis)


def _dot_scaled(  # noqa: PLR0913 - the builder's own arguments
    self, a, a_scale, a_form, b, b_scale, b_form, fast, a_pack, b_pack, acc
):
    assert all((a_pack, b_pack)), "codes are packed along the summed axis"
    left = _scaled_operand(a, a_scale, a_form, -1)
    right = _scaled_operand(b, b_scale, b_form, -2)
    return TensorHandle((acc.data + left @ right).astype(np.float32), tl.float32)


def _bitcast(self, source, target):
    # Its own view fails on arrays that are transposed.
    data = np.ascontiguousarray(source.data).view(interpreter._get_np_dtype(target))
    return TensorHandle(data, target.scalar)


def _patch_tensor(tensor, scope):
    # Triton 3.6 takes an array of one element for a number, which numpy 2.4 no longer does.
    _plain_patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _scaled_product(self, a, a_scale, a_form, b, b_scale, b_form, *rest):
    # Triton before 3.8 expects the formats as constants, which only its compiler makes of them.
    forms = (f.value if isinstance(f, tl.constexpr) else f for f in (a_form, b_form))
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8):
        forms = map(tl.constexpr, forms)
    first, second = forms
    return _plain_scaled_product(self, a, a_scale, first, b, b_scale, second, *rest)


def _masked_load(self, pointers, mask, *rest):
    # Triton 3.9 expects bool of a mask, which its own comparisons with a number do not give.
    mask = TensorHandle(mask.data.astype(bool), tl.int1)
    return _plain_masked_load(self, pointers, mask, *rest)


def _masked_store(self, pointers, value, mask, *rest):
    return _plain_masked_store(
        self, pointers, value, TensorHandle(mask.data.astype(bool), tl.int1), *rest
    )


def _min_max(self, given, val_reduce_op, idx_reduce_op=None):
    # Triton 3.9 fails where a slice has no number in it; a card then takes any place.
    data = (given[0] if isinstance(given, tuple) else given).handle.data
    if idx_reduce_op is None or data.dtype.kind != "f" or not np.isnan(data).any():
        return _plain_min_max(self, given, val_reduce_op, idx_reduce_op)
    none = np.isnan(data).all(axis=self.axis, keepdims=True)

    def among(reduce, nothing):
        def reduced(data, axis, keepdims):
            found = reduce(np.where(none, 0, data), axis=axis, keepdims=keepdims)
            return np.where(none if keepdims else none.squeeze(axis), nothing, found)

        return reduced

    return _plain_min_max(self, given, among(val_reduce_op, np.nan), among(idx_reduce_op, 0))


_plain_masked_load = InterpreterBuilder.create_masked_load
_plain_masked_store = InterpreterBuilder.create_masked_store
_plain_min_max = interpreter.ReduceOps.min_max
_plain_scaled_product = TritonSemantic.dot_scaled
_plain_patch_tensor = interpreter._patch_lang_tensor
_plain_cast = InterpreterBuilder.cast_impl
_plain_convert = InterpreterBuilder.create_fp_to_fp
_plain_binary = InterpreterBuilder.binary_op
_plain_unary = InterpreterBuilder.unary_op


def repair() -> None:
    """Put the repaired operations in place; doing it twice changes nothing."""
    for name, function in {
        "cast_impl": _cast,
        "create_fp_to_fp": _convert,
        "binary_op": _binary,
        "unary_op": _unary,
        "create_dot": _dot,
        "create_dot_scaled": _dot_scaled,
        "create_bitcast": _bitcast,
        "create_masked_load": _masked_load,
        "create_masked_store": _masked_store,
    }.items():
        setattr(InterpreterBuilder, name, function)
    interpreter.ReduceOps.min_max = _min_max
    interpreter._patch_lang_tensor = _patch_tensor
    TritonSemantic.dot_scaled = _scaled_product


@contextmanager
def in_any_order(seed: int) -> Iterator[None]:
    """Run the programs of every launch in an order drawn from `seed`, not in that of the grid."""
    builder = interpreter.interpreter_builder
    draw = random.Random(seed)
    order: list[int] = []

    def set_grid_idx(x: int, y: int, z: int) -> None:
        width, height, depth = builder.grid_dim
        if x == y == z == 0:
            order[:] = draw.sample(range(width * height * depth), width * height * depth)
        rest, z = divmod(order[(x * height + y) * depth + z], depth)
        InterpreterBuilder.set_grid_idx(builder, *divmod(rest, height), z)

    builder.set_grid_idx = set_grid_idx
    try:
        yield
    finally:
        del builder.set_grid_idx
