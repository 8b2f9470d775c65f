"""The three terms of an ORL update, from the hidden states of a replayed row.

* prediction: cross-entropy of the verified final token, at uncertain positions only;
* AEC: adjacent entropy contraction, max(0, H_next - (1 - rho) H_source)^2 over neighbouring
  states of a block, H_source detached;
* anchor: reverse KL to the frozen start model at confident positions, capped at each.

A position is uncertain when its confidence, the largest probability now, is below the gate. Every
response weighs the same whatever its length. H is entropy / log V, averaged over a state's own
trained positions. Logits are made a few hundred positions at a time, and again in the backward
pass: over a large vocabulary they would not fit otherwise.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from engine.decode.unmasking import suppress_mask
from finetune.config import CHUNK_VALUES, FinetuneConfig
from finetune.rows import Row


@dataclass(frozen=True)
class PositionTerms:
    """Per trained position [P], float32; `entropy` is over log V, `kl` in nats."""

    cross_entropy: Tensor
    entropy: Tensor
    kl: Tensor
    confidence: Tensor


@dataclass(frozen=True)
class Losses:
    """A row's share of the update's loss, each term already divided by the update's responses.

    `uncertain` and `positions` count trained positions below the gate, and all.
    """

    prediction: Tensor
    aec: Tensor
    anchor: Tensor
    uncertain: Tensor
    positions: int

    def total(self, config: FinetuneConfig) -> Tensor:
        """The weighted sum that is minimised."""
        return self.prediction + config.aec_weight * self.aec + config.anchor_weight * self.anchor


@dataclass(frozen=True)
class Start:
    """What the frozen start model makes of the same positions: hidden states [P, d] and head."""

    hidden: Tensor
    head: nn.Module


def position_terms(
    hidden: Tensor, head: nn.Module, targets: Tensor, mask_id: int, start: Start | None
) -> PositionTerms:
    """Terms at hidden [P, d] with targets [P]; without a start model kl is 0."""
    weight = head.get_parameter("weight")
    size = max(1, CHUNK_VALUES // weight.shape[0])
    parts = []
    for first in range(0, len(targets), size):
        own = slice(first, first + size)
        before = None if start is None else Start(start.hidden[own], start.head)
        arguments = (hidden[own], head, targets[own], mask_id, before)
        if len(targets) > size and torch.is_grad_enabled():
            parts.append(
                checkpoint(_chunk_terms, *arguments, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            parts.append(_chunk_terms(*arguments))
    return PositionTerms(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _chunk_terms(
    hidden: Tensor,
    head: nn.Module,
    targets: Tensor,
    mask_id: int,
    start: Start | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    log_p = _log_probabilities(head, hidden, mask_id)
    cross_entropy = -log_p.gather(-1, targets[:, None]).squeeze(-1)
    p = log_p.exp()
    confidence = p.detach().amax(-1)
    # The mask token's column is -inf with probability 0: it must add 0 * 0, not 0 * inf.
    finite = log_p.masked_fill(log_p == -math.inf, 0.0)
    entropy = -(p * finite).sum(-1) / math.log(log_p.shape[-1])
    if start is None:
        return cross_entropy, entropy, torch.zeros_like(entropy), confidence
    with torch.no_grad():
        log_q = _log_probabilities(start.head, start.hidden, mask_id)
        log_q = log_q.masked_fill(log_q == -math.inf, 0.0)
    return cross_entropy, entropy, (p * (finite - log_q)).sum(-1), confidence


def _log_probabilities(head: nn.Module, hidden: Tensor, mask_id: int) -> Tensor:
    return suppress_mask(head(hidden).float(), mask_id).log_softmax(-1)


def combine(terms: PositionTerms, row: Row, config: FinetuneConfig, responses: int) -> Losses:
    """The row's losses; `responses` is how many kept answers the whole update has."""
    answers = len(row.lengths)
    of_position = row.answer[row.state]
    uncertain = terms.confidence < config.gate
    capped = terms.kl.clamp(max=config.anchor_cap)
    return Losses(
        prediction=_per_response(terms.cross_entropy, uncertain, of_position, answers) / responses,
        aec=_contraction(terms.entropy, row, config.rho) / responses,
        anchor=_per_response(capped, ~uncertain, of_position, answers) / responses,
        uncertain=uncertain.sum(),
        positions=len(uncertain),
    )


def _per_response(values: Tensor, chosen: Tensor, owner: Tensor, owners: int) -> Tensor:
    """Sum over responses of the mean of values [P] over each one's chosen positions; a response
    without any adds nothing."""
    weights = chosen.float()
    counts = weights.new_zeros(owners).index_add(0, owner, weights)
    return (values * weights / counts.clamp(min=1)[owner]).sum()


def _contraction(entropy: Tensor, row: Row, rho: float) -> Tensor:
    """Sum over responses of the mean over each one's pairs of max(0, H_next - (1-rho) H_src)^2."""
    if not len(row.pairs):
        return entropy.sum() * 0.0
    states = len(row.starts)
    counts = entropy.new_zeros(states).index_add(0, row.state, torch.ones_like(entropy))
    mean = entropy.new_zeros(states).index_add(0, row.state, entropy) / counts.clamp(min=1)
    source, following = row.pairs.unbind(1)
    excess = (mean[following] - (1 - rho) * mean[source].detach()).clamp(min=0)
    every = torch.ones_like(source, dtype=torch.bool)
    return _per_response(excess.square(), every, row.answer[source], len(row.lengths))
