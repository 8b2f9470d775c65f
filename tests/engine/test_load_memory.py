"""Peak memory of a load: at most the result and 1.2 of the largest shard."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.checkpoint.nvfp4 import Style
from tests.engine.nvfp4_checkpoints import packed_tensors

CONFIG = {
    "model_type": "llada2_moe", "vocab_size": 4096, "hidden_size": 512, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1024,
    "moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 2,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
    "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6, "rope_theta": 10000,
    "partial_rotary_factor": 0.5, "max_position_embeddings": 512,
}  # fmt: skip

# A load in a process of its own, whose high-water mark is then the load's.
CHILD = """
import sys, torch
from engine.checkpoint.load import load_model
from engine.model.quantised import count_bytes
import engine.checkpoint.tokenizer

def memory(kind):  # VmHWM: the most so far (ru_maxrss would count the parent's); VmRSS: now
    line = next(l for l in open("/proc/self/status") if l.startswith(kind))
    return int(line.split()[1]) * 1024

torch.zeros(1 << 20).half().float().sum()  # what torch sets up with its first work
dtype = getattr(torch, sys.argv[2])
load_model(sys.argv[3], device=torch.device("cpu"), dtype=dtype)
before = memory("VmRSS")
model = load_model(sys.argv[1], device=torch.device("cpu"), dtype=dtype)
print(memory("VmHWM") - before, count_bytes(model))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """34 million weights in bf16 (two shards) and NVFP4."""
    from engine.checkpoint.names import model_tensors, places
    from engine.config import ModelConfig
    from engine.model.transformer import LLaDA2Model

    root = tmp_path_factory.mktemp("large")
    with torch.device("meta"):
        model = LLaDA2Model(ModelConfig.from_dict(CONFIG))
    tensors = model_tensors(model)
    plain = {
        name: torch.full(place.view(tensors).shape, 0.01, dtype=torch.bfloat16)
        for name, place in places(model).items()
    }
    style: Style = "modelopt"
    packed, _ = packed_tensors(plain, style)
    for name, content in (("bf16", plain), ("nvfp4", packed)):
        folder = root / name
        folder.mkdir()
        names = sorted(content)
        half = len(names) // 2
        for n, part in enumerate((names[:half], names[half:])):
            save_file({k: content[k] for k in part}, folder / f"model-{n}.safetensors")
        (folder / "config.json").write_text(json.dumps(CONFIG))
    return {"bf16": root / "bf16", "nvfp4": root / "nvfp4"}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("form", ["bf16", "nvfp4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_peak(folders: dict[str, Path], tiny_checkpoint: Path, form: str, dtype: str) -> None:
    folder = folders[form]
    shard = max(file.stat().st_size for file in folder.glob("*.safetensors"))
    command = [sys.executable, "-c", CHILD, str(folder), dtype, str(tiny_checkpoint)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, timeout=300
    )
    grown, result = (int(word) for word in done.stdout.split())
    # The allocator's own bookkeeping and the headers, whatever the size of the model.
    slack = 8 << 20
    assert grown <= result + 1.2 * shard + slack
    # In truth the result and one matrix.
    assert grown <= result + slack + (2 << 20)
