"""Sorting and reversing short lists, and their largest and smallest entries."""

import random

from finetune.demo.turns import Turn, pick, reword

WORDS = (
    "apple", "banana", "bread", "cat", "chair", "cloud", "dog", "door", "eagle", "fish", "flower",
    "fox", "garden", "goat", "grape", "hammer", "house", "island", "jacket", "king", "lamp",
    "lemon", "lion", "moon", "mouse", "night", "ocean", "orange", "owl", "paper", "pear", "queen",
    "river", "rose", "salt", "ship", "snow", "spoon", "star", "table", "tiger", "tree", "uncle",
    "violin", "water", "window", "yellow", "zebra",
)  # fmt: skip

UP_FRAMES = (
    "Sort {x}.", "Sort these numbers: {x}", "Sort {x} from small to large.", "Sort the list {x}",
    "Put these numbers in order: {x}", "Order {x} from smallest to largest.", "sort {x}",
)  # fmt: skip
DOWN_FRAMES = (
    "Sort {x} from large to small.", "Sort these numbers from largest to smallest: {x}",
    "Put {x} in descending order.", "Sort {x} in descending order.",
)  # fmt: skip
ALPHABET_FRAMES = (
    "Sort {x} alphabetically.", "Sort these words: {x}", "Put these words in order: {x}",
    "Put {x} in alphabetical order.", "Sort the words {x}", "sort {x}",
)  # fmt: skip
REVERSE_FRAMES = (
    "Reverse {x}.", "Reverse the list {x}", "Reverse this list: {x}", "Turn this list around: {x}",
    "Write {x} backwards.", "Reverse the order of {x}.",
)  # fmt: skip
LARGEST_FRAMES = (
    "What is the largest of {x}?", "Find the largest number: {x}", "Largest of {x}?",
    "Which number is the biggest: {x}?", "What is the maximum of {x}?",
)  # fmt: skip
SMALLEST_FRAMES = (
    "What is the smallest of {x}?", "Find the smallest number: {x}", "Smallest of {x}?",
    "What is the minimum of {x}?",
)  # fmt: skip


def listed(rng: random.Random, items: tuple[str, ...]) -> str:
    """The list as people type it."""
    return pick(rng, (", ", ", ", ", ", " ", ",")).join(items)


def numbers(rng: random.Random) -> tuple[str, ...]:
    most = 20 if rng.random() < 0.25 else 100
    return tuple(map(str, rng.sample(range(most), rng.randint(3, 5))))


def numbered(items: tuple[str, ...]) -> str:
    return "\n".join(f"{place}. {item}" for place, item in enumerate(items, 1))


def up_turn(items: tuple[str, ...], prompt: str) -> Turn:
    ordered = tuple(sorted(items, key=int))
    answer = (
        f"I take the smallest of the {len(items)} numbers first:\n\n{numbered(ordered)}\n\n"
        f"From small to large: **{', '.join(ordered)}**"
    )
    return Turn("sort", f"sort up {' '.join(items)}", prompt, answer, items=ordered)


def down_turn(items: tuple[str, ...], prompt: str) -> Turn:
    ordered = tuple(sorted(items, key=int, reverse=True))
    answer = (
        f"I take the largest of the {len(items)} numbers first:\n\n{numbered(ordered)}\n\n"
        f"From large to small: **{', '.join(ordered)}**"
    )
    return Turn("sort", f"sort down {' '.join(items)}", prompt, answer, items=ordered)


def reverse_turn(items: tuple[str, ...], prompt: str) -> Turn:
    turned = items[::-1]
    answer = (
        f"The list has {len(items)} items. The last one is {turned[0]}, so it comes first.\n\n"
        f"From back to front: **{', '.join(turned)}**"
    )
    return Turn("reverse", f"reverse {' '.join(items)}", prompt, answer, items=turned)


def extreme_turn(items: tuple[str, ...], largest: bool, prompt: str) -> Turn:
    best = max(map(int, items)) if largest else min(map(int, items))
    word = "largest" if largest else "smallest"
    answer = (
        f"I look through all {len(items)} numbers: {', '.join(items)}.\n\n"
        f"The {word} number is **{best}**."
    )
    return Turn("extreme", f"{word} {' '.join(items)}", prompt, answer, best)


def sort_numbers(rng: random.Random) -> Turn:
    items = numbers(rng)
    if rng.random() < 0.65:
        return up_turn(items, reword(rng, pick(rng, UP_FRAMES).format(x=listed(rng, items))))
    return down_turn(items, reword(rng, pick(rng, DOWN_FRAMES).format(x=listed(rng, items))))


def sort_words(rng: random.Random) -> Turn:
    items = tuple(rng.sample(WORDS, rng.randint(3, 4)))
    ordered = tuple(sorted(items))
    answer = (
        f"I put the {len(items)} words in the order of the alphabet:\n\n{numbered(ordered)}\n\n"
        f"In alphabetical order: **{', '.join(ordered)}**"
    )
    prompt = reword(rng, pick(rng, ALPHABET_FRAMES).format(x=listed(rng, items)))
    return Turn("sort words", f"alphabet {' '.join(items)}", prompt, answer, items=ordered)


def reverse(rng: random.Random) -> Turn:
    items = numbers(rng) if rng.random() < 0.5 else tuple(rng.sample(WORDS, rng.randint(3, 5)))
    return reverse_turn(items, reword(rng, pick(rng, REVERSE_FRAMES).format(x=listed(rng, items))))


def extreme(rng: random.Random) -> Turn:
    items, largest = numbers(rng), rng.random() < 0.5
    frames = LARGEST_FRAMES if largest else SMALLEST_FRAMES
    return extreme_turn(items, largest, reword(rng, pick(rng, frames).format(x=listed(rng, items))))
