"""A forward as a list of launches against the model's own modules on the reference: plain and
packed weights, activations rounded and not, LoRA, the residual adapter in all its forms.

Tolerances: float32 sums in other orders through two layers, relative to logits up to 32: 2e-4, as
for a whole model. Activations rounded to NVFP4 turn such a last bit into another code now and then,
a step of a sixth of a block's largest value: asserted is the mean there, and that it is rare.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.checkpoint.load import load_model
from engine.decode.expert_stacks import joined_shared
from engine.decode.forward_launches import ForwardLaunches, Shared, supported
from engine.decode.kv_cache import KVCache
from engine.kernels import reference
from engine.kernels.expert_memory import PlainExpert
from engine.kernels.launch import Launch
from engine.model.lora import wrap_linear
from engine.model.residual import ResidualAdapter, add_residual
from engine.model.tiles import tile_weights
from engine.model.transformer import LLaDA2Model
from tests.engine.nvfp4_checkpoints import packed_tensors, write
from tests.triton.target import needs_its_fp4_units

DATA = Path(__file__).parents[1] / "data" / "llada2_tiny"
CPU = torch.device("cpu")
LENGTH, START = 4, 8
LAYERS = 2  # one dense, one of experts


def shortened(model: LLaDA2Model) -> LLaDA2Model:
    model.model.layers = model.model.layers[:LAYERS]
    return model.eval()


def plain(folder: Path) -> LLaDA2Model:
    return shortened(load_model(DATA, device=CPU, dtype=torch.float32))


def packed(activations: Any, *, only: str = "") -> Callable[[Path], LLaDA2Model]:
    """Every linear layer in NVFP4, or those that have `only` in their names."""

    def make(folder: Path) -> LLaDA2Model:
        tensors: dict[str, Tensor] = {}
        for path in sorted(DATA.glob("model-*.safetensors")):
            tensors |= load_file(path)
        stored, _ = packed_tensors(tensors, "modelopt", lambda name: only in name, inputs=True)
        written = write(folder / "m", DATA, stored, "modelopt")
        return shortened(
            load_model(written, device=CPU, dtype=torch.float32, activations=activations)
        )

    return make


def adapted(make: Callable[[Path], LLaDA2Model]) -> Callable[[Path], LLaDA2Model]:
    """With LoRA on every kind of linear layer."""

    def wrapped(folder: Path) -> LLaDA2Model:
        model = make(folder)
        torch.manual_seed(4)
        for name in (
            "model.layers.0.attention.query_key_value", "model.layers.1.attention.dense",
            "model.layers.0.mlp.gate_proj", "model.layers.1.mlp.shared_experts.down_proj",
        ):  # fmt: skip
            layer = wrap_linear(model, name, rank=5, scale=0.7)
            torch.nn.init.normal_(layer.lora_B.weight, std=0.2)
        return model

    return wrapped


def run(launches: list[Launch]) -> None:
    for launch in launches:
        launch.run()


def both(model: LLaDA2Model, blocks: int, card: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Logits of the open blocks behind a prefix, by modules and by launches; their keys and values
    must agree too."""
    config, rows = model.config, blocks * LENGTH
    torch.manual_seed(1)
    tokens = torch.randint(0, 490, (START + 2 * LENGTH,))
    cache = KVCache(config, CPU, torch.float32)
    cache.keep_prefix([], LENGTH)
    cache.reserve(START + 2 * LENGTH)
    with torch.no_grad():
        model.trunk(model.embed(tokens[:START]), torch.arange(START), cache.attend(0))
        cache.commit(tokens[:START].tolist())
        own = tokens[START : START + rows]
        positions = torch.arange(START, START + rows)
        wanted = model(model.embed(own), positions, cache.attend(START))
    keys, values = cache.buffers
    before = [t[:, START : START + rows].clone() for t in (*keys[:LAYERS], *values[:LAYERS])]
    for tensor in (*keys, *values):
        tensor[:, START:] = float("nan")
    tile_weights(model, card)
    cos, sin = reference.rotary_tables(
        torch.arange(cache.capacity), config.rotary_dim, config.rope_theta, torch.float32
    )
    shared = Shared(
        tokens=tokens[START:].view(2, LENGTH),
        undecided=torch.ones(2, LENGTH, dtype=torch.int32),
        states=torch.zeros(2, 5, dtype=torch.int64),
        start=torch.tensor([START], dtype=torch.int32),
        keys=keys, values=values, cos=cos, sin=sin, residual=None,
    )  # fmt: skip
    logits = torch.full((rows, config.vocab_size), float("nan"))
    run(ForwardLaunches(model, rows, card).forward(shared, logits))
    after = [t[:, START : START + rows] for t in (*keys[:LAYERS], *values[:LAYERS])]
    for ours, theirs in zip(after, before, strict=True):
        assert (ours - theirs).abs().mean() < 2e-2  # where activations are rounded; else far less
    return logits, wanted


MODELS = {
    "plain": plain,
    "plain with LoRA": adapted(plain),
    "W4A16": packed("bf16"),
    "W4A16 with LoRA": adapted(packed("bf16")),
    "W4A16 experts": packed("bf16", only=".experts."),
}


@pytest.mark.parametrize(
    ("name", "blocks", "card"),
    [
        ("plain", 1, (8, 0)), ("plain", 2, (12, 0)), ("plain with LoRA", 1, (9, 0)),
        ("W4A16", 2, (8, 0)), ("W4A16 with LoRA", 1, (10, 0)),
        ("W4A16 experts", 1, (8, 0)), ("W4A16 experts", 2, (12, 0)),
    ],
)  # fmt: skip
def test_exact_weights(name: str, blocks: int, card: Any, tmp_path: Path) -> None:
    model = MODELS[name](tmp_path)
    assert supported(model)
    found, wanted = both(model, blocks, card)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "joins"),
    [("plain", True), ("plain with LoRA", False), ("W4A16", True), ("W4A16 experts", True)],
)
def test_the_shared_expert_joins_those_of_its_form(name: str, joins: bool, tmp_path: Path) -> None:
    moe = MODELS[name](tmp_path).model.layers[1].mlp
    assert (joined_shared(moe) is not None) == joins


@pytest.mark.parametrize(
    ("card", "other", "joins"),
    [
        ((12, 0), None, True), ((9, 0), "down_proj", True), ((12, 0), "down_proj", True),
        ((12, 0), "up_proj", False),
    ],
)  # fmt: skip
def test_rounded_activations(card: Any, other: str | None, joins: bool, tmp_path: Path) -> None:
    """The shared expert is one of the routed ones, unless its input is to be rounded otherwise."""
    needs_its_fp4_units(card, rounded=True)
    model = packed("nvfp4")(tmp_path)
    moe = model.model.layers[1].mlp
    if other is not None:
        moe.shared_experts.get_submodule(other).input_scale.mul_(3)
    assert (joined_shared(moe) is not None) == joins
    found, wanted = both(model, 1, card)
    error = (found - wanted).abs()
    assert error.mean() < 0.05
    assert (error < 1e-3).float().mean() > 0.3


@pytest.mark.parametrize("alike", [True, False])
def test_a_dense_layers_input_is_rounded_once_where_it_can_be(alike: bool, tmp_path: Path) -> None:
    """By the norm that makes it; against two scales it is rounded twice."""
    needs_its_fp4_units((12, 0), rounded=True)
    model = packed("nvfp4")(tmp_path)
    if not alike:
        model.model.layers[0].mlp.up_proj.input_scale.mul_(3)
    found, wanted = both(model, 1, (12, 0))
    assert (found - wanted).abs().mean() < 0.05
    launches = ForwardLaunches(model, LENGTH, (12, 0))._mlp(model.model.layers[0].mlp, found)[2]
    rounded = [launch.name for launch in launches if launch.name.endswith("_round")]
    assert rounded == (["mlp_down_round"] if alike else
                       ["mlp_gate_round", "mlp_up_round", "mlp_down_round"])  # fmt: skip


@pytest.mark.parametrize("card", [(9, 0), (12, 0)])
def test_rounded_activations_beside_a_plain_shared_expert(card: Any, tmp_path: Path) -> None:
    """The routed experts' input is rounded, the shared one's is not; both are in their launches."""
    needs_its_fp4_units(card, rounded=True)
    model = packed("nvfp4", only=".experts.")(tmp_path)
    assert isinstance(joined_shared(model.model.layers[1].mlp), PlainExpert)
    found, wanted = both(model, 1, card)
    error = (found - wanted).abs()
    assert error.mean() < 0.05
    assert (error < 1e-3).float().mean() > 0.3


@pytest.mark.parametrize(
    "form",
    [
        {"form": "gated_mlp"}, {"form": "gated_mlp", "activation": "gelu", "norm": False},
        {"form": "mlp", "activation": "relu"}, {"form": "linear"},
        {"form": "linear", "norm": False},
    ],
)  # fmt: skip
def test_the_residual_adapter(form: dict[str, Any]) -> None:
    torch.manual_seed(3)
    model = plain(DATA)
    size = model.config.hidden_size
    adapter = ResidualAdapter(size, 24, 1e-6, **form)
    torch.nn.init.normal_(adapter.down_proj.weight, std=0.1)
    z, out = torch.randn(LENGTH, size), torch.empty(LENGTH, size)
    with torch.no_grad():
        wanted = adapter(z)
    run(ForwardLaunches(model, LENGTH, (8, 0)).adapter(adapter, z, out))
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_residual_context_enters(dtype: torch.dtype) -> None:
    from engine.kernels.triton_pointwise import embed_launch

    torch.manual_seed(5)
    table, residual = torch.randn(30, 20).to(dtype), torch.randn(6, 20).to(dtype)
    tokens = torch.tensor([3, 29, 0, 7, 7, 1])
    undecided = torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.int32)
    for step in (0, 1):
        states, out = torch.tensor([8, 0, step, 0, 0]), torch.empty(6, 20, dtype=dtype)
        embed_launch(
            tokens, table, out, undecided=undecided, states=states, residual=residual, alpha=0.3
        ).run()
        wanted = table[tokens]
        if step:
            wanted = add_residual(wanted, residual, undecided.bool(), 0.3)
        assert torch.equal(out, wanted)
