"""Answers of the engine in this process, each as if it were the first: nothing of a prompt is in
the cache before its answer begins."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.bench.run import Answer
from app.bench.sample import Sample
from app.failures import AnswerFailedError
from engine.config import DecodeConfig
from engine.events import FinishEvent
from finetune.prompts import Prompt

if TYPE_CHECKING:
    from engine.generate import Engine


def engine_answer(engine: "Engine", stop: Callable[[], bool]) -> Answer:
    """What answers with `engine`. It raises AnswerFailedError, and what `Engine.generate` does."""
    assert engine.tokenizer is not None
    tokenizer = engine.tokenizer

    def answer(prompt: Prompt, config: DecodeConfig) -> Sample:
        ids = tokenizer.encode_chat(list(prompt.messages))
        engine.reset_cache()
        (last,) = deque(engine.generate(ids, config, stop=stop), maxlen=1)
        assert isinstance(last, FinishEvent)
        if last.error is not None:
            raise AnswerFailedError(last.error)
        return Sample(prompt.id, last.text, last.reason, last.stats)

    return answer
