"""Writing safetensors files: at once, or tensor by tensor in any order without holding them in
memory."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from engine.checkpoint.tensor_file import TORCH_DTYPES, TensorInfo, Tensors, memory_of

_REFUSED = re.compile(r"\(os error (\d+)\)")


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write `tensors` into the file at `path`.

    Raises OSError: the library has an error of its own for a disk that is full, which nobody who
    handles files would know.
    """
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number), str(path)) from error


class TensorWriter:
    """A safetensors file at `path` of exactly `tensors`; a context manager.

    The file appears under its name when the block ends without an exception and every byte was
    written; until then it is `path`.part. Raises OSError.
    """

    def __init__(self, path: Path, tensors: Tensors) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        # As the safetensors library orders them: wide elements first, so that all are aligned.
        order = sorted(tensors, key=lambda n: (-TORCH_DTYPES[tensors[n][0]].itemsize, n))
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        infos, end = {}, 0
        for name in order:
            dtype, shape = tensors[name]
            infos[name] = TensorInfo(path, dtype, shape, end)
            last = end + infos[name].nbytes
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, last]}
            end = last
        text = json.dumps(header, separators=(",", ":")).encode()
        self._head = len(text).to_bytes(8, "little") + text + b" " * (-len(text) % 8)
        self._head = (len(self._head) - 8).to_bytes(8, "little") + self._head[8:]
        self._infos = infos
        self._left = end
        self.nbytes = len(self._head) + end

    def __enter__(self) -> Self:
        self._stream = open(self._part, "wb")
        self._stream.write(self._head)
        return self

    def write(self, name: str, tensor: Tensor, first: int = 0) -> None:
        """Store `tensor` (on the CPU, contiguous) as the elements of `name` from `first` on."""
        info = self._infos[name]
        assert tensor.dtype == TORCH_DTYPES[info.dtype]
        self._stream.seek(len(self._head) + info.offset + first * tensor.element_size())
        self._stream.write(memory_of(tensor))
        self._left -= tensor.nbytes

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._stream.close()
            self._part.unlink(missing_ok=True)
            return
        assert self._left == 0, "a tensor was not written, or twice"
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        os.replace(self._part, self._path)
