"""Writing NVFP4: what is packed, in whose bytes, with what report, and going on after a stop."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from engine.checkpoint.load import load_model, read_headers
from engine.checkpoint.nvfp4 import Style, dequantize, quantize
from engine.checkpoint.nvfp4_files import is_packed, kind_of, packed_names, partner, written
from engine.checkpoint.quantise import Quantiser
from engine.checkpoint.tensor_writer import TensorWriter, save_tensors
from engine.config import CheckpointError
from engine.generate import Engine
from engine.model.quantised import packed_modules
from tests.engine.nvfp4_checkpoints import change, plain_tensors, save, write

STYLES: list[Style] = ["modelopt", "compressed-tensors"]
EXPERT = "model.layers.1.mlp.experts.3.{}_proj.weight"


def trunk(folder: Path) -> dict[str, Tensor]:
    return {n: t for n, t in plain_tensors(folder).items() if n.startswith(("model.", "lm_head"))}


@pytest.fixture
def source(golden: Any, tmp_path: Path) -> Path:
    """The golden checkpoint in bf16, three shards, with files of other kinds beside."""
    folder = write(tmp_path / "source", golden.folder, trunk(golden.folder), None, shards=3)
    (folder / "LICENSE").write_text("as is")
    (folder / "pytorch_model.bin").write_bytes(b"old weights")
    return folder


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("experts_only", [False, True])
def test_what_is_written(source: Path, tmp_path: Path, style: Style, experts_only: bool) -> None:
    target = tmp_path / "target"
    quantiser = Quantiser(source, target, style=style, experts_only=experts_only)
    told: list[tuple[int, int]] = []
    report = quantiser.run(lambda done, total: told.append((done, total)))
    plain, stored = trunk(source), plain_tensors(target)
    assert told[-1][0] == told[-1][1] == sum(t.nbytes for t in plain.values())
    assert [d for d, _ in told] == sorted(d for d, _ in told)
    assert sum(t.nbytes for t in stored.values()) == quantiser.bytes_after
    assert report.total.bytes_after == quantiser.bytes_after
    for name, weight in plain.items():
        if not is_packed(name, tuple(weight.shape), experts_only=experts_only):
            assert torch.equal(stored.pop(name), weight), name
            continue
        other = partner(name)
        shared = None if other is None else plain[other].abs().max()
        want = quantize(weight, style, largest=shared)
        codes, scales, factor = packed_names(name, style)
        assert torch.equal(stored.pop(codes), want.packed)
        assert torch.equal(stored.pop(scales).float(), want.scales.float())
        kept = want.global_scale if want.divisor is None else want.divisor
        assert torch.equal(stored.pop(factor).reshape(()), kept)
    assert not stored
    kinds = {
        kind_of(n) for n, t in plain.items() if is_packed(n, tuple(t.shape), experts_only=False)
    }
    assert kinds == {"routed experts", "shared experts", "attention", "dense MLP"}


@pytest.mark.parametrize("style", STYLES)
def test_the_result_loads_and_is_near(source: Path, tmp_path: Path, style: Style) -> None:
    target = tmp_path / "target"
    Quantiser(source, target, style=style, experts_only=True).run()
    whole, packed = Engine.load(source, device="cpu"), Engine.load(target, device="cpu")
    assert len(list(packed_modules(packed.model))) == 2
    ids = list(range(40, 100))
    agree = (whole.logits(ids).argmax(-1) == packed.logits(ids).argmax(-1)).float().mean()
    # A random network of ten per cent noisier experts; by chance it would be one in 500.
    assert agree > 0.6


def test_files_beside_the_weights(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    Quantiser(source, target).run()
    names = {path.name for path in target.iterdir()}
    assert names == {
        "LICENSE", "README.md", "config.json", "golden_meta.json", "hf_quant_config.json",
        "model-0.safetensors", "model-1.safetensors", "model-2.safetensors",
        "model.safetensors.index.json", "quantization_report.json",
    }  # fmt: skip
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(read_headers(target))
    config = json.loads((target / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == [
        name
        for name in config["quantization_config"]["ignore"]
        if name == "lm_head" or ".gate" in name
    ]
    assert config["num_experts"] == 16


def test_the_report(source: Path, tmp_path: Path) -> None:
    report = Quantiser(source, tmp_path / "target").run()
    plain = trunk(source)
    experts = report.kinds["routed experts"]
    assert experts.tensors == experts.packed == 2 * 16 * 3
    before = sum(t.nbytes for n, t in plain.items() if ".experts." in n and "shared" not in n)
    assert experts.bytes_before == before
    assert experts.bytes_after == before * 9 // 32 + 4 * experts.tensors
    # Normal weights lose 9.5 % in E2M1 with a scale for 16 of them.
    assert 0.08 < experts.relative < 0.11
    assert report.kinds["norms"].packed == 0
    assert report.kinds["norms"].relative == 0
    assert report.kinds["norms"].bytes_after == report.kinds["norms"].bytes_before
    on_disk = json.loads((tmp_path / "target" / "quantization_report.json").read_text())
    assert on_disk["routed experts"]["relative"] == experts.relative
    weight = plain[EXPERT.format("down")]
    error = (dequantize(quantize(weight)) - weight.float()).abs().max()
    assert 0 < float(error) <= experts.largest


def test_gate_and_up_share_a_scale(source: Path, tmp_path: Path) -> None:
    """Also where they lie in different shards, as they do here; other experts have their own."""
    headers = read_headers(source)
    assert headers[EXPERT.format("gate")].file != headers[EXPERT.format("up")].file
    Quantiser(source, tmp_path / "target").run()
    stored = plain_tensors(tmp_path / "target")
    scales = {
        e: [float(stored[f"model.layers.1.mlp.experts.{e}.{p}_proj.weight_scale_2"])
            for p in ("gate", "up", "down")]
        for e in range(16)
    }  # fmt: skip
    assert all(gate == up for gate, up, _ in scales.values())
    assert len({gate for gate, _, _ in scales.values()}) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_from_other_dtypes(golden: Any, tmp_path: Path, dtype: torch.dtype) -> None:
    bias = {n: t for n, t in trunk(golden.folder).items() if n.endswith("expert_bias")}
    plain = {n: t.to(dtype) for n, t in trunk(golden.folder).items()} | bias
    source = write(tmp_path / "source", golden.folder, plain, None)
    Quantiser(source, tmp_path / "target").run()
    stored = plain_tensors(tmp_path / "target")
    assert stored["lm_head.weight"].dtype == dtype
    assert not (tmp_path / "target" / "model.safetensors.index.json").exists()
    load_model(tmp_path / "target", device=torch.device("cpu"), dtype=torch.float32)


def test_rows_that_make_no_blocks_stay_plain() -> None:
    name = EXPERT.format("down")
    assert is_packed(name, (2048, 512), experts_only=True)
    assert not is_packed(name, (2048, 520), experts_only=True)
    assert written({name: ("BF16", (8, 24))}, "modelopt", experts_only=False) == {
        name: ("BF16", (8, 24))
    }


class TestStopped:
    def stop(self, quantiser: Quantiser, after: int) -> None:
        """Run until so many bytes are read, then fail as a full disk would."""

        def full(done: int, total: int) -> None:
            if done > after:
                raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            quantiser.run(full)

    def test_goes_on_where_it_stopped(self, source: Path, tmp_path: Path) -> None:
        target, again = tmp_path / "target", tmp_path / "again"
        want = Quantiser(source, again).run()
        self.stop(Quantiser(source, target), 800_000)
        assert not (target / "config.json").exists()
        with pytest.raises(CheckpointError):
            Engine.load(target, device="cpu")
        done = {path.name: path.stat().st_mtime_ns for path in target.glob("*.safetensors")}
        assert 1 <= len(done) < 3
        report = Quantiser(source, target).run()
        for name, time in done.items():
            assert (target / name).stat().st_mtime_ns == time
        assert report.to_json() == want.to_json()
        for path in again.iterdir():
            assert (target / path.name).read_bytes() == path.read_bytes()
        assert {p.name for p in target.iterdir()} == {p.name for p in again.iterdir()}

    def test_a_shard_that_was_removed_meanwhile(self, source: Path, tmp_path: Path) -> None:
        target = tmp_path / "target"
        self.stop(Quantiser(source, target), 800_000)
        next(target.glob("*.safetensors")).unlink()
        Quantiser(source, target).run()
        Engine.load(target, device="cpu")

    @pytest.mark.parametrize("options", [{"style": "compressed-tensors"}, {"experts_only": True}])
    def test_with_other_options(
        self, source: Path, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        self.stop(Quantiser(source, tmp_path / "target"), 0)
        with pytest.raises(CheckpointError, match="begun with another source or other options"):
            Quantiser(source, tmp_path / "target", **options)

    def test_with_another_source(self, source: Path, tmp_path: Path) -> None:
        self.stop(Quantiser(source, tmp_path / "target"), 0)
        tensors = load_file(source / "model-0.safetensors")
        save(tensors, source / "model-0.safetensors")
        with pytest.raises(CheckpointError, match="begun with another source"):
            Quantiser(source, tmp_path / "target")

    def test_a_damaged_journal(self, source: Path, tmp_path: Path) -> None:
        self.stop(Quantiser(source, tmp_path / "target"), 0)
        (tmp_path / "target" / "quantise.json").write_text("{")
        with pytest.raises(CheckpointError, match=r"quantise\.json is not JSON"):
            Quantiser(source, tmp_path / "target")

    def test_no_half_a_file_stays(self, source: Path, tmp_path: Path) -> None:
        target = tmp_path / "target"
        self.stop(Quantiser(source, target), 0)
        assert {path.name for path in target.iterdir()} == {"quantise.json"}


class TestRefused:
    def test_a_folder_that_holds_something(self, source: Path, tmp_path: Path) -> None:
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "notes.txt").write_text("mine")
        with pytest.raises(CheckpointError, match="not empty"):
            Quantiser(source, tmp_path / "target")
        with pytest.raises(CheckpointError, match="not empty"):
            Quantiser(source, source)

    def test_quantised_already(self, source: Path, tmp_path: Path) -> None:
        Quantiser(source, tmp_path / "target").run()
        with pytest.raises(CheckpointError, match="quantised already"):
            Quantiser(tmp_path / "target", tmp_path / "again")

    def test_stacked_experts(self, golden: Any, tmp_path: Path) -> None:
        tensors = trunk(golden.folder) | {"model.layers.1.mlp.w1": torch.ones(16, 64, 128)}
        source = write(tmp_path / "source", golden.folder, tensors, None)
        with pytest.raises(CheckpointError, match=r"mlp\.w1 is F32 \[16, 64, 128\]"):
            Quantiser(source, tmp_path / "target")

    @pytest.mark.parametrize("name", [EXPERT.format("up"), "lm_head.weight"])
    def test_values_that_are_not_finite(self, source: Path, tmp_path: Path, name: str) -> None:
        file = read_headers(source)[name].file
        tensors = load_file(file)
        tensors[name].view(-1)[7] = float("nan")
        save(tensors, file)
        with pytest.raises(CheckpointError, match=f"{name} holds values that are not finite"):
            Quantiser(source, tmp_path / "target").run()

    def test_another_architecture(self, source: Path, tmp_path: Path) -> None:
        change(source, model_type="llama")
        with pytest.raises(CheckpointError, match="'llama'"):
            Quantiser(source, tmp_path / "target")


def test_a_file_that_the_system_refuses_is_the_systems_error(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            save_tensors({"t": torch.zeros(1 << 16)}, tmp_path / "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "x")
    save_tensors({"t": torch.arange(3)}, tmp_path / "x")
    assert load_file(tmp_path / "x")["t"].tolist() == [0, 1, 2]


class TestTensorWriter:
    def test_the_library_reads_it(self, tmp_path: Path) -> None:
        tensors = {
            "b": torch.randn(3, 5), "a": torch.tensor(2.5), "c": torch.arange(7, dtype=torch.uint8),
            "e": torch.randn(2, 16).to(torch.float8_e4m3fn), "d": torch.randn(4).bfloat16(),
            "none": torch.zeros(0, 4),
        }  # fmt: skip
        kinds = {"b": "F32", "a": "F32", "c": "U8", "e": "F8_E4M3", "d": "BF16", "none": "F32"}
        planned = {n: (kinds[n], tuple(t.shape)) for n, t in tensors.items()}
        file = tmp_path / "x.safetensors"
        with TensorWriter(file, planned) as writer:
            for name in sorted(tensors, reverse=True):
                writer.write(name, tensors[name])
            assert not file.exists()
        read = load_file(file)
        assert all(torch.equal(read[n].float(), t.float()) for n, t in tensors.items())
        assert file.stat().st_size == writer.nbytes
        with safe_open(file, "pt") as reader:
            assert reader.metadata() == {"format": "pt"}

    def test_in_parts(self, tmp_path: Path) -> None:
        whole = torch.arange(10.0)
        with TensorWriter(tmp_path / "x", {"t": ("F32", (10,))}) as writer:
            writer.write("t", whole[6:], 6)
            writer.write("t", whole[:6])
        assert torch.equal(load_file(tmp_path / "x")["t"], whole)
