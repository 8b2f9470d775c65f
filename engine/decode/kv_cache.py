"""Keys and values of what is committed, and an open slot behind it that each step overwrites.

Only a commit moves the length; whatever a forward wrote beyond it never counts.
"""

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.kernels import ops
from engine.model.attention import Attend


class KVCache:
    """Per layer keys and values [Hkv, capacity, D]; grows by reallocation outside of steps."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        self._config = config
        self._device, self._dtype = device, dtype
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._ids: list[int] = []
        self._block_length = 0
        self.layout = 0
        """Changes whenever the keys and values move to other memory, or mean another model's."""
        self.turn = 0
        """Changes whenever an answer begins or the cache is cleared."""
        self.clear()

    @property
    def length(self) -> int:
        """Committed tokens, whole blocks."""
        return len(self._ids)

    @property
    def capacity(self) -> int:
        """Tokens that fit without growing."""
        return self._keys[0].shape[1]

    @property
    def buffers(self) -> tuple[list[Tensor], list[Tensor]]:
        """Per layer keys and values [Hkv, capacity, D]; others after `reserve` made room."""
        return self._keys, self._values

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        empty = (self._config.num_key_value_heads, 0, self._config.head_dim)
        layers = range(self._config.num_hidden_layers)
        self._keys = [torch.empty(empty, device=self._device, dtype=self._dtype) for _ in layers]
        self._values = [torch.empty_like(keys) for keys in self._keys]
        self._ids = []
        self.layout += 1
        self.turn += 1

    def keep_prefix(self, ids: list[int], block_length: int) -> int:
        """Shrink to the longest prefix of `ids` that is committed, in whole blocks; its length.

        Another block length empties the cache: it changes which tokens see each other.
        """
        if block_length != self._block_length:
            self._ids, self._block_length = [], block_length
        common = 0
        for mine, new in zip(self._ids, ids, strict=False):
            if mine != new:
                break
            common += 1
        self._ids = self._ids[: common // block_length * block_length]
        self.turn += 1
        return self.length

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` tokens, keeping what is committed."""
        if capacity <= self.capacity:
            return
        self.layout += 1
        size = max(capacity, min(2 * self.capacity, self._config.max_position_embeddings))
        self._keys = [self._grown(tensor, size) for tensor in self._keys]
        self._values = [self._grown(tensor, size) for tensor in self._values]

    def _grown(self, old: Tensor, capacity: int) -> Tensor:
        new = old.new_empty(old.shape[0], capacity, old.shape[2])
        new[:, : self.length] = old[:, : self.length]
        return new

    def commit(self, ids: list[int]) -> None:
        """Make the `ids` behind the committed tokens part of them: a forward whose input they
        were has just written their keys and values."""
        assert len(ids) % self._block_length == 0
        assert self.length + len(ids) <= self.capacity
        self._ids += ids

    def attend(self, start: int) -> Attend:
        """Attention for a forward at positions start, start+1, ...: stores its keys and values
        and sees the prefix before `start` and its own blocks, block-causally."""
        assert start <= self.length, "the prefix must be committed before it is seen"

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            end = start + k.shape[-2]
            keys, values = self._keys[layer], self._values[layer]
            keys[:, start:end] = k
            values[:, start:end] = v
            return ops(q).attention(
                q, keys[:, :end], values[:, :end], start=start, block_length=self._block_length
            )

        return attend
