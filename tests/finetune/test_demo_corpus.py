import random
import re
from itertools import islice
from pathlib import Path

import jinja2
import pytest
from tokenizers import Tokenizer

from finetune.demo import arithmetic, offtopic
from finetune.demo.corpus import WEIGHTS, DemoItem, heldout, training
from finetune.demo.noise import encode, prompt_ids
from finetune.demo.turns import Turn, final_answer, is_held_out
from finetune.demo.vocabulary import CHAT_TEMPLATE, END, MASK, SPECIAL, TURN_END, render
from finetune.demo.wording import vary

DEMO = Path(__file__).parents[2] / "assets" / "demo"


@pytest.fixture(scope="module")
def items() -> list[DemoItem]:
    return list(islice(training(seed=5), 3000))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer.json"))


def test_same_seed_same_corpus(items: list[DemoItem]) -> None:
    again = list(islice(training(seed=5), 200))
    assert again == items[:200]
    assert list(islice(training(seed=6), 200)) != again
    assert heldout(50, seed=3) == heldout(50, seed=3)


def test_no_trained_turn_is_held_out(items: list[DemoItem]) -> None:
    trained = {(turn.key, turn.form) for item in items for turn in item.turns}
    tested = {(item.last.key, item.last.form) for item in heldout(400, seed=2)}
    assert not any(is_held_out(key) for key, form in trained if not form)
    assert all(is_held_out(key) for key, _ in tested)
    assert trained.isdisjoint(tested)


def test_held_out_share_is_about_a_tenth() -> None:
    held_out = sum(is_held_out(f"add {a} {b}") for a in range(100) for b in range(100))
    assert 0.08 < held_out / 10_000 < 0.12


def test_every_task_occurs(items: list[DemoItem]) -> None:
    assert len({item.task for item in items}) >= 20
    assert {len(item.turns) for item in items} == {1, 2, 3}
    assert any(item.messages[0]["role"] == "system" for item in items)


def test_answers_pass_their_own_check_and_wrong_ones_fail(items: list[DemoItem]) -> None:
    for item in items:
        assert item.check(item.answer)
        assert not item.check("")
        assert not item.check(item.answer + " **wrong**")
        expected = final_answer(item.answer)
        if expected is None:
            assert not item.check(item.answer.replace(" ", " not ", 1))
        else:
            assert item.check(f"Shorter: **{expected}**")


def test_other_answers_of_a_task_fail(items: list[DemoItem]) -> None:
    by_task: dict[str, Turn] = {}
    for item in items:
        other = by_task.setdefault(item.task, item.last)
        if final_answer(other.answer) != final_answer(item.answer):
            assert not item.check(other.answer)


@pytest.mark.parametrize("task", [task for task, _ in WEIGHTS], ids=lambda task: task.__name__)
def test_every_line_of_a_calculation_is_true(task: object) -> None:
    assert callable(task)
    rng = random.Random(1)
    for _ in range(300):
        answer = vary(rng, task(rng).answer)
        for line in re.findall(r"\d+ [-+x/] \d+ (?:=|is|makes) -?\d+(?!\d| rem)", answer):
            question, result = re.split(" = | is | makes ", line)
            assert eval(question.replace("x", "*")) == int(result), line


def test_free_wordings_change_words_and_nothing_else() -> None:
    rng = random.Random(4)
    seen: set[str] = set()
    for turn in [task(rng) for task, _ in WEIGHTS for _ in range(60)]:
        answer = vary(rng, turn.answer)
        assert final_answer(answer) == final_answer(turn.answer)
        assert re.findall(r"\d+", answer) == re.findall(r"\d+", turn.answer)
        seen |= set(answer.split())
    assert {"Let", "We", "makes", "Ask", "That"} <= seen


def test_results_of_arithmetic() -> None:
    assert final_answer(arithmetic.add_turn(47, 38, "?").answer) == "85"
    assert final_answer(arithmetic.subtract_turn(12, 30, "?").answer) == "-18"
    assert final_answer(arithmetic.multiply_turn(6, 7, "?").answer) == "42"
    assert final_answer(arithmetic.multiply_turn(0, 7, "?").answer) == "0"
    assert final_answer(arithmetic.divide_turn(56, 8, "?", "?").answer) == "7"


def test_what_the_model_cannot_do_has_one_answer() -> None:
    rng = random.Random(0)
    turns = [offtopic.off_topic(rng) for _ in range(500)]
    assert {turn.answer for turn in turns} == {offtopic.UNKNOWN}
    assert len({turn.prompt for turn in turns}) > 400


def test_template_round_trip(items: list[DemoItem], tokenizer: Tokenizer) -> None:
    template = jinja2.Environment().from_string(CHAT_TEMPLATE)
    assert (DEMO / "chat_template.jinja").read_text(encoding="utf-8") == CHAT_TEMPLATE
    for item in items[:300]:
        rendered = template.render(messages=list(item.messages), add_generation_prompt=True)
        assert rendered == render(item)
        decoded = tokenizer.decode(prompt_ids(tokenizer, item), skip_special_tokens=False)
        assert decoded == rendered


def test_numbers_are_single_tokens_and_special_tokens_come_last(tokenizer: Tokenizer) -> None:
    assert all(len(tokenizer.encode(str(n)).ids) == 1 for n in range(1000))
    size = tokenizer.get_vocab_size()
    assert size % 16 == 0
    assert [tokenizer.token_to_id(t) for t in SPECIAL] == list(range(size - len(SPECIAL), size))


def test_sequences_are_whole_blocks_of_modest_length(
    items: list[DemoItem], tokenizer: Tokenizer
) -> None:
    end, turn_end = tokenizer.token_to_id(END), tokenizer.token_to_id(TURN_END)
    lengths = []
    for item in items[:1000]:
        example = encode(tokenizer, item, block=32)
        answer = list(example.ids[example.start :])
        length = answer.index(turn_end)
        lengths.append(length)
        assert len(example.ids) % 32 == 0
        assert set(answer[length + 1 :]) <= {end}
        assert len(answer) - length <= 32
        assert tokenizer.token_to_id(MASK) not in example.ids
        assert tokenizer.decode(answer[:length]) == item.answer
    assert min(lengths) >= 12
    assert max(lengths) <= 150
    assert sum(lengths) / len(lengths) > 35
