"""Unit conversion, both ways."""

import random
from dataclasses import dataclass

from finetune.demo.turns import Turn, pick, reword, steps


@dataclass(frozen=True)
class Unit:
    """`factor` small units make one large unit; counts go up to `most`."""

    one: str
    many: str
    small: str
    factor: int
    most: int

    def large(self, n: int) -> str:
        return f"{n} {self.one if n == 1 else self.many}"


UNITS = (
    Unit("hour", "hours", "minutes", 60, 9),
    Unit("minute", "minutes", "seconds", 60, 9),
    Unit("day", "days", "hours", 24, 6),
    Unit("week", "weeks", "days", 7, 12),
    Unit("year", "years", "months", 12, 12),
    Unit("foot", "feet", "inches", 12, 12),
    Unit("yard", "yards", "feet", 3, 30),
    Unit("meter", "meters", "centimeters", 100, 9),
    Unit("centimeter", "centimeters", "millimeters", 10, 60),
    Unit("dozen", "dozen", "eggs", 12, 12),
    Unit("euro", "euros", "cents", 100, 9),
    Unit("dollar", "dollars", "cents", 100, 9),
)


def down_turn(unit: Unit, n: int, prompt: str, key: str) -> Turn:
    total = n * unit.factor
    verb = "is" if n == 1 else "are"
    answer = (
        f"1 {unit.one} is {unit.factor} {unit.small}, so I multiply by {unit.factor}:\n\n"
        f"{steps(f'{n} x {unit.factor} = {total}')}\n\n"
        f"{unit.large(n)} {verb} **{total} {unit.small}**."
    )
    return Turn("units", key, prompt, answer, items=(unit.one,))


def up_turn(unit: Unit, n: int, prompt: str, key: str) -> Turn:
    total = n * unit.factor
    answer = (
        f"1 {unit.one} is {unit.factor} {unit.small}, so I divide by {unit.factor}:\n\n"
        f"{steps(f'{total} / {unit.factor} = {n}')}\n\n"
        f"{total} {unit.small} are **{unit.large(n)}**."
    )
    return Turn("units", key, prompt, answer)


def convert(rng: random.Random) -> Turn:
    unit = pick(rng, UNITS)
    n = rng.randint(1, unit.most)
    total = n * unit.factor
    down = rng.random() < 0.6
    frames: tuple[str, ...]
    if down:
        verb = "is" if n == 1 else "are"
        frames = (
            f"How many {unit.small} {verb} {unit.large(n)}?",
            f"How many {unit.small} are in {unit.large(n)}?",
            f"Convert {unit.large(n)} to {unit.small}.",
            f"{unit.large(n)} in {unit.small}",
            f"What is {unit.large(n)} in {unit.small}?",
        )
    else:
        frames = (
            f"How many {unit.many} are {total} {unit.small}?",
            f"Convert {total} {unit.small} to {unit.many}.",
            f"{total} {unit.small} in {unit.many}",
            f"What is {total} {unit.small} in {unit.many}?",
        )
    prompt = pick(rng, frames)
    make = down_turn if down else up_turn
    return make(unit, n, reword(rng, prompt), f"units {prompt}")
