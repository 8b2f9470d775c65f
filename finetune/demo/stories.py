"""Word problems of one or two steps."""

import random

from finetune.demo.arithmetic import add_lines, multiply_lines, subtract_lines
from finetune.demo.turns import Turn, pick, reword, steps

NAMES = (
    "Tom", "Anna", "Ben", "Mia", "Leo", "Sara", "Max", "Lena", "Paul", "Emma", "Noah", "Nina",
    "Omar", "Lily", "Sam", "Eva", "Ivan", "Zoe", "Luca", "Maya",
)  # fmt: skip
THINGS = (
    "apples", "books", "cards", "coins", "pencils", "stickers", "marbles", "eggs", "flowers",
    "balls", "stamps", "shells", "oranges", "cookies", "toys", "nuts",
)  # fmt: skip
PACKS = ("bags", "boxes", "packs", "baskets")
GOODS = (("book", "books"), ("ticket", "tickets"), ("toy", "toys"), ("lamp", "lamps"),
         ("cake", "cakes"), ("pen", "pens"), ("shirt", "shirts"), ("map", "maps"))  # fmt: skip
MONEY = ("euros", "dollars")
REWORDED = 0.3


def _turn(
    rng: random.Random, kind: str, numbers: tuple[int, ...], prompt: str, answer: str, value: int
) -> Turn:
    key = f"story {kind} {' '.join(map(str, numbers))}"
    typed = reword(rng, prompt) if rng.random() < REWORDED else prompt
    return Turn(f"story: {kind}", key, typed, answer, value)


def _product(label: str, a: int, b: int) -> str:
    return f"{label}: {a} x {b} = {a * b}"


def gain(rng: random.Random) -> Turn:
    name, thing = pick(rng, NAMES), pick(rng, THINGS)
    a, b = rng.randint(2, 99), rng.randint(2, 99)
    verb = pick(rng, ("buys", "finds", "gets"))
    prompt = f"{name} has {a} {thing} and {verb} {b} more. How many {thing} does {name} have now?"
    answer = (
        f"{name} starts with {a} {thing} and {verb} {b}:\n\n{steps(*add_lines(a, b))}\n\n"
        f"{name} now has **{a + b} {thing}**."
    )
    return _turn(rng, "gain", (a, b), prompt, answer, a + b)


def loss(rng: random.Random) -> Turn:
    name, thing = pick(rng, NAMES), pick(rng, THINGS)
    b, a = sorted((rng.randint(2, 99), rng.randint(2, 99)))
    verb = pick(rng, ("gives away", "loses", "sells"))
    prompt = f"{name} has {a} {thing} and {verb} {b}. How many {thing} are left?"
    answer = (
        f"{name} starts with {a} {thing} and {verb} {b}:\n\n{steps(*subtract_lines(a, b))}\n\n"
        f"{name} has **{a - b} {thing}** left."
    )
    return _turn(rng, "loss", (a, b), prompt, answer, a - b)


def packs(rng: random.Random) -> Turn:
    name, thing, pack = pick(rng, NAMES), pick(rng, THINGS), pick(rng, PACKS)
    a, n, each = rng.randint(10, 60), rng.randint(2, 9), rng.randint(2, 9)
    new = n * each
    prompt = (
        f"{name} has {a} {thing}. {name} buys {n} {pack} with {each} {thing} each. "
        f"How many {thing} does {name} have now?"
    )
    lines = steps(_product(f"New {thing}", n, each), *add_lines(a, new))
    answer = (
        f"{name} starts with {a} {thing} and buys {n} {pack}:\n\n{lines}\n\n"
        f"{name} now has **{a + new} {thing}**."
    )
    return _turn(rng, "packs", (a, n, each), prompt, answer, a + new)


def price(rng: random.Random) -> Turn:
    (one, many), money = pick(rng, GOODS), pick(rng, MONEY)
    n, each = rng.randint(2, 12), rng.randint(2, 12)
    small, large = sorted((n, each))
    prompt = f"A {one} costs {each} {money}. How much do {n} {many} cost?"
    answer = (
        f"Each {one} costs {each} {money}, and there are {n}:\n\n"
        f"{steps(*multiply_lines(small, large))}\n\nThe {many} cost **{n * each} {money}**."
    )
    return _turn(rng, "price", (n, each), prompt, answer, n * each)


def share(rng: random.Random) -> Turn:
    thing, who = pick(rng, THINGS), pick(rng, ("children", "friends", "people"))
    n, each = rng.randint(2, 9), rng.randint(2, 11)
    total = n * each
    prompt = f"{total} {thing} are shared equally among {n} {who}. How many does each one get?"
    answer = (
        f"I divide {total} {thing} by {n} {who}:\n\n"
        f"{steps(f'{each} x {n} = {total}', f'{total} / {n} = {each}')}\n\n"
        f"Each one gets **{each} {thing}**."
    )
    return _turn(rng, "share", (total, n), prompt, answer, each)


def travel(rng: random.Random) -> Turn:
    vehicle = pick(rng, ("train", "car", "bus", "ship"))
    tens, hours = rng.randint(2, 9), rng.randint(2, 9)
    speed = tens * 10
    prompt = f"A {vehicle} travels {speed} km each hour. How far does it travel in {hours} hours?"
    lines = steps(f"{tens} x {hours} = {tens * hours}", f"{speed} x {hours} = {speed * hours}")
    answer = (
        f"In each hour the {vehicle} travels {speed} km, so I multiply by {hours}:\n\n{lines}\n\n"
        f"The {vehicle} travels **{speed * hours} km**."
    )
    key = f"story travel {vehicle} {speed} {hours}"
    return Turn("story: travel", key, prompt, answer, None)


def both(rng: random.Random) -> Turn:
    name, thing = pick(rng, NAMES), pick(rng, THINGS)
    a, c = rng.randint(10, 99), rng.randint(10, 50)
    b = rng.randint(2, a)
    left = a - b
    prompt = (
        f"{name} has {a} {thing}. {name} gives away {b} and then finds {c}. "
        f"How many {thing} does {name} have now?"
    )
    answer = (
        f"{name} starts with {a} {thing} and gives away {b}:\n\n{steps(*subtract_lines(a, b))}\n\n"
        f"Then {name} finds {c}:\n\n{steps(*add_lines(left, c))}\n\n"
        f"{name} now has **{left + c} {thing}**."
    )
    return _turn(rng, "both", (a, b, c), prompt, answer, left + c)


def change(rng: random.Random) -> Turn:
    name, (_, many), money = pick(rng, NAMES), pick(rng, GOODS), pick(rng, MONEY)
    n, each = rng.randint(2, 9), rng.randint(2, 9)
    if n * each < 10:
        n, each = 9, each + 1
    cost = n * each
    paid = pick(rng, [note for note in (20, 50, 90) if note >= cost])
    prompt = (
        f"{name} buys {n} {many} for {each} {money} each and pays with {paid} {money}. "
        f"How much change does {name} get?"
    )
    lines = steps(_product("Price", n, each), *subtract_lines(paid, cost))
    answer = (
        f"{name} pays for {n} {many} at {each} {money} each:\n\n{lines}\n\n"
        f"{name} gets **{paid - cost} {money}** back."
    )
    return _turn(rng, "change", (n, each, paid), prompt, answer, paid - cost)


STORIES = (gain, loss, packs, packs, price, share, travel, both, both, change)


def story(rng: random.Random) -> Turn:
    return pick(rng, STORIES)(rng)
