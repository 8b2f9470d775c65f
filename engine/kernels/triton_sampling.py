"""Predictions from logits in Triton: one reading for argmax, its probability and the entropy.

The vocabulary is divided into tiles with a program each; a second, small launch combines a row's
tiles in their order. A sample reads the row once more (and 16 times more for each filter, see
`triton_select.py`): Gumbel-max over what the filters keep, with the noise of `triton_random.py`.
Rules: `engine/decode/unmasking.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.config import DecodeConfig
from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_random import gumbel
from engine.kernels.triton_select import cut_launch, scaled_logits

TILE = 4096
"""Logits a program reads; a multiple of 4, since four tokens share a random counter."""


@dataclass(frozen=True)
class Predictions:
    """What a forward says of each row, all [rows], as in `unmasking.Prediction`, and the entropy.

    `top` and `total` are the largest logit and sum of exp(logit - top): what softmax needs.
    """

    tokens: Tensor
    confidence: Tensor
    best: Tensor
    best_probability: Tensor
    entropy: Tensor
    top: Tensor
    total: Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device, *, sampled: bool) -> Self:
        """Room for `rows` rows; without a temperature the choice is the argmax."""
        numbers = torch.empty(5, rows, device=device)
        ids = torch.empty(2, rows, dtype=torch.int64, device=device)
        return cls(
            tokens=ids[0] if sampled else ids[1],
            confidence=numbers[0] if sampled else numbers[1],
            best=ids[1],
            best_probability=numbers[1],
            entropy=numbers[2],
            top=numbers[3],
            total=numbers[4],
        )

    def rows(self, first: int, count: int) -> "Predictions":
        """Some of the rows, as views."""
        return Predictions(*(getattr(self, f.name)[first : first + count] for f in fields(self)))


@triton.jit
def scan_kernel(
    logits, tile_best, tile_top, tile_total, tile_moment, vocabulary, mask_id, TILE: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (row, tile): a tile's argmax and maximum m, sum of e^(x-m), sum of e^(x-m) (x-m)."""
    wait_for_inputs(AHEAD)
    line, tile = tl.program_id(0), tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    row = logits + line.to(tl.int64) * vocabulary
    x = scaled_logits(row, column, vocabulary, mask_id, 1.0)
    top = tl.max(x, 0)
    # The first of the largest; where one is not a number there may be none.
    best = tl.min(tl.where((x == top) & (column < vocabulary), column, vocabulary - 1), 0)
    gap = x - tl.where(top == float("-inf"), 0.0, top)
    weight = tl.exp(gap)
    at = line * tl.num_programs(1) + tile
    tl.store(tile_best + at, best)
    tl.store(tile_top + at, top)
    tl.store(tile_total + at, tl.sum(weight, 0))
    tl.store(tile_moment + at, tl.sum(weight * tl.where(weight == 0.0, 0.0, gap), 0))


@triton.jit
def scan_combine_kernel(
    tile_best, tile_top, tile_total, tile_moment,
    best, probability, entropy, row_top, row_total, tiles, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program row. entropy = log S - W / S, with S the sum of e^(x-m) and W that of e^(x-m) (x-m).

    A value that is not a number makes the probability one, which ends the answer.
    """
    wait_for_inputs(AHEAD)
    line = tl.program_id(0)
    tile = tl.arange(0, BLOCK)
    real = tile < tiles
    at = line * tiles + tile
    tops = tl.load(tile_top + at, mask=real, other=float("-inf"))
    totals = tl.load(tile_total + at, mask=real, other=0.0)
    moments = tl.load(tile_moment + at, mask=real, other=0.0)
    columns = tl.load(tile_best + at, mask=real, other=2147483647)
    top = tl.max(tops, 0)
    gap = tl.where(tops == float("-inf"), 0.0, tops - top)
    fade = tl.where(tops == float("-inf"), 0.0, tl.exp(gap))
    # A tile that holds something which is not a number must not fade away.
    fade = tl.where(totals == totals, fade, 1.0)
    total = tl.sum(totals * fade, 0)
    moment = tl.sum((moments + gap * totals) * fade, 0)
    first = tl.min(tl.where((tops == top) & real, columns, 2147483647), 0)
    tl.store(best + line, tl.where(first == 2147483647, 0, first).to(tl.int64))
    tl.store(probability + line, tl.div_rn(1.0 + total * 0.0, total))
    tl.store(entropy + line, tl.log(total) - moment / total)
    tl.store(row_top + line, top)
    tl.store(row_total + line, total)


@triton.jit
def draw_kernel(
    logits, limits, seed, states, borders, cuts, top,
    tile_token, tile_score, tile_logit, tile_total, vocabulary, mask_id,
    FILTERED: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr, STRIDE: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (row, tile): the tile's argmax of logit / temperature + noise over what is kept.

    states int64 [rows / SPAN, STRIDE] has a line for each SPAN rows: the first one's position in
    column 0, the step in column 2.
    """
    wait_for_inputs(AHEAD)
    line, tile = tl.program_id(0), tl.program_id(1)
    first = tile * TILE
    column = first + tl.arange(0, TILE)
    temperature = tl.load(limits)
    row = logits + line.to(tl.int64) * vocabulary
    x = scaled_logits(row, column, vocabulary, mask_id, temperature)
    if FILTERED:
        border, cut = tl.load(borders + line), tl.load(cuts + line)
        x = tl.where((x > border) | ((x == border) & (column <= cut)), x, float("-inf"))
    state = states + line // SPAN * STRIDE
    position = (tl.load(state) + line % SPAN).to(tl.int32)
    step = tl.load(state + 2).to(tl.int32)
    score = x + gumbel(tl.load(seed), first, position, step, TILE)
    highest = tl.max(score, 0)
    token = tl.min(tl.where((score == highest) & (column < vocabulary), column, vocabulary - 1), 0)
    at = line * tl.num_programs(1) + tile
    tl.store(tile_token + at, token)
    tl.store(tile_score + at, highest)
    tl.store(tile_logit + at, tl.max(tl.where(column == token, x, float("-inf")), 0))
    whole_top = tl.div_rn(tl.load(top + line), temperature)
    tl.store(tile_total + at, tl.sum(tl.exp(x - whole_top), 0))


@triton.jit
def draw_combine_kernel(
    tile_token, tile_score, tile_logit, tile_total, limits, top, probability, tokens, confidence,
    tiles,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program row: the token with the highest score, and its probability after filtering.

    A filter may have dropped what was not a number; the plain probability still says so.
    """
    wait_for_inputs(AHEAD)
    line = tl.program_id(0)
    tile = tl.arange(0, BLOCK)
    real = tile < tiles
    at = line * tiles + tile
    scores = tl.load(tile_score + at, mask=real, other=float("-inf"))
    highest = tl.max(scores, 0)
    winner = tl.min(tl.where((scores == highest) & real, tile, BLOCK), 0)
    winner = tl.where(winner == BLOCK, 0, winner)
    total = tl.sum(tl.load(tile_total + at, mask=real, other=0.0), 0)
    whole_top = tl.div_rn(tl.load(top + line), tl.load(limits))
    chosen = tl.load(tile_logit + line * tiles + winner)
    plain = tl.load(probability + line)
    tl.store(tokens + line, tl.load(tile_token + line * tiles + winner).to(tl.int64))
    tl.store(confidence + line, tl.exp(chosen - whole_top) / total + 0.0 * plain)


class Sampler:
    """Predictions for `rows` rows of logits, with buffers of its own: a call allocates nothing.

    `states` int64 [blocks, n] is where each block of rows / blocks rows says its first position
    (column 0) and its step (column 2): `triton_unmask.Block.state`, one or two of them. It,
    `limits` float32 [3] (temperature, top-k, top-p) and `seed` int64 [1] lie on the device and may
    change between launches (`set`); whether there is a temperature and which filters there are may
    not. The predictions go to `out`, where that is given.
    """

    def __init__(
        self, config: DecodeConfig, rows: int, vocabulary: int, mask_id: int, states: Tensor,
        out: Predictions | None = None,
    ) -> None:  # fmt: skip
        device = states.device
        self.states = states
        self.vocabulary, self.mask_id = vocabulary, mask_id
        self.tile = min(TILE, max(triton.next_power_of_2(vocabulary), 4))
        self.tiles = triton.cdiv(vocabulary, self.tile)
        self.sampled = config.temperature > 0
        self.use_k = config.top_k is not None and config.top_k < vocabulary
        self.use_p = config.top_p is not None and config.top_p < 1.0
        self.limits = torch.empty(3, device=device)
        self.seed = torch.empty(1, dtype=torch.int64, device=device)
        self.set(config, config.seed or 0)
        self._tiles = torch.empty(4, rows, self.tiles, device=device)
        self._tile_ids = torch.empty(rows, self.tiles, dtype=torch.int32, device=device)
        self._border = torch.empty(rows, device=device)
        self._cut = torch.empty(rows, dtype=torch.int32, device=device)
        self.out = out or Predictions.empty(rows, device, sampled=self.sampled)

    def set(self, config: DecodeConfig, seed: int) -> None:
        """Take a config's numbers, and a seed of 64 bits."""
        p = 1.0 if config.top_p is None else config.top_p
        self.limits.copy_(torch.tensor([config.temperature, float(config.top_k or 0), p]))
        signed = seed - (1 << 64) if seed >= 1 << 63 else seed  # the same 64 bits
        self.seed.fill_(signed)

    def predict(self, logits: Tensor) -> Predictions:
        """The same tensors at every call, rewritten; logits [rows, V] of any float dtype."""
        for launch in self.launches(logits):
            launch.run()
        return self.out

    def launches(self, logits: Tensor) -> list[Launch]:
        """What fills `out` from logits [rows, V]."""
        assert logits.is_contiguous()
        assert logits.shape == (self.out.best.shape[0], self.vocabulary)
        out, (top, total, moment, _) = self.out, self._tiles
        rows = {"vocabulary": self.vocabulary, "mask_id": self.mask_id, "logits": logits}
        tiles = {"tile_best": self._tile_ids, "tile_top": top, "tile_total": total,
                 "tile_moment": moment}  # fmt: skip
        scan = self._by_tile("scan", scan_kernel, tiles | rows, {})
        found = {"best": out.best, "probability": out.best_probability, "entropy": out.entropy,
                 "row_top": out.top, "row_total": out.total}  # fmt: skip
        combine = self._by_row("scan_combine", scan_combine_kernel, tiles | found)
        return [scan, combine, *(self._draw(logits, rows) if self.sampled else ())]

    def _draw(self, logits: Tensor, rows: dict[str, Any]) -> Iterator[Launch]:
        out, filtered = self.out, self.use_k or self.use_p
        if filtered:
            yield cut_launch(
                logits, out.top, self.limits, self._border, self._cut, mask_id=self.mask_id,
                use_k=self.use_k, use_p=self.use_p,
            )  # fmt: skip
        score, logit, total, _ = self._tiles
        tiles = {"tile_token": self._tile_ids, "tile_score": score, "tile_logit": logit,
                 "tile_total": total, "limits": self.limits, "top": out.top}  # fmt: skip
        drawn = {"seed": self.seed, "states": self.states, "borders": self._border,
                 "cuts": self._cut}  # fmt: skip
        blocks, stride = self.states.shape
        constants = {"FILTERED": filtered, "SPAN": len(out.best) // blocks, "STRIDE": stride}
        yield self._by_tile("draw", draw_kernel, tiles | rows | drawn, constants)
        chosen = {"probability": out.best_probability, "tokens": out.tokens,
                  "confidence": out.confidence}  # fmt: skip
        yield self._by_row("draw_combine", draw_combine_kernel, tiles | chosen)

    def _by_tile(
        self, name: str, kernel: Any, arguments: dict[str, Any], constants: dict[str, Any]
    ) -> Launch:
        grid = (len(self.out.best), self.tiles)
        return Launch(name, kernel, grid, arguments, constants | {"TILE": self.tile}, warps=4)

    def _by_row(self, name: str, kernel: Any, arguments: dict[str, Any]) -> Launch:
        constants = {"BLOCK": triton.next_power_of_2(self.tiles)}
        arguments = arguments | {"tiles": self.tiles}
        return Launch(name, kernel, (len(self.out.best),), arguments, constants, warps=1)
