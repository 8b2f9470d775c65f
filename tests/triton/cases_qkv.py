"""The QKV split, in both forms: tensors of its own, and into the cache."""

import pytest
import torch

from engine.kernels import reference, triton_qkv
from engine.kernels.plans import linear_plan
from engine.kernels.triton_linear import linear_launch
from tests.triton.interpreter import in_any_order

# (batch, tokens, heads, key heads, head size, rotary size)
SHAPES = [
    ((), 5, 4, 2, 16, 8),
    ((2,), 3, 2, 1, 24, 6),
    ((), 1, 3, 3, 20, 20),
    ((2, 2), 2, 2, 1, 8, 2),
]


def inputs(shape: tuple, dtype: torch.dtype, seed: int = 0) -> tuple:
    batch, tokens, heads, kv_heads, size, rotary = shape
    torch.manual_seed(seed)
    qkv = torch.randn(*batch, tokens, (heads + 2 * kv_heads) * size).to(dtype)
    weights = [(torch.rand(size) + 0.5).to(dtype) for _ in range(2)]
    tables = reference.rotary_tables(torch.arange(40, 40 + tokens), rotary, 1e4, dtype)
    return qkv, *weights, *tables


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_split_is_the_references(shape: tuple, dtype: torch.dtype) -> None:
    arguments = inputs(shape, dtype)
    sizes = {"heads": shape[2], "kv_heads": shape[3], "eps": 1e-6}
    ours = triton_qkv.split_qkv(*arguments, **sizes)
    expected = reference.split_qkv(*arguments, **sizes)
    # As for the norm: another order of the mean's sum; a bfloat16 step in it, and one in each of
    # the rotation's two products.
    tolerance = 2e-6 if dtype == torch.float32 else 2**-6
    for got, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)
        if dtype == torch.bfloat16:
            assert (got == wanted).float().mean() > 0.98  # a tipped rounding is rare
    assert torch.equal(ours[2], expected[2])


def test_tables_may_differ_from_batch_to_batch() -> None:
    qkv, *weights, _, _ = inputs(((3,), 4, 2, 1, 8, 4), torch.float32)
    positions = torch.tensor([[0, 1, 2, 3], [9, 8, 7, 6], [5, 5, 5, 5]])
    tables = reference.rotary_tables(positions, 4, 1e4, torch.float32)
    sizes = {"heads": 2, "kv_heads": 1, "eps": 1e-6}
    ours = triton_qkv.split_qkv(qkv, *weights, *tables, **sizes)
    expected = reference.split_qkv(qkv, *weights, *tables, **sizes)
    for got, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("start", [0, 6, 32])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2]])
def test_the_cache_form_writes_where_the_device_says(shape: tuple, start: int) -> None:
    _, tokens, heads, kv_heads, size, rotary = shape
    capacity = 40
    qkv, *weights, _, _ = inputs(shape, torch.float32)
    tables = reference.rotary_tables(torch.arange(capacity), rotary, 1e4, torch.float32)
    keys, values = (torch.full((kv_heads, capacity, size), 7.0) for _ in range(2))
    q = torch.empty(heads, tokens, size)
    where = torch.tensor([start], dtype=torch.int32)
    triton_qkv.store_launch(qkv, *weights, *tables, where, keys, values, q, eps=1e-6).run()
    own = [table[start : start + tokens] for table in tables]
    expected = reference.split_qkv(qkv, *weights, *own, heads=heads, kv_heads=kv_heads, eps=1e-6)
    stored = keys[:, start : start + tokens], values[:, start : start + tokens]
    for got, wanted in zip((q, *stored), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-6)
    for cache in (keys, values):
        untouched = torch.ones(capacity, dtype=torch.bool)
        untouched[start : start + tokens] = False
        assert (cache[:, untouched] == 7.0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads", "size", "rotary", "launches"),
    [
        (5, 4, 2, 64, 32, 1),  # a head is two tiles
        (70, 2, 1, 32, 8, 1),  # a head is a tile, and there are two parts of tokens
        (33, 3, 1, 16, 16, 1),  # a tile is two heads, of which the last one has one
        (3, 2, 1, 24, 6, 2),  # a tile holds pieces of heads
    ],
)
def test_the_product_may_split_its_own_heads(
    tokens: int, heads: int, kv_heads: int, size: int, rotary: int, launches: int,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    torch.manual_seed(tokens)
    capacity, width, columns = tokens + 9, (heads + 2 * kv_heads) * size, 40
    x, weight = torch.randn(tokens, columns).to(dtype), torch.randn(width, columns).to(dtype)
    norms = [(torch.rand(size) + 0.5).to(dtype) for _ in range(2)]
    tables = reference.rotary_tables(torch.arange(capacity), rotary, 1e4, dtype)
    where, qkv = torch.tensor([7], dtype=torch.int32), torch.empty(tokens, width, dtype=dtype)
    q = torch.empty(heads, tokens, size, dtype=dtype)
    keys, values = (torch.empty(kv_heads, capacity, size, dtype=dtype) for _ in range(2))
    plan = linear_plan((8, 0), dtype, tokens, width)
    product = linear_launch(x, weight, plan, qkv)
    store = triton_qkv.store_launch(qkv, *norms, *tables, where, keys, values, q, eps=1e-6)
    for launch in (product, store):
        launch.run()
    wanted = [t.clone() for t in (q, keys[:, 7 : 7 + tokens], values[:, 7 : 7 + tokens])]
    joined = triton_qkv.split_linear_launches(product, store)
    assert len(joined) == launches
    for seed in range(3):
        for tensor in (qkv, q, keys, values):
            tensor.fill_(float("nan"))
        with in_any_order(seed):
            for launch in joined:
                launch.run()
        found = (q, keys[:, 7 : 7 + tokens], values[:, 7 : 7 + tokens])
        assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
        assert keys[:, :7].isnan().all()
        if launches == 1:
            assert not joined[0].arguments["counters"].any()
