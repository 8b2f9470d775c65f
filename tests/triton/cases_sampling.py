"""Predictions against the rules on the host: the same tokens for the same seed, position and step,
greedy and sampled, filtered and not.

Probabilities: float32 sums of a row in another order, and a logarithm the host takes and gives back
(its error, 2^-24 of a logit near 10, is the larger one): 2e-6 of the value. Entropy likewise, 1e-5.
"""

import math

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode import unmasking
from engine.kernels.triton_random import accurate_log, gumbel, uniform_words
from engine.kernels.triton_sampling import Predictions, Sampler
from engine.kernels.triton_select import cut_launch

CPU = torch.device("cpu")


def predicted(
    logits: Tensor, config: DecodeConfig, mask_id: int, start: int, step: int
) -> Predictions:
    sampler = Sampler(config, *logits.shape, mask_id, torch.tensor([[start, -1, step]]))
    return sampler.predict(logits)


def compare(
    logits: Tensor, config: DecodeConfig, mask_id: int, start: int = 64, step: int = 3
) -> None:
    ours = predicted(logits, config, mask_id, start, step)
    plain = unmasking.suppress_mask(logits.float(), mask_id)
    expected = unmasking.predict(plain, config, seed=config.seed or 0, start=start, step=step)
    assert torch.equal(ours.tokens, expected.tokens)
    assert torch.equal(ours.best, expected.best)
    for got, wanted in (
        (ours.confidence, expected.confidence),
        (ours.best_probability, expected.best_probability),
    ):
        torch.testing.assert_close(got, wanted, rtol=5e-6, atol=1e-7)
    torch.testing.assert_close(ours.entropy, unmasking.entropy(plain), rtol=1e-5, atol=1e-5)
    assert not (ours.tokens == mask_id).any()


def some_logits(rows: int, vocabulary: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    torch.manual_seed(seed)
    return scale * torch.randn(rows, vocabulary)


@pytest.mark.parametrize(("rows", "vocabulary"), [(3, 4096), (2, 9001), (5, 272), (1, 3), (4, 13)])
def test_greedy(rows: int, vocabulary: int) -> None:
    logits = some_logits(rows, vocabulary)
    mask_id = int(logits[0].argmax())  # what would win were it not ruled out
    compare(logits, DecodeConfig(), mask_id)


def test_greedy_takes_the_first_of_equals_in_whichever_tile() -> None:
    logits = torch.zeros(2, 8200)
    logits[0, [4095, 4096, 8199]] = 5.0
    logits[1, [8192, 8199]] = 5.0
    ours = predicted(logits, DecodeConfig(), 0, 0, 0)
    assert ours.best.tolist() == [4095, 8192]


def test_bfloat16_logits_are_widened() -> None:
    compare(some_logits(3, 300).bfloat16(), DecodeConfig(), 5)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_certain_token_is_certain(rows: int) -> None:
    logits = torch.full((rows, 5000), -200.0)
    logits[:, 4500] = 50.0
    ours = predicted(logits, DecodeConfig(), 7, 0, 0)
    assert ours.confidence.tolist() == [1.0] * rows
    assert ours.entropy.tolist() == [0.0] * rows


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is tested here
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_is_not_a_number_shows_in_the_confidence(bad: float, temperature: float) -> None:
    logits = some_logits(3, 9000)
    logits[1, 8500] = bad
    config = DecodeConfig(temperature=temperature, seed=1, top_k=5 if temperature else None)
    ours = predicted(logits, config, 0, 0, 0)
    assert ours.best_probability.isnan().tolist() == [False, True, False]
    assert ours.confidence.isnan().tolist() == [False, True, False]
    assert ((ours.tokens >= 0) & (ours.tokens < 9000)).all()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, None), (0.3, None, None), (1.3, 7, None), (0.7, None, 0.8), (1.0, 20, 0.5),
     (0.5, 1, None), (1.0, None, 0.0), (2.0, 10_000, 1.0)],
)  # fmt: skip
@pytest.mark.parametrize(("rows", "vocabulary", "step"), [(1, 4500, 0), (3, 50, 7)])
def test_samples(
    rows: int, vocabulary: int, step: int, temperature: float, top_k: int | None,
    top_p: float | None,
) -> None:  # fmt: skip
    config = DecodeConfig(temperature=temperature, top_k=top_k, top_p=top_p, seed=(1 << 63) + 12345)
    compare(some_logits(rows, vocabulary), config, 3, start=32 * step, step=step)


def assert_cut_alike(logits: Tensor, top_k: int | None, top_p: float | None) -> None:
    config = DecodeConfig(temperature=1.0, top_k=top_k, top_p=top_p, seed=0)
    rows, vocabulary = logits.shape
    sampler = Sampler(config, rows, vocabulary, 0, torch.zeros(1, 3, dtype=torch.int64))
    plain = unmasking.suppress_mask(logits, 0)
    borders, cuts = torch.empty(rows), torch.empty(rows, dtype=torch.int32)
    cut_launch(
        logits, plain.amax(-1), sampler.limits, borders, cuts, mask_id=0,
        use_k=sampler.use_k, use_p=sampler.use_p,
    ).run()  # fmt: skip
    column = torch.arange(vocabulary)
    equal = (plain == borders[:, None]) & (column <= cuts[:, None])
    kept = (plain > borders[:, None]) | equal
    filtered = unmasking.filter_logits(plain, 1.0, top_k, top_p)
    assert torch.equal(kept, filtered > -math.inf)


@pytest.mark.parametrize(
    ("top_k", "top_p"), [(10, None), (None, 0.7), (40, 0.6), (None, 0.31)]
)  # fmt: skip
def test_filters_cut_among_equals_where_the_host_does(
    top_k: int | None, top_p: float | None
) -> None:
    """Whole numbers as logits, so that ties decide everywhere."""
    assert_cut_alike(some_logits(4, 300, scale=1.5).round(), top_k, top_p)


@pytest.mark.parametrize(
    ("scale", "top_k", "top_p"),
    [
        (3.0, 40, None), (3.0, None, 0.6), (3.0, 300, 0.9),
        (0.01, None, 0.5),  # more than half of the row: not all of it can be put aside
        (3.0, 5000, None),
        (1e-4, 50, None), (1e-4, None, 0.5),  # all values are one of three: too many equals
    ],
)  # fmt: skip
def test_long_rows_are_cut_there_too(scale: float, top_k: int | None, top_p: float | None) -> None:
    """The largest values are looked at alone if they suffice, and the whole row if they do not."""
    logits = some_logits(2, 12_000, scale=scale)
    logits = (logits * 512).round() / 512
    logits[1] = logits[1].sort(descending=True).values  # all of the largest in one tile
    assert_cut_alike(logits, top_k, top_p)


def test_two_blocks_in_one_launch_have_places_and_steps_of_their_own() -> None:
    config, logits = DecodeConfig(temperature=1.0, seed=4, top_k=30), some_logits(6, 200)
    states = torch.tensor([[96, 0, 5], [99, 0, 0]])
    ours = Sampler(config, 6, 200, 1, states).predict(logits)
    plain = unmasking.suppress_mask(logits, 1)
    for half, (start, _, step) in enumerate(states.tolist()):
        rows = slice(3 * half, 3 * half + 3)
        expected = unmasking.predict(plain[rows], config, seed=4, start=start, step=step)
        assert torch.equal(ours.tokens[rows], expected.tokens)


@triton.jit
def words_and_noise(seed, position, step, words, noise, first, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    key, place, turn = tl.load(seed), tl.load(position), tl.load(step)
    tl.store(words + at, uniform_words(key, first, place, turn, COUNT).to(tl.int64))
    tl.store(noise + at, gumbel(key, first, place, turn, COUNT))


@pytest.mark.parametrize("seed", [0, 1, 0xFFFFFFFF_00000000, 0x0123456789ABCDEF])
@pytest.mark.parametrize(("position", "step"), [(0, 0), (32767, 47)])
def test_the_random_words_are_the_hosts(seed: int, position: int, step: int) -> None:
    first, count = 156_000, 256
    token = torch.arange(first // 4, first // 4 + count // 4)
    counter = (token, token * 0 + position, token * 0 + step, token * 0)
    expected = torch.stack(unmasking.philox(counter, seed), -1).flatten()
    signed = seed - (1 << 64) if seed >= 1 << 63 else seed
    words, noise = torch.empty(count, dtype=torch.int64), torch.empty(count)
    arguments = [torch.tensor([n]) for n in (signed, position, step)]
    words_and_noise[(1,)](*arguments, words, noise, first, COUNT=count, enable_fp_fusion=False)
    assert torch.equal(words, expected)
    whole = unmasking.gumbel_noise(
        torch.Size((1, first + count)), seed=seed, start=position, step=step, device=CPU
    )
    # The outer logarithm's argument may differ in its last bits; near 1 that shows absolutely.
    torch.testing.assert_close(noise, whole[0, first:], rtol=1e-6, atol=3e-7)


@triton.jit
def logarithms(x, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, accurate_log(tl.load(x + at)))


def test_the_logarithm_is_accurate_where_the_hardwares_is_not() -> None:
    near_one = 1 - torch.arange(1, 513) * 2.0**-24
    x = torch.cat((near_one, torch.logspace(-7.9, 1.3, 512), near_one * 0.5, near_one + 1.0))
    ours = torch.empty_like(x)
    logarithms[(1,)](x, ours, COUNT=len(x), enable_fp_fusion=False)
    exact = x.double().log()
    error = (ours.double() - exact).abs() / exact.abs().clamp_min(1e-38)
    assert error.max() < 2.5e-7  # two units in the last place
