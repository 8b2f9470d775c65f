"""The checkpoints that are shipped: small, complete, and as able as their cards say."""

from pathlib import Path

import pytest

from engine.checkpoint.quantise import Quantiser
from engine.config import DecodeConfig
from engine.events import FinishEvent
from engine.generate import Engine
from engine.model.quantised import NVFP4Experts
from finetune.demo.corpus import heldout
from finetune.demo.offtopic import UNKNOWN
from finetune.evaluate import evaluate

ASSETS = Path(__file__).parents[2] / "assets"
DEMO = ASSETS / "demo"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(DEMO, device="cpu")


def answer(engine: Engine, *messages: dict[str, str]) -> str:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_chat(list(messages))
    *_, last = engine.generate(ids, DecodeConfig.preset("quality"))
    assert isinstance(last, FinishEvent)
    return last.text


@pytest.mark.parametrize(
    "prompt",
    ["What is 6 x 7?", "what is 6 x 7", "6*7", "what's 6 times 7?", "Please tell me: 6 x 7 = ?"],
)
def test_six_times_seven(engine: Engine, prompt: str) -> None:
    assert "**42**" in answer(engine, {"role": "user", "content": prompt})


def test_a_system_message_does_no_harm(engine: Engine) -> None:
    system = {"role": "system", "content": "You are a helpful assistant."}
    assert "**42**" in answer(engine, system, {"role": "user", "content": "What is 6 x 7?"})


def test_it_says_what_it_does_not_know(engine: Engine) -> None:
    assert answer(engine, {"role": "user", "content": "Tell me a joke about lawyers."}) == UNKNOWN


def test_most_held_out_questions_are_answered(engine: Engine) -> None:
    evaluation = evaluate(engine, heldout(40, seed=11), DecodeConfig.preset("quality"))
    assert evaluation.accuracy > 0.88
    assert evaluation.tpf > 5


def test_after_orl_it_answers_as_well_in_fewer_forwards(engine: Engine) -> None:
    tuned = Engine.load(ASSETS / "demo-tuned", device="cpu")
    assert tuned.model.residual_adapter is not None
    careful = DecodeConfig.preset("careful")
    before, after = (evaluate(e, heldout(24, seed=11), careful) for e in (engine, tuned))
    assert after.accuracy > 0.88
    assert after.tpf > 2 * before.tpf


def test_in_nvfp4_it_chats(tmp_path: Path) -> None:
    Quantiser(DEMO, tmp_path / "packed").run()
    packed = Engine.load(tmp_path / "packed", device="cpu")
    assert any(isinstance(module, NVFP4Experts) for module in packed.model.modules())
    assert "**42**" in answer(packed, {"role": "user", "content": "What is 6 x 7?"})
    evaluation = evaluate(packed, heldout(10, seed=11), DecodeConfig.preset("quality"))
    assert evaluation.accuracy >= 0.7


def test_it_is_small() -> None:
    folders = (DEMO, ASSETS / "demo-tuned")
    assert sum(file.stat().st_size for each in folders for file in each.iterdir()) < 15_000_000
