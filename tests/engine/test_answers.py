"""How an answer ends, what it counts, what it says, and what the next one may reuse.

Most answers here are scripted: a hook replaces the model's logits, so that the real engine writes
a given text at a given speed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig, PromptTooLongError
from engine.decode import answer as answer_module
from engine.events import BlockEvent, BlockStats, Event, FinishEvent, Stats, StepEvent
from engine.generate import Engine

END, ROLE_END, MASK = 257, 258, 261
BLOCK = 8


@dataclass
class Script:
    """Logits by position: `ids[position]` is what the model says there, `sure[position]` (else
    `surety`) how surely. Counts the model's calls, prefills included."""

    engine: Engine
    ids: dict[int, int] = field(default_factory=dict)
    surety: float = 20.0
    sure: dict[int, float] = field(default_factory=dict)
    calls: list[tuple[int, int]] = field(default_factory=list)

    def say(self, at: int, text: str | Sequence[int], *, then: int = END) -> None:
        """From position `at` on the model says `text`, and `then` for ever."""
        assert self.engine.tokenizer is not None
        ids = self.engine.tokenizer.encode(text) if isinstance(text, str) else text
        self.ids = dict.fromkeys(range(512), then) | dict(enumerate(ids, start=at))

    def rewrite(self, _: Any, args: tuple[Tensor, ...], logits: Tensor) -> Tensor:
        said = torch.zeros_like(logits)
        for row, position in enumerate(args[1].tolist()):
            said[row, self.ids[position]] = self.sure.get(position, self.surety)
        return said

    def count(self, _: Any, args: tuple[Tensor, ...], __: Any) -> None:
        self.calls.append((int(args[0].shape[-2]), len(self.calls)))


@pytest.fixture(scope="module")
def loaded(tiny_checkpoint: Path) -> Engine:
    return Engine.load(tiny_checkpoint, device="cpu")


@pytest.fixture
def engine(loaded: Engine) -> Iterator[Engine]:
    loaded.reset_cache()
    config = loaded.model.config
    yield loaded
    loaded.model.config = config


@pytest.fixture
def script(engine: Engine) -> Iterator[Script]:
    script = Script(engine)
    hooks = [
        engine.model.register_forward_hook(script.rewrite),
        engine.model.model.layers[0].register_forward_hook(script.count),
    ]
    yield script
    for hook in hooks:
        hook.remove()


def config(**changes: Any) -> DecodeConfig:
    return DecodeConfig(**({"block_length": BLOCK, "max_new_tokens": 64} | changes))


def prompt(length: int) -> list[int]:
    return [(7 * i + 3) % 256 for i in range(length)]


def run(
    engine: Engine, ids: Sequence[int], settings: DecodeConfig, **arguments: Any
) -> tuple[list[Event], FinishEvent]:
    """All events, after checks that hold for every answer."""
    events = list(engine.generate(ids, settings, **arguments))
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    check_events(events, finish, len(ids) % settings.block_length)
    return events, finish


def check_events(events: list[Event], finish: FinishEvent, protected: int) -> None:
    steps = [e for e in events if isinstance(e, StepEvent)]
    blocks = [e for e in events if isinstance(e, BlockEvent)]
    stats = finish.stats
    assert [e.block for e in blocks] == list(range(len(blocks)))
    seconds = [e.seconds for e in events if not isinstance(e, FinishEvent)]
    assert seconds == sorted(seconds)
    for step in steps:
        held = protected if step.block == 0 else 0
        assert step.states[:held] == "p" * held
        assert "p" not in step.states[held:]
        assert (step.states.count("n"), step.states.count("e")) == (step.unmasked, step.edited)
        assert [s == "u" for s in step.states] == [t == MASK for t in step.token_ids]
    for block in blocks:
        own = [s for s in steps if s.block == block.block]
        assert [s.step for s in own] == list(range(1, len(own) + 1))
        assert block.stats.steps == len(own) == len(block.stats.unmasked_per_step)
        assert tuple(s.edited for s in own) == block.stats.edits_per_step
    assert stats.forwards == stats.steps + stats.commits - stats.fused
    assert sum(b.forwards for b in stats.blocks) == stats.forwards
    assert sum(b.tokens for b in stats.blocks) == stats.tokens == len(finish.token_ids)
    assert sum(b.seconds for b in stats.blocks) <= stats.decode_seconds + 1e-9
    assert stats.prefill_seconds + stats.decode_seconds == pytest.approx(stats.whole_seconds)


def texts(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, BlockEvent))


class TestReasons:
    @pytest.mark.parametrize("end", [END, ROLE_END])
    @pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 20])
    def test_end(self, engine: Engine, script: Script, end: int, length: int) -> None:
        text = "abcdefghijklmnopqrstuvwxyz"[:length]
        script.say(20, text, then=end)
        events, finish = run(engine, prompt(20), config())
        assert finish.reason == "end"
        assert finish.text == texts(events) == text
        assert finish.token_ids == tuple(engine.tokenizer.encode(text))
        # The end token is neither text nor waste; what follows it in its block is waste.
        computed = -(-(20 + length + 1) // BLOCK) * BLOCK - 20
        assert finish.stats.waste_tokens == computed - length - 1

    @pytest.mark.parametrize("budget", [1, 3, 4, 5, 12, 13])
    def test_length(self, engine: Engine, script: Script, budget: int) -> None:
        script.say(20, "abcdefghijklmnopqrstuvwxyz")
        events, finish = run(engine, prompt(20), config(max_new_tokens=budget))
        assert finish.reason == "length"
        assert finish.text == texts(events) == "abcdefghijklmnopqrstuvwxyz"[:budget]
        computed = -(-(20 + budget) // BLOCK) * BLOCK - 20
        assert finish.stats.waste_tokens == computed - budget
        assert finish.stats.tokens == budget

    def test_an_end_token_exactly_behind_the_budget_is_length(
        self, engine: Engine, script: Script
    ) -> None:
        script.say(20, "abc")
        assert run(engine, prompt(20), config(max_new_tokens=3))[1].reason == "length"
        assert run(engine, prompt(20), config(max_new_tokens=4))[1].reason == "end"

    @pytest.mark.parametrize("context", [512, 509])
    def test_context(self, engine: Engine, script: Script, context: int) -> None:
        engine.model.config = replace(engine.config, max_position_embeddings=context)
        script.say(490, "x" * 100)
        _, finish = run(engine, prompt(490), config(max_new_tokens=1000))
        assert finish.reason == "context"
        assert finish.stats.tokens == context // BLOCK * BLOCK - 490
        assert finish.stats.waste_tokens == 0

    def test_a_budget_that_just_fits_is_length(self, engine: Engine, script: Script) -> None:
        script.say(490, "x" * 100)
        assert run(engine, prompt(490), config(max_new_tokens=22))[1].reason == "length"
        assert run(engine, prompt(490), config(max_new_tokens=23))[1].reason == "context"

    def test_an_end_token_of_the_prompt_ends_nothing(self, engine: Engine, script: Script) -> None:
        script.say(19, "abc")
        ids = [*prompt(17), END, ROLE_END]
        _, finish = run(engine, ids, config())
        assert (finish.reason, finish.text) == ("end", "abc")

    def test_the_settings_stop_ids_replace_the_checkpoints(
        self, engine: Engine, script: Script
    ) -> None:
        x, y = engine.tokenizer.encode("xy")
        script.say(20, [x, END, x, y, x, x])
        _, finish = run(engine, prompt(20), config(stop_ids=[y]))
        assert (finish.reason, finish.token_ids) == ("end", (x, END, x))
        _, finish = run(engine, prompt(20), config(stop_ids=[], max_new_tokens=6))
        assert (finish.reason, finish.token_ids) == ("length", (x, END, x, y, x, x))


class TestCutAfterwards:
    def test_goes_on_to_the_budget(self, engine: Engine, script: Script) -> None:
        script.say(20, "hello", then=ord("x"))
        script.ids[25] = END
        early = run(engine, prompt(20), config(max_new_tokens=30))[1]
        late = run(engine, prompt(20), config(max_new_tokens=30, stop_at_end=False))[1]
        assert early.reason == late.reason == "end"
        assert early.token_ids == late.token_ids
        assert early.text == late.text == "hello"
        # The end stands at 25 in the block 24..31; without stopping all up to 55 is computed.
        assert early.stats.waste_tokens == 32 - 26
        assert late.stats.waste_tokens == 56 - 26
        assert late.stats.steps > early.stats.steps

    def test_beyond_the_budget_is_length(self, engine: Engine, script: Script) -> None:
        script.say(20, "abcdef")
        settings = config(max_new_tokens=5, stop_at_end=False)
        assert run(engine, prompt(20), settings)[1].reason == "length"


class TestEditingOff:
    def left_to_right(self, script: Script, at: int, text: str) -> None:
        script.say(at, text, then=ord("x"))
        script.ids[at + len(text)] = END
        script.surety = 1.0  # below the threshold: one position a step, the surest first
        script.sure = {p: 2.0 - p / 1000 for p in range(512)}

    def test_the_answer_ends_when_its_end_is_certain(self, engine: Engine, script: Script) -> None:
        self.left_to_right(script, 17, "abc")
        settings = config(editing_threshold=None)
        events, finish = run(engine, prompt(17), settings)
        assert (finish.reason, finish.text) == ("end", "abc")
        assert finish.stats.steps == finish.stats.forwards == 4
        assert finish.stats.waste_tokens == 0, "positions never decided are not waste"
        assert texts(events) == "abc"

    def test_not_before(self, engine: Engine, script: Script) -> None:
        """Decided from right to left, the end is certain only when all before it is."""
        self.left_to_right(script, 17, "abc")
        script.sure = {p: 1.0 + p / 1000 for p in range(512)}
        _, finish = run(engine, prompt(17), config(editing_threshold=None))
        assert (finish.reason, finish.text) == ("end", "abc")
        assert finish.stats.steps == 7
        assert finish.stats.waste_tokens == 3

    def test_cut_afterwards_waits_for_the_budget(self, engine: Engine, script: Script) -> None:
        self.left_to_right(script, 17, "abc")
        settings = config(editing_threshold=None, stop_at_end=False, max_new_tokens=7)
        _, finish = run(engine, prompt(17), settings)
        assert (finish.reason, finish.text, finish.stats.steps) == ("end", "abc", 7)

    @pytest.mark.parametrize("overlap", [False, True])
    def test_blocks_are_final_when_filled(
        self, engine: Engine, script: Script, overlap: bool
    ) -> None:
        script.say(16, "a" * 24)
        settings = config(editing_threshold=None, max_new_tokens=24, overlap=overlap)
        _, finish = run(engine, prompt(16), settings)
        stats = finish.stats
        assert (stats.steps, stats.commits, stats.fused) == (3, 2, 2 if overlap else 0)
        assert [b.commits for b in stats.blocks] == [1, 1, 0]
        assert [b.forwards for b in stats.blocks] == ([1, 1, 1] if overlap else [2, 2, 1])


class TestStopping:
    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize("editing", [None, 0.5])
    @pytest.mark.parametrize("surety", [20.0, 1.0])
    def test_no_forward_begins_after_a_stop(
        self, engine: Engine, script: Script, overlap: bool, editing: float | None, surety: float
    ) -> None:
        script.say(20, "x" * 60)
        script.surety = surety
        settings = config(
            overlap=overlap, editing_threshold=editing, max_new_tokens=12, max_post_steps=2
        )
        total = len(run(engine, prompt(20), settings)[0])
        for pressed_at in range(0, total, 1 if surety > 1 else 5):
            script.calls.clear()
            events, calls_then = [], -1
            stream = engine.generate(prompt(20), settings, stop=lambda: calls_then >= 0)  # noqa: B023
            for event in stream:
                events.append(event)
                if len(events) == pressed_at + 1:
                    calls_then = len(script.calls)
            finish = events[-1]
            assert isinstance(finish, FinishEvent)
            check_events(events, finish, 4)
            assert len(script.calls) - calls_then <= 1
            if finish.reason != "stopped":
                # Nothing was left to compute when the stop came.
                assert len(script.calls) == calls_then
                assert finish.reason == "length"

    def test_asked_before_every_forward(self, engine: Engine, script: Script) -> None:
        """With a stop at the n-th question exactly n - 1 forwards are made, prefill included."""
        script.say(20, "x" * 60)
        for allowed in range(10):
            engine.reset_cache()
            script.calls.clear()
            answers = iter([False] * allowed)
            _, finish = run(
                engine, prompt(20), config(), stop=lambda answers=answers: next(answers, True)
            )
            assert finish.reason == "stopped"
            assert len(script.calls) == allowed
            assert finish.stats.forwards == max(allowed - 1, 0)

    def test_while_the_prompt_is_read(
        self, engine: Engine, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(answer_module, "PREFILL_TOKENS", 64)
        script.say(300, "abc")
        told: list[tuple[int, int, int]] = []
        events, finish = run(
            engine,
            prompt(300),
            config(),
            stop=lambda: len(told) >= 2,
            on_prefill=lambda done, total, cached, _: told.append((done, total, cached)),
        )
        assert events == [finish]
        assert (finish.reason, finish.text, finish.token_ids) == ("stopped", "", ())
        assert told == [(64, 296, 0), (128, 296, 0)]
        assert [tokens for tokens, _ in script.calls] == [64, 64]
        assert finish.stats.prefill_tokens == 128
        # What was read is kept for the next try.
        told.clear()
        _, finish = run(engine, prompt(300), config())
        assert finish.stats.cached_tokens == 128
        assert finish.stats.prefill_tokens == 296 - 128

    def test_what_was_said_up_to_the_first_undecided_position_stays(
        self, engine: Engine, script: Script
    ) -> None:
        script.say(18, "abcdefghij")
        script.surety = 1.0
        script.sure = {18: 9.0, 19: 8.0, 21: 7.0, 20: 0.5}
        answers = iter([False] * 4)  # the prefill and three steps
        events, finish = run(
            engine, prompt(18), config(threshold=1.0), stop=lambda: next(answers, True)
        )
        assert finish.reason == "stopped"
        assert (finish.text, texts(events)) == ("ab", "ab")
        assert finish.stats.tokens == 2
        assert finish.stats.forwards == finish.stats.steps == 3
        assert finish.stats.waste_tokens == 0

    def test_the_next_answer_is_unharmed(self, engine: Engine, script: Script) -> None:
        script.say(20, "abcdefghijklmnopqrst")
        want = run(engine, prompt(20), config())[1]
        for allowed in range(8):
            engine.reset_cache()
            answers = iter([False] * allowed)
            run(engine, prompt(20), config(), stop=lambda answers=answers: next(answers, True))
            again = run(engine, prompt(20), config())[1]
            assert again.token_ids == want.token_ids
            assert again.stats.steps == want.stats.steps


class TestText:
    @pytest.mark.parametrize("at", range(16, 25))
    def test_characters_over_block_borders(self, engine: Engine, script: Script, at: int) -> None:
        text = "漢字と👍🏽 and Grüße"
        script.say(at, text)
        events, finish = run(engine, prompt(at), config())
        assert finish.text == texts(events) == text
        for event in events:
            if isinstance(event, BlockEvent):
                assert "�" not in event.text

    def test_a_character_cut_by_the_budget_is_flushed_at_the_end(
        self, engine: Engine, script: Script
    ) -> None:
        script.say(16, "ab漢")
        events, finish = run(engine, prompt(16), config(max_new_tokens=4))
        assert texts(events) == "ab"
        assert finish.text == "ab�"
        assert len(finish.token_ids) == 4

    @pytest.mark.parametrize("at", range(16, 25))
    @pytest.mark.parametrize(
        ("text", "stops", "want"),
        [
            ("one two STOP three", ["STOP"], "one two "),
            ("one two STOP", ["STOP"], "one two "),
            ("one two STO", ["STOP"], "one two STO"),
            ("漢字👍STOP more text here", ["STOP"], "漢字👍"),
            ("漢字👍漢", ["👍"], "漢字"),
            ("STOP", ["STOP"], ""),
            ("a\n\nb\n\nc", ["\n\n", "c"], "a"),
        ],
    )
    def test_stop_strings(
        self, engine: Engine, script: Script, at: int, text: str, stops: list[str], want: str
    ) -> None:
        script.say(at, text)
        events, finish = run(engine, prompt(at), config(stop_strings=stops))
        assert finish.reason == "end"
        assert finish.text == want
        assert want.startswith(texts(events))
        # The ids are those of the text, and the block's counts those of the ids.
        assert finish.token_ids == tuple(engine.tokenizer.encode(want))
        assert finish.stats.fused == 0
        # All that was computed is text, waste or the end token.
        blocks = [e for e in events if isinstance(e, BlockEvent)]
        rest = len(blocks) * BLOCK - at % BLOCK - finish.stats.tokens - finish.stats.waste_tokens
        end = at + len(engine.tokenizer.encode(text))
        assert rest == (1 if end < at // BLOCK * BLOCK + len(blocks) * BLOCK else 0)

    def test_a_stop_string_ends_the_answer_with_its_block(
        self, engine: Engine, script: Script
    ) -> None:
        script.say(16, "ab STOP" + "x" * 60)
        events, finish = run(engine, prompt(16), config(stop_strings=["STOP"]))
        assert (finish.reason, finish.text) == ("end", "ab ")
        assert len([e for e in events if isinstance(e, BlockEvent)]) == 1
        assert finish.stats.waste_tokens == BLOCK - 3

    def test_an_end_token_behind_a_stop_string(self, engine: Engine, script: Script) -> None:
        script.say(16, "abST")
        _, finish = run(engine, prompt(16), config(stop_strings=["ST"]))
        assert finish.text == "ab"
        assert finish.token_ids == tuple(engine.tokenizer.encode("ab"))
        assert finish.stats.tokens == 2

    def test_a_stop_string_behind_the_budget(self, engine: Engine, script: Script) -> None:
        script.say(16, "abcdST", then=ord("x"))
        settings = config(stop_strings=["ST"], max_new_tokens=5)
        _, finish = run(engine, prompt(16), settings)
        assert (finish.reason, finish.text) == ("length", "abcdS")

    def test_stop_strings_while_cutting_afterwards(self, engine: Engine, script: Script) -> None:
        script.say(16, "ab ST cd", then=ord("x"))
        settings = config(stop_strings=["ST"], stop_at_end=False, max_new_tokens=32)
        _, finish = run(engine, prompt(16), settings)
        assert (finish.reason, finish.text) == ("end", "ab ")

    def test_without_a_tokenizer_there_is_no_text(self, golden_engine: Engine, golden: Any) -> None:
        run_config = golden.config("s_mode_post0_b32")
        events = list(
            golden_engine.generate(golden.tokens("gen_s_mode_post0_b32_prompt"), run_config)
        )
        finish = events[-1]
        assert isinstance(finish, FinishEvent)
        assert finish.text == ""
        assert finish.stats.tokens == len(finish.token_ids) == 51


class TestPrompts:
    @pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 24])
    def test_any_length(self, engine: Engine, script: Script, length: int) -> None:
        script.say(length, "abcdefghij")
        told: list[tuple[int, int, int]] = []
        _, finish = run(
            engine,
            prompt(length),
            config(),
            on_prefill=lambda done, total, cached, _: told.append((done, total, cached)),
        )
        whole = length // BLOCK * BLOCK
        assert finish.text == "abcdefghij"
        assert finish.stats.prefill_tokens == whole
        assert told == [(whole, whole, 0)]

    def test_what_cannot_be_answered_is_refused_before_any_work(
        self, engine: Engine, script: Script
    ) -> None:
        generate = engine.generate
        with pytest.raises(PromptTooLongError, match=r"512 tokens.*512.*block of 8") as error:
            generate(prompt(512), config(max_new_tokens=1))
        assert (error.value.prompt_tokens, error.value.context_length) == (512, 512)
        generate(prompt(511), config())
        with pytest.raises(ValueError, match="prompt is empty"):
            generate([], config())
        for id in (-1, 272):
            with pytest.raises(ValueError, match=rf"{id} is outside the vocabulary of 272"):
                generate([1, id], config())
        for settings in (config(stop_ids=[272]), config(mask_id=272)):
            with pytest.raises(ValueError, match="outside the vocabulary"):
                generate([1], settings)
        with pytest.raises(ValueError, match="mask"):
            generate([1], config(stop_ids=[MASK]))
        assert script.calls == []

    def test_no_mask_id_and_no_tokenizer(self, golden_engine: Engine) -> None:
        with pytest.raises(ValueError, match="which token is the mask"):
            golden_engine.generate([1], config())
        with pytest.raises(ValueError, match="need a tokenizer"):
            golden_engine.generate([1], config(mask_id=500, stop_strings=["x"]))

    def test_a_tensor_is_as_good_as_a_list(self, engine: Engine, script: Script) -> None:
        script.say(20, "abc")
        _, finish = run(engine, torch.tensor(prompt(20)), config())  # type: ignore[arg-type]
        assert finish.text == "abc"

    @pytest.mark.parametrize("ids", [[[1, 2]], [1.5], ["1"], [None]])
    def test_ids_that_are_none(self, engine: Engine, ids: Any) -> None:
        with pytest.raises(ValueError, match="Token ids"):
            engine.generate(ids, config())
        if not isinstance(ids[0], str | None):
            with pytest.raises(ValueError, match="Token ids"):
                engine.generate(torch.tensor(ids), config())

    def test_logits_refuses_what_generate_refuses(self, engine: Engine) -> None:
        with pytest.raises(ValueError, match="outside the vocabulary"):
            engine.logits([272])
        with pytest.raises(ValueError, match="empty"):
            engine.logits([])
        with pytest.raises(ValueError, match="do not fit the context of 512"):
            engine.logits([1] * 513)
        with pytest.raises(ValueError, match="block_length"):
            engine.logits([1], block_length=0)

    def test_the_mask_in_a_prompt_is_protected(self, engine: Engine, script: Script) -> None:
        script.say(10, "abc")
        ids = prompt(10)
        ids[9] = MASK
        events = list(engine.generate(ids, config()))
        finish = events[-1]
        assert isinstance(finish, FinishEvent)
        assert (finish.reason, finish.text) == ("end", "abc")


def greedy(engine: Engine, ids: Sequence[int], **changes: Any) -> FinishEvent:
    """An unscripted answer of the random model, two blocks and a bit."""
    quick = {"min_unmask": 2, "max_post_steps": 2}
    settings = config(**({"max_new_tokens": 18, "stop_ids": []} | quick | changes))
    return run(engine, ids, settings)[1]


class TestReuse:
    """Every second answer equals the one of an engine that begins afresh."""

    def fresh(self, engine: Engine, ids: Sequence[int], **changes: Any) -> FinishEvent:
        engine.reset_cache()
        finish = greedy(engine, ids, **changes)
        assert finish.stats.cached_tokens == 0
        return finish

    def check(self, engine: Engine, second: list[int], cached: int, **changes: Any) -> None:
        finish = greedy(engine, second, **changes)
        assert finish.stats.cached_tokens == cached
        whole = len(second) // changes.get("block_length", BLOCK)
        assert finish.stats.prefill_tokens + cached == whole * changes.get("block_length", BLOCK)
        assert finish.token_ids == self.fresh(engine, second, **changes).token_ids

    def test_the_same_prompt_again(self, engine: Engine) -> None:
        self.fresh(engine, prompt(40))
        self.check(engine, prompt(40), 40)

    @pytest.mark.parametrize("overlap", [False, True])
    def test_a_chat_that_goes_on(self, engine: Engine, overlap: bool) -> None:
        first = self.fresh(engine, prompt(37), overlap=overlap, max_new_tokens=30)
        assert len(first.token_ids) == 30
        # 37 + 30 is 67: the last whole block ends at 64, and the answer's last block (64..71) was
        # committed only if it settled; its tokens behind the budget differ from what follows.
        chat = [*prompt(37), *first.token_ids, *prompt(11)]
        self.check(engine, chat, 64, overlap=overlap, max_new_tokens=30)

    @pytest.mark.parametrize("edited", [0, 5, 8, 17, 39])
    def test_an_edited_earlier_message(self, engine: Engine, edited: int) -> None:
        self.fresh(engine, prompt(45))
        changed = prompt(45)
        changed[edited] = (changed[edited] + 1) % 256
        self.check(engine, changed, edited // BLOCK * BLOCK)

    def test_a_shorter_prompt(self, engine: Engine) -> None:
        self.fresh(engine, prompt(45))
        self.check(engine, prompt(20), 16)
        self.check(engine, prompt(3), 0)

    def test_another_block_length_begins_anew(self, engine: Engine) -> None:
        self.fresh(engine, prompt(64))
        self.check(engine, prompt(64), 0, block_length=16)
        self.fresh(engine, prompt(64), block_length=16)
        self.check(engine, prompt(64), 0)

    def test_an_answer_without_its_last_blocks_keys(self, engine: Engine) -> None:
        """The limit ends the last block without a commit, so only what lies before it is kept."""
        first = self.fresh(engine, prompt(16), max_post_steps=0, max_new_tokens=16)
        chat = [*prompt(16), *first.token_ids, *prompt(5)]
        self.check(engine, chat, 24, max_post_steps=0)

    def test_the_same_steps_too(self, engine: Engine) -> None:
        want = self.fresh(engine, prompt(45)).stats
        self.fresh(engine, [*prompt(30), *prompt(60)])
        got = greedy(engine, prompt(45)).stats
        assert got.cached_tokens == 24
        assert [b.unmasked_per_step for b in got.blocks] == [
            b.unmasked_per_step for b in want.blocks
        ]

    @pytest.mark.parametrize("consumed", [1, 2, 5, 9])
    def test_an_abandoned_answer(self, engine: Engine, consumed: int) -> None:
        want = self.fresh(engine, prompt(30)).token_ids
        engine.reset_cache()
        stream = engine.generate(prompt(45), config(max_new_tokens=18))
        for _ in range(consumed):
            next(stream)
        assert greedy(engine, prompt(30)).token_ids == want
        with pytest.raises(RuntimeError, match="another answer has begun"):
            list(stream)
        assert greedy(engine, prompt(30)).token_ids == want

    def test_a_longer_answer_than_any_before_grows_the_cache(self, engine: Engine) -> None:
        self.fresh(engine, prompt(16), max_new_tokens=8)
        self.check(engine, prompt(16), 16, max_new_tokens=40)

    def test_a_failed_forward_leaves_a_sound_cache(self, engine: Engine) -> None:
        want = self.fresh(engine, prompt(30)).token_ids
        for failing in range(6):
            engine.reset_cache()
            calls = iter(range(100))

            def fail(*_: Any, calls: Iterator[int] = calls, failing: int = failing) -> None:
                if next(calls) == failing:
                    raise MemoryError

            hook = engine.model.model.layers[1].register_forward_hook(fail)
            with pytest.raises(MemoryError):
                greedy(engine, prompt(30))
            hook.remove()
            assert greedy(engine, prompt(30)).token_ids == want


class TestNotFinite:
    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize("editing", [None, 0.5])
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_ends_the_answer_with_what_there_is(
        self, engine: Engine, script: Script, overlap: bool, editing: float | None, value: float
    ) -> None:
        script.say(16, "abcdefghij")
        settings = config(overlap=overlap, editing_threshold=editing)

        def spoil(_: Any, args: tuple[Tensor, ...], logits: Tensor) -> Tensor:
            spoiled = args[1] >= 24
            return torch.where(spoiled[:, None], value, logits)

        hook = engine.model.register_forward_hook(spoil)
        _, finish = run(engine, prompt(16), settings)
        hook.remove()
        assert finish.reason == "error"
        assert finish.error is not None
        assert "not numbers" in finish.error
        assert finish.error.endswith(".")
        assert finish.text == "abcdefgh"
        assert finish.stats.fused == 0
        assert run(engine, prompt(16), settings)[1].text == "abcdefghij"


class TestFigures:
    def test_one_block_takes_time(self, engine: Engine, script: Script) -> None:
        script.say(5, "a")
        stats = run(engine, prompt(5), config())[1].stats
        assert stats.decode_seconds > 0
        assert stats.tokens_per_second > 0
        assert stats.first_block_seconds > 0
        assert stats.prefill_seconds + stats.decode_seconds == pytest.approx(stats.whole_seconds)

    def test_the_seconds_end_with_the_last_forward(self, engine: Engine, script: Script) -> None:
        script.say(16, "abcdefghijkl")
        stream = engine.generate(prompt(16), config())
        *events, finish = stream
        last_step = [e for e in events if isinstance(e, StepEvent)][-1]
        assert isinstance(finish, FinishEvent)
        assert finish.stats.whole_seconds <= last_step.seconds

    stats = Stats(
        tokens=60, forwards=20, steps=24, commits=1, fused=5, edits=3, waste_tokens=4,
        prefill_tokens=32, cached_tokens=0, prefill_seconds=1.0, decode_seconds=2.0,
        whole_seconds=3.0, first_block_seconds=1.5,
        blocks=(BlockStats(60, 24, 20, 1, 2.0),),
    )  # fmt: skip

    @pytest.mark.parametrize(
        ("figure", "want"),
        [
            ("tpf", 3.0),
            ("tpf_steps", 2.5),
            ("tokens_per_second", 30.0),
            ("tokens_per_second_whole", 20.0),
            ("forwards_per_second", 10.0),
        ],
    )
    def test_by_hand(self, figure: str, want: float) -> None:
        assert getattr(self.stats, figure) == want
        nothing = Stats(**{
            name: 0 for name in self.stats.__dataclass_fields__ if name not in ("seed", "blocks")
        })  # fmt: skip
        assert getattr(nothing, figure) == 0.0

    def test_waste_is_no_speed(self, engine: Engine, script: Script) -> None:
        script.say(16, "abc")
        stats = run(engine, prompt(16), config())[1].stats
        assert (stats.tokens, stats.waste_tokens) == (3, 4)
        assert stats.tpf == 3 / stats.forwards

    @pytest.mark.parametrize("overlap", [False, True])
    def test_counts_by_hand(self, engine: Engine, script: Script, overlap: bool) -> None:
        """Three blocks, each decided in one step and settled by a second."""
        script.say(16, "x" * 24)
        events, finish = run(engine, prompt(16), config(max_new_tokens=24, overlap=overlap))
        stats = finish.stats
        assert (stats.steps, stats.commits, stats.edits) == (6, 0, 0)
        assert (stats.forwards, stats.fused) == ((4, 2) if overlap else (6, 0))
        assert [b.forwards for b in stats.blocks] == ([1, 1, 2] if overlap else [2, 2, 2])
        assert stats.tpf_steps == 4.0
        fused = [e.fused for e in events if isinstance(e, StepEvent)]
        assert fused == ([False, False, True, False, True, False] if overlap else [False] * 6)

    @pytest.mark.parametrize("stop_at_end", [True, False])
    def test_the_block_of_the_end_is_not_fused(
        self, engine: Engine, script: Script, stop_at_end: bool
    ) -> None:
        script.say(16, "abc")
        settings = config(max_new_tokens=16, stop_at_end=stop_at_end)
        _, finish = run(engine, prompt(16), settings)
        assert finish.stats.fused == (0 if stop_at_end else 1)


def test_the_trajectory_of_a_stopped_answer(engine: Engine, script: Script) -> None:
    script.say(20, "abcdefghij")
    stops: Callable[[], bool] = iter([False] * 4 + [True] * 9).__next__
    _, finish = run(engine, prompt(20), config(overlap=False), record=True, stop=stops)
    assert finish.trajectory is not None
    assert finish.reason == "stopped"
    assert len(finish.trajectory.steps) == finish.stats.steps == 3
    assert len(finish.trajectory.final_ids) % BLOCK == 0
