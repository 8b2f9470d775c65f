"""The demo model's chats: a mixture of tasks, one to three turns, and the held-out split.

Training never sees a turn whose key is held out, not even in a chat's history; a held-out item
ends with a turn whose key is. The mixture depends on nothing but the seed.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from finetune.demo import arithmetic, facts, lists, offtopic, stories, talk, units
from finetune.demo.turns import Task, Turn, final_answer, pick
from finetune.demo.wording import vary

Message = dict[str, str]

WEIGHTS: tuple[tuple[Task, float], ...] = (
    (arithmetic.add, 10),
    (arithmetic.subtract, 10),
    (arithmetic.multiply, 9),
    (arithmetic.divide, 7),
    (arithmetic.compare, 2.5),
    (arithmetic.parity, 1.5),
    (arithmetic.sequence, 3),
    (stories.story, 19),
    (lists.sort_numbers, 8),
    (lists.sort_words, 4),
    (lists.reverse, 5),
    (lists.extreme, 3),
    (units.convert, 6),
    (facts.fact, 4),
    (talk.talk, 6),
    (offtopic.off_topic, 9),
    (offtopic.too_large, 2.5),
)
SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "Answer briefly.", "You are a friendly math tutor.",
    "Be polite.", "Explain your steps.", "You are a demo.", "Answer in English.", "Be concise.",
    "You are a calculator.", "Speak like a pirate.", "You are an expert.", "Keep it short.",
    "You are a patient teacher for children.", "Only answer questions.", "Think step by step.",
)  # fmt: skip
SYSTEM_SHARE = 0.1
CHAT_SHARE = 0.22
FOLLOW_UP_SHARE = 0.6


@dataclass(frozen=True)
class DemoItem:
    """A chat that ends with a question, and what it should be answered with."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]

    @property
    def last(self) -> Turn:
        return self.turns[-1]

    @property
    def task(self) -> str:
        return self.last.task

    @property
    def answer(self) -> str:
        return self.last.answer

    def check(self, text: str) -> bool:
        return self.last.check(text)


def single(rng: random.Random, boost: Mapping[str, float]) -> Turn:
    """One turn of the mixture; `boost` multiplies the weights of tasks by function name."""
    tasks = [task for task, _ in WEIGHTS]
    weights = [weight * boost.get(task.__name__, 1.0) for task, weight in WEIGHTS]
    return rng.choices(tasks, weights)[0](rng)


def follow_up(rng: random.Random, turn: Turn) -> Turn | None:
    """A question that needs the turn before it; None when there is none to ask."""
    if rng.random() < 0.2:
        return talk.polite(rng)
    if turn.task == "sort":
        return _after_sort(rng, turn)
    if turn.task == "units" and turn.items:
        return _after_units(rng, turn)
    if turn.task == "facts" and turn.items:
        country = pick(rng, tuple(facts.CAPITALS))
        prompt = pick(rng, (f"And of {country}?", f"And {country}?", f"What about {country}?"))
        return facts.capital_turn(country, prompt, f"facts {prompt} after {turn.items[0]}")
    if turn.value is not None and turn.value >= 2:
        return _after_number(rng, turn.value)
    return None


def _after_sort(rng: random.Random, turn: Turn) -> Turn:
    roll = rng.random()
    if roll < 0.5:
        prompt = pick(rng, ("Now reverse it.", "And backwards?", "The other way round?"))
        return lists.reverse_turn(turn.items, prompt)
    largest = roll < 0.75
    word = "largest" if largest else "smallest"
    prompt = pick(rng, (f"Which one is the {word}?", f"And the {word}?"))
    return lists.extreme_turn(turn.items, largest, prompt)


def _after_units(rng: random.Random, turn: Turn) -> Turn:
    unit = next(unit for unit in units.UNITS if unit.one == turn.items[0])
    n = rng.randint(1, unit.most)
    prompt = pick(rng, (f"And {unit.large(n)}?", f"What about {unit.large(n)}?"))
    return units.down_turn(unit, n, prompt, f"units {unit.one} {prompt}")


def _after_number(rng: random.Random, value: int) -> Turn:
    n = rng.randint(2, 99) if rng.random() < 0.6 else rng.randint(2, 20)
    kind = rng.randrange(3)
    adding = (f"Now add {n}.", f"plus {n}", f"And plus {n}?", f"Add {n} to that.")
    if value > 99:
        prompt = pick(rng, adding)
        return offtopic.large_turn(f"too large {value} {prompt}", prompt)
    if kind == 0:
        prompt = pick(rng, adding)
        return arithmetic.add_turn(value, n, prompt)
    if kind == 1 and value <= 20:
        n = min(n, 12)
        prompt = pick(rng, (f"Times {n}?", f"Now multiply it by {n}.", f"And times {n}?"))
        return arithmetic.multiply_turn(value, n, prompt)
    n = min(n, value)
    prompt = pick(rng, (f"Now subtract {n}.", f"minus {n}", f"And minus {n}?", f"Take away {n}."))
    return arithmetic.subtract_turn(value, n, prompt)


def chat(rng: random.Random, boost: Mapping[str, float]) -> list[Turn]:
    """One to three turns; a later one often follows up on the one before it."""
    turns = [single(rng, boost)]
    while len(turns) < 3 and rng.random() < (CHAT_SHARE if len(turns) == 1 else 0.3):
        following = follow_up(rng, turns[-1]) if rng.random() < FOLLOW_UP_SHARE else None
        turns.append(following or single(rng, boost))
    return turns


def worded(rng: random.Random, turns: list[Turn]) -> list[Turn]:
    """Free wordings for answers whose result is told from the rest; the others stay word for
    word, because there the words are the result."""
    return [
        turn if final_answer(turn.answer) is None else replace(turn, answer=vary(rng, turn.answer))
        for turn in turns
    ]


def as_item(rng: random.Random, turns: list[Turn]) -> DemoItem:
    messages: list[Message] = []
    if rng.random() < SYSTEM_SHARE:
        messages.append({"role": "system", "content": pick(rng, SYSTEM_PROMPTS)})
    for turn in turns[:-1]:
        messages.append({"role": "user", "content": turn.prompt})
        messages.append({"role": "assistant", "content": turn.answer})
    messages.append({"role": "user", "content": turns[-1].prompt})
    return DemoItem(tuple(messages), tuple(turns))


def training(seed: int, boost: Mapping[str, float] | None = None) -> Iterator[DemoItem]:
    """Endless training chats; no turn of any of them is held out."""
    rng, words = random.Random(f"train {seed}"), random.Random(f"words {seed}")
    while True:
        turns = worded(words, chat(rng, boost or {}))
        if not any(turn.held_out for turn in turns):
            yield as_item(rng, turns)


def heldout(n: int, seed: int) -> list[DemoItem]:
    """n different chats whose last question training never saw."""
    rng, words = random.Random(f"held out {seed}"), random.Random(f"held out words {seed}")
    items: dict[str, DemoItem] = {}
    while len(items) < n:
        turns = worded(words, chat(rng, {}))
        if turns[-1].held_out:
            item = as_item(rng, turns)
            items.setdefault(repr(item.messages), item)
    return list(items.values())
