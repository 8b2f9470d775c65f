"""Adapter folders: LoRA as PEFT writes it, the residual adapter, and what is neither."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.checkpoint.adapter import load_adapter
from engine.checkpoint.names import model_tensors
from engine.config import CheckpointError, DecodeConfig, ResidualConfig
from engine.events import FinishEvent
from engine.generate import Engine
from engine.model.lora import LoRALinear, fold_lora, lora_parameters, wrap_linear
from engine.model.residual import ResidualAdapter
from tests.engine.nvfp4_checkpoints import packed_tensors, write

RANK = 4
LAYERS = [
    "model.layers.0.attention.query_key_value",
    "model.layers.2.attention.dense",
    "model.layers.0.mlp.down_proj",
    "model.layers.1.mlp.shared_experts.gate_proj",
    "lm_head",
]

# W x + s B A x against (W + s B A) x: the same sums in another order, of logits up to 32.
TOLERANCE = 2e-4


def write_lora(
    engine: Engine, folder: Path, *, alpha: float = 8, layers: list[str] = LAYERS, **config: Any
) -> dict[str, Tensor]:
    """A folder as PEFT writes it; returns its matrices by the layers' names."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for layer in layers:
        linear = engine.model.get_submodule(layer)
        assert isinstance(linear, nn.Linear)
        for part, shape in (("A", (RANK, linear.in_features)), ("B", (linear.out_features, RANK))):
            name = f"{layer}.lora_{part}.weight"
            tensors[name] = 0.05 * torch.randn(shape, generator=generator)
    folder.mkdir(exist_ok=True)
    prefixed = {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}
    save_file(prefixed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": alpha,
        "lora_dropout": 0.05, "bias": "none", "fan_in_fan_out": False, "use_dora": False,
        "use_rslora": False, "rank_pattern": {}, "alpha_pattern": {}, "modules_to_save": None,
        "target_modules": sorted({layer.rpartition(".")[2] for layer in layers}),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    return tensors


def packed_checkpoint(golden: Any, folder: Path) -> Path:
    plain: dict[str, Tensor] = {}
    for file in sorted(golden.folder.glob("model-*.safetensors")):
        plain |= load_file(file)
    stored, _ = packed_tensors(plain, "modelopt")
    return write(folder, golden.folder, stored, "modelopt")


def write_residual(folder: Path, *, hidden: int = 128, width: int = 24, **config: Any) -> None:
    generator = torch.Generator().manual_seed(4)
    shapes = {
        "norm": (hidden,), "gate_proj": (width, hidden), "up_proj": (width, hidden),
        "down_proj": (hidden, width),
    }  # fmt: skip
    tensors = {
        f"residual_adapter.{name}.weight": torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "residual_adapter.safetensors")
    (folder / "residual_config.json").write_text(json.dumps(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "adapter"


def failure(engine: Engine, folder: Path) -> str:
    """The sentence that loading fails with, after which the model is what it was."""
    before = {name: tensor.clone() for name, tensor in model_tensors(engine.model).items()}
    with pytest.raises(CheckpointError) as error:
        load_adapter(engine.model, folder)
    after = model_tensors(engine.model)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    text = str(error.value)
    assert str(folder) in text
    assert text.endswith(".")
    return text


def spoil(folder: Path, file: str, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file)


class TestLoRA:
    @pytest.mark.parametrize("rslora", [False, True])
    def test_equals_merged_weights(
        self, own_engine: Engine, golden: Any, folder: Path, rslora: bool
    ) -> None:
        tensors = write_lora(own_engine, folder, use_rslora=rslora)
        ids = golden.tokens("fwd_a_ids")
        plain = own_engine.logits(ids)
        adapted = Engine.load(golden.folder, device="cpu", adapter=folder)
        for layer in LAYERS:
            linear = own_engine.model.get_submodule(layer)
            a, b = tensors[f"{layer}.lora_A.weight"], tensors[f"{layer}.lora_B.weight"]
            with torch.no_grad():
                linear.weight += (8 / RANK**0.5 if rslora else 8 / RANK) * b @ a
        want, got = own_engine.logits(ids), adapted.logits(ids)
        torch.testing.assert_close(got, want, atol=TOLERANCE, rtol=0)
        assert (want - plain).abs().max() > 1
        assert not any(p.requires_grad for p in adapted.model.parameters())
        assert lora_parameters(adapted.model) == {}  # folded: answers cost what they did without

    @pytest.mark.parametrize("packed", [False, True])
    def test_folded_is_the_same_function(
        self, golden: Any, own_engine: Engine, folder: Path, packed: bool
    ) -> None:
        checkpoint = packed_checkpoint(golden, folder / "packed") if packed else golden.folder
        write_lora(own_engine, folder)
        engine = Engine.load(checkpoint, device="cpu")
        load_adapter(engine.model, folder)
        ids = golden.tokens("fwd_a_ids")
        wanted, adapted = engine.logits(ids), lora_parameters(engine.model)
        fold_lora(engine.model, packed=False)
        left = {name for name in adapted if packed and not name.startswith("lm_head")}
        assert set(lora_parameters(engine.model)) == left
        fold_lora(engine.model, packed=True)
        assert lora_parameters(engine.model) == {}
        assert not any(p.requires_grad for p in engine.model.parameters())
        torch.testing.assert_close(engine.logits(ids), wanted, atol=TOLERANCE, rtol=0)

    def test_on_a_cpu_packed_weights_stay_packed(
        self, golden: Any, own_engine: Engine, folder: Path
    ) -> None:
        checkpoint = packed_checkpoint(golden, folder / "packed")
        write_lora(own_engine, folder)
        engine = Engine.load(checkpoint, device="cpu", adapter=folder)
        assert lora_parameters(engine.model)

    def test_the_files_names_without_pefts_prefix(self, own_engine: Engine, folder: Path) -> None:
        tensors = write_lora(own_engine, folder)
        save_file(tensors, folder / "adapter_model.safetensors")
        load_adapter(own_engine.model, folder)
        assert set(lora_parameters(own_engine.model)) == set(tensors)

    def test_takes_the_models_dtype(self, golden: Any, own_engine: Engine, folder: Path) -> None:
        write_lora(own_engine, folder)
        engine = Engine.load(golden.folder, device="cpu", dtype="bfloat16")
        load_adapter(engine.model, folder)
        assert {p.dtype for p in lora_parameters(engine.model).values()} == {torch.bfloat16}

    def test_at_birth_changes_no_bit(self, own_engine: Engine, golden: Any) -> None:
        ids = golden.tokens("fwd_a_ids")
        plain = own_engine.logits(ids)
        for layer in LAYERS:
            wrap_linear(own_engine.model, layer, RANK, 2.0)
        assert torch.equal(own_engine.logits(ids), plain)

    @pytest.mark.parametrize(
        "name", ["model.layers.9.attention.dense", "model.norm", "model", "nothing", ""]
    )
    def test_wrapping_what_is_no_linear_layer(self, own_engine: Engine, name: str) -> None:
        with pytest.raises(KeyError):
            wrap_linear(own_engine.model, name, RANK, 1.0)

    @pytest.mark.parametrize(
        "config",
        [
            {"peft_type": "IA3"},
            {"use_dora": True},
            {"bias": "all"},
            {"fan_in_fan_out": True},
            {"lora_bias": True},
            {"rank_pattern": {"dense": 8}},
            {"alpha_pattern": {"dense": 16}},
            {"alora_invocation_tokens": [1, 2]},
        ],
    )
    def test_what_is_not_plain_lora(
        self, own_engine: Engine, folder: Path, config: dict[str, Any]
    ) -> None:
        write_lora(own_engine, folder, **config)
        assert f"sets {next(iter(config))}" in failure(own_engine, folder)

    @pytest.mark.parametrize(
        "config",
        [
            {"r": None}, {"r": 0}, {"r": -1}, {"r": "4"}, {"r": True}, {"r": 4.0},
            {"lora_alpha": None}, {"lora_alpha": "8"}, {"lora_alpha": True},
            {"lora_alpha": float("nan")}, {"lora_alpha": float("inf")}, {"lora_alpha": 10**400},
            {"r": 10**400}, {"r": 1 << 40},
        ],
    )  # fmt: skip
    def test_impossible_numbers(
        self, own_engine: Engine, folder: Path, config: dict[str, Any]
    ) -> None:
        write_lora(own_engine, folder, **config)
        assert "adapter_config.json" in failure(own_engine, folder)

    @pytest.mark.parametrize("rank", [3, 1 << 16])
    def test_a_rank_that_the_tensors_have_not(
        self, own_engine: Engine, folder: Path, rank: int
    ) -> None:
        """Found before memory is taken for it."""
        write_lora(own_engine, folder, r=rank)
        assert f"{len(LAYERS) * 2} of another shape" in failure(own_engine, folder)

    def test_layers_that_the_model_has_not(self, own_engine: Engine, folder: Path) -> None:
        write_lora(own_engine, folder)

        def rename(tensors: dict[str, Tensor]) -> None:
            for name in [name for name in tensors if "layers.2" in name]:
                tensors[name.replace("layers.2", "layers.7")] = tensors.pop(name)

        spoil(folder, "adapter_model.safetensors", rename)
        text = failure(own_engine, folder)
        assert "adapts model.layers.7.attention.dense, which this model has not" in text

    def test_a_layer_that_is_not_linear(self, own_engine: Engine, folder: Path) -> None:
        write_lora(own_engine, folder)
        extra = {"base_model.model.model.norm.lora_A.weight": torch.ones(RANK, 128)}
        spoil(folder, "adapter_model.safetensors", lambda t: t.update(extra))
        assert "adapts model.norm, which this model has not" in failure(own_engine, folder)

    def test_missing_and_extra_tensors(self, own_engine: Engine, folder: Path) -> None:
        write_lora(own_engine, folder)

        def change(tensors: dict[str, Tensor]) -> None:
            del tensors["base_model.model.lm_head.lora_B.weight"]
            tensors["base_model.model.model.norm.modules_to_save.weight"] = torch.ones(128)

        spoil(folder, "adapter_model.safetensors", change)
        text = failure(own_engine, folder)
        assert "1 missing: lm_head.lora_B.weight" in text
        assert "1 unexpected: model.norm.modules_to_save.weight [128]" in text

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_values_that_are_not_finite(
        self, own_engine: Engine, folder: Path, value: float
    ) -> None:
        write_lora(own_engine, folder)
        name = "base_model.model.lm_head.lora_B.weight"
        spoil(folder, "adapter_model.safetensors", lambda t: t[name].view(-1)[:1].fill_(value))
        assert "lm_head.lora_B.weight holds values that are not finite" in failure(
            own_engine, folder
        )

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float8_e4m3fn])
    def test_dtypes(self, own_engine: Engine, folder: Path, dtype: torch.dtype) -> None:
        write_lora(own_engine, folder)
        name = "base_model.model.lm_head.lora_B.weight"
        spoil(folder, "adapter_model.safetensors", lambda t: t.update({name: t[name].to(dtype)}))
        assert "weights must be" in failure(own_engine, folder)

    @pytest.mark.parametrize("kept", [0, 7, 100, -1])
    def test_truncated(self, own_engine: Engine, folder: Path, kept: int) -> None:
        write_lora(own_engine, folder)
        path = folder / "adapter_model.safetensors"
        path.write_bytes(path.read_bytes()[:kept])
        assert "damaged" in failure(own_engine, folder)

    @pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_config.json"])
    def test_half_a_folder(self, own_engine: Engine, folder: Path, file: str) -> None:
        write_lora(own_engine, folder)
        (folder / file).unlink()
        assert f"{file} is missing" in failure(own_engine, folder)

    def test_twice(self, own_engine: Engine, folder: Path) -> None:
        write_lora(own_engine, folder)
        load_adapter(own_engine.model, folder)
        assert "has an adapter already" in failure(own_engine, folder)


class TestResidualFolder:
    def test_is_attached_and_used(self, own_engine: Engine, golden: Any, folder: Path) -> None:
        write_residual(folder, alpha=0.5, temperature=2.0, top_k=9)
        engine = Engine.load(golden.folder, device="cpu", adapter=folder)
        assert engine.model.residual == ResidualConfig(alpha=0.5, temperature=2.0, top_k=9)
        adapter = engine.model.residual_adapter
        assert isinstance(adapter, ResidualAdapter)
        stored = load_file(folder / "residual_adapter.safetensors")
        assert {f"residual_adapter.{n}" for n, _ in adapter.named_parameters()} == stored.keys()
        for name, parameter in adapter.named_parameters():
            assert torch.equal(parameter, stored[f"residual_adapter.{name}"])
            assert not parameter.requires_grad
        config = DecodeConfig(block_length=8, max_new_tokens=20, mask_id=500, stop_ids=[])
        answers = []
        for one in (engine, own_engine):
            *_, finish = one.generate(list(range(10)), config)
            assert isinstance(finish, FinishEvent)
            answers.append(finish.token_ids)
        assert answers[0] != answers[1]

    def test_with_lora(self, own_engine: Engine, folder: Path) -> None:
        tensors = write_lora(own_engine, folder)
        write_residual(folder)
        load_adapter(own_engine.model, folder)
        assert set(lora_parameters(own_engine.model)) == set(tensors)
        assert own_engine.model.residual_adapter is not None
        assert own_engine.model.residual == ResidualConfig()

    def test_when_one_half_fails_neither_is_put_on(self, own_engine: Engine, folder: Path) -> None:
        write_lora(own_engine, folder)
        write_residual(folder, alpha="strong")
        assert "residual_config.json cannot be used" in failure(own_engine, folder)
        assert not any(isinstance(m, LoRALinear) for m in own_engine.model.modules())

    def test_another_hidden_size(self, own_engine: Engine, folder: Path) -> None:
        write_residual(folder, hidden=64)
        text = failure(own_engine, folder)
        assert "4 of another shape" in text
        assert "residual_adapter.norm.weight is [64] instead of [128]" in text

    def test_foreign_tensors(self, own_engine: Engine, folder: Path) -> None:
        write_residual(folder)
        save_file({"proj": torch.ones(128, 128)}, folder / "residual_adapter.safetensors")
        text = failure(own_engine, folder)
        assert "4 missing" in text
        assert "1 unexpected: proj [128, 128]" in text

    @pytest.mark.parametrize("file", ["residual_adapter.safetensors", "residual_config.json"])
    def test_half_a_folder(self, own_engine: Engine, folder: Path, file: str) -> None:
        write_residual(folder)
        (folder / file).unlink()
        assert f"{file} is missing" in failure(own_engine, folder)


class TestForeignFolders:
    def test_missing(self, own_engine: Engine, folder: Path) -> None:
        assert "holds no adapter" in failure(own_engine, folder)

    def test_empty(self, own_engine: Engine, folder: Path) -> None:
        folder.mkdir()
        assert "holds no adapter" in failure(own_engine, folder)

    def test_a_checkpoint(self, own_engine: Engine, golden: Any) -> None:
        assert "holds no adapter" in failure(own_engine, golden.folder)
