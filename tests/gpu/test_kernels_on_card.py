"""Each operation on the card against the reference in plain torch on the same card.

Tolerances, relative to the largest output: float32, sums of up to 5,120 products in another order,
1e-5; bfloat16, both round the same sums, which differ in their last bits, so that a rare one falls
to its neighbour, 2^-8 away, in up to three roundings in a row; rounded activations (W4A4) now and
then take the neighbouring code, a sixth of a block's largest value in one of many terms.
"""

import pytest
import torch
from torch import Tensor

from engine.checkpoint.nvfp4 import quantize
from engine.kernels import nvfp4_ops, nvfp4_reference, ops, reference
from tests.gpu.card import DEVICE, capability, needs_card

pytestmark = needs_card

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2**-6}
DTYPES = list(TOLERANCES)
W4A4 = 0.05


def near(found: Tensor, wanted: Tensor, tolerance: float | None = None) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    allowed = TOLERANCES[wanted.dtype] if tolerance is None else tolerance
    error = (found.float() - wanted.float()).abs().max()
    assert error <= allowed * wanted.float().abs().max()


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def test_the_kernels_are_tritons() -> None:
    assert ops(draw(1)).__name__ == "engine.kernels.triton_ops"
    assert nvfp4_ops(draw(1)).__name__ == "engine.kernels.triton_nvfp4"


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm(dtype: torch.dtype) -> None:
    for shape in ((32, 2048), (7, 100)):
        arguments = draw(*shape, dtype=dtype), draw(shape[1], dtype=dtype), 1e-6
        near(ops(arguments[0]).rms_norm(*arguments), reference.rms_norm(*arguments))


@pytest.mark.parametrize("dtype", DTYPES)
def test_split_qkv(dtype: torch.dtype) -> None:
    cos, sin = reference.rotary_tables(torch.arange(9, 41, device=DEVICE), 64, 6e5, dtype)
    arguments = draw(32, 24 * 128, dtype=dtype), draw(128, dtype=dtype), draw(128, dtype=dtype)
    sizes = {"heads": 16, "kv_heads": 4, "eps": 1e-6}
    ours = ops(cos).split_qkv(*arguments, cos, sin, **sizes)
    for found, wanted in zip(ours, reference.split_qkv(*arguments, cos, sin, **sizes), strict=True):
        near(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "start"), [(32, 0), (32, 1024), (64, 96), (512, 512)])
def test_attention(dtype: torch.dtype, tokens: int, start: int) -> None:
    q = draw(16, tokens, 128, dtype=dtype)
    k, v = (draw(4, start + tokens, 128, dtype=dtype, seed=s) for s in (1, 2))
    found = ops(q).attention(q, k, v, start=start, block_length=32)
    near(found, reference.attention(q, k, v, start=start, block_length=32))


@pytest.mark.parametrize("tokens", [5, 64])
def test_router(tokens: int) -> None:
    hidden, gate, bias = draw(tokens, 2048), draw(256, 2048) / 45, draw(256) / 10
    sizes = {"n_group": 8, "topk_group": 4, "top_k": 8, "scale": 2.5}
    ids, weights = ops(hidden).route(hidden, gate, bias, **sizes)
    wanted_ids, wanted = reference.route(hidden, gate, bias, **sizes)
    assert torch.equal(ids, wanted_ids)
    near(weights, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "shape"), [(32, (3072, 2048)), (64, (2048, 5120)), (7, (48, 96))])
def test_linear(dtype: torch.dtype, rows: int, shape: tuple[int, int]) -> None:
    x, weight = draw(rows, shape[1], dtype=dtype), draw(*shape, dtype=dtype)
    near(ops(x).linear(x, weight), reference.linear(x, weight))


def routed(tokens: int, experts: int, top_k: int) -> tuple[Tensor, Tensor]:
    ids = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(3)).argsort(1)
    return ids[:, :top_k].contiguous().to(DEVICE), draw(tokens, top_k).abs()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [5, 64])
def test_experts(dtype: torch.dtype, tokens: int) -> None:
    hidden = draw(tokens, 256, dtype=dtype)
    stacks = draw(16, 128, 256, dtype=dtype) / 16, draw(16, 256, 64, dtype=dtype) / 8
    arguments = hidden, *routed(tokens, 16, 4), *stacks
    near(ops(hidden).expert_mlp(*arguments), reference.expert_mlp(*arguments))


@pytest.mark.parametrize("top_k", [None, 50])
def test_soft_embedding(top_k: int | None) -> None:
    logits, table = draw(32, 5000) * 3, draw(5000, 256)
    near(
        ops(logits).soft_embedding(logits, table, top_k=top_k),
        reference.soft_embedding(logits, table, top_k=top_k),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounded", [False, True])
def test_packed_linear(dtype: torch.dtype, rounded: bool) -> None:
    x = draw(32, 2048, dtype=dtype)
    weight = quantize(draw(512, 2048).cpu(), "modelopt")
    parts = (
        weight.packed.to(DEVICE), weight.scales.to(DEVICE), weight.global_scale.to(DEVICE).float(),
    )  # fmt: skip
    scale = torch.tensor(4 / 2688, device=DEVICE) if rounded else None
    found = nvfp4_ops(x).nvfp4_linear(x, *parts, scale)
    near(found, nvfp4_reference.nvfp4_linear(x, *parts, scale), W4A4 if rounded else None)


def packed_experts() -> tuple[Tensor, ...]:
    """Codes, scales and alpha of eight experts' gate and up, and of their down, d 512, I 256."""
    parts: list[Tensor] = []
    for rows, columns, alphas in ((512, 512, 2), (512, 256, 1)):
        weights = [quantize(draw(rows, columns, seed=n).cpu() / 20, "modelopt") for n in range(8)]
        alpha = torch.stack([w.global_scale for w in weights]).float()
        parts += [
            torch.stack([w.packed for w in weights]).to(DEVICE),
            torch.stack([w.scales.view(torch.uint8) for w in weights])
            .to(DEVICE)
            .view(torch.float8_e4m3fn),
            (alpha[:, None].expand(-1, 2).contiguous() if alphas == 2 else alpha).to(DEVICE),
        ]
    return tuple(parts)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounded", [False, True])
def test_packed_experts(dtype: torch.dtype, rounded: bool) -> None:
    hidden = draw(32, 512, dtype=dtype)
    scales = {}
    if rounded:
        names = ("gate_up_input_scale", "down_input_scale")
        scales = {name: torch.tensor(4 / 2688, device=DEVICE) for name in names}
    arguments = hidden, *routed(32, 8, 3), *packed_experts()
    found = nvfp4_ops(hidden).nvfp4_expert_mlp(*arguments, **scales)
    wanted = nvfp4_reference.nvfp4_expert_mlp(*arguments, **scales)
    near(found, wanted, W4A4 if rounded else None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounded", [False, True])
def test_a_plain_shared_expert_in_the_launches_of_packed_ones(
    dtype: torch.dtype, rounded: bool
) -> None:
    """Every token's last pair is the shared expert's, the others are what they are without it."""
    from engine.kernels.expert_memory import Buffers, ExpertWeights, PlainExpert
    from engine.kernels.plans import expert_plan
    from engine.kernels.triton_experts import expert_launches
    from engine.kernels.triton_slots import slots_launch

    tokens, experts, top_k, width = 32, 8, 3, 256
    x, (ids, _) = draw(tokens, 512, dtype=dtype), routed(tokens, experts, top_k)
    scale = torch.tensor(4 / 2688, device=DEVICE) if rounded else None
    gate_up, gate_scales, gate_alpha, down, down_scales, alpha = packed_experts()
    stacks = (
        ExpertWeights(gate_up, gate_scales.view(torch.uint8), gate_alpha),
        ExpertWeights(down, down_scales.view(torch.uint8), alpha),
    )
    shared = PlainExpert(
        draw(width, 512, dtype=dtype, seed=1) / 20, draw(width, 512, dtype=dtype, seed=2) / 20,
        draw(512, width, dtype=dtype, seed=3) / 20,
    )  # fmt: skip
    rows = []
    for beside in (None, shared):
        chosen = ids
        if beside is not None:
            chosen = torch.cat((ids, torch.full_like(ids[:, :1], experts)), 1)
        count = experts + (beside is not None)
        plan = expert_plan(capability(), None, chosen.numel(), experts, rounded=rounded)
        buffers = Buffers.empty(
            x, chosen.shape[1], count, width, plan, scaled=rounded, plain=beside is not None
        )
        slots_launch(chosen, buffers.slots, count, x, scale, buffers.x).run()
        for launch in expert_launches(
            x, *stacks, plan, buffers, packed=True, width=width, x_scale=scale, h_scale=scale,
            beside=beside,
        ):  # fmt: skip
            launch.run()
        rows.append(buffers.rows.view(tokens, -1, 512))
    without, beside_them = rows
    near(beside_them[:, :top_k], without)
    near(beside_them[:, top_k], reference_mlp(x, shared.gate, shared.up, shared.down))


def reference_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    hidden = torch.nn.functional.silu(x @ gate.T) * (x @ up.T)
    return hidden @ down.T
