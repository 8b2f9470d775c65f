"""Token ids that come from outside, checked against the vocabulary."""

from collections.abc import Sequence
from operator import index

from torch import Tensor


def check_ids(ids: Sequence[int] | Tensor, vocabulary: int) -> list[int]:
    """`ids` as whole numbers. ValueError, in words, for none at all and for those that are not in a
    vocabulary of that size."""
    try:
        sequence = [index(i) for i in (ids.tolist() if isinstance(ids, Tensor) else ids)]
    except TypeError as error:
        raise ValueError("Token ids must be a sequence of whole numbers.") from error
    if not sequence:
        raise ValueError("The prompt is empty; give at least one token.")
    for id in sequence:
        if not 0 <= id < vocabulary:
            raise ValueError(f"Token id {id} is outside the vocabulary of {vocabulary:,}.")
    return sequence
