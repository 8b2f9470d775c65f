"""Loading: every way a checkpoint can be wrong is one sentence, and every way it can be right
gives the same model."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.checkpoint.load import load_model, read_headers
from engine.checkpoint.names import model_tensors
from engine.checkpoint.tensor_file import check_finite
from engine.checkpoint.write import save_checkpoint
from engine.config import CheckpointError, ModelConfig, ResidualConfig
from engine.generate import Engine
from engine.model.lora import wrap_linear
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model

CPU = torch.device("cpu")
SHARDS = [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"
EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"
NUMBERS = [name for name in ModelConfig.__dataclass_fields__ if name != "residual"]


@pytest.fixture(scope="module")
def weights(golden: Any) -> dict[str, Tensor]:
    """All tensors of the golden checkpoint."""
    return {name: t for shard in SHARDS for name, t in load_file(golden.folder / shard).items()}


@pytest.fixture
def sharded(golden: Any, tmp_path: Path) -> Path:
    """The golden checkpoint in three shards, to spoil."""
    for name in ("config.json", INDEX, *SHARDS):
        shutil.copy(golden.folder / name, tmp_path)
    return tmp_path


@pytest.fixture
def single(golden: Any, tmp_path: Path, weights: dict[str, Tensor]) -> Path:
    """The same in one file and without an index."""
    shutil.copy(golden.folder / "config.json", tmp_path)
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LLaDA2Model:
    return load_model(folder, device=CPU, dtype=dtype)


def failure(folder: Path) -> str:
    """The sentence that loading `folder` fails with."""
    with pytest.raises(CheckpointError) as error:
        load(folder)
    text = str(error.value)
    assert str(folder) in text
    assert "\n" not in text
    assert text.endswith(".")
    return text


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def set_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(data))


def equal(one: LLaDA2Model, other: LLaDA2Model) -> bool:
    ours, theirs = model_tensors(one), model_tensors(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


class TestFolder:
    def test_missing(self, tmp_path: Path) -> None:
        assert "is not a folder" in failure(tmp_path / "nothing")

    def test_a_file(self, single: Path) -> None:
        assert "is not a folder" in failure(single / "config.json")

    def test_empty(self, tmp_path: Path) -> None:
        assert "config.json is missing" in failure(tmp_path)

    def test_no_tensors(self, single: Path) -> None:
        (single / "model.safetensors").unlink()
        assert "holds no .safetensors file" in failure(single)

    def test_pickles_are_not_opened(self, single: Path) -> None:
        (single / "model.safetensors").rename(single / "pytorch_model.bin")
        assert "holds no .safetensors file" in failure(single)

    def test_a_folder_that_is_named_like_a_file(self, single: Path) -> None:
        (single / "model-2.safetensors").mkdir()
        assert "model-2.safetensors" in failure(single)


class TestDamagedFiles:
    @pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 500, -1, -1000])
    def test_truncated(self, sharded: Path, kept: int) -> None:
        path = sharded / SHARDS[1]
        path.write_bytes(path.read_bytes()[:kept])
        text = failure(sharded)
        assert SHARDS[1] in text
        assert "damaged" in text

    def test_truncated_right_behind_the_header(self, sharded: Path) -> None:
        path = sharded / SHARDS[0]
        data = path.read_bytes()
        path.write_bytes(data[: 8 + struct.unpack("<Q", data[:8])[0]])
        assert SHARDS[0] in failure(sharded)

    def test_longer_than_its_header_says(self, single: Path) -> None:
        path = single / "model.safetensors"
        path.write_bytes(path.read_bytes() + b"\0")
        assert "damaged" in failure(single)

    @pytest.mark.parametrize(
        "content",
        [
            b"\xff" * 64,
            struct.pack("<Q", 1 << 60) + b"{}",
            struct.pack("<Q", 2) + b"{}",
            struct.pack("<Q", 4) + b"null",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            b"<!DOCTYPE html><html></html>",
            b"PK\x03\x04" + b"\0" * 60,
        ],
        ids=["ones", "endless", "no tensors", "null", "lfs pointer", "web page", "zip"],
    )
    def test_foreign(self, single: Path, content: bytes) -> None:
        (single / "model.safetensors").write_bytes(content)
        failure(single)

    def test_offsets_that_overlap(self, single: Path) -> None:
        header = {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        }
        head = json.dumps(header).encode()
        content = struct.pack("<Q", len(head)) + head + b"\0" * 12
        (single / "model.safetensors").write_bytes(content)
        assert "damaged" in failure(single)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float64])
    def test_a_dtype_that_no_weight_has(self, single: Path, dtype: torch.dtype) -> None:
        rewrite(single, lambda t: t.update({NORM: t[NORM].to(dtype)}))
        text = failure(single)
        assert NORM in text
        assert "must be BF16, F16 or F32" in text

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_eight_bits(self, single: Path, dtype: torch.dtype) -> None:
        rewrite(single, lambda t: t.update({EXPERT: t[EXPERT].to(dtype)}))
        assert "quantised by FP8" in failure(single)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize("name", [EXPERT, NORM, "model.layers.2.mlp.gate.expert_bias"])
    def test_a_weight_that_is_not_finite(self, single: Path, name: str, value: float) -> None:
        def spoil(tensors: dict[str, Tensor]) -> None:
            tensors[name].view(-1)[-1] = value

        rewrite(single, spoil)
        text = failure(single)
        assert name in text
        assert "not finite" in text

    def test_a_weight_that_the_wanted_dtype_cannot_hold(self, single: Path) -> None:
        rewrite(single, lambda t: t.update({NORM: t[NORM].float() * 0 + 1e30}))
        load(single)
        with pytest.raises(CheckpointError, match=r"model\.norm\.weight.*float16"):
            load(single, torch.float16)


class TestTensors:
    def test_foreign_tensors(self, single: Path) -> None:
        save_file({"bert.embeddings": torch.zeros(3, 2)}, single / "model.safetensors")
        text = failure(single)
        assert "130 missing" in text
        assert "1 unexpected: bert.embeddings [3, 2]" in text

    def test_all_that_is_wrong_in_one_error(self, single: Path) -> None:
        def change(tensors: dict[str, Tensor]) -> None:
            del tensors[EXPERT], tensors["lm_head.weight"]
            tensors["model.layers.3.input_layernorm.weight"] = torch.ones(128)
            tensors["model.layers.1.mlp.experts.3.up_proj.bias"] = torch.ones(32)
            tensors[NORM] = torch.ones(127)

        rewrite(single, change)
        text = failure(single)
        assert "2 missing" in text
        assert EXPERT in text
        assert "lm_head.weight" in text
        assert "2 unexpected" in text
        assert "model.layers.3.input_layernorm.weight [128]" in text
        assert "experts.3.up_proj.bias [32]" in text
        assert f"1 of another shape: {NORM} is [127] instead of [128]" in text

    def test_long_lists_are_cut(self, single: Path) -> None:
        rewrite(single, lambda t: [t.pop(n) for n in list(t) if "experts" in n] and None)
        text = failure(single)
        assert "…" in text
        assert len(text) < 2000

    @pytest.mark.parametrize(
        "name",
        [
            EXPERT,
            "model.word_embeddings.weight",
            "model.layers.1.mlp.gate.weight",
            "model.layers.1.mlp.gate.expert_bias",
            "model.layers.0.attention.query_layernorm.weight",
        ],
    )
    @pytest.mark.parametrize(
        "reshape",
        [lambda t: t[:-1].contiguous(), lambda t: t[None], lambda t: t.flatten()[:1].reshape(())],
        ids=["shorter", "deeper", "scalar"],
    )
    def test_another_shape(
        self, single: Path, name: str, reshape: Callable[[Tensor], Tensor]
    ) -> None:
        rewrite(single, lambda t: t.update({name: reshape(t[name])}))
        assert f"1 of another shape: {name}" in failure(single)

    def test_a_transposed_matrix(self, single: Path) -> None:
        rewrite(single, lambda t: t.update({EXPERT: t[EXPERT].T.contiguous()}))
        assert "is [128, 32] instead of [32, 128]" in failure(single)

    def test_a_name_in_two_files(self, single: Path) -> None:
        save_file({NORM: torch.ones(128)}, single / "extra.safetensors")
        text = failure(single)
        assert NORM in text
        assert "extra.safetensors" in text
        assert "model.safetensors" in text

    def test_a_name_in_two_shards(self, sharded: Path) -> None:
        third = load_file(sharded / SHARDS[2])
        name = next(iter(load_file(sharded / SHARDS[0])))
        save_file(third | {name: torch.ones(1)}, sharded / SHARDS[2])
        text = failure(sharded)
        assert SHARDS[0] in text
        assert SHARDS[2] in text


class TestIndex:
    def index(self, folder: Path, weight_map: object) -> None:
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))

    def test_names_a_missing_file(self, sharded: Path) -> None:
        (sharded / SHARDS[1]).unlink()
        assert f"{SHARDS[1]} is missing" in failure(sharded)

    @pytest.mark.parametrize(
        "name", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ".", ""]
    )
    def test_names_a_file_outside(self, single: Path, name: str) -> None:
        shutil.copy(single / "model.safetensors", single.parent / "model.safetensors")
        self.index(single, {NORM: name})
        text = failure(single)
        assert "outside its folder" in text or "no .safetensors file" in text

    @pytest.mark.parametrize("weight_map", [None, {}, [], "model.safetensors", 3])
    def test_has_no_map(self, single: Path, weight_map: object) -> None:
        self.index(single, weight_map)
        assert "has no weight_map" in failure(single)

    @pytest.mark.parametrize("name", [None, 7, ["a"], {"a": 1}])
    def test_names_what_is_no_name(self, single: Path, name: object) -> None:
        self.index(single, {NORM: name})
        assert f"{INDEX} names what is no .safetensors file" in failure(single)

    def test_is_not_json(self, single: Path) -> None:
        (single / INDEX).write_text("{")
        assert f"{INDEX} is not JSON" in failure(single)

    def test_files_that_it_does_not_name_are_left_alone(self, sharded: Path) -> None:
        (sharded / "adapter_model.safetensors").write_bytes(b"something else")
        load(sharded)


class TestConfig:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{",
            b"not json",
            b"\xff\xfe\x00",
            b"[1, 2]",
            b'"text"',
            b"null",
            b"[" * 100_000,
            b'{"vocab_size": ' + b"9" * 5000 + b"}",
        ],
        ids=["empty", "open", "words", "bytes", "list", "text", "null", "deep", "digits"],
    )
    def test_not_a_json_object(self, single: Path, content: bytes) -> None:
        (single / "config.json").write_bytes(content)
        assert "config.json" in failure(single)

    def test_every_key_is_needed(self, golden: Any) -> None:
        data = json.loads((golden.folder / "config.json").read_text())
        for name in NUMBERS:
            with pytest.raises(CheckpointError, match=f"lacks {name}"):
                ModelConfig.from_dict({k: v for k, v in data.items() if k != name})

    @pytest.mark.parametrize(
        "name", [n for n in ModelConfig.__dataclass_fields__ if n != "residual"]
    )
    def test_impossible_numbers(self, single: Path, name: str) -> None:
        bad = [-1, "8", True, [8], {"a": 1}, 1 << 40, float("nan"), float("inf"), 10**400]
        if name not in ("first_k_dense_replace", "num_shared_experts"):
            bad.append(0)
        if ModelConfig.__dataclass_fields__[name].type is int:
            bad.append(8.5)
        elif name != "partial_rotary_factor":
            bad.remove(1 << 40)  # merely odd
        for value in bad:
            set_config(single, **{name: value})
            assert "config.json" in failure(single)

    @pytest.mark.parametrize(
        "changes",
        [
            {"num_hidden_layers": 256, "num_experts": 8192},
            {"hidden_size": 1 << 24, "vocab_size": 1 << 24},
            {"hidden_size": 1 << 24, "moe_intermediate_size": 1 << 24, "num_experts": 8192},
            {"num_attention_heads": 1 << 24, "head_dim": 1 << 24},
            {"num_shared_experts": 1 << 24, "moe_intermediate_size": 1 << 24},
            {"num_hidden_layers": 256},
        ],
    )
    def test_absurd_numbers_take_neither_memory_nor_minutes(
        self, single: Path, changes: dict[str, int]
    ) -> None:
        set_config(single, **changes)
        failure(single)

    def test_another_architecture(self, single: Path) -> None:
        set_config(single, model_type="llama")
        assert "'llama'" in failure(single)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("hidden_act", "gelu"),
            ("score_function", "softmax"),
            ("norm_topk_prob", False),
            ("use_qk_norm", False),
            ("use_bias", True),
            ("use_qkv_bias", True),
            ("norm_head", True),
            ("tie_word_embeddings", True),
            ("rope_scaling", {"type": "yarn", "factor": 4}),
            ("use_sliding_window", True),
        ],
    )
    def test_what_would_be_computed_wrongly(self, single: Path, name: str, value: object) -> None:
        set_config(single, **{name: value})
        assert name in failure(single)

    def test_quantised(self, single: Path) -> None:
        set_config(single, quantization_config={"quant_method": "fp8"})
        assert "quantised" in failure(single)

    def test_quantised_by_modelopt(self, single: Path) -> None:
        (single / "hf_quant_config.json").write_text("{}")
        assert "quantised" in failure(single)

    @pytest.mark.parametrize(
        "residual",
        [
            "gated_mlp",
            [1],
            {"form": "conv"},
            {"norm": 1},
            {"activation": "tanh"},
            {"alpha": "1"},
            {"alpha": float("inf")},
            {"temperature": 0},
            {"top_k": 0},
            {"top_k": "all"},
            {"unknown": 1},
        ],
    )
    def test_residual_settings(self, single: Path, residual: object) -> None:
        set_config(single, residual=residual)
        assert "config.json cannot be used" in failure(single)

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
            ({"n_group": 3}, "multiple of n_group"),
            ({"n_group": 16}, "at least two experts"),
            ({"topk_group": 5}, "exceed n_group"),
            ({"num_experts_per_tok": 9}, "fit into topk_group"),
            ({"partial_rotary_factor": 1.5}, "at most 1"),
            ({"partial_rotary_factor": 0.1}, "rotary dimension"),
        ],
    )
    def test_numbers_that_do_not_go_together(
        self, single: Path, changes: dict[str, Any], word: str
    ) -> None:
        set_config(single, **changes)
        assert word in failure(single)


class TestEqualModels:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    def test_from_any_dtype_on_disk(
        self, single: Path, weights: dict[str, Tensor], golden_engine: Engine, dtype: torch.dtype
    ) -> None:
        # Values that all three types hold; bf16's smallest exceed f16's range.
        exact = {n: t.half().bfloat16().float() for n, t in weights.items()}
        bias = {n: t for n, t in weights.items() if n.endswith("expert_bias")}
        save_file(exact | bias, single / "model.safetensors")
        want = load(single)
        save_file({n: t.to(dtype) for n, t in exact.items()} | bias, single / "model.safetensors")
        assert equal(load(single), want)

    def test_sharded_and_not(self, single: Path, golden_engine: Engine) -> None:
        assert equal(load(single), golden_engine.model)

    def test_sharded_without_an_index(self, sharded: Path, golden_engine: Engine) -> None:
        (sharded / INDEX).unlink()
        assert equal(load(sharded), golden_engine.model)

    def test_router_biases_stay_float32(self, single: Path) -> None:
        model = load(single, torch.bfloat16)
        for name, tensor in model_tensors(model).items():
            bias = name.endswith("expert_bias")
            assert tensor.dtype == (torch.float32 if bias else torch.bfloat16), name
        assert not model.training
        assert not any(p.requires_grad for p in model.parameters())

    def test_a_router_bias_in_another_dtype(self, single: Path, golden_engine: Engine) -> None:
        # The golden biases are exact in bf16.
        name = "model.layers.1.mlp.gate.expert_bias"
        rewrite(single, lambda t: t.update({name: t[name].bfloat16()}))
        assert equal(load(single), golden_engine.model)

    def test_progress(self, sharded: Path) -> None:
        told: list[tuple[int, int]] = []
        load_model(
            sharded, device=CPU, dtype=torch.float32, progress=lambda d, t: told.append((d, t))
        )
        done = [d for d, _ in told]
        assert done == sorted(done)
        assert {t for _, t in told} == {done[-1]} == {1599744}

    def test_headers_tell_sizes(self, sharded: Path) -> None:
        headers = read_headers(sharded)
        assert len(headers) == 130
        assert headers[EXPERT].shape == (32, 128)
        assert headers[EXPERT].nbytes == 32 * 128 * 2
        assert sum(info.nbytes for info in headers.values()) == 1599744


class TestWriting:
    def test_round_trip(self, golden_engine: Engine, tmp_path: Path) -> None:
        folder = tmp_path / "new" / "checkpoint"
        model = golden_engine.model
        save_checkpoint(model, folder, extra_config={"eos_token_id": 497, "mask_token_id": 500})
        assert equal(load(folder), model)
        assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors"}
        assert ModelConfig.from_pretrained(folder) == model.config
        assert Engine.load(folder, device="cpu").mask_id == 500
        with safe_open(folder / "model.safetensors", "pt") as reader:
            types = {name: reader.get_slice(name).get_dtype() for name in reader.keys()}  # noqa: SIM118
        assert len(types) == 130
        for name, dtype in types.items():
            assert dtype == ("F32" if name.endswith("expert_bias") else "BF16"), name

    def test_written_over(self, own_engine: Engine, tmp_path: Path) -> None:
        save_checkpoint(own_engine.model, tmp_path)
        with torch.no_grad():
            own_engine.model.lm_head.weight.mul_(2)
        save_checkpoint(own_engine.model, tmp_path)
        assert equal(load(tmp_path), own_engine.model)

    def test_not_beside_another_checkpoints_shards(
        self, golden_engine: Engine, sharded: Path
    ) -> None:
        """Its index would win: the next load would read the old weights."""
        with pytest.raises(FileExistsError, match="index"):
            save_checkpoint(golden_engine.model, sharded)

    def test_not_with_lora_beside_the_weights(self, own_engine: Engine, tmp_path: Path) -> None:
        wrap_linear(own_engine.model, "model.layers.0.attention.dense", 2, 1.0)
        with pytest.raises(ValueError, match="merge"):
            save_checkpoint(own_engine.model, tmp_path)

    def test_with_a_residual_adapter(self, own_engine: Engine, tmp_path: Path) -> None:
        model, config = own_engine.model, own_engine.config
        adapter = ResidualAdapter(config.hidden_size, 24, config.rms_norm_eps)
        with torch.no_grad():
            adapter.down_proj.weight.fill_(0.25)
        model.residual_adapter = adapter
        model.residual = ResidualConfig(alpha=0.5, top_k=7)
        save_checkpoint(model, tmp_path, dtype=torch.float32)
        loaded = load(tmp_path)
        assert equal(loaded, model)
        assert loaded.residual == model.residual
        assert loaded.residual_adapter is not None
        assert loaded.residual_adapter.gate_proj.weight.shape == (24, 128)


class TestResidualAdapterInACheckpoint:
    def tensors(self, width: int = 16) -> dict[str, Tensor]:
        names = {"norm": (128,), "gate_proj": (width, 128), "up_proj": (width, 128)}
        shapes = names | {"down_proj": (128, width)}
        return {f"residual_adapter.{n}.weight": torch.ones(s) for n, s in shapes.items()}

    def test_is_attached(self, single: Path) -> None:
        rewrite(single, lambda t: t.update(self.tensors()))
        set_config(single, residual={"alpha": 2.0, "temperature": 0.5, "top_k": 9})
        model = load(single)
        assert model.residual_adapter is not None
        assert model.residual == ResidualConfig(alpha=2.0, temperature=0.5, top_k=9)

    @pytest.mark.parametrize("part", ["norm", "gate_proj", "up_proj", "down_proj"])
    def test_a_part_is_missing(self, single: Path, part: str) -> None:
        tensors = self.tensors()
        del tensors[f"residual_adapter.{part}.weight"]
        rewrite(single, lambda t: t.update(tensors))
        assert "residual_adapter." in failure(single)

    def test_foreign_parts(self, single: Path) -> None:
        rewrite(single, lambda t: t.update({"residual_adapter.proj.weight": torch.ones(128, 128)}))
        assert "1 unexpected: residual_adapter.proj.weight" in failure(single)

    def test_widths_that_disagree(self, single: Path) -> None:
        wrong = {"residual_adapter.down_proj.weight": torch.ones(128, 15)}
        rewrite(single, lambda t: t.update(self.tensors() | wrong))
        assert "residual_adapter.down_proj.weight is [128, 15]" in failure(single)


class TestEngineLoad:
    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            ({"activations": "fp8"}, "activations must be"),
            ({"dtype": "int8"}, "dtype must be one of"),
            ({"device": "tpu"}, "device must be"),
            ({"device": "meta"}, "device must be"),
        ],
    )
    def test_arguments(self, tmp_path: Path, arguments: dict[str, str], word: str) -> None:
        with pytest.raises(ValueError, match=word):
            Engine.load(tmp_path / "not looked at", **{"device": "cpu", **arguments})

    def test_without_a_tokenizer(self, golden_engine: Engine) -> None:
        assert golden_engine.tokenizer is None
        assert golden_engine.mask_id is None
        assert golden_engine.stop_ids == (497,)
        assert golden_engine.parameters == 799_808
        assert golden_engine.memory == 4 * 799_808
        assert golden_engine.context_length == 32768

    @pytest.mark.parametrize(
        ("generation", "mask", "stops"),
        [
            ({"mask_token_id": 500, "eos_token_id": [497, 3]}, 500, (497, 3)),
            ({"eos_token_id": 3}, None, (3,)),
            ({"eos_token_id": None}, None, ()),
            ({}, None, (497,)),
        ],
    )
    def test_special_ids(
        self, single: Path, generation: dict[str, Any], mask: int | None, stops: tuple[int, ...]
    ) -> None:
        (single / "generation_config.json").write_text(json.dumps(generation))
        engine = Engine.load(single, device="cpu")
        assert (engine.mask_id, engine.stop_ids) == (mask, stops)

    @pytest.mark.parametrize(
        "generation",
        [
            {"eos_token_id": "497"},
            {"eos_token_id": 3.5},
            {"eos_token_id": {"a": 1}},
            {"eos_token_id": ["a"]},
            {"eos_token_id": [True]},
            {"eos_token_id": 512},
            {"eos_token_id": -1},
            {"mask_token_id": "500"},
            {"mask_token_id": 512},
            {"mask_token_id": 497},
        ],
    )
    def test_special_ids_that_are_none(self, single: Path, generation: dict[str, Any]) -> None:
        (single / "generation_config.json").write_text(json.dumps(generation))
        with pytest.raises(CheckpointError, match=str(single)):
            Engine.load(single, device="cpu")

    def test_a_tokenizer_of_another_model(self, single: Path, tiny_checkpoint: Path) -> None:
        shutil.copy(tiny_checkpoint / "tokenizer.json", single)
        (single / "generation_config.json").write_text('{"mask_token_id": 500}')
        with pytest.raises(CheckpointError, match=r"mask is token 261.*and 500"):
            Engine.load(single, device="cpu")

    def test_a_tokenizer_without_a_mask(self, tiny_checkpoint: Path, tmp_path: Path) -> None:
        shutil.copytree(tiny_checkpoint, tmp_path / "copy")
        path = tmp_path / "copy" / "tokenizer.json"
        path.write_text(path.read_text().replace("<|mask|>", "<|unused|>"))
        with pytest.raises(CheckpointError, match=r"no <\|mask\|> token"):
            Engine.load(tmp_path / "copy", device="cpu")

    def test_a_tokenizer_larger_than_the_model(self, tiny_checkpoint: Path, tmp_path: Path) -> None:
        shutil.copytree(tiny_checkpoint, tmp_path / "copy")
        path = tmp_path / "copy" / "tokenizer.json"
        data = json.loads(path.read_text())
        last = data["added_tokens"][-1]
        data["added_tokens"] += [
            last | {"id": 262 + n, "content": f"<|more{n}|>"} for n in range(20)
        ]
        path.write_text(json.dumps(data))
        with pytest.raises(CheckpointError, match="282 tokens, the model only 272"):
            Engine.load(tmp_path / "copy", device="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_is_found_wherever_it_stands(
    dtype: torch.dtype, value: float
) -> None:
    check = check_finite("x", Path("file"))
    part = torch.linspace(-3, 3, 67).to(dtype)
    check(part)
    check(part[:0])
    check(torch.full((5,), torch.finfo(dtype).max, dtype=dtype))
    for place in range(len(part)):  # in whole vectors and in what is left of them
        bad = part.clone()
        bad[place] = value
        with pytest.raises(CheckpointError, match="file: x holds values that are not finite"):
            check(bad)
