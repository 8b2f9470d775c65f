"""The soft embedding in Triton: z = sum over v of p(v) E(v), over all tokens or the likeliest.

Over all tokens it is a product that reads the whole table once; its rows are divided between
programs, whose float32 parts a second launch adds in their order. The probabilities are made where
they are used and never stored. Over the likeliest k, `triton_select.py` finds where to cut, one
program a row lists the k tokens in their order, and only their k embeddings are read.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import prefetch_rows, wait_for_inputs
from engine.kernels.triton_select import cut_launch, scaled_logits

PARTS = 16
"""Parts of the vocabulary with programs of their own."""
TILE = 4096


@triton.jit
def statistics_kernel(
    logits, limits, tops, totals, vocabulary, mask_id, TILE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program row: its largest logit, and the sum of exp((logit - top) / temperature)."""
    wait_for_inputs(AHEAD)
    line = tl.program_id(0)
    row = logits + line.to(tl.int64) * vocabulary
    temperature = tl.load(limits)
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        highest = tl.maximum(highest, scaled_logits(row, column, vocabulary, mask_id, 1.0))
    top = tl.max(highest, 0)
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        x = scaled_logits(row, column, vocabulary, mask_id, temperature)
        total += tl.exp(x - tl.div_rn(top, temperature + 0.0 * top))
    tl.store(tops + line, top)
    tl.store(totals + line, tl.sum(total, 0))


@triton.jit
def _prefetch_table(
    table, low, vocabulary, SIZE: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Ask for what a program of `mix_kernel` loads first of the embeddings."""
    token = tl.minimum(low + tl.arange(0, STEP), vocabulary - 1)
    column = tl.program_id(0) * COLUMNS
    prefetch_rows(table + token.to(tl.int64) * SIZE + column, SIZE - column, COLUMNS, AHEAD)


@triton.jit
def mix_kernel(
    logits, limits, tops, totals, table, parts, rows, vocabulary, mask_id,
    SIZE: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STEP: tl.constexpr, PRECISION: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (columns of z, part of the vocabulary, rows): parts [PARTS, rows, d] float32."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    length = tl.cdiv(tl.cdiv(vocabulary, PARTS), STEP) * STEP
    low = part * length
    _prefetch_table(table, low, vocabulary, SIZE, COLUMNS, STEP, AHEAD)
    wait_for_inputs(AHEAD)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    real, inside = row < rows, column < SIZE
    temperature = tl.load(limits)
    top = tl.load(tops + row, mask=real, other=0.0)
    top = tl.div_rn(top, temperature + tl.zeros_like(top))
    total = tl.load(totals + row, mask=real, other=1.0)
    mixed = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(low, tl.minimum(low + length, vocabulary), STEP):
        token = first + tl.arange(0, STEP)
        known = token < vocabulary
        at = row.to(tl.int64)[:, None] * vocabulary + token[None, :]
        x = tl.load(logits + at, mask=real[:, None] & known[None, :], other=float("-inf"))
        x = tl.where((token == mask_id)[None, :], float("-inf"), x.to(tl.float32))
        x = tl.div_rn(x, temperature + tl.zeros_like(x))
        p = tl.div_rn(tl.exp(x - top[:, None]), total[:, None] + tl.zeros_like(x))
        embedding = tl.load(
            table + token.to(tl.int64)[:, None] * SIZE + column[None, :],
            mask=known[:, None] & inside[None, :],
            other=0.0,
        )
        mixed = tl.dot(p.to(embedding.dtype), embedding, mixed, input_precision=PRECISION)
    place = (part * rows + row).to(tl.int64)[:, None] * SIZE + column[None, :]
    tl.store(parts + place, mixed, mask=real[:, None] & inside[None, :])


@triton.jit
def add_kernel(
    parts, out, rows,
    SIZE: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (row, columns): the parts, added in their order."""
    wait_for_inputs(AHEAD)
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < SIZE
    total = tl.zeros((COLUMNS,), tl.float32)
    for part in tl.static_range(PARTS):
        at = (part * rows + row).to(tl.int64) * SIZE + column
        total += tl.load(parts + at, mask=inside, other=0.0)
    total = total.to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64) * SIZE + column, total, mask=inside)


@triton.jit
def list_kernel(
    logits, limits, borders, cuts, ids, values, vocabulary, mask_id,
    TOP_K: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Program row: the tokens kept by border and cut, in their order, and logit / temperature."""
    wait_for_inputs(AHEAD)
    line = tl.program_id(0)
    row = logits + line.to(tl.int64) * vocabulary
    temperature = tl.load(limits)
    border, cut = tl.load(borders + line), tl.load(cuts + line)
    seen = 0
    for first in range(0, vocabulary, TILE):
        column = first + tl.arange(0, TILE)
        x = scaled_logits(row, column, vocabulary, mask_id, temperature)
        kept = ((x > border) | ((x == border) & (column <= cut))) & (column < vocabulary)
        place = seen + tl.cumsum(kept.to(tl.int32), 0) - 1
        into = kept & (place < TOP_K)
        tl.store(ids + line * TOP_K + place, column, mask=into)
        tl.store(values + line * TOP_K + place, x, mask=into)
        seen += tl.sum(kept.to(tl.int32), 0)


@triton.jit
def gather_kernel(
    ids, values, table, out, vocabulary,
    SIZE: tl.constexpr, TOP_K: tl.constexpr, BLOCK_K: tl.constexpr, COLUMNS: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Program (row, columns): the listed tokens' embeddings by the softmax of their values."""
    wait_for_inputs(AHEAD)
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < SIZE
    lane = tl.arange(0, BLOCK_K)
    x = tl.load(values + row * TOP_K + lane, mask=lane < TOP_K, other=float("-inf"))
    top = tl.max(x, 0)
    whole = tl.sum(tl.exp(x - top), 0)
    total = tl.zeros((COLUMNS,), tl.float32)
    for k in range(TOP_K):
        p = tl.exp(tl.load(values + row * TOP_K + k) - top) / whole
        # A row that is not numbers may have listed fewer: what stands there then is no token.
        id = tl.minimum(tl.maximum(tl.load(ids + row * TOP_K + k), 0), vocabulary - 1)
        embedding = tl.load(table + id.to(tl.int64) * SIZE + column, mask=inside, other=0.0)
        total += p * embedding.to(tl.float32)
    total = total.to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64) * SIZE + column, total, mask=inside)


class SoftEmbedding:
    """z for `rows` rows, with buffers of its own: a call allocates nothing.

    `temperature` and `top_k` (None, or not less than the vocabulary: all tokens) are fixed. With
    mask_id the mask token counts for nothing whatever its logit; -1 leaves the logits as they are.
    `dtype` is that of z, whose sums are float32.
    """

    def __init__(
        self, rows: int, table: Tensor, *, temperature: float = 1.0, top_k: int | None = None,
        mask_id: int = -1, dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        vocabulary, size = table.shape
        device = table.device
        self.table, self.mask_id = table.contiguous(), mask_id
        self.top_k = top_k if top_k is not None and top_k < vocabulary else None
        self.unscaled = temperature == 1.0
        limits = [temperature, float(self.top_k or 0), 1.0]
        self.limits = torch.tensor(limits, dtype=torch.float32, device=device)
        self.out = torch.empty(rows, size, dtype=dtype, device=device)
        self._top, self._total, self._border = torch.empty(3, rows, device=device)
        self._cut = torch.empty(rows, dtype=torch.int32, device=device)
        kept = self.top_k or 0
        self._ids = torch.zeros(rows, kept, dtype=torch.int32, device=device)
        self._values = torch.zeros(rows, kept, device=device)
        self._parts = torch.empty(0 if kept else PARTS, rows, size, device=device)

    def mix(self, logits: Tensor, top: Tensor | None = None, total: Tensor | None = None) -> Tensor:
        """z [rows, d], the same tensor at every call; arguments as for `launches`."""
        for launch in self.launches(logits, top, total):
            launch.run()
        return self.out

    def launches(
        self, logits: Tensor, top: Tensor | None = None, total: Tensor | None = None
    ) -> list[Launch]:
        """What fills `out` from logits [rows, V], contiguous.

        `top` and `total` are a prediction's (`triton_sampling.Predictions`), which spare a reading
        of the logits; `total` serves at temperature 1 only.
        """
        assert logits.is_contiguous()
        rows, vocabulary = logits.shape
        launches = []
        usable = self.top_k is not None or (total is not None and self.unscaled)
        if top is None or not usable:
            top, total = self._top, self._total
            launches.append(
                Launch(
                    "soft_sums", statistics_kernel, (rows,),
                    {"tops": top, "totals": total} | self._row_arguments(logits),
                    {"TILE": min(TILE, triton.next_power_of_2(vocabulary))}, warps=8,
                )
            )  # fmt: skip
        if self.top_k is not None:
            return launches + self._mix_kept(logits, top, self.top_k)
        assert total is not None
        return launches + self._mix_all(logits, top, total)

    def _row_arguments(self, logits: Tensor) -> dict[str, Any]:
        return {
            "logits": logits, "limits": self.limits, "vocabulary": logits.shape[1],
            "mask_id": self.mask_id,
        }  # fmt: skip

    def _mix_all(self, logits: Tensor, top: Tensor, total: Tensor) -> list[Launch]:
        rows, size = logits.shape[0], self.table.shape[1]
        row_tile, columns, step, warps = mix_tiles(rows, size, self.table.element_size())
        parts: dict[str, Any] = {"parts": self._parts, "rows": rows}
        mix = Launch(
            "soft_mix", mix_kernel,
            (triton.cdiv(size, columns), PARTS, triton.cdiv(rows, row_tile)),
            {"tops": top, "totals": total, "table": self.table, **parts}
            | self._row_arguments(logits),
            {"SIZE": size, "PARTS": PARTS, "ROWS": row_tile, "COLUMNS": columns, "STEP": step,
             "PRECISION": "ieee"},
            warps,
        )  # fmt: skip
        width = min(triton.next_power_of_2(size), 1024)
        add = Launch(
            "soft_add", add_kernel, (rows, triton.cdiv(size, width)), parts | {"out": self.out},
            {"SIZE": size, "PARTS": PARTS, "COLUMNS": width},
        )  # fmt: skip
        return [mix, add]

    def _mix_kept(self, logits: Tensor, top: Tensor, top_k: int) -> list[Launch]:
        (rows, vocabulary), size = logits.shape, self.table.shape[1]
        cut = cut_launch(
            logits, top, self.limits, self._border, self._cut, mask_id=self.mask_id, use_k=True,
            use_p=False, exact=True,
        )  # fmt: skip
        listed: dict[str, Any] = {"ids": self._ids, "values": self._values}
        listing = Launch(
            "soft_list", list_kernel, (rows,),
            {"borders": self._border, "cuts": self._cut, **listed} | self._row_arguments(logits),
            {"TOP_K": top_k, "TILE": min(TILE, triton.next_power_of_2(vocabulary))}, warps=8,
        )  # fmt: skip
        width = min(triton.next_power_of_2(size), 512)
        gather = Launch(
            "soft_gather", gather_kernel, (rows, triton.cdiv(size, width)),
            {"table": self.table, "out": self.out, "vocabulary": vocabulary, **listed},
            {"SIZE": size, "TOP_K": top_k, "BLOCK_K": triton.next_power_of_2(top_k),
             "COLUMNS": width},
        )  # fmt: skip
        return [cut, listing, gather]


def mix_tiles(rows: int, size: int, itemsize: int) -> tuple[int, int, int, int]:
    """(rows, columns of z, tokens, warps) of a program of `mix_kernel`."""
    row_tile = min(max(triton.next_power_of_2(rows), 16), 64)
    # Half as many columns for twice the rows: more sums than that spill.
    most = (256 if itemsize == 2 else 64) * 32 // max(row_tile, 32)
    return row_tile, min(max(triton.next_power_of_2(size), 16), most), 32, 8


def soft_embedding(
    logits: Tensor, table: Tensor, *, temperature: float = 1.0, top_k: int | None = None
) -> Tensor:
    """z = sum_v softmax(logits / temperature)_v table[v]: the expected input embedding.

    logits [..., V] float32 (the mask token's already -inf), table [V, d]; returns [..., d] in
    float32. With `top_k` only that many tokens count, renormalised, the first among equals.
    """
    flat = logits.reshape(-1, logits.shape[-1]).contiguous()
    mixer = SoftEmbedding(flat.shape[0], table, temperature=temperature, top_k=top_k)
    return mixer.mix(flat).view(*logits.shape[:-1], -1)
