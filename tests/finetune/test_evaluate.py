from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.config import DecodeConfig
from engine.events import Stats
from engine.generate import Engine
from finetune.evaluate import Evaluation, Result, evaluate
from finetune.intervals import wilson


@dataclass(frozen=True)
class Question:
    messages: tuple[dict[str, str], ...]
    task: str
    expected: str

    def check(self, text: str) -> bool:
        return self.expected in text


def result(task: str, right: bool, tokens: int, forwards: int) -> Result:
    stats = Stats(
        tokens=tokens, forwards=forwards, steps=forwards + 1, commits=0, fused=0, edits=0,
        waste_tokens=0, prefill_tokens=0, cached_tokens=0, prefill_seconds=0.0,
        decode_seconds=0.5, whole_seconds=0.5, first_block_seconds=0.5,
    )  # fmt: skip
    return Result(task, "", right, stats)


def test_figures_are_pooled_over_items() -> None:
    evaluation = Evaluation(
        (result("a", True, 30, 3), result("a", False, 10, 7), result("b", True, 50, 5))
    )
    assert evaluation.accuracy == pytest.approx(2 / 3)
    assert evaluation.tpf == pytest.approx(90 / 15)
    assert evaluation.tpf_steps == pytest.approx(90 / 18)
    assert evaluation.tokens_per_second == pytest.approx(60)
    assert evaluation.per_task["a"].accuracy == 0.5
    assert evaluation.per_task["b"].n == 1
    assert evaluation.wrong == (evaluation.results[1],)


def test_interval_holds_the_share_and_narrows() -> None:
    low, high = wilson(97, 100)
    assert low < 0.97 < high
    assert wilson(970, 1000)[0] > low
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(10, 10)[1] == 1.0
    assert wilson(10, 10)[0] < 1.0


def test_evaluate_answers_every_item(tiny_checkpoint: Path) -> None:
    engine = Engine.load(tiny_checkpoint, device="cpu")
    items = [
        Question(({"role": "user", "content": text},), "echo", "") for text in ("Hi", "6 x 7?")
    ]
    seen: list[Result] = []
    config = DecodeConfig.preset("speed", max_new_tokens=40)
    evaluation = evaluate(engine, items, config, progress=seen.append)
    assert evaluation.n == 2
    assert tuple(seen) == evaluation.results
    assert all(r.stats.forwards > 0 for r in seen)


def test_nothing_to_evaluate_is_an_error(tiny_checkpoint: Path) -> None:
    engine = Engine.load(tiny_checkpoint, device="cpu")
    with pytest.raises(ValueError, match="nothing to evaluate"):
        evaluate(engine, [], DecodeConfig())
