"""A bf16 checkpoint into an NVFP4 one: shard by shard, a matrix in memory at a time, resumable.

    for each shard of the source
        skip it if an earlier run has written it
        copy what stays plain, quantise the rest, measure the error
    then the config files, and everything that is not weights

Until the last file (config.json) stands, the folder is no checkpoint and holds `quantise.json`:
which shards are done and what they came to.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.checkpoint.declared import HF_QUANT_CONFIG, refuse_foreign
from engine.checkpoint.fill import Progress
from engine.checkpoint.load import read_headers
from engine.checkpoint.nvfp4 import Style, dequantize, largest_magnitude, quantize
from engine.checkpoint.nvfp4_files import (
    hf_quant_config,
    is_packed,
    kind_of,
    packed_names,
    partner,
    quantization_config,
    written,
)
from engine.checkpoint.quantise_report import Report, Tally
from engine.checkpoint.tensor_file import (
    FLOATS,
    TORCH_DTYPES,
    TensorFile,
    TensorInfo,
    Tensors,
    check_finite,
)
from engine.checkpoint.tensor_writer import TensorWriter
from engine.config import CheckpointError, ModelConfig, read_json

INDEX = "model.safetensors.index.json"
JOURNAL, REPORT = "quantise.json", "quantization_report.json"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".part")
_COPIED = 1 << 20  # elements at a time


class Quantiser:
    """Quantises the checkpoint in `source` into the folder `target`.

    Made, it has read the headers and `bytes_after` says how much will be written; nothing is
    written before `run`.

    Raises:
        CheckpointError: the source cannot be used, or is quantised already; or the target holds
            something else.
    """

    def __init__(
        self, source: Path, target: Path, *, style: Style = "modelopt", experts_only: bool = False
    ) -> None:
        self.source, self.target = source, target
        self.style, self.experts_only = style, experts_only
        self._headers = _plain_headers(source)
        self._shards: dict[Path, Tensors] = {}
        for name, info in self._headers.items():
            self._shards.setdefault(info.file, {})[name] = (info.dtype, info.shape)
        self._largest: dict[str, Tensor] = {}
        self._settings = {
            "format": style,
            "experts_only": experts_only,
            "source": _fingerprint(self._headers),
        }
        self._done = self._read_journal()

    @property
    def bytes_after(self) -> int:
        """Bytes of tensors that the target will hold."""
        everything = (self._written(tensors) for tensors in self._shards.values())
        return sum(
            TensorInfo(self.target, *tensor).nbytes for t in everything for tensor in t.values()
        )

    def run(self, progress: Progress | None = None) -> Report:
        """Write what is not written yet; the report on all of it.

        Raises CheckpointError for a source that turns out damaged, and OSError.
        """
        self.target.mkdir(parents=True, exist_ok=True)
        self._write_journal()
        sizes = {
            file: sum(self._headers[name].nbytes for name in names)
            for file, names in self._shards.items()
        }
        before = 0
        for file, tensors in self._shards.items():
            if file.name not in self._done:
                report = Report()
                for done in self._write_shard(file, tensors, report):
                    if progress is not None:
                        progress(before + done, sum(sizes.values()))
                self._done[file.name] = report.to_json()
                self._write_journal()
            before += sizes[file]
            if progress is not None:
                progress(before, sum(sizes.values()))
        return self._finish()

    def _write_shard(self, file: Path, tensors: Tensors, report: Report) -> Iterator[int]:
        """Write one shard; yields the bytes read so far."""
        done = 0
        with (
            TensorFile(file) as reader,
            TensorWriter(self.target / file.name, self._written(tensors)) as writer,
        ):
            for name in tensors:
                info, tally = self._headers[name], report.of(kind_of(name))
                tally.tensors += 1
                tally.bytes_before += info.nbytes
                if is_packed(name, info.shape, experts_only=self.experts_only):
                    self._pack(reader, writer, name, tally)
                else:
                    _copy(reader, writer, name, info)
                    tally.bytes_after += info.nbytes
                done += info.nbytes
                yield done

    def _pack(self, reader: TensorFile, writer: TensorWriter, name: str, tally: Tally) -> None:
        weight = self._read(reader, name)
        packed = quantize(weight, self.style, largest=self._shared_largest(name, weight))
        codes, scales, global_scale = packed_names(name, self.style)
        writer.write(codes, packed.packed)
        writer.write(scales, packed.scales)
        divisor = packed.divisor
        writer.write(global_scale, packed.global_scale if divisor is None else divisor)
        tally.packed += 1
        tally.bytes_after += packed.nbytes
        wide = weight.float()
        error = (dequantize(packed) - wide).abs()
        # In float64: millions of squares, some of them of very small weights.
        tally.squared_error += float(error.double().square().sum())
        tally.squared_weight += float(wide.double().square().sum())
        tally.largest = max(tally.largest, float(error.max()) if error.numel() else 0.0)

    def _read(self, reader: TensorFile, name: str) -> Tensor:
        info = self._headers[name]
        weight = torch.empty(info.shape, dtype=TORCH_DTYPES[info.dtype])
        reader.read(info, weight, check=check_finite(name, info.file))
        return weight

    def _shared_largest(self, name: str, weight: Tensor) -> Tensor:
        """The largest magnitude of `weight` and of what shares its global scale."""
        largest = self._largest.pop(name, None)
        if largest is None:
            largest, other = largest_magnitude(weight), partner(name)
            if other in self._headers:
                with TensorFile(self._headers[other].file) as reader:
                    theirs = largest_magnitude(self._read(reader, other))
                largest = torch.maximum(largest, theirs)
                self._largest[other] = largest
        return largest

    def _written(self, tensors: Tensors) -> Tensors:
        return written(tensors, self.style, experts_only=self.experts_only)

    def _read_journal(self) -> dict[str, Any]:
        """The shards that are written already."""
        path = self.target / JOURNAL
        if not path.exists():
            if self.target.exists() and any(self.target.iterdir()):
                raise CheckpointError(f"{self.target} is not empty; name a new folder.")
            return {}
        journal = read_json(path)
        if journal.get("settings") != self._settings:
            raise CheckpointError(
                f"{self.target} was begun with another source or other options; finish that, or "
                "name a new folder."
            )
        shards = journal.get("shards")
        shards = shards if isinstance(shards, dict) else {}
        return {name: row for name, row in shards.items() if (self.target / name).is_file()}

    def _write_journal(self) -> None:
        _write_json(self.target / JOURNAL, {"settings": self._settings, "shards": self._done})

    def _finish(self) -> Report:
        report = Report()
        for row in self._done.values():
            for kind, tally in Report.from_json(row).kinds.items():
                report.of(kind).add(tally)
        names = {name: file.name for file, t in self._shards.items() for name in self._written(t)}
        if len(self._shards) > 1:
            index = {"metadata": {"total_size": report.total.bytes_after}, "weight_map": names}
            _write_json(self.target / INDEX, index)
        self._copy_others()
        left_out = _left_out(self._headers, self.experts_only)
        if self.style == "modelopt":
            _write_json(self.target / HF_QUANT_CONFIG, hf_quant_config(left_out))
        _write_json(self.target / REPORT, report.to_json())
        config = read_json(self.source / "config.json")
        config["quantization_config"] = quantization_config(self.style, left_out)
        _write_json(self.target / "config.json", config)
        (self.target / JOURNAL).unlink()
        return report

    def _copy_others(self) -> None:
        """Tokenizer, template, licence: every file that is neither weights nor written here."""
        own = {"config.json", INDEX, HF_QUANT_CONFIG, JOURNAL, REPORT}
        for path in self.source.iterdir():
            if path.is_file() and path.name not in own and path.suffix not in _WEIGHTS:
                shutil.copyfile(path, self.target / path.name)


def _plain_headers(source: Path) -> dict[str, TensorInfo]:
    """The source's tensors, all of them plain, in the published spelling."""
    config = read_json(source / "config.json")
    ModelConfig.from_dict(config, source=str(source / "config.json"))
    if config.get("quantization_config") or (source / HF_QUANT_CONFIG).exists():
        raise CheckpointError(f"{source} is quantised already; name the bf16 checkpoint.")
    headers = read_headers(source)
    refuse_foreign(headers)
    for name, info in headers.items():
        if info.dtype not in FLOATS or len(info.shape) > 2:
            raise CheckpointError(
                f"{info.file}: {name} is {info.dtype} {list(info.shape)}; only BF16, F16 and F32 "
                "matrices can be quantised, expert by expert."
            )
    return headers


def _fingerprint(headers: dict[str, TensorInfo]) -> str:
    """What tells one source from another without reading its weights."""
    text = [(n, i.file.name, i.dtype, i.shape, i.offset) for n, i in sorted(headers.items())]
    times = sorted({(i.file.name, i.file.stat().st_mtime_ns) for i in headers.values()})
    return hashlib.sha256(json.dumps([text, times]).encode()).hexdigest()


def _left_out(headers: dict[str, TensorInfo], experts_only: bool) -> list[str]:
    """The linear layers that stay plain."""
    return [
        name.removesuffix(".weight")
        for name, info in headers.items()
        if len(info.shape) == 2
        and name.endswith(".weight")
        and kind_of(name) not in ("embeddings", "norms")
        and not is_packed(name, info.shape, experts_only=experts_only)
    ]


def _copy(reader: TensorFile, writer: TensorWriter, name: str, info: TensorInfo) -> None:
    """The bytes as they are, a part at a time."""
    count = info.nbytes // TORCH_DTYPES[info.dtype].itemsize
    part = torch.empty(min(count, _COPIED), dtype=TORCH_DTYPES[info.dtype])
    for first in range(0, count, _COPIED):
        some = part[: min(count - first, _COPIED)]
        reader.read(info, some, first=first, check=check_finite(name, info.file))
        writer.write(name, some, first)


def _write_json(path: Path, data: dict[str, Any]) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)
