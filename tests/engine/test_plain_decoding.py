"""Random settings against the decoding rules written down once more: no cache, no overlap, one
forward over the whole sequence a step, positions one by one in plain Python."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig, ResidualConfig
from engine.decode.unmasking import predict, suppress_mask
from engine.events import FinishEvent
from engine.generate import Engine
from engine.kernels import ops
from engine.model.residual import ResidualAdapter

MASK = 500


@dataclass
class Plain:
    """An answer by the rules; `steps` and `changes` (unmasked, edited) per block."""

    engine: Engine
    prompt: list[int]
    config: DecodeConfig
    tokens: list[int] = field(default_factory=list)
    changes: list[list[tuple[int, int]]] = field(default_factory=list)
    commits: int = 0

    def run(self) -> "Plain":
        length, budget = self.config.block_length, self.config.max_new_tokens
        self.tokens = list(self.prompt)
        start = len(self.prompt) // length * length
        end_of_budget = len(self.prompt) + budget
        while start < end_of_budget:
            self.tokens += [MASK] * (start + length - len(self.tokens))
            settled = self.block(start)
            own = self.tokens[max(start, len(self.prompt)) :]
            if self.config.stop_at_end and set(own) & set(self.config.stop_ids or ()):
                break
            start += length
            if start < end_of_budget and not settled:
                self.commits += 1
        return self

    def visible(self) -> tuple[list[int], str]:
        answer = self.tokens[len(self.prompt) :][: self.config.max_new_tokens]
        for index, token in enumerate(answer):
            if token in (self.config.stop_ids or ()):
                return answer[:index], "end"
            if token == MASK:
                return answer[:index], "undecided"
        return answer, "length"

    def block(self, start: int) -> bool:
        """Decode one block; whether it settled, so that no commit is due."""
        self.changes.append([])
        free, step, z = 0, 0, None
        while True:
            undecided = [t == MASK for t in self.tokens[start:]]
            was_free = not any(undecided)
            logits = self.logits(start, z if any(undecided) else None, undecided)
            z = self.expectation(logits)
            unmasked, edited = self.decide(start, step, logits, undecided)
            self.changes[-1].append((unmasked, edited))
            step, free = step + 1, free + was_free
            if was_free and not edited:
                return True
            if self.config.editing_threshold is None and self.certain_end(start):
                return False
            limit = 0 if self.config.editing_threshold is None else self.config.max_post_steps
            if MASK not in self.tokens[start:] and free >= limit:
                return False

    def certain_end(self, start: int) -> bool:
        own = self.tokens[max(start, len(self.prompt)) :]
        known = own[: own.index(MASK)] if MASK in own else own
        return self.config.stop_at_end and bool(set(known) & set(self.config.stop_ids or ()))

    def logits(self, start: int, z: Tensor | None, undecided: list[bool]) -> Tensor:
        model, length = self.engine.model, self.config.block_length
        ids = torch.tensor(self.tokens)
        with torch.no_grad():
            embeds = model.model.word_embeddings(ids)
            if z is not None and model.residual_adapter is not None:
                for row, is_open in enumerate(undecided):
                    if is_open:
                        g = model.residual_adapter(z[row])
                        embeds[start + row] += model.residual.alpha * g
            logits = model(
                embeds,
                torch.arange(len(ids)),
                lambda _, q, k, v: ops(q).attention(q, k, v, start=0, block_length=length),
            )
        return suppress_mask(logits[start:], MASK)

    def expectation(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1) @ self.engine.model.embedding_table

    def decide(
        self, start: int, step: int, logits: Tensor, undecided: list[bool]
    ) -> tuple[int, int]:
        config = self.config
        said = predict(logits, config, seed=config.seed or 0, start=start, step=step)
        sure, choice = said.confidence.tolist(), said.tokens.tolist()
        plain = logits.softmax(-1)
        open_rows = [row for row, is_open in enumerate(undecided) if is_open]
        chosen = [row for row in open_rows if sure[row] > config.threshold]
        if len(chosen) < config.min_unmask:
            chosen = sorted(open_rows, key=lambda row: -sure[row])[: config.min_unmask]
        edits = {}
        for row, is_open in enumerate(undecided):
            best = int(plain[row].argmax())
            if is_open or start + row < len(self.prompt) or config.editing_threshold is None:
                continue
            if best != self.tokens[start + row] and plain[row, best] > config.editing_threshold:
                edits[row] = best
        for row in chosen:
            self.tokens[start + row] = choice[row]
        for row, token in edits.items():
            self.tokens[start + row] = token
        return len(chosen), len(edits)


def settings(generator: random.Random) -> DecodeConfig:
    pick = generator.choice
    return DecodeConfig(
        max_new_tokens=generator.randint(1, 24),
        block_length=pick([4, 8, 8, 16]),
        threshold=pick([0.0, 0.3, 0.5, 0.7, 0.95, 1.0]),
        editing_threshold=pick([None, 0.0, 0.3, 0.5, 0.9, 2.0]),
        max_post_steps=pick([0, 1, 2, 3, 5]),
        min_unmask=pick([1, 1, 2, 5, 99]),
        temperature=pick([0.0, 0.0, 0.6, 1.0]),
        top_k=pick([None, 3, 20]),
        top_p=pick([None, 0.8]),
        seed=generator.randrange(1 << 64),
        stop_at_end=pick([True, True, False]),
        # Enough of them that many answers end by one.
        stop_ids=generator.sample(range(490), pick([0, 5, 40])),
        mask_id=MASK,
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_settings(own_engine: Engine, seed: int) -> None:
    generator = random.Random(seed)
    config = settings(generator)
    prompt = generator.sample(range(490), generator.randint(1, 40))
    if generator.random() < 0.3:
        attach_adapter(own_engine)
    want = Plain(own_engine, prompt, config).run()
    ids, reason = want.visible()
    for overlap in (False, True):
        finish = last_event(own_engine, prompt, config, overlap)
        stats = finish.stats
        assert list(finish.token_ids) == ids
        assert finish.reason == reason
        changes = [
            list(zip(b.unmasked_per_step, b.edits_per_step, strict=True)) for b in stats.blocks
        ]
        assert changes == want.changes
        assert stats.steps == sum(map(len, want.changes))
        assert stats.commits == want.commits
        assert stats.forwards == stats.steps + stats.commits - stats.fused
        assert (stats.fused == 0) or overlap
        assert stats.fused >= (stats.commits if overlap else 0)


def attach_adapter(engine: Engine) -> None:
    config, generator = engine.config, torch.Generator().manual_seed(0)
    adapter = ResidualAdapter(config.hidden_size, 16, config.rms_norm_eps)
    with torch.no_grad():
        for weight in adapter.parameters():
            if weight.ndim == 2:
                weight.copy_(torch.randn(weight.shape, generator=generator) / 16)
    engine.model.residual_adapter = adapter
    engine.model.residual = ResidualConfig(alpha=0.3)


def last_event(engine: Engine, prompt: list[int], config: Any, overlap: bool) -> FinishEvent:
    *_, finish = engine.generate(prompt, replace(config, overlap=overlap))
    assert isinstance(finish, FinishEvent)
    return finish
