"""Which positions a step decides and which it edits; filters; counter-based sampling.

Rules: the LLaDA2.1 report (arXiv 2602.08676), mask-to-token and token-to-token. All functions
work on a block's B positions at once and never ask the host.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import DecodeConfig


@dataclass(frozen=True)
class Prediction:
    """What a forward says of each position, all [B].

    `tokens` is the choice (sampled, or the argmax) and `confidence` its probability after
    filtering; `best` is the argmax and `best_probability` its probability under the plain
    distribution, which edits go by.
    """

    tokens: Tensor
    confidence: Tensor
    best: Tensor
    best_probability: Tensor


def suppress_mask(logits: Tensor, mask_id: int) -> Tensor:
    """logits [B, V] with the mask token ruled out; a copy, so that the model's stay whole."""
    logits = logits.clone()
    logits[..., mask_id] = float("-inf")
    return logits


def predict(
    logits: Tensor, config: DecodeConfig, *, seed: int, start: int, step: int
) -> Prediction:
    """Choose a token for each of the block's positions start .. start+B-1.

    logits [B, V] float32 with the mask suppressed; `step` counts from 0 within the block. Greedy
    at temperature 0, else temperature, top-k, top-p, and a Gumbel-max sample whose noise depends
    on (seed, position, step, token) alone, so that the schedule of forwards cannot change it.
    """
    top, best = logits.max(dim=-1)
    # In place: a second array of the vocabulary's size costs more in fresh pages than its numbers.
    best_probability = (logits - top[:, None]).exp_().sum(-1).reciprocal()
    if config.temperature == 0:
        return Prediction(best, best_probability, best, best_probability)
    filtered = filter_logits(logits, config.temperature, config.top_k, config.top_p)
    noise = gumbel_noise(filtered.shape, seed=seed, start=start, step=step, device=logits.device)
    tokens = (filtered + noise).argmax(-1)
    chosen = filtered.gather(-1, tokens[:, None]).squeeze(-1)
    confidence = (chosen - filtered.logsumexp(-1)).exp()
    return Prediction(tokens, confidence, best, best_probability)


def filter_logits(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> Tensor:
    """logits [..., V] over temperature, with -inf outside top-k and then top-p.

    As the reference filters: top-k keeps values >= the k-th largest; top-p drops tokens beyond
    the first one at which the cumulative probability exceeds top_p.
    """
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p is not None and top_p < 1.0:
        # Stable, so that which of equals stay is the same on every device.
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        over = ordered.softmax(-1).cumsum(-1) > top_p
        # Shifted by one: the token that crosses the limit stays, and so does the first.
        over = torch.cat((torch.zeros_like(over[..., :1]), over[..., :-1]), dim=-1)
        drop = torch.zeros_like(over).scatter(-1, order, over)
        logits = logits.masked_fill(drop, float("-inf"))
    return logits


def unmask(prediction: Prediction, undecided: Tensor, config: DecodeConfig) -> Tensor:
    """[B] bool: the undecided positions to decide now.

    Those above the threshold; when they are fewer than `min_unmask`, the `min_unmask` most
    confident ones instead (or all, if fewer are undecided), equal ones in their order.
    """
    passing = undecided & (prediction.confidence > config.threshold)
    ranked = prediction.confidence.masked_fill(~undecided, -1.0)
    # Stable, where topk would leave equals to the device: with threshold 1.0 they are common.
    best = ranked.argsort(descending=True, stable=True)[: config.min_unmask]
    surest = torch.zeros_like(undecided).scatter(-1, best, True) & undecided
    return torch.where(passing.sum() >= config.min_unmask, passing, surest)


def edit(prediction: Prediction, tokens: Tensor, editable: Tensor, config: DecodeConfig) -> Tensor:
    """[B] bool: the `editable` (decided, unprotected) positions whose token to replace by the
    argmax, because its plain probability exceeds the editing threshold."""
    if config.editing_threshold is None:
        return torch.zeros_like(editable)
    surer = prediction.best_probability > config.editing_threshold
    return editable & surer & (prediction.best != tokens)


def entropy(logits: Tensor) -> Tensor:
    """[B] float32 entropy in nats of softmax(logits [B, V]); -inf logits count as nothing."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    return -(p * log_p.masked_fill(p == 0, 0.0)).sum(-1)


def gumbel_noise(
    shape: torch.Size, *, seed: int, start: int, step: int, device: torch.device
) -> Tensor:
    """Standard Gumbel noise [B, V], float32, for positions start .. start+B-1 in step `step`.

    Philox-4x32-10 with counter (token // 4, position, step, 0), key = seed; the token's lane is
    token % 4. The upper 23 bits, centred, are the uniform variate: exact in float32, and so never 0
    or 1, where the noise would be infinite.
    """
    rows, vocabulary = shape
    token = torch.arange((vocabulary + 3) // 4, device=device)
    position = torch.arange(start, start + rows, device=device)[:, None]
    zero = torch.zeros_like(position + token)
    words = philox((zero + token, zero + position, zero + step, zero), seed)
    bits = torch.stack(words, dim=-1).flatten(-2)[:, :vocabulary]
    uniform = ((bits >> 9).float() + 0.5) * 2.0**-23
    return -(-uniform.log()).log()


_WORD = 0xFFFFFFFF


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> tuple[Tensor, ...]:
    """Philox-4x32-10 (Salmon et al., SC 2011): four int64 tensors that hold 32-bit words.

    `counter` holds four int64 tensors of equal shape with 32-bit words; `seed` is 64 bits, its
    lower half the first key word.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _WORD, seed >> 32 & _WORD
    for _ in range(10):
        # int64 products wrap, but all their bits are right, and the mask drops the sign's copies.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (p1 >> 32 & _WORD) ^ c1 ^ k0,
            p1 & _WORD,
            (p0 >> 32 & _WORD) ^ c3 ^ k1,
            p0 & _WORD,
        )
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3
