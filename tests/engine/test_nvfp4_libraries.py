"""Our NVFP4 against the libraries that define it, live: their packers, their loaders.

Skipped where they are not installed, as in this project's own environment. Last compared with
compressed-tensors 0.20.1 (transformers 5.24.0) and nvidia-modelopt 0.47.0, torch 2.13.0 on a
processor:

    pip install compressed-tensors==0.20.1 nvidia-modelopt==0.47.0
    pytest -m slow tests/engine/test_nvfp4_libraries.py

What they made of the cases in tests/data/nvfp4 is kept there and compared in every run of the tests
(test_nvfp4.py).
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from engine.checkpoint.nvfp4 import dequantize, quantize
from engine.checkpoint.nvfp4_files import partner
from engine.checkpoint.quantise import Quantiser
from tests.engine.conftest import DATA
from tests.engine.nvfp4_checkpoints import plain_tensors, write
from tests.engine.test_nvfp4 import assert_same
from tests.engine.test_quantise import trunk

pytestmark = pytest.mark.slow

MODELOPT = "modelopt.torch.quantization.qtensor.nvfp4_tensor"
COMPRESSED_TENSORS = "compressed_tensors.compressors.nvfp4.base"
CONVERTER = "compressed_tensors.entrypoints.convert.converters.modelopt_nvfp4"

RANDOM_WEIGHTS = 240
DTYPES = (torch.bfloat16, torch.float32, torch.float16)
PACKED = 96 + 6 + 6 + 3
"""Matrices of the golden checkpoint that become NVFP4: experts, shared, attention, dense MLP."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", DATA, trunk(DATA), None, shards=3)


def require(*modules: str) -> None:
    """Skip the test where one of these cannot be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in modules:
            pytest.importorskip(module, exc_type=ImportError)


def packers(library: str) -> ModuleType:
    """The script that asks the libraries, if this one is installed."""
    require({"mo": MODELOPT, "ct": COMPRESSED_TENSORS}[library])
    from tests.data.nvfp4 import make

    return make


class TestBytes:
    @pytest.mark.parametrize("library", ["mo", "ct"])
    def test_of_the_cases_that_are_kept(self, library: str) -> None:
        make = packers(library)
        for name, weight in make.cases().items():
            assert_same(library, name, make.pack(library, weight), weight)

    @pytest.mark.parametrize("library", ["mo", "ct"])
    def test_of_random_and_adversarial_weights(self, library: str) -> None:
        make = packers(library)
        for name, weight in adversaries(torch.Generator().manual_seed(5)):
            if library == "mo" and not has_modelopt_scale(weight):
                continue
            assert_same(library, name, make.pack(library, weight), weight)


def adversaries(generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """(what it is, weight) of odd sizes and all three dtypes; "experts" is a stack."""

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    for number in range(RANDOM_WEIGHTS):
        dtype = DTYPES[number % 3]
        rows, columns = int(whole(1, 40)), 16 * int(whole(1, 20))
        normal = torch.randn(rows, columns, generator=generator)
        outlier = 0.02 * normal
        outlier[int(whole(0, rows)), int(whole(0, columns))] = 3e38
        middles = whole(-28, 29, rows, columns) / 4 * 448
        middles[0, 0] = 6 * 448  # the global scale is one, so that these are ties
        experts = torch.stack([normal * 10.0 ** int(whole(-12, 12)) for _ in range(3)])
        kinds = {
            "normal": normal,
            "rows far apart": normal * 2.0 ** whole(-140, 120, rows, 1),
            "columns far apart": normal * 2.0 ** whole(-20, 20, 1, columns),
            "subnormal": normal * 1e-39,
            "multiples of the smallest": torch.finfo(dtype).tiny * whole(-3, 4, rows, columns),
            "the largest": torch.finfo(dtype).max * whole(-1, 2, rows, columns),
            "a huge outlier": outlier,
            "ties": middles,
            "ties at another scale": whole(-24, 25, rows, columns) / 4,
            "mostly zeros": normal * (normal > 1),
            "one value": torch.full((rows, columns), 2.0 ** int(whole(-149, 127))),
            "experts": experts,
        }
        name = list(kinds)[number // 3 % len(kinds)]
        largest = torch.finfo(dtype).max
        yield f"{number}: {name}", kinds[name].clamp(-largest, largest).to(dtype)


def has_modelopt_scale(weight: Tensor) -> bool:
    """Whether ModelOpt has a global scale for each matrix: below 2^-138 it comes to zero, which
    stands for nothing; ours are codes of zero then."""
    return bool((weight.float().abs().flatten(-2).amax(-1) / (6 * 448) > 0).all())


@pytest.mark.parametrize("experts_only", [False, True])
def test_compressed_tensors_loads_it(source: Path, tmp_path: Path, experts_only: bool) -> None:
    """As transformers loads such a checkpoint: schemes from config.json, layers compressed by
    them, our tensors into those (every one, of its shape and dtype), and decompressed."""
    require(COMPRESSED_TENSORS)
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import apply_quantization_config
    from transformers import CompressedTensorsConfig

    target = tmp_path / "target"
    Quantiser(source, target, style="compressed-tensors", experts_only=experts_only).run()
    plain, stored = trunk(source), plain_tensors(target)
    declared = json.loads((target / "config.json").read_text())["quantization_config"]
    model = skeleton(plain)
    compressor = ModelCompressor.from_compression_config(CompressedTensorsConfig(**declared))
    apply_quantization_config(model, compressor.quantization_config)
    compressor.compress_model(model)
    theirs = model.state_dict()
    ours = {name: t for name, t in stored.items() if not is_vector(plain, name)}
    assert {n: t.dtype for n, t in ours.items()} == {n: t.dtype for n, t in theirs.items()}
    model.load_state_dict(ours, strict=True)
    compressor.decompress_model(model)
    back = model.state_dict()
    packed = [name for name in plain if name not in stored]
    assert len(packed) == (96 if experts_only else PACKED)
    for name in packed:
        want = quantize(plain[name], "compressed-tensors", largest=shared_largest(plain, name))
        assert torch.equal(back[name], dequantize(want, torch.bfloat16)), name


def test_modelopt_loads_it(source: Path, tmp_path: Path) -> None:
    """Its own tensor class and reading of the config, and compressed-tensors' converter."""
    require(MODELOPT, CONVERTER)
    from compressed_tensors.entrypoints.convert.converters.modelopt_nvfp4 import (
        ModelOptNvfp4Converter,
    )
    from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    target = tmp_path / "target"
    Quantiser(source, target).run()
    plain, stored = trunk(source), plain_tensors(target)
    converted = convert_hf_quant_config_format(
        json.loads((target / "hf_quant_config.json").read_text())
    )
    own = json.loads((target / "config.json").read_text())["quantization_config"]
    for key in ("quant_method", "quant_algo", "ignore", "config_groups"):
        assert own[key] == json.loads(json.dumps(converted[key])), key
    packed = [n for n in plain if f"{n.removesuffix('.weight')}.weight_scale" in stored]
    assert len(packed) == PACKED
    for name in packed:
        weight, stem = plain[name], name.removesuffix(".weight")
        back = NVFP4QTensor(weight.shape, weight.dtype, stored[name]).dequantize(
            torch.float32,
            scale=stored[f"{stem}.weight_scale"],
            double_scale=stored[f"{stem}.weight_scale_2"],
            block_sizes={-1: 16},
        )
        want = quantize(weight, largest=shared_largest(plain, name))
        assert torch.equal(back, dequantize(want)), name
    targets = ["re:.*proj$", "re:.*dense$", "re:.*query_key_value$"]
    converter = ModelOptNvfp4Converter(ignore=own["ignore"], targets=targets)
    result = converter.validate(dict(stored))
    assert sum(name.endswith("weight_packed") for name in result) == PACKED


def shared_largest(plain: dict[str, Tensor], name: str) -> Tensor | None:
    """The largest magnitude of what shares a global scale with `name`."""
    other = partner(name)
    return None if other is None else plain[other].abs().max()


def is_vector(plain: dict[str, Tensor], name: str) -> bool:
    """Whether this tensor is a norm or a bias, for which the skeleton has no layer."""
    return name in plain and plain[name].dim() == 1


def skeleton(plain: dict[str, Tensor]) -> nn.Module:
    """A tree of modules with the checkpoint's names and linear layers of its shapes, in bf16."""
    root = nn.Module()
    for name, weight in plain.items():
        if weight.dim() != 2:
            continue
        at, *rest = root, *name.removesuffix(".weight").split(".")
        for part in rest[:-1]:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        rows, columns = weight.shape
        leaf: nn.Module = (
            nn.Embedding(rows, columns)
            if "word_embeddings" in name
            else nn.Linear(columns, rows, bias=False)
        )
        at.add_module(rest[-1], leaf.to(weight.dtype))
    return root
