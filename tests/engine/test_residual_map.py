"""Residual adapters of other forms: recognised by shape, placed by a map, or refused in words."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.checkpoint.load import load_model
from engine.config import CheckpointError, ResidualConfig
from engine.generate import Engine
from engine.model.residual import ResidualAdapter
from engine.model.transformer import LLaDA2Model
from tests.engine.nvfp4_checkpoints import change, write

HIDDEN, WIDTH = 64, 24


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    tensors = load_file(tiny_checkpoint / "model.safetensors")
    return write(tmp_path / "checkpoint", tiny_checkpoint, tensors, None)


def add(folder: Path, **tensors: Tensor) -> dict[str, Tensor]:
    """Put more tensors into the checkpoint; names take "__" for "."."""
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    file = folder / "model.safetensors"
    save_file(load_file(file) | named, file)
    return named


def load(folder: Path, residual_map: Path | None = None) -> LLaDA2Model:
    return load_model(
        folder, device=torch.device("cpu"), dtype=torch.float32, residual_map=residual_map
    )


def adapter_of(model: LLaDA2Model) -> ResidualAdapter:
    assert model.residual_adapter is not None
    return model.residual_adapter


def failure(folder: Path, residual_map: Path | None = None) -> str:
    with pytest.raises(CheckpointError) as error:
        load(folder, residual_map)
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


def matrix(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns) / columns**0.5


def norm_of(z: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return z
    return nn.functional.rms_norm(z, (HIDDEN,), weight, eps=1e-6)


SILU = nn.functional.silu


class TestRecognised:
    @pytest.mark.parametrize("norm", [True, False])
    def test_one_square_matrix(self, folder: Path, norm: bool) -> None:
        w, n = matrix(HIDDEN, HIDDEN), torch.rand(HIDDEN) + 0.5
        add(folder, orl__z_proj__weight=w, **({"orl__ln__weight": n} if norm else {}))
        model, z = load(folder), torch.randn(5, HIDDEN)
        assert model.residual == ResidualConfig(form="linear", norm=norm)
        torch.testing.assert_close(adapter_of(model)(z), norm_of(z, n if norm else None) @ w.T)

    @pytest.mark.parametrize("norm", [True, False])
    @pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
    def test_two_matrices(self, folder: Path, norm: bool, names: tuple[str, str]) -> None:
        up, down, n = matrix(WIDTH, HIDDEN), matrix(HIDDEN, WIDTH), torch.rand(HIDDEN) + 0.5
        add(folder, **{names[0]: up, names[1]: down}, **({"c": n} if norm else {}))
        model, z = load(folder), torch.randn(5, HIDDEN)
        assert model.residual == ResidualConfig(form="mlp", norm=norm)
        want = SILU(norm_of(z, n if norm else None) @ up.T) @ down.T
        torch.testing.assert_close(adapter_of(model)(z), want)

    @pytest.mark.parametrize("norm", [True, False])
    @pytest.mark.parametrize(
        "names",
        [("x.gate.weight", "x.up.weight", "x.out"), ("m.w1", "m.w3", "m.w2"),
         ("z.gate_proj.weight", "z.up_proj.weight", "z.down_proj.weight")],
    )  # fmt: skip
    @pytest.mark.parametrize("width", [WIDTH, HIDDEN])
    def test_a_gated_mlp(
        self, folder: Path, norm: bool, names: tuple[str, str, str], width: int
    ) -> None:
        gate, up, down = matrix(width, HIDDEN), matrix(width, HIDDEN), matrix(HIDDEN, width)
        n = torch.rand(HIDDEN) + 0.5
        tensors = dict(zip(names, (gate, up, down), strict=True))
        add(folder, **tensors, **({"x.norm": n} if norm else {}))
        model, z = load(folder), torch.randn(5, HIDDEN)
        assert model.residual == ResidualConfig(form="gated_mlp", norm=norm)
        x = norm_of(z, n if norm else None)
        want = (SILU(x @ gate.T) * (x @ up.T)) @ down.T
        torch.testing.assert_close(adapter_of(model)(z), want)

    def test_config_says_how_it_is_applied(self, folder: Path) -> None:
        add(folder, proj=matrix(HIDDEN, HIDDEN))
        change(folder, residual={"alpha": 0.5, "temperature": 2.0, "top_k": 9})
        want = ResidualConfig("linear", alpha=0.5, temperature=2.0, top_k=9, norm=False)
        assert load(folder).residual == want

    @pytest.mark.parametrize("form", ["linear", "mlp"])
    def test_our_names_in_another_form(self, folder: Path, form: str) -> None:
        width = HIDDEN if form == "linear" else WIDTH
        parts = {"residual_adapter.down_proj.weight": matrix(HIDDEN, width)}
        if form == "mlp":
            parts["residual_adapter.up_proj.weight"] = matrix(WIDTH, HIDDEN)
        add(folder, **parts)
        change(folder, residual={"form": form, "norm": False, "activation": "relu"})
        adapter = adapter_of(load(folder))
        assert {f"residual_adapter.{n}" for n, _ in adapter.named_parameters()} == set(parts)

    def test_answers_with_it(self, folder: Path) -> None:
        from engine.config import DecodeConfig

        add(folder, proj=matrix(HIDDEN, HIDDEN))
        engine = Engine.load(folder, device="cpu")
        *_, last = engine.generate([5, 6, 7], DecodeConfig(max_new_tokens=16), record=True)
        assert any(state.z is not None for state in last.trajectory.steps)


class TestUnplaceable:
    @pytest.mark.parametrize(
        "tensors",
        [
            {"vision.proj": (7, 9)},
            {"a": (HIDDEN, HIDDEN), "b": (HIDDEN,), "c": (HIDDEN,)},
            {"a": (HIDDEN, HIDDEN), "a.bias": (HIDDEN,)},
            {"a": (WIDTH, HIDDEN), "b": (HIDDEN, WIDTH + 1)},
            # Which comes first, which is the gate: neither shapes nor names say so.
            {"a": (HIDDEN, HIDDEN), "b": (HIDDEN, HIDDEN)},
            {"a": (WIDTH, HIDDEN), "b": (WIDTH, HIDDEN), "c": (HIDDEN, WIDTH)},
            {"a": (WIDTH, HIDDEN), "b": (WIDTH, HIDDEN), "c": (WIDTH, HIDDEN)},
            {"alpha": (1,)},
            {"k": (3, 3, 3)},
        ],
    )
    def test_is_listed_with_what_to_do(
        self, folder: Path, tensors: dict[str, tuple[int, ...]]
    ) -> None:
        add(folder, **{name: torch.ones(shape) for name, shape in tensors.items()})
        text = failure(folder)
        assert f"{len(tensors)} unexpected" in text
        for name, shape in tensors.items():
            assert f"{name} {list(shape)}" in text
        assert "residual_map.toml" in text
        assert "--residual-map" in text
        assert "model.safetensors" in text

    def test_a_missing_weight_is_told_first(self, folder: Path) -> None:
        file = folder / "model.safetensors"
        tensors = load_file(file)
        tensors["stray"] = tensors.pop("model.norm.weight")
        save_file(tensors, file)
        text = failure(folder)
        assert "1 missing: model.norm.weight" in text
        assert "1 unexpected: stray [64]" in text


GATED = """
form = "gated_mlp"
activation = "gelu"
alpha = 0.75
temperature = 1.5
top_k = 12

[tensors]
norm = "q.n"
gate = "q.a"
up = "q.b"
down = "q.c"
"""


class TestMap:
    def tensors(self) -> dict[str, Tensor]:
        return {
            "q.n": torch.rand(HIDDEN) + 0.5, "q.a": matrix(WIDTH, HIDDEN),
            "q.b": matrix(WIDTH, HIDDEN), "q.c": matrix(HIDDEN, WIDTH),
        }  # fmt: skip

    @pytest.mark.parametrize("beside", [True, False])
    def test_places_every_tensor(self, folder: Path, tmp_path: Path, beside: bool) -> None:
        t = add(folder, **self.tensors())
        path = folder / "residual_map.toml" if beside else tmp_path / "my.toml"
        path.write_text(GATED)
        model, z = load(folder, None if beside else path), torch.randn(5, HIDDEN)
        assert model.residual == ResidualConfig(
            "gated_mlp", 0.75, 1.5, 12, norm=True, activation="gelu"
        )
        x = norm_of(z, t["q.n"])
        want = (nn.functional.gelu(x @ t["q.a"].T) * (x @ t["q.b"].T)) @ t["q.c"].T
        torch.testing.assert_close(adapter_of(model)(z), want)
        engine = Engine.load(folder, device="cpu", residual_map=None if beside else path)
        assert engine.model.residual == model.residual

    def test_a_given_file_wins(self, folder: Path, tmp_path: Path) -> None:
        add(folder, **self.tensors())
        (folder / "residual_map.toml").write_text("not = [toml")
        (tmp_path / "my.toml").write_text(GATED)
        load(folder, tmp_path / "my.toml")
        assert "residual_map.toml is not TOML" in failure(folder)

    @pytest.mark.parametrize("activation", ["silu", "gelu", "relu", "none"])
    def test_two_square_matrices(self, folder: Path, activation: str) -> None:
        first, second = matrix(HIDDEN, HIDDEN), matrix(HIDDEN, HIDDEN)
        add(folder, a=first, b=second)
        (folder / "residual_map.toml").write_text(
            f'form = "mlp"\nactivation = "{activation}"\n[tensors]\nup = "b"\ndown = "a"\n'
        )
        z = torch.randn(5, HIDDEN)
        x = z @ second.T
        x = x if activation == "none" else getattr(nn.functional, activation)(x)
        torch.testing.assert_close(adapter_of(load(folder))(z), x @ first.T)

    def test_alpha_from_a_tensor_and_tensors_that_are_not_needed(self, folder: Path) -> None:
        add(
            folder, w=matrix(HIDDEN, HIDDEN), gain=torch.tensor([0.375]), head=torch.ones(1, HIDDEN)
        )
        (folder / "residual_map.toml").write_text(
            'form = "linear"\nalpha = "gain"\nunused = ["head"]\n[tensors]\ndown = "w"\n'
        )
        model = load(folder)
        assert model.residual == ResidualConfig("linear", 0.375, norm=False)

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('form = "gated_mlp"', 'form = "conv"', "form must be one of"),
            ('form = "gated_mlp"', 'form = "mlp"', "mlp needs exactly the tensors down, norm, up"),
            ("0.75", "true", "alpha must be a number"),
            ("0.75", '"q.zz"', "names q.zz"),
            ("top_k = 12", "depth = 2", "cannot be used"),
            ('"q.c"', '"q.x"', "names q.x, which the checkpoint has not"),
            ('"q.c"', '"model.norm.weight"', "names model.norm.weight"),
            ('"q.c"', '"q.a"', "twice"),
            ('gate = "q.a"\n', "", "gives no place to q.a [24, 64]"),
            ('"q.c"', "3", "[tensors] must name"),
            ("top_k = 12", 'unused = "q.n"', "unused must be a list"),
            ("[tensors]", "tensors = 3\n[other]", "[tensors] must name"),
        ],
    )
    def test_mistakes(self, folder: Path, old: str, new: str, said: str) -> None:
        add(folder, **self.tensors())
        assert old in GATED
        (folder / "residual_map.toml").write_text(GATED.replace(old, new))
        text = failure(folder)
        assert said in text
        assert "residual_map.toml" in text

    def test_shapes_that_do_not_fit(self, folder: Path) -> None:
        add(folder, **self.tensors())
        swapped = GATED.replace('"q.c"', '"q.t"').replace('"q.a"', '"q.c"').replace("q.t", "q.a")
        (folder / "residual_map.toml").write_text(swapped)
        assert "of another shape: q." in failure(folder)

    @pytest.mark.parametrize("content", [b"\xff\xfe", b"a = = 1", b"[" * 50_000])
    def test_no_toml(self, folder: Path, content: bytes) -> None:
        (folder / "residual_map.toml").write_bytes(content)
        assert "residual_map.toml is not TOML" in failure(folder)

    def test_no_file(self, folder: Path) -> None:
        assert "nowhere.toml cannot be read" in failure(folder, folder / "nowhere.toml")

    def test_alpha_of_many_numbers(self, folder: Path) -> None:
        add(folder, w=matrix(HIDDEN, HIDDEN), gain=torch.ones(2))
        (folder / "residual_map.toml").write_text(
            'form = "linear"\nalpha = "gain"\n[tensors]\ndown = "w"\n'
        )
        assert "gain is no single number" in failure(folder)


def test_forms_survive_saving(folder: Path, tmp_path: Path) -> None:
    from engine.checkpoint.write import save_checkpoint

    add(folder, up=matrix(WIDTH, HIDDEN), down=matrix(HIDDEN, WIDTH))
    model = load(folder)
    save_checkpoint(model, tmp_path / "again", dtype=torch.float32)
    again = load(tmp_path / "again")
    assert again.residual == model.residual
    z = torch.randn(3, HIDDEN)
    torch.testing.assert_close(adapter_of(again)(z), adapter_of(model)(z))
