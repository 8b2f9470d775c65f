"""The pieces of an answer's loop as Triton launches: `loop.Work` for a card.

Made once for a shape of answer (`Shape`) and a cache's memory; every number that differs between
answers lies on the device and is set by `begin`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.decode.denoise import Denoiser
from engine.decode.forward_launches import ForwardLaunches, Shared
from engine.decode.loops import MOST_STOPS
from engine.kernels.launch import Launch
from engine.kernels.loop_state import LoopState, Mailbox
from engine.kernels.plans import Capability
from engine.kernels.reference import rotary_tables
from engine.kernels.triton_loop import advance_launch
from engine.kernels.triton_sampling import Predictions, Sampler
from engine.kernels.triton_soft import SoftEmbedding
from engine.kernels.triton_unmask import BlockRules
from engine.model.transformer import LLaDA2Model


@dataclass(frozen=True)
class Shape:
    """What is compiled into the launches of an answer's loop, and so cannot change between answers
    that share them."""

    block_length: int
    mask_id: int
    sampled: bool
    use_k: bool
    use_p: bool
    edits: bool

    @classmethod
    def of(cls, denoiser: Denoiser) -> "Shape":
        """That of an answer."""
        config, vocabulary = denoiser.config, denoiser.model.config.vocab_size
        sampled = config.temperature > 0
        return cls(
            config.block_length,
            denoiser.mask_id,
            sampled,
            sampled and config.top_k is not None and config.top_k < vocabulary,
            sampled and config.top_p is not None and config.top_p < 1.0,
            config.edits,
        )


class LoopLaunches:
    """`loop.Work` by Triton: `state` and `mailbox` are its own, keys and values the cache's.
    `ahead`: each of its kernels waits by itself for the one before, which a card must know."""

    def __init__(
        self, denoiser: Denoiser, capability: Capability, *, pinned: bool, ahead: bool = False
    ) -> None:
        model = denoiser.model
        device, length = model.embedding_table.device, denoiser.config.block_length
        keys, values = denoiser.cache.buffers
        shape = Shape.of(denoiser)
        found = Predictions.empty(2 * length, device, sampled=shape.sampled)
        self.state = replace(
            LoopState.empty(length, device),
            chosen=found.tokens, confidence=found.confidence, best=found.best,
            best_probability=found.best_probability,
        )  # fmt: skip
        self.mailbox = Mailbox.empty(length, denoiser.cache.capacity, pinned=pinned)
        self._rules = BlockRules.of(denoiser.config, (), denoiser.mask_id, device, MOST_STOPS)
        residual = _residual(model, length, device)
        shared = Shared(
            self.state.tokens, self.state.undecided, self.state.states, self.state.flag("start"),
            keys, values, *_tables(model, denoiser.cache.capacity), residual,
        )  # fmt: skip
        logits = torch.empty(
            2 * length, model.config.vocab_size, dtype=model.embedding_table.dtype, device=device
        )
        behind = logits[length:]
        one, two = (ForwardLaunches(model, n * length, capability) for n in (1, 2))
        states, later = self.state.states, found.rows(length, length)
        self._samplers = [
            self._sampler(denoiser, length, states[:1], later),
            self._sampler(denoiser, 2 * length, states, found),
        ]
        alone, together = self._samplers
        mix = _mix(model, one, behind, later, denoiser.mask_id, residual)
        advance = advance_launch(
            self.state, self.mailbox, self._rules, residual=residual is not None
        )
        self._narrow = _early(one.forward(shared, behind) + alone.launches(behind), ahead)
        self._wide = _early(two.forward(shared, logits) + together.launches(logits), ahead)
        self._mix = _early(mix, ahead)
        self._advance = replace(advance, ahead=ahead)

    def begin(self, denoiser: Denoiser) -> None:
        """Take an answer's thresholds, filters, seed and stop ids."""
        self._rules.set(denoiser.config, denoiser.stop_ids)
        for sampler in self._samplers:
            sampler.set(denoiser.config, denoiser.seed)

    def narrow(self) -> None:
        """Forward the open block alone, and predict."""
        _run(self._narrow)

    def wide(self) -> None:
        """Forward two blocks, and predict."""
        _run(self._wide)

    def advance(self) -> None:
        """Decide and go on."""
        self._advance.run()

    def mix(self) -> None:
        """Residual context, and what the adapter makes of it."""
        _run(self._mix)

    def launches(self) -> dict[str, list[Launch]]:
        """All of them, by piece: for counting and compiling."""
        pieces = {"narrow": self._narrow, "wide": self._wide, "mix": self._mix}
        return pieces | {"advance": [self._advance]}

    @staticmethod
    def _sampler(denoiser: Denoiser, rows: int, states: Tensor, out: Predictions) -> Sampler:
        vocabulary = denoiser.model.config.vocab_size
        return Sampler(denoiser.config, rows, vocabulary, denoiser.mask_id, states, out)


def _early(launches: list[Launch], ahead: bool) -> list[Launch]:
    return [replace(launch, ahead=ahead) for launch in launches]


def _run(launches: list[Launch]) -> None:
    for launch in launches:
        launch.run()


def _tables(model: LLaDA2Model, capacity: int) -> tuple[Tensor, Tensor]:
    config, table = model.config, model.embedding_table
    positions = torch.arange(capacity, device=table.device)
    return rotary_tables(positions, config.rotary_dim, config.rope_theta, table.dtype)


def _residual(model: LLaDA2Model, length: int, device: torch.device) -> Tensor | None:
    if model.residual_adapter is None:
        return None
    table = model.embedding_table
    return torch.zeros(length, table.shape[1], dtype=table.dtype, device=device)


def _mix(
    model: LLaDA2Model, forward: ForwardLaunches, logits: Tensor, found: Predictions, mask_id: int,
    residual: Tensor | None,
) -> list[Launch]:  # fmt: skip
    """From the last logits of the open block to g(z); nothing without an adapter."""
    if model.residual_adapter is None or residual is None:
        return []
    soft = SoftEmbedding(
        logits.shape[0], model.embedding_table, temperature=model.residual.temperature,
        top_k=model.residual.top_k, mask_id=mask_id, dtype=logits.dtype,
    )  # fmt: skip
    launches = soft.launches(logits, found.top, found.total)
    return launches + forward.adapter(model.residual_adapter, soft.out, residual)
