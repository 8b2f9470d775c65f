"""Triton's interpreter, repaired for bfloat16: it keeps such values as raw 16-bit words, which it
truncates on the way in and multiplies as integers in `tl.dot`, without a word. And for a NumPy that
no longer takes an array of one element for a number, which 3.6 does with a loop's bounds.

Holds for kernels that convert to float32 right after a load and round once before a store, which
is how the project's are written: elementwise arithmetic on bfloat16 itself stays wrong.
"""

from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter


def widen(words: np.ndarray) -> np.ndarray:
    """bfloat16 words uint16 to the float32 of the same value."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """float32 to bfloat16 words uint16, ties to even; NaN stays one."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def repair() -> None:
    """Replace the interpreter's conversion and its matrix product, once a process."""
    convert = interpreter._convert_float

    def convert_float(data: np.ndarray, source: Any, target: Any, mode: Any) -> np.ndarray:
        if source == tl.bfloat16 and target == tl.float32:
            # Callers reinterpret the words, whatever their dtype.
            return widen(data).reshape(np.shape(data))
        if source == tl.float32 and target == tl.bfloat16:
            return narrow(data).reshape(np.shape(data))
        return convert(data, source, target, mode)

    def operand(handle: Any) -> np.ndarray:
        return widen(handle.data) if handle.dtype.scalar == tl.bfloat16 else handle.data

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        product = np.matmul(operand(a), operand(b), dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor
    interpreter._convert_float = convert_float
    interpreter.InterpreterBuilder.create_dot = create_dot
