"""The soft embedding, over all tokens and over the likeliest.

Tolerances: float32 sums over the vocabulary in another order, 2e-5 of entries near 1; in bfloat16
both round the probabilities to it and the reference its result too: 2^-7.
"""

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.unmasking import suppress_mask
from engine.kernels import reference
from engine.kernels.triton_sampling import Sampler
from engine.kernels.triton_soft import SoftEmbedding, soft_embedding


def inputs(rows: tuple, vocabulary: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    torch.manual_seed(vocabulary)
    logits = 2 * torch.randn(*rows, vocabulary)
    return suppress_mask(logits, vocabulary // 2), torch.randn(vocabulary, size).to(dtype)


@pytest.mark.parametrize(("dtype", "temperature"), [(torch.float32, 0.6), (torch.bfloat16, 1.0)])
@pytest.mark.parametrize("top_k", [None, 1, 10, 5000])
@pytest.mark.parametrize(("rows", "vocabulary", "size"), [((2, 2), 272, 48), ((1,), 700, 300)])
def test_it_is_the_references(
    rows: tuple, vocabulary: int, size: int, top_k: int | None, temperature: float,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    logits, table = inputs(rows, vocabulary, size, dtype)
    ours, expected = (
        f(logits, table, temperature=temperature, top_k=top_k)
        for f in (soft_embedding, reference.soft_embedding)
    )
    assert ours.dtype == torch.float32
    tolerance = 2e-5 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


def test_a_predictions_sums_spare_a_reading() -> None:
    torch.manual_seed(2)
    logits, table = torch.randn(4, 900), torch.randn(900, 64)
    said = Sampler(DecodeConfig(), 4, 900, 17, torch.zeros(1, 3)).predict(logits)
    expected = reference.soft_embedding(suppress_mask(logits, 17), table)
    mixer = SoftEmbedding(4, table, mask_id=17)
    torch.testing.assert_close(
        mixer.mix(logits, said.top, said.total), expected, rtol=2e-5, atol=2e-5
    )
    kept = SoftEmbedding(4, table, top_k=9, mask_id=17, temperature=0.5)
    expected = reference.soft_embedding(suppress_mask(logits, 17), table, temperature=0.5, top_k=9)
    torch.testing.assert_close(
        kept.mix(logits, said.top, said.total), expected, rtol=2e-5, atol=2e-5
    )


def test_of_equals_just_k_count_the_first_ones() -> None:
    logits = torch.zeros(1, 50)
    logits[0, 40] = 1.0
    table = torch.eye(50)
    z = soft_embedding(logits, table, top_k=3)[0]
    assert z.nonzero().flatten().tolist() == [0, 1, 40]
    torch.testing.assert_close(z.sum(), torch.tensor(1.0))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is tested here
def test_a_table_is_read_at_real_ids_even_where_logits_are_no_numbers() -> None:
    logits = torch.full((2, 40), float("nan"))
    assert soft_embedding(logits, torch.randn(40, 16), top_k=4).shape == (2, 16)
