"""Weights in tiles: nothing is lost, what does not divide stays, every tile is one range."""

import pytest
import torch

from engine.kernels import tiling
from engine.kernels.plans import expert_plan, expert_tile, linear_plan, linear_tile
from engine.kernels.tiling import Tile, layout, linear, tiled
from engine.model.quantised import NVFP4Linear, packed_modules
from engine.model.tiles import tile_weights


def test_a_tile_is_contiguous_and_comes_back() -> None:
    weight = torch.arange(3 * 64 * 128).view(3, 64, 128)
    laid_out = tiled(weight, Tile(32, 64))
    assert laid_out.shape == (3, 2, 2, 32, 64)
    assert laid_out.is_contiguous()
    assert torch.equal(laid_out[1, 1, 0], weight[1, 32:, :64])
    assert torch.equal(linear(laid_out), weight)


@pytest.mark.parametrize("shape", [(48, 128), (64, 96)], ids=str)
def test_what_does_not_divide_stays_linear(shape: tuple[int, int]) -> None:
    weight = torch.zeros(*shape)
    assert tiled(weight, Tile(32, 64)) is weight


def test_parts_divide_each() -> None:
    """Gate and up of 16 rows each make 32, but no tile of 32 rows holds one of them only."""
    weight = torch.zeros(2, 32, 64)
    assert tiled(weight, Tile(32, 64), parts=2) is weight
    assert tiled(weight, Tile(16, 64), parts=2).dim() == 5


@pytest.mark.parametrize("per_element", [1, 2, 16])
def test_a_layout_finds_every_element(per_element: int) -> None:
    tile = Tile(32, 64)
    rows, columns = 64, 128 // per_element
    weight = torch.arange(2 * rows * columns).view(2, rows, columns)
    wide = tile.columns // per_element
    for form in (weight, tiled(weight, tile, per_element=per_element)):
        where = layout(form, tile, stacked=True, per_element=per_element)
        assert where.tile == tile
        assert where.rows == rows
        flat = form.flatten()
        for matrix, row, column in ((0, 0, 0), (1, 37, columns - 1), (1, 63, wide // 2)):
            at = matrix * where.matrix + where.offset(row // 32 * 32) + row % 32 * where.row
            at += column // wide * where.column_step + column % wide
            assert flat[at] == weight[matrix, row, column]


def test_a_tile_of_another_size_is_the_weights_own() -> None:
    form = tiled(torch.zeros(64, 128), Tile(16, 32))
    assert layout(form, Tile(64, 64), stacked=False).tile == Tile(16, 32)


@pytest.mark.parametrize("sizes", [(8, 64), (48, 64), (32, 16)], ids=str)
def test_tiles_are_powers_of_two(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be a power of two"):
        Tile(*sizes)


def test_a_models_packed_weights_are_tiled_for_its_card() -> None:
    card = (12, 0)
    tile = linear_tile(card, None, 64)
    model = torch.nn.ModuleDict({"fits": NVFP4Linear(tile.columns, 64), "odd": NVFP4Linear(48, 20)})
    before = {}
    for name, module in model.items():
        module.packed.random_(0, 256)
        module.scales.view(torch.uint8).random_(0, 127)
        before[name] = (module.packed.clone(), module.scales.clone())
    tile_weights(model, card)
    fits, odd = model["fits"], model["odd"]
    assert fits.packed.shape[-2:] == (tile.rows, tile.columns // 2)
    assert fits.scales.dtype == torch.float8_e4m3fn
    codes, scales = before["fits"]
    assert torch.equal(tiling.linear(fits.packed), codes)
    assert torch.equal(tiling.linear(fits.scales.view(torch.uint8)), scales.view(torch.uint8))
    assert torch.equal(odd.packed, before["odd"][0])
    assert sum(module.weights() for module in packed_modules(model)) == 64 * tile.columns + 960


def test_native_fp4_needs_units_and_rounded_activations() -> None:
    for card, units in (((8, 0), False), ((9, 0), False), ((10, 0), True), ((12, 1), True)):
        assert linear_plan(card, None, 32, 2048, rounded=True).native is units
        assert expert_plan(card, None, 256, 256, rounded=True).native is units
        assert not expert_plan(card, None, 256, 256).native
    assert expert_plan((12, 0), None, 256, 256, rounded=True).rows == 8
    # sm_100's FP4 units take no fewer rows of weights and no fewer tokens.
    assert expert_plan((10, 0), None, 256, 256, rounded=True).rows == 16
    assert expert_tile((10, 0), None).rows >= 128
    assert linear_tile((10, 0), None, 2048).rows >= 128
