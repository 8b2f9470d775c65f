"""Everything else: the demo model says what it does not know, and what it does."""

import random
import re
import string

from finetune.demo import phrases, units
from finetune.demo.talk import CAN_DO
from finetune.demo.turns import Turn, pick, reword

UNKNOWN = f"I am only a small demo model and do not know that. I only know:\n\n{CAN_DO}"
TOO_LARGE = (
    "Those numbers are too large for me. I add and subtract numbers up to 99, and I multiply up to "
    "20 x 12.\n\nTry: What is 47 + 38?"
)
_SLOT = re.compile(r"\{(\w+)\}")
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"


def _fill(rng: random.Random, slot: str) -> str:
    lists = {
        "topic": phrases.TOPICS, "noun": phrases.NOUNS, "place": phrases.PLACES,
        "verb": phrases.VERBS, "adjective": phrases.ADJECTIVES, "language": phrases.LANGUAGES,
        "tongue": phrases.TONGUES, "task": phrases.CODE_TASKS, "person": phrases.PEOPLE,
    }  # fmt: skip
    if slot in lists:
        word = pick(rng, lists[slot])
        return made_up_word(rng) if rng.random() < 0.12 else word
    return str(
        {"n": rng.randint(2, 200), "year": rng.randint(1000, 2030)}.get(slot, rng.randint(2, 9))
    )


def question(rng: random.Random) -> str:
    template = pick(rng, phrases.TEMPLATES)
    text = _SLOT.sub(lambda match: _fill(rng, match[1]), template)
    if text.startswith("How many legs does a dog"):
        return "How many legs does a snake have?"
    return reword(rng, text)


def made_up_word(rng: random.Random) -> str:
    syllables = rng.randint(1, 4)
    word = "".join(pick(rng, _CONSONANTS) + pick(rng, _VOWELS) for _ in range(syllables))
    return word + pick(rng, ("", "", "n", "r", "st", "ck", "s", "ing", "ed", "tion"))


def gibberish(rng: random.Random) -> str:
    """Keyboard noise, made-up words, loose words, lone signs."""
    kind = rng.randrange(5)
    if kind == 0:
        letters = string.ascii_lowercase + (" " if rng.random() < 0.5 else "")
        return "".join(pick(rng, letters) for _ in range(rng.randint(2, 20))).strip() or "q"
    if kind == 1:
        return " ".join(made_up_word(rng) for _ in range(rng.randint(1, 8)))
    if kind == 2:
        words = phrases.NOUNS + phrases.VERBS + phrases.ADJECTIVES
        return " ".join(pick(rng, words) for _ in range(rng.randint(1, 7)))
    if kind == 3:
        signs = string.punctuation + string.ascii_letters
        return "".join(pick(rng, signs) for _ in range(rng.randint(1, 12)))
    frame = pick(
        rng, ("What is {}?", "Tell me about {}.", "{}?", "Who is {}?", "I want {}.", "{}!")
    )
    return frame.format(" ".join(made_up_word(rng) for _ in range(rng.randint(1, 3))))


def off_topic(rng: random.Random) -> Turn:
    roll = rng.random()
    if roll < 0.68:
        prompt = question(rng)
    elif roll < 0.78:
        prompt = pick(rng, phrases.FOREIGN)
    else:
        prompt = gibberish(rng)
    return Turn("off topic", f"off topic {prompt}", prompt, UNKNOWN)


def too_large(rng: random.Random) -> Turn:
    """Arithmetic beyond the trained ranges: refused instead of guessed."""
    if rng.random() < 0.2:
        unit = pick(rng, units.UNITS)
        n = rng.randint(max(unit.most + 1, 13), 999)
        prompt = pick(
            rng,
            (f"How many {unit.small} are {n} {unit.many}?", f"{n} {unit.many} in {unit.small}"),
        )
        return large_turn(f"too large {prompt}", reword(rng, prompt))
    if rng.random() < 0.7:
        sign = pick(rng, ("+", "-", "plus", "minus"))
        a, b = _large(rng), _large(rng) if rng.random() < 0.5 else rng.randint(1, 99)
    else:
        sign = pick(rng, ("x", "*", "times", "\u00d7"))
        a, b = rng.randint(21, 999), rng.randint(13, 999)
    if rng.random() < 0.5:
        a, b = b, a
    frames = ("What is {}?", "What is {}?", "{}", "Calculate {}.", "How much is {}?", "{} = ?")
    text = f"{a} {sign} {b}" if sign.isalpha() or rng.random() < 0.7 else f"{a}{sign}{b}"
    prompt = reword(rng, pick(rng, frames).format(text))
    return large_turn(f"too large {a} {sign} {b}", prompt)


def large_turn(key: str, prompt: str) -> Turn:
    return Turn("too large", key, prompt, TOO_LARGE)


def _large(rng: random.Random) -> int:
    return rng.randint(100, 999) if rng.random() < 0.5 else rng.randint(1000, 99999)
