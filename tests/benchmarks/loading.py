"""Loading a checkpoint against reading the same bytes from the page cache.

    python -m tests.benchmarks.loading [--experts N] [--repeats N] [--keep DIR]

A checkpoint with LLaDA2.1-mini's matrices, one layer of N experts and a small vocabulary, in bf16
and in NVFP4 of both spellings. The bytes are read in two ways: into memory that the process has
used before, and into fresh memory, which a load needs as well. Loads and reads alternate, and the
fastest of each counts, the one that other programs disturbed least. All of it is work of the
processor, so processor time is told beside the clock's: on a busy machine it is the fairer figure.
"""

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.checkpoint.load import load_model
from engine.checkpoint.names import model_tensors, places
from engine.checkpoint.nvfp4 import Style
from engine.checkpoint.quantise import Quantiser
from engine.checkpoint.tensor_file import memory_of
from engine.checkpoint.tensor_writer import TensorWriter
from engine.config import ModelConfig
from engine.model.transformer import LLaDA2Model

CONFIG: dict[str, Any] = {
    "model_type": "llada2_moe", "vocab_size": 4096, "hidden_size": 2048, "num_hidden_layers": 2,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts_per_tok": 8,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 8, "topk_group": 4,
    "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6, "rope_theta": 600000,
    "partial_rotary_factor": 0.5, "max_position_embeddings": 32768,
}  # fmt: skip
CPU = torch.device("cpu")

Times = tuple[float, float]  # the clock's and the processor's


def write_bf16(folder: Path, config: dict[str, Any]) -> None:
    """Random weights, one matrix in memory at a time."""
    with torch.device("meta"):
        model = LLaDA2Model(ModelConfig.from_dict(config))
    tensors = model_tensors(model)
    shapes = {name: tuple(place.view(tensors).shape) for name, place in places(model).items()}
    folder.mkdir(parents=True)
    with TensorWriter(
        folder / "model.safetensors", {name: ("BF16", shape) for name, shape in shapes.items()}
    ) as writer:
        for name, shape in shapes.items():
            writer.write(name, (0.02 * torch.randn(shape)).bfloat16())
    (folder / "config.json").write_text(json.dumps(config))


def read_all(files: list[Path], memory: list[torch.Tensor] | None) -> None:
    """The files' bytes into `memory`, or into memory of its own."""
    for n, file in enumerate(files):
        size = file.stat().st_size
        out = torch.empty(size, dtype=torch.uint8) if memory is None else memory[n]
        view, done = memory_of(out), 0
        with open(file, "rb", buffering=0) as stream:
            while done < size:
                done += stream.readinto(view[done:]) or 0


def fastest(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """Seconds of the best run of each job, by either clock; the jobs take turns."""
    best = dict.fromkeys(jobs, (float("inf"), float("inf")))
    for _ in range(repeats):
        for name, job in jobs.items():
            gc.collect()
            wall, processor = time.perf_counter(), time.process_time()
            job()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            best[name] = (min(best[name][0], wall), min(best[name][1], processor))
    return best


def measure(name: str, folder: Path, dtypes: list[torch.dtype], repeats: int) -> None:
    files = sorted(folder.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    warm = [torch.zeros(file.stat().st_size, dtype=torch.uint8) for file in files]
    jobs: dict[str, Callable[[], object]] = {
        "read, used memory": lambda: read_all(files, warm),
        "read, fresh memory": lambda: read_all(files, None),
    }
    for dtype in dtypes:
        kind = str(dtype).removeprefix("torch.")
        jobs[f"load as {kind}"] = lambda dtype=dtype: load_model(
            folder, device=CPU, dtype=dtype, cache_bytes=0
        )
    best = fastest(jobs, repeats)
    print(f"\n{name}: {size / 1e6:,.0f} MB")
    for clock, what in enumerate(("clock", "processor")):
        for job, times in best.items():
            seconds = times[clock]
            used, fresh = (best[f"read, {kind} memory"][clock] for kind in ("used", "fresh"))
            ratio = f"  {fresh / seconds:5.2f} of fresh, {used / seconds:5.2f} of used"
            print(
                f"  {what:<10}{job:<20}{size / seconds / 1e9:8.2f} GB/s"
                f"{ratio if 'load' in job else ''}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="where to write the checkpoints, or find them")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        if not (root / "bf16").exists():
            write_bf16(root / "bf16", CONFIG | {"num_experts": arguments.experts})
        measure("bf16", root / "bf16", [torch.bfloat16, torch.float32], arguments.repeats)
        styles: list[Style] = ["modelopt", "compressed-tensors"]
        for style in styles:
            if not (root / style).exists():
                Quantiser(root / "bf16", root / style, style=style).run()
            measure(f"NVFP4, {style}", root / style, [torch.bfloat16], arguments.repeats)


if __name__ == "__main__":
    main()
