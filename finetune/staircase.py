"""Who sees whom in a packed row, twice: for any device, and for cards with FlexAttention.

Clean tokens see their answer's clean tokens of earlier blocks and of their own; several answers may
share them. A noisy state sees its answer's clean blocks before its own block, and itself; never its
own clean answer, later blocks, other states or other answers.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.kernels import ops
from engine.model.attention import Attend
from finetune.rows import Row

CLEAN = -1
PAD = -1


def staircase(row: Row) -> Attend:
    """The row's attention for where it lies. Built once a row, used by all layers."""
    return FlexStaircase(row) if row.clean.is_cuda else Staircase(row)


class Staircase:
    """`attend` in two products: clean contexts side by side, padded to the longest; then every
    state against its answer's context and itself. No mask of the row's size is made.

    q [H, T, D], k and v [Hkv, T, D] to [H, T, D], T the row's tokens.
    """

    def __init__(self, row: Row) -> None:
        self.row, device = row, row.clean.device
        answers = torch.arange(len(row.lengths), device=device)[:, None]
        owner, token = ((row.first <= answers) & (answers < row.last)).nonzero().unbind(1)
        # Padding reads token 0: finite, and behind every real token's block or masked.
        self.gather = token.new_zeros(len(row.lengths), max(row.lengths))
        self.gather[owner, row.place[token]] = token
        seen = torch.arange(max(row.lengths), device=device) < row.starts[:, None]
        own = torch.ones(len(seen), row.block_length, dtype=torch.bool, device=device)
        self.mask = torch.cat((seen, own), dim=1)[:, None, None, :]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        row, clean = self.row, self.row.clean.shape[0]
        noisy_q, noisy_k, noisy_v = (self._states(t[:, clean:]) for t in (q, k, v))
        if not clean:
            return self._flat(self._attend(noisy_q, noisy_k, noisy_v))
        own_q, own_k, own_v = (t[:, self.gather].transpose(0, 1) for t in (q, k, v))
        context = ops(q).attention(own_q, own_k, own_v, start=0, block_length=row.block_length)
        keys = torch.cat((own_k[row.answer], noisy_k), dim=-2)
        values = torch.cat((own_v[row.answer], noisy_v), dim=-2)
        noisy = self._flat(self._attend(noisy_q, keys, values))
        # What several answers share came out the same for each of them.
        return torch.cat((context.transpose(0, 1)[:, row.first, row.place], noisy), dim=1)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [S, H, B, D] to [S, H, B, D]; the heads of a group are further queries of theirs."""
        states, heads, length, size = q.shape
        grouped = q.reshape(states, k.shape[1], heads // k.shape[1] * length, size)
        return F.scaled_dot_product_attention(grouped, k, v, attn_mask=self.mask).view_as(q)

    def _states(self, x: Tensor) -> Tensor:
        """[heads, S * B, D] to [S, heads, B, D]."""
        return x.unflatten(1, (-1, self.row.block_length)).transpose(0, 1)

    @staticmethod
    def _flat(x: Tensor) -> Tensor:
        return x.transpose(0, 1).flatten(1, 2)


class FlexStaircase:
    """`attend` as one FlexAttention kernel over the row; whole tiles that nobody sees are skipped.

    Rows are padded to a multiple of `MULTIPLE`, so that few shapes are compiled.
    """

    MULTIPLE = 512

    def __init__(self, row: Row, *, compiled: bool = True) -> None:
        # Here, because it brings torch's compiler, which takes seconds and only a card needs.
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        self.padding = -row.tokens % self.MULTIPLE
        # An answer of its own, so that padding sees itself and nothing real does.
        pads = (PAD, PAD + 1, PAD, PAD)
        first, last, block, state = (
            F.pad(t, (0, self.padding), value=pad)
            for t, pad in zip(token_places(row), pads, strict=True)
        )

        def visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            mine = (first[key] <= first[query]) & (first[query] < last[key])
            before = (state[key] == CLEAN) & (block[key] < block[query])
            own = (state[query] == state[key]) & (block[query] == block[key])
            return mine & (before | own)

        size = row.tokens + self.padding
        # Compiled, the tiles are found without a mask of the row's size in memory.
        make, self.attention = (
            _function(function, compiled) for function in (create_block_mask, flex_attention)
        )
        self.mask = make(visible, None, None, size, size, device=str(row.clean.device))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (F.pad(t, (0, 0, 0, self.padding))[None] for t in (q, k, v))
        context: Tensor = self.attention(q, k, v, block_mask=self.mask, enable_gqa=True)[0]
        return context[:, : context.shape[1] - self.padding]


@lru_cache
def _function(function: Callable[..., Any], compiled: bool) -> Callable[..., Any]:
    return torch.compile(function) if compiled else function


def token_places(row: Row) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each of the row's tokens the answers it belongs to (the first, and behind the last), its
    block, and its state (CLEAN for context)."""
    states = torch.arange(len(row.starts), device=row.clean.device)
    states = states.repeat_interleave(row.block_length)
    answer = row.answer[states]
    first, last = torch.cat((row.first, answer)), torch.cat((row.last, answer + 1))
    state = torch.cat((torch.full_like(row.clean, CLEAN), states))
    return first, last, row.positions // row.block_length, state
