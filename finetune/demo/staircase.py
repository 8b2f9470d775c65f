"""Packing for pre-training: each sequence once clean, its noisy copies behind it, one long row.

Visibility is a staircase: clean blocks see clean blocks up to their own; a noisy block sees the
clean blocks before it, and itself. The last clean block would be seen by none, so it is left out.
All rows lie flat behind each other; only attention looks at them one shape at a time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from finetune.demo.noise import Copy, Example

COPIES = 2
Shape = tuple[int, int]


@dataclass(frozen=True)
class Packed:
    """Rows of a batch behind each other [T], and where each shape's rows lie."""

    ids: Tensor  # [T]
    positions: Tensor  # [T]
    places: Tensor  # [P] positions in the row that have a target
    targets: Tensor  # [P]
    weights: Tensor  # [P]
    groups: tuple[tuple[Shape, int], ...]  # (shape, rows), in the order of the row
    block: int


def row_positions(shape: Shape, block: int) -> list[int]:
    """True positions of a row: the clean blocks, then each copy's blocks."""
    blocks, first = shape
    clean = list(range((blocks - 1) * block))
    return clean + list(range(first * block, blocks * block)) * COPIES


@lru_cache(maxsize=256)
def staircase(shape: Shape, block: int) -> Tensor:
    """Which row positions (columns) each row position sees: bool [S, S]."""
    blocks, first = shape
    clean = (blocks - 1) * block
    number = torch.tensor(row_positions(shape, block)) // block
    copy = torch.zeros(len(number), dtype=torch.long)
    width = (blocks - first) * block
    for index in range(COPIES):
        copy[clean + index * width : clean + (index + 1) * width] = index + 1
    query, key = number[:, None], number[None, :]
    clean_key = copy[None, :] == 0
    own = (copy[:, None] == copy[None, :]) & (query == key)
    return (clean_key & (key < query)) | own


def pack(rows: Sequence[tuple[Example, tuple[Copy, ...]]]) -> Packed:
    """Sort rows by shape and lay them behind each other."""
    by_shape: dict[Shape, list[tuple[Example, tuple[Copy, ...]]]] = defaultdict(list)
    for row in rows:
        by_shape[row[0].shape].append(row)
    block = rows[0][0].block
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    targets: list[int] = []
    weights: list[float] = []
    for shape in sorted(by_shape):
        for example, copies in by_shape[shape]:
            positions += row_positions(shape, block)
            ids += example.ids[: (shape[0] - 1) * block]
            for copy in copies:
                chosen = [i for i, weight in enumerate(copy.weights) if weight]
                places += [len(ids) + i for i in chosen]
                targets += [copy.targets[i] for i in chosen]
                weights += [copy.weights[i] for i in chosen]
                ids += copy.inputs
    groups = tuple((shape, len(by_shape[shape])) for shape in sorted(by_shape))
    return Packed(
        torch.tensor(ids), torch.tensor(positions), torch.tensor(places), torch.tensor(targets),
        torch.tensor(weights), groups, block,
    )  # fmt: skip


class StaircaseAttention:
    """The `attend` of a packed batch: q [H, T, D], k and v [Hkv, T, D] to [H, T, D]."""

    def __init__(self, packed: Packed) -> None:
        self.groups = [(rows, staircase(shape, packed.block)) for shape, rows in packed.groups]
        self.sizes = [rows * mask.shape[0] for rows, mask in self.groups]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        share = q.shape[0] // k.shape[0]
        k, v = (t.repeat_interleave(share, dim=0) for t in (k, v))
        parts = [torch.split(t, self.sizes, dim=1) for t in (q, k, v)]
        contexts = []
        for (rows, mask), *qkv in zip(self.groups, *parts, strict=True):
            q_rows, k_rows, v_rows = (
                t.unflatten(1, (rows, -1)).transpose(0, 1).contiguous() for t in qkv
            )
            context = F.scaled_dot_product_attention(q_rows, k_rows, v_rows, attn_mask=mask)
            contexts.append(context.transpose(0, 1).flatten(1, 2))
        return torch.cat(contexts, dim=1)
