"""NVFP4 checkpoints in every spelling load as the same model, and others are refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.checkpoint.load import load_model
from engine.checkpoint.names import model_tensors
from engine.checkpoint.nvfp4 import Style, quantize
from engine.config import CheckpointError, ModelConfig
from engine.generate import Engine
from engine.kernels import ops
from engine.model.moe import Experts
from engine.model.quantised import NVFP4Experts, NVFP4Linear, packed_modules
from engine.model.transformer import LLaDA2Model
from tests.engine.nvfp4_checkpoints import (
    INPUT_SCALE,
    change,
    packed_tensors,
    plain_tensors,
    rewrite,
    spelled,
    write,
)

CPU = torch.device("cpu")
STYLES: list[Style] = ["modelopt", "compressed-tensors"]
MLP = "model.layers.1.mlp"
IDS = torch.arange(30, 70) % 256

TOLERANCES = {
    # The weights' scale multiplies the sum instead of every weight: other roundings in float32.
    "logits": 2e-4,
    # bf16 activations of float32 products: at most a last bit apart, in logits of some ten.
    "bf16": 0.25,
}


@pytest.fixture(scope="module")
def plain(tiny_checkpoint: Path) -> dict[str, Tensor]:
    return plain_tensors(tiny_checkpoint)


def load(folder: Path, **arguments: Any) -> LLaDA2Model:
    return load_model(folder, device=CPU, dtype=torch.float32, **arguments)


def logits(model: LLaDA2Model) -> Tensor:
    attention = ops(IDS).attention
    with torch.no_grad():
        return model(
            model.embed(IDS),
            torch.arange(len(IDS)),
            lambda _, q, k, v: attention(q, k, v, start=0, block_length=32),
        )


def model_of(folder: Path, source: Path, values: dict[str, Tensor]) -> LLaDA2Model:
    """The plain model of float32 `values`."""
    return load(write(folder, source, values, None))


def failure(folder: Path, **arguments: Any) -> str:
    with pytest.raises(CheckpointError) as error:
        load(folder, **arguments)
    text = str(error.value)
    assert str(folder) in text
    assert text.endswith(".")
    assert "\n" not in text
    return text


def stacked(
    plain: dict[str, Tensor], whole: bool = True, layer: int = 1
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(everything but the experts of a layer, their stacks by projection)."""
    stem = f"model.layers.{layer}.mlp.experts"
    rest = {name: t for name, t in plain.items() if not name.startswith(stem)}
    count = sum(name.startswith(stem) for name in plain) // 3
    parts = {
        p: torch.stack([plain[f"{stem}.{e}.{p}.weight"] for e in range(count)])
        for p in ("gate_proj", "up_proj", "down_proj")
    }
    if whole:
        gate_up = torch.cat((parts.pop("gate_proj"), parts.pop("up_proj")), dim=1)
        parts = {"gate_up_proj": gate_up, **parts}
    return rest, parts


class TestSpellings:
    @pytest.mark.parametrize("style", STYLES)
    @pytest.mark.parametrize("shards", [1, 3])
    @pytest.mark.parametrize("inputs", [False, True])
    def test_every_expert_by_itself(
        self,
        tiny_checkpoint: Path,
        plain: dict[str, Tensor],
        tmp_path: Path,
        style: Style,
        shards: int,
        inputs: bool,
    ) -> None:
        stored, values = packed_tensors(plain, style, inputs=inputs)
        model = load(write(tmp_path / "packed", tiny_checkpoint, stored, style, shards))
        want = model_of(tmp_path / "plain", tiny_checkpoint, values)
        assert len(list(packed_modules(model))) == 2 * 2 + 3 + 3 + 1
        assert sum(m.has_input_scales for m in packed_modules(model)) == (11 if inputs else 0)
        assert not any(m.quantize_inputs for m in packed_modules(model))
        torch.testing.assert_close(logits(model), logits(want), atol=TOLERANCES["logits"], rtol=0)

    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize("turned", [True, False])
    @pytest.mark.parametrize("joint", [".", "_"])
    @pytest.mark.parametrize("one_scale", [True, False])
    def test_packed_stacks(
        self,
        tiny_checkpoint: Path,
        plain: dict[str, Tensor],
        tmp_path: Path,
        whole: bool,
        turned: bool,
        joint: str,
        one_scale: bool,
    ) -> None:
        rest, stacks = stacked(plain, whole)
        values = dict(rest)
        for projection, stack in stacks.items():
            largest = stack.abs().max().expand(8) if one_scale else None
            weight = quantize(stack, "modelopt", largest=largest)
            tensors = spelled(f"{MLP}.experts.{projection}", weight, "modelopt", joint=joint)
            for name in tensors:
                if turned and tensors[name].dim() == 3:
                    tensors[name] = tensors[name].mT
                if one_scale and name.endswith("scale_2"):
                    tensors[name] = tensors[name][0]
            rest |= tensors
            single = (
                packed_tensors(
                    {f"{MLP}.experts.{e}.{projection}.weight": stack[e] for e in range(8)},
                    "modelopt",
                )[1]
                if not one_scale
                else None
            )
            values |= (
                single
                if single is not None
                else {
                    f"{MLP}.experts.{e}.{projection}.weight": v
                    for e, v in enumerate(_dequantised(stack, largest))
                }
            )
        model = load(write(tmp_path / "packed", tiny_checkpoint, rest, "modelopt"))
        assert isinstance(model.model.layers[1].mlp.experts, NVFP4Experts)
        if whole:
            for e in range(8):
                both = values.pop(f"{MLP}.experts.{e}.gate_up_proj.weight").chunk(2)
                values |= dict(
                    zip(
                        (f"{MLP}.experts.{e}.{p}_proj.weight" for p in ("gate", "up")),
                        both,
                        strict=True,
                    )
                )
        want = model_of(tmp_path / "plain", tiny_checkpoint, values)
        torch.testing.assert_close(logits(model), logits(want), atol=TOLERANCES["logits"], rtol=0)

    @pytest.mark.parametrize("names", [("gate_up_proj", "down_proj"), ("w1", "w2")])
    @pytest.mark.parametrize("turned", [True, False])
    @pytest.mark.parametrize("suffix", ["", ".weight"])
    def test_plain_stacks(
        self,
        golden: Any,
        tmp_path: Path,
        names: tuple[str, str],
        turned: bool,
        suffix: str,
    ) -> None:
        weights = {n: t for n, t in plain_tensors(golden.folder).items() if n[:3] in ("mod", "lm_")}
        rest, stacks = stacked(weights)
        stem = f"{MLP}.experts" if names[0] != "w1" else MLP
        for name, stack in zip(names, stacks.values(), strict=True):
            rest[f"{stem}.{name}{suffix}"] = stack.mT if turned else stack
        folder = write(tmp_path / "stacks", golden.folder, rest, None)
        theirs = model_tensors(load(golden.folder))
        model = load(folder)
        assert all(torch.equal(t, theirs[n]) for n, t in model_tensors(model).items())

    def test_codes_of_equal_shape_both_ways_round(
        self, tiny_checkpoint: Path, tmp_path: Path, plain: dict[str, Tensor]
    ) -> None:
        """2I = d/2, as in LLaDA2.1-mini: only the scales tell which way the codes lie."""
        config = json.loads((tiny_checkpoint / "config.json").read_text())
        changed = {"moe_intermediate_size": 16, "num_shared_experts": 2}
        narrow = {n: t for n, t in plain.items() if ".experts." not in n}
        stack = torch.randn(8, 32, 64)
        down = torch.randn(8, 64, 16)
        models = []
        for turned in (False, True):
            tensors = dict(narrow)
            for name, weight in (("gate_up_proj", stack), ("down_proj", down)):
                spelt = spelled(f"{MLP}.experts.{name}", quantize(weight), "modelopt", joint="_")
                tensors |= {n: t.mT if turned and t.dim() == 3 else t for n, t in spelt.items()}
            folder = write(tmp_path / str(turned), tiny_checkpoint, tensors, "modelopt")
            saved = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(saved | config | changed))
            models.append(load(folder))
        assert torch.equal(logits(models[0]), logits(models[1]))


def _dequantised(stack: Tensor, largest: Tensor | None) -> Tensor:
    from engine.checkpoint.nvfp4 import dequantize

    return dequantize(quantize(stack, "modelopt", largest=largest))


class TestMixes:
    @pytest.mark.parametrize("style", STYLES)
    @pytest.mark.parametrize(
        ("chosen", "packed"),
        [
            (lambda n: ".mlp.experts." in n, 1),
            (lambda n: "attention" in n, 4),
            (lambda n: "layers.0" in n, 5),
            # Some matrices of a stack only: those are unpacked while loading.
            (lambda n: ".experts.3." in n, 0),
            (lambda n: ".mlp.experts." in n and "down" not in n, 0),
            (lambda n: ".mlp.experts." in n and ".5.up" not in n, 0),
        ],
    )
    def test_any_mix(
        self,
        tiny_checkpoint: Path,
        plain: dict[str, Tensor],
        tmp_path: Path,
        style: Style,
        chosen: Callable[[str], bool],
        packed: int,
    ) -> None:
        stored, values = packed_tensors(plain, style, chosen, inputs=True)
        model = load(write(tmp_path / "packed", tiny_checkpoint, stored, style, shards=2))
        assert len(list(packed_modules(model))) == packed
        want = model_of(tmp_path / "plain", tiny_checkpoint, values)
        torch.testing.assert_close(logits(model), logits(want), atol=TOLERANCES["logits"], rtol=0)

    @pytest.mark.parametrize("name", ["lm_head", "model.word_embeddings", f"{MLP}.gate"])
    def test_what_others_leave_out(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path, name: str
    ) -> None:
        """A packed head stays packed; embeddings and router, which are looked up or float32, are
        unpacked."""
        weight = quantize(plain[f"{name}.weight"])
        stored = {n: t for n, t in plain.items() if n != f"{name}.weight"}
        folder = write(
            tmp_path / "packed", tiny_checkpoint, stored | spelled(name, weight, "modelopt"), None
        )
        model = load(folder)
        values = plain | {f"{name}.weight": _dequantised(plain[f"{name}.weight"], None)}
        want = model_of(tmp_path / "plain", tiny_checkpoint, values)
        assert isinstance(model.lm_head, NVFP4Linear) == (name == "lm_head")
        torch.testing.assert_close(logits(model), logits(want), atol=TOLERANCES["logits"], rtol=0)

    def test_unpacked_values_are_the_librarys_to_the_last_bit(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path
    ) -> None:
        stored, values = packed_tensors(plain, "compressed-tensors", lambda n: ".experts.3." in n)
        model = load(write(tmp_path / "c", tiny_checkpoint, stored, "compressed-tensors"))
        experts = model.model.layers[1].mlp.experts
        assert isinstance(experts, Experts)
        assert torch.equal(experts.down[3], values[f"{MLP}.experts.3.down_proj.weight"])

    def test_every_projection_has_its_own_scale(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path
    ) -> None:
        scaled = dict(plain)
        for expert in range(8):
            scaled[f"{MLP}.experts.{expert}.up_proj.weight"] = (
                3.0 ** (expert - 4) * plain[f"{MLP}.experts.{expert}.up_proj.weight"]
            )
        stored, values = packed_tensors(scaled, "modelopt")
        model = load(write(tmp_path / "packed", tiny_checkpoint, stored, "modelopt"))
        experts = model.model.layers[1].mlp.experts
        assert isinstance(experts, NVFP4Experts)
        assert len(set(experts.gate_up_alpha.flatten().tolist())) == 16
        assert experts.gate_up_alpha.dtype == torch.float32
        want = model_of(tmp_path / "plain", tiny_checkpoint, values)
        torch.testing.assert_close(logits(model), logits(want), atol=TOLERANCES["logits"], rtol=0)


class TestActivations:
    @pytest.fixture
    def folder(self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path) -> Path:
        stored, _ = packed_tensors(plain, "modelopt", inputs=True)
        # A token never went to expert 2 while activations were measured.
        del stored[f"{MLP}.experts.2.gate_proj.input_scale"]
        stored[f"{MLP}.experts.6.up_proj.input_scale"] = torch.tensor(0.5)
        return write(tmp_path / "w4a4", tiny_checkpoint, stored, "modelopt")

    def test_the_largest_scale_serves_all_experts(self, folder: Path) -> None:
        experts = load(folder).model.layers[1].mlp.experts
        assert isinstance(experts, NVFP4Experts)
        assert experts.gate_up_input_scale is not None
        assert experts.down_input_scale is not None
        assert experts.gate_up_input_scale.item() == 0.5
        assert experts.down_input_scale.item() == pytest.approx(INPUT_SCALE)

    def test_are_left_alone_on_a_cpu_unless_asked(self, folder: Path) -> None:
        models = {a: load(folder, activations=a) for a in ("auto", "bf16", "nvfp4")}
        rounded = {a: all(m.quantize_inputs for m in packed_modules(x)) for a, x in models.items()}
        assert rounded == {"auto": False, "bf16": False, "nvfp4": True}
        assert torch.equal(logits(models["auto"]), logits(models["bf16"]))
        moved = (logits(models["nvfp4"]) - logits(models["bf16"])).abs().mean()
        assert 0.01 < moved < 5

    def test_rounding_without_scales(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path
    ) -> None:
        stored, _ = packed_tensors(plain, "modelopt")
        folder = write(tmp_path / "w4a16", tiny_checkpoint, stored, "modelopt")
        assert "no scales for activations" in failure(folder, activations="nvfp4")
        assert not load(tiny_checkpoint, activations="nvfp4").training

    def test_in_bf16(self, folder: Path) -> None:
        wide = Engine.load(folder, device="cpu")
        narrow = Engine.load(folder, device="cpu", dtype="bfloat16")
        for module in packed_modules(narrow.model):
            kinds = {b.dtype for b in module.buffers()}
            assert kinds == {torch.uint8, torch.float8_e4m3fn, torch.float32}
        # As far from float32 as the plain model in bf16 is.
        gap = (narrow.logits(IDS) - wide.logits(IDS)).abs().median()
        assert gap < TOLERANCES["bf16"]


class TestEngine:
    def test_figures_and_an_answer(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path
    ) -> None:
        stored, _ = packed_tensors(plain, "modelopt")
        folder = write(tmp_path / "packed", tiny_checkpoint, stored, "modelopt")
        whole, packed = (
            Engine.load(tiny_checkpoint, device="cpu"),
            Engine.load(folder, device="cpu"),
        )
        assert packed.parameters == whole.parameters
        assert packed.memory < 0.6 * whole.memory
        from engine.config import DecodeConfig

        *_, last = packed.generate([1, 2, 3], DecodeConfig(max_new_tokens=40, seed=0))
        assert last.reason in ("end", "length")

    def test_lora_over_packed_layers(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path
    ) -> None:
        from engine.model.lora import wrap_linear

        stored, _ = packed_tensors(plain, "modelopt")
        folder = write(tmp_path / "packed", tiny_checkpoint, stored, "modelopt")
        for dtype in (torch.float32, torch.bfloat16):
            engine = Engine.load(folder, device="cpu", dtype=dtype)
            before = engine.logits(IDS)
            lora = wrap_linear(engine.model, "model.layers.0.attention.dense", 4, 2.0)
            assert lora.lora_A.weight.dtype == dtype
            assert torch.equal(engine.logits(IDS), before)
            with torch.no_grad():
                lora.lora_B.weight.fill_(0.1)
            assert not torch.equal(engine.logits(IDS), before)

    def test_is_not_written_back(
        self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path
    ) -> None:
        from engine.checkpoint.write import save_checkpoint

        stored, _ = packed_tensors(plain, "modelopt")
        model = load(write(tmp_path / "packed", tiny_checkpoint, stored, "modelopt"))
        with pytest.raises(ValueError, match="quantised"):
            save_checkpoint(model, tmp_path / "again")


class TestRefused:
    @pytest.fixture
    def folder(self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path) -> Path:
        stored, _ = packed_tensors(plain, "modelopt", inputs=True)
        return write(tmp_path / "packed", tiny_checkpoint, stored, "modelopt")

    @pytest.mark.parametrize(
        ("algorithm", "said"),
        [
            ("NVFP4_AWQ", "AWQ"),
            ("NVFP4_SVD", "SVDQuant"),
            ("W4A16_AWQ", "AWQ"),
            ("FP8", "FP8"),
            ("MXFP8", "MXFP8"),
            ("W4A8_NVFP4_FP8", "W4A8_NVFP4_FP8"),
            ("W4A8_MXFP4_FP8", "MXFP4"),
            (3, "3"),
        ],
    )
    def test_modelopts_algorithms(self, folder: Path, algorithm: object, said: str) -> None:
        (folder / "hf_quant_config.json").unlink()
        change(folder, quantization_config={"quant_method": "modelopt", "quant_algo": algorithm})
        text = failure(folder)
        assert "quantised by" in text
        assert said in text

    @pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "mxfp4", "bitsandbytes", "quark", 7])
    def test_methods(self, folder: Path, method: object) -> None:
        (folder / "hf_quant_config.json").unlink()
        change(folder, quantization_config={"quant_method": method})
        assert str(method).upper() in failure(folder)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"format": "pack-quantized"}, "pack-quantized"),
            ({"format": "float-quantized"}, "float-quantized"),
            ({"format": "mxfp4-pack-quantized"}, "mxfp4-pack-quantized"),
            ({"weights": {"symmetric": False}}, "zero points"),
            ({"weights": {"num_bits": 8}}, "8-bit float"),
            ({"weights": {"type": "int"}}, "4-bit int"),
            ({"weights": {"group_size": 32}}, "groups of 32"),
            ({"weights": None}, "describe its weights"),
            ({"input_activations": {"num_bits": 8, "type": "float"}}, "activations"),
            ({"transform_config": {"config_groups": {"a": 1}}}, "transform_config"),
            ({"config_groups": [1]}, "config_groups"),
        ],
    )
    def test_compressed_tensors_schemes(
        self, folder: Path, changes: dict[str, Any], said: str
    ) -> None:
        (folder / "hf_quant_config.json").unlink()
        weights = {"num_bits": 4, "type": "float", "group_size": 16, "symmetric": True}
        group: dict[str, Any] = {"weights": weights, "input_activations": None}
        config: dict[str, Any] = {
            "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": group},
        }  # fmt: skip
        for name, value in changes.items():
            if name == "weights":
                group["weights"] = value and weights | value
            elif name == "input_activations":
                group[name] = value
            else:
                config[name] = value
        change(folder, quantization_config=config)
        assert said in failure(folder)

    @pytest.mark.parametrize(
        ("suffix", "said"),
        [
            ("attention.dense.pre_quant_scale", "AWQ"),
            ("attention.dense.weight_zero_point", "zero points"),
            ("attention.dense.qweight", "GPTQ"),
            ("attention.dense.g_idx", "GPTQ"),
            ("attention.dense.weight_scale_inv", "FP8"),
            ("mlp.experts.gate_up_proj_blocks", "MXFP4"),
            ("attention.dense.svdquant_lora_a", "SVDQuant"),
        ],
    )
    def test_tensors_that_give_another_method_away(
        self, folder: Path, suffix: str, said: str
    ) -> None:
        name = f"model.layers.1.{suffix}"
        rewrite(folder, lambda t: t.update({name: torch.ones(64)}))
        text = failure(folder)
        assert name in text
        assert said in text

    def test_power_of_two_scales(self, folder: Path) -> None:
        name = "model.layers.1.attention.dense.weight_scale"
        rewrite(folder, lambda t: t.update({name: t[name].view(torch.uint8)}))
        assert "MXFP4" in failure(folder)

    def test_contradicting_files(self, folder: Path) -> None:
        change(folder, quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"})
        assert "W4A16_NVFP4 in hf_quant_config.json" in failure(folder)

    def test_modelopt_and_another(self, folder: Path) -> None:
        change(folder, quantization_config={"quant_method": "compressed-tensors"})
        assert "more than one method" in failure(folder)

    @pytest.mark.parametrize("value", [5, "nvfp4", [1]])
    def test_a_declaration_that_is_no_table(self, folder: Path, value: object) -> None:
        change(folder, quantization_config=value)
        assert "config.json" in failure(folder)

    def test_mixed_precision(self, folder: Path) -> None:
        (folder / "hf_quant_config.json").unlink()
        layers = {
            "a": {"quant_algo": "NVFP4", "group_size": 16},
            "b": {"quant_algo": "W4A16_NVFP4"},
        }
        mixed = {
            "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers
        }  # fmt: skip
        change(folder, quantization_config=mixed)
        load(folder)
        layers["c"] = {"quant_algo": "FP8"}
        change(folder, quantization_config=mixed)
        assert "FP8" in failure(folder)
        change(folder, quantization_config=mixed | {"quantized_layers": {"a": 1}})
        assert "quantized_layers" in failure(folder)

    def test_another_group_size(self, folder: Path) -> None:
        (folder / "hf_quant_config.json").unlink()
        wide = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}
        change(folder, quantization_config=wide)
        assert "group size is 32" in failure(folder)


class TestDamaged:
    NAME = "model.layers.1.attention.dense"

    @pytest.fixture
    def folder(self, tiny_checkpoint: Path, plain: dict[str, Tensor], tmp_path: Path) -> Path:
        stored, _ = packed_tensors(plain, "modelopt", inputs=True)
        return write(tmp_path / "packed", tiny_checkpoint, stored, "modelopt")

    @pytest.mark.parametrize("part", ["weight", "weight_scale", "weight_scale_2"])
    def test_a_part_is_missing(self, folder: Path, part: str) -> None:
        rewrite(folder, lambda t: t.pop(f"{self.NAME}.{part}"))
        assert f"{self.NAME}.weight" in failure(folder)

    @pytest.mark.parametrize("byte", [0x7F, 0xFF, 0x81])
    def test_a_block_scale_that_is_no_positive_number(self, folder: Path, byte: int) -> None:
        def spoil(tensors: dict[str, Tensor]) -> None:
            tensors[f"{self.NAME}.weight_scale"].view(torch.uint8)[3, 1] = byte

        rewrite(folder, spoil)
        assert f"{self.NAME}.weight_scale holds block scales" in failure(folder)

    @pytest.mark.parametrize("part", ["weight_scale_2", "input_scale"])
    @pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_global_scale_that_is_no_positive_number(
        self, folder: Path, part: str, value: float
    ) -> None:
        rewrite(folder, lambda t: t.update({f"{self.NAME}.{part}": torch.tensor(value)}))
        assert f"{self.NAME}.{part} holds a scale" in failure(folder)

    @pytest.mark.parametrize(
        ("part", "tensor", "said"),
        [
            ("weight_scale", torch.zeros(64, 8), "instead of [64, 4]"),
            ("weight_scale", torch.ones(64, 4), "must be F8_E4M3"),
            ("weight_scale_2", torch.ones(64), "instead of [1]"),
            ("weight_scale_2", torch.tensor(1), "must be F32"),
            ("weight", torch.zeros(64, 16, dtype=torch.uint8), "instead of [64, 32]"),
        ],
    )
    def test_other_shapes_and_kinds(
        self, folder: Path, part: str, tensor: Tensor, said: str
    ) -> None:
        rewrite(folder, lambda t: t.update({f"{self.NAME}.{part}": tensor}))
        text = failure(folder)
        assert f"{self.NAME}.{part}" in text
        assert said in text

    def test_scales_of_nothing(self, folder: Path) -> None:
        rewrite(
            folder,
            lambda t: t.update({"model.layers.1.mlp.extra.weight_scale": t["model.norm.weight"]}),
        )
        assert "mlp.extra.weight_scale" in failure(folder)

    def test_scales_of_a_quantised_cache_are_known_and_not_used(self, folder: Path) -> None:
        name = "model.layers.1.attention.k_scale"
        rewrite(folder, lambda t: t.update({name: torch.tensor(0.5)}))
        load(folder)


def test_config_has_no_part_in_it(tiny_checkpoint: Path) -> None:
    """A model of plain weights has no packed module, whatever it is asked for."""
    model = load(tiny_checkpoint, activations="nvfp4", cache_bytes=0)
    assert not list(packed_modules(model))
    assert isinstance(model.config, ModelConfig)
