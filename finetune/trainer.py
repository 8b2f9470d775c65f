"""One ORL update: roll out, verify, replay, learn, forget.

1. The current weights answer a batch of prompts with the decode loop that will be used afterwards.
2. Answers that pass their verifier, and ended by themselves, are kept.
3. Their noisy states are packed behind their clean blocks and replayed with the z they consumed.
4. Prediction, AEC and anchor losses; one optimizer step.
5. Everything is forgotten: the next update starts from the weights that this one made.

What it does not have: a value model, negative advantages, importance weights, stored replay.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from engine.generate import Engine
from engine.machine.gauges import Reading, gauges_of
from finetune.adapters import Trainable, prepare
from finetune.config import FinetuneConfig
from finetune.losses import Losses, Start, combine, position_terms
from finetune.optimizer import Optimizer
from finetune.prompts import Prompt
from finetune.replay import replay
from finetune.rollout import Check, Rollout, TimedCheck, prompts_of, roll_out
from finetune.rows import Row, pack
from finetune.samples import Sample, select
from finetune.staircase import staircase

RollOut = Callable[..., list[Rollout]]


class OutOfMemoryError(RuntimeError):
    """Not even half the micro-batch fits; the message says what to lower."""


@dataclass
class Sums:
    """What an update's rows add up to."""

    prediction: float = 0.0
    aec: float = 0.0
    anchor: float = 0.0
    uncertain: int = 0
    positions: int = 0
    states: int = 0
    tokens: int = 0
    grad_norm: float = 0.0

    def add(self, row: Row, losses: Losses) -> None:
        """Take in one row."""
        self.prediction += float(losses.prediction.detach())
        self.aec += float(losses.aec.detach())
        self.anchor += float(losses.anchor.detach())
        self.uncertain += int(losses.uncertain)
        self.positions += losses.positions
        self.states += len(row.starts)
        self.tokens += row.tokens


@dataclass(frozen=True)
class Report:
    """One update in figures. `tpf_steps` is pooled over all answers; seconds are wall time, those
    of the verifiers a part of the rollout's; `card` is the GPU at its end, its power the mean."""

    update: int
    rollouts: tuple[Rollout, ...]
    sums: Sums
    rollout_seconds: float
    verify_seconds: float
    learn_seconds: float
    card: Reading | None = None
    skipped: bool = field(default=False)

    @property
    def kept(self) -> int:
        return sum(rollout.kept for rollout in self.rollouts)

    @property
    def errors(self) -> int:
        """Answers whose verifier failed."""
        return sum(rollout.verdict.error for rollout in self.rollouts)

    @property
    def tokens(self) -> int:
        return sum(rollout.finish.stats.tokens for rollout in self.rollouts)

    @property
    def steps(self) -> int:
        return sum(rollout.finish.stats.steps for rollout in self.rollouts)

    @property
    def tpf_steps(self) -> float:
        return self.tokens / max(self.steps, 1)


class Trainer:
    """Holds the model, what is trained of it, and the optimizer; `update` does the rest.

    The engine's model is changed in place, so the next rollout needs no copy of the weights.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Prompt],
        verifier: Check,
        config: FinetuneConfig,
        *,
        roll_out: RollOut = roll_out,
    ) -> None:
        if not prompts:
            raise ValueError("There are no prompts to learn from.")
        self.engine, self.prompts, self.verifier, self.config = engine, prompts, verifier, config
        self.trainable: Trainable = prepare(engine.model, config)
        self.optimizer = Optimizer(self.trainable, config)
        self.row_tokens = config.row_tokens
        self._roll_out = roll_out
        self._gauges = gauges_of(engine.device)
        self._halved = False

    def update(self, number: int) -> Report:
        """Update 0, 1, ...; its outcome depends on the weights and the number alone.

        Raises OutOfMemoryError, after one retry with half the row.
        """
        begin, check = time.perf_counter(), TimedCheck(self.verifier)
        mark = None if self._gauges is None else self._gauges.mark()
        chosen = prompts_of(
            number, len(self.prompts), self.config.prompts_per_update, self.config.seed
        )
        rollouts = self._roll_out(
            self.engine, [self.prompts[i] for i in chosen], check, self.config, number
        )
        rolled = time.perf_counter()
        sums = self._learn(self.samples(rollouts, number), number)
        self.engine.reset_cache()
        return Report(
            update=number,
            rollouts=tuple(rollouts),
            sums=sums,
            rollout_seconds=rolled - begin,
            verify_seconds=check.seconds,
            learn_seconds=time.perf_counter() - rolled,
            card=None if self._gauges is None or mark is None else self._gauges.since(mark),
            skipped=not math.isfinite(sums.grad_norm),
        )

    def samples(self, rollouts: Sequence[Rollout], number: int) -> list[Sample]:
        """What is trained of the kept ones."""
        samples = []
        for index, rollout in enumerate(rollouts):
            if rollout.kept:
                rng = random.Random(f"states {self.config.seed} {number} {index}")
                most = self.config.states_per_answer
                sample = select(rollout.trajectory, self.engine.stop_ids, most, rng)
                if sample is not None:
                    samples.append(sample)
        return samples

    def _learn(self, samples: Sequence[Sample], number: int) -> Sums:
        if not samples:
            return Sums()
        try:
            sums = self._accumulate(samples)
        except (MemoryError, RuntimeError) as error:
            self._make_room(error)
            sums = self._accumulate(samples)
        sums.grad_norm = self.optimizer.step(number)
        return sums

    def _make_room(self, error: BaseException) -> None:
        """Halve the rows, once; anything else than a lack of memory is raised again."""
        if not is_out_of_memory(error):
            raise error
        if self._halved or self.row_tokens < 2:
            raise OutOfMemoryError(
                f"Memory ran out with rows of {self.row_tokens:,} tokens; lower row_tokens, "
                "states_per_answer or max_new_tokens in the recipe, or close other programs."
            ) from error
        self._halved = True
        self.row_tokens //= 2
        self.optimizer.forget()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _accumulate(self, samples: Sequence[Sample]) -> Sums:
        """Gradients of the update's loss, row by row."""
        sums = Sums()
        try:
            for row in pack(samples, self.row_tokens):
                losses = self.losses(row, len(samples))
                loss = losses.total(self.config)
                if loss.requires_grad:  # an adapter alone has no part in states that consumed no z
                    torch.autograd.backward(loss)
                sums.add(row, losses)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                error.__traceback__ = None  # its frames hold the tensors that did not fit
            raise error
        return sums

    def losses(self, row: Row, responses: int) -> Losses:
        """The row's losses under the current weights, with gradients."""
        model, attend = self.trainable.model, staircase(row)
        start = None
        if self.config.anchor_weight > 0:
            with torch.no_grad(), self.trainable.start() as frozen:
                start = Start(replay(frozen, row, attend), frozen.lm_head)
        hidden = replay(model, row, attend, checkpointed=row.clean.is_cuda)
        mask_id = self.engine.mask_id
        assert mask_id is not None
        terms = position_terms(hidden, model.lm_head, row.targets, mask_id, start)
        return combine(terms, row, self.config, responses)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a card or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )
