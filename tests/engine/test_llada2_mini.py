"""LLaDA2.1-mini at its real structure: counts and bytes from its config, and loads at a reduced
width under the real names."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.checkpoint.load import load_model
from engine.checkpoint.names import model_tensors, places
from engine.checkpoint.nvfp4 import Style, quantize
from engine.checkpoint.nvfp4_files import is_packed, quantization_config, written
from engine.checkpoint.tensor_file import TensorInfo, Tensors
from engine.config import ModelConfig
from engine.model.quantised import NVFP4Experts, NVFP4Linear, count_weights, packed_modules
from engine.model.transformer import LLaDA2Model
from tests.engine.nvfp4_checkpoints import packed_tensors, save, spelled

MINI: dict[str, Any] = {
    "model_type": "llada2_moe", "vocab_size": 157184, "hidden_size": 2048,
    "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 8,
    "topk_group": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "score_function": "sigmoid", "rms_norm_eps": 1e-6, "rope_theta": 600000,
    "partial_rotary_factor": 0.5, "max_position_embeddings": 32768, "pad_token_id": 156892,
    "use_qk_norm": True, "use_bias": False, "use_qkv_bias": False, "tie_word_embeddings": False,
    "hidden_act": "silu", "rope_scaling": None,
}  # fmt: skip
NARROW = {
    "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 16, "intermediate_size": 32, "moe_intermediate_size": 16, "pad_token_id": 3,
}  # fmt: skip

STYLES: list[Style] = ["modelopt", "compressed-tensors"]

# Plain tensors, and matrices that become three: 19 * 256 * 3 routed, 19 * 3 shared, 3 dense and
# 20 * 2 of attention.
TENSORS = 14_813
ROUTED = 19 * 256 * 3
PACKED = ROUTED + 19 * 3 + 3 + 20 * 2


def described(config: ModelConfig) -> tuple[LLaDA2Model, Tensors]:
    """A model without memory, and its checkpoint's tensors in bf16."""
    with torch.device("meta"):
        model = LLaDA2Model(config)
    tensors = model_tensors(model)
    return model, {
        name: ("F32" if name.endswith("expert_bias") else "BF16", tuple(p.view(tensors).shape))
        for name, p in places(model).items()
    }


def size(tensors: Tensors) -> int:
    return sum(TensorInfo(Path(), *tensor).nbytes for tensor in tensors.values())


@pytest.fixture(scope="module")
def mini() -> tuple[LLaDA2Model, Tensors]:
    return described(ModelConfig.from_dict(MINI))


class TestFromTheConfigAlone:
    def test_bf16(self, mini: tuple[LLaDA2Model, Tensors]) -> None:
        model, plain = mini
        assert len(plain) == TENSORS
        assert all(tensor.is_meta for tensor in model_tensors(model).values())
        assert count_weights(model) == 16_255_643_392 - 19 * 256  # biases are buffers
        assert round(count_weights(model) / 1e9, 3) == 16.256
        assert plain["model.layers.19.mlp.experts.255.down_proj.weight"] == ("BF16", (2048, 512))
        assert plain["model.layers.0.mlp.gate_proj.weight"] == ("BF16", (5120, 2048))
        assert plain["model.layers.7.attention.query_key_value.weight"][1] == (3072, 2048)

    @pytest.mark.parametrize("style", STYLES)
    @pytest.mark.parametrize("experts_only", [False, True])
    def test_nvfp4(
        self, mini: tuple[LLaDA2Model, Tensors], style: Style, experts_only: bool
    ) -> None:
        plain = mini[1]
        stored = written(plain, style, experts_only=experts_only)
        packed = ROUTED if experts_only else PACKED
        assert len(stored) == TENSORS + 2 * packed
        suffix = {"modelopt": "weight_scale_2", "compressed-tensors": "weight_global_scale"}[style]
        assert sum(name.endswith(suffix) for name in stored) == packed
        stem = "model.layers.1.mlp.experts.0.up_proj"
        codes = f"{stem}.weight" if style == "modelopt" else f"{stem}.weight_packed"
        assert stored[codes] == ("U8", (512, 1024))
        assert stored[f"{stem}.weight_scale"] == ("F8_E4M3", (512, 128))
        weights = sum(
            s[0] * s[1] for n, (_, s) in plain.items() if is_packed(n, s, experts_only=experts_only)
        )
        # Two bytes a weight become nine sixteenths of one, and four for each global scale.
        assert size(stored) == size(plain) - 2 * weights + weights * 9 // 16 + 4 * packed
        gigabytes = {True: 10.47, False: 10.08}[experts_only]
        assert size(stored) / 1e9 == pytest.approx(gigabytes, abs=0.05)

    def test_bytes_of_bf16(self, mini: tuple[LLaDA2Model, Tensors]) -> None:
        assert size(mini[1]) / 2**30 == pytest.approx(30.28, abs=0.005)


def values(plain: Tensors) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: (0.3 * torch.randn(shape, generator=generator)).to(
            torch.float32 if dtype == "F32" else torch.bfloat16
        )
        for name, (dtype, shape) in plain.items()
    }


def stacked(plain: dict[str, Tensor], form: str) -> dict[str, Tensor]:
    """The experts of every layer as two stacks, plain or packed."""
    stored = {n: t for n, t in plain.items() if ".mlp.experts." not in n}
    for layer in range(1, 20):
        stem = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            torch.stack([plain[f"{stem}.{e}.{p}_proj.weight"] for e in range(256)])
            for p in ("gate", "up", "down")
        )
        for name, stack in (("gate_up_proj", torch.cat((gate, up), 1)), ("down_proj", down)):
            if form == "stacked":
                stored[f"{stem}.{name}"] = stack
            else:
                stored |= spelled(f"{stem}.{name}", quantize(stack), "modelopt", joint="_")
    return stored


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["plain", "modelopt", "compressed-tensors", "stacked", "stacked packed"]
)
def test_the_full_structure_loads_at_a_reduced_width(tmp_path: Path, form: str) -> None:
    config = MINI | NARROW
    _, plain = described(ModelConfig.from_dict(config))
    assert len(plain) == TENSORS
    tensors, declared = values(plain), {}
    if form in ("modelopt", "compressed-tensors"):
        tensors, _ = packed_tensors(tensors, form)
        assert len(tensors) == TENSORS + 2 * PACKED
        declared = {"quantization_config": quantization_config(form, ["lm_head"])}
    elif form != "plain":
        tensors = stacked(tensors, form)
    names = list(tensors)
    weight_map = {n: f"model-{8 * i // len(names)}.safetensors" for i, n in enumerate(names)}
    for file in set(weight_map.values()):
        save({n: t for n, t in tensors.items() if weight_map[n] == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "config.json").write_text(json.dumps(config | declared))
    model = load_model(tmp_path, device=torch.device("cpu"), dtype=torch.float32)
    kinds = [type(module) for module in packed_modules(model)]
    experts, linears = kinds.count(NVFP4Experts), kinds.count(NVFP4Linear)
    assert (experts, linears) == {
        "plain": (0, 0), "stacked": (0, 0), "stacked packed": (19, 0),
    }.get(form, (19, PACKED - ROUTED))  # fmt: skip
    last = model.model.layers[19].mlp.experts
    expert = "model.layers.19.mlp.experts.255.down_proj.weight"
    if form in ("plain", "stacked"):
        assert torch.equal(last.down[255], tensors.get(expert, values(plain)[expert]).float())
    else:
        style: Style = "compressed-tensors" if form == "compressed-tensors" else "modelopt"
        assert torch.equal(last.down[255], quantize(values(plain)[expert], style).packed)
