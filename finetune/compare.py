"""A base model against what a run made of it: the same prompts, the same thresholds and seeds.

The headline is measured one answer at a time, as in a chat, so its rates are a chat's. The
frontier over thresholds only counts steps and forwards, so it decodes many answers at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.config import DecodeConfig
from engine.generate import Engine
from finetune.evaluate import Comparison, Evaluation, Result, evaluate
from finetune.prompts import Prompt
from finetune.rollout import Check, answer_prompts

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
ROWS = 16


@dataclass(frozen=True)
class Verified:
    """A prompt with its verifier, as `evaluate` wants an item."""

    prompt: Prompt
    verifier: Check
    task: str = ""

    @property
    def messages(self) -> Sequence[Mapping[str, str]]:
        return self.prompt.messages

    def check(self, text: str) -> bool:
        """Whether the verifier passes the answer."""
        return self.verifier(self.prompt, text).passed


def headline(
    base: Engine,
    tuned: Engine,
    prompts: Sequence[Prompt],
    verifier: Check,
    config: DecodeConfig,
    progress: Callable[[Result], None] | None = None,
) -> Comparison:
    """Both models' answers, one at a time. Raises ValueError without prompts."""
    items = [Verified(prompt, verifier) for prompt in prompts]
    before, after = (evaluate(e, items, config, progress=progress) for e in (base, tuned))
    return Comparison(before, after)


def frontier(
    engine: Engine,
    prompts: Sequence[Prompt],
    verifier: Check,
    config: DecodeConfig,
    thresholds: Iterable[float] = THRESHOLDS,
) -> dict[float, Evaluation]:
    """Accuracy and speed threshold by threshold; the times in it are a batch's."""
    found = {}
    for threshold in thresholds:
        own = replace(config, threshold=threshold)
        rollouts = answer_prompts(engine, prompts, verifier, own, rows=ROWS)
        results = (Result("", r.finish.text, r.kept, r.finish.stats) for r in rollouts)
        found[threshold] = Evaluation(tuple(results))
    return found
