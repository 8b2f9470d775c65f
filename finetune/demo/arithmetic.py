"""Sums, differences, products, quotients and small questions about numbers, with worked steps.

Every line of an answer is an entry of a small table (40 + 30, 7 + 8, 70 + 15), so a combination
that was never trained on is still made of parts that were.
"""

import random

from finetune.demo.turns import Turn, pick, reword, steps

NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
)  # fmt: skip

ADD_WORDINGS = (
    "What is {a} + {b}?", "What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} = ?", "{a}+{b}=",
    "What is {a} plus {b}?", "what's {a} plus {b}?", "{a} plus {b}", "Add {a} and {b}.",
    "What is the sum of {a} and {b}?", "Calculate {a} + {b}.", "How much is {a} + {b}?",
    "Can you add {a} and {b}?", "Compute {a} + {b}", "What's {a}+{b}?",
)  # fmt: skip
SUBTRACT_WORDINGS = (
    "What is {a} - {b}?", "What is {a} - {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} = ?", "{a}-{b}=",
    "What is {a} minus {b}?", "what's {a} minus {b}?", "{a} minus {b}", "Subtract {b} from {a}.",
    "Take {b} away from {a}.", "Calculate {a} - {b}.", "How much is {a} - {b}?",
    "What is the difference between {a} and {b}?", "Compute {a} - {b}", "What's {a}-{b}?",
)  # fmt: skip
MULTIPLY_WORDINGS = (
    "What is {a} x {b}?", "What is {a} x {b}?", "{a} x {b}", "{a}x{b}", "{a}*{b}", "{a} * {b}",
    "{a} * {b} = ?", "{a}*{b}=", "{a}x{b}=", "What is {a} times {b}?", "what's {a} times {b}?",
    "{a} times {b}",
    "Multiply {a} by {b}.", "What is the product of {a} and {b}?", "Calculate {a} x {b}.",
    "How much is {a} x {b}?", "What is {a} \u00d7 {b}?", "{a} \u00d7 {b}", "What's {a}*{b}?",
    "What is {a}*{b}?", "Compute {a} * {b}", "What is {a} multiplied by {b}?",
)  # fmt: skip
DIVIDE_WORDINGS = (
    "What is {a} / {b}?", "What is {a} / {b}?", "{a} / {b}", "{a}/{b}", "{a} / {b} = ?",
    "What is {a} divided by {b}?", "what's {a} divided by {b}?", "{a} divided by {b}",
    "Divide {a} by {b}.", "Calculate {a} / {b}.", "How much is {a} / {b}?",
    "What is {a} \u00f7 {b}?",
    "{a} : {b}", "How many times does {b} go into {a}?",
)  # fmt: skip


def ask(rng: random.Random, wordings: tuple[str, ...], a: int, b: int) -> str:
    """Fill a wording; small numbers are now and then written as words."""
    wording = pick(rng, wordings)
    as_words = max(a, b) <= 12 and " " in wording and rng.random() < 0.12
    left, right = (NUMBER_WORDS[a], NUMBER_WORDS[b]) if as_words else (str(a), str(b))
    return reword(rng, wording.format(a=left, b=right))


def add_lines(a: int, b: int) -> tuple[str, ...]:
    if max(a, b) < 10:
        return (f"{a} + {b} = {a + b}",)
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    return (
        f"Tens: {a // 10 * 10} + {b // 10 * 10} = {tens}",
        f"Ones: {a % 10} + {b % 10} = {ones}",
        f"Together: {tens} + {ones} = {a + b}",
    )


def subtract_lines(a: int, b: int) -> tuple[str, ...]:
    """a >= b. Regroup a so that its ones suffice; then ones and tens apart."""
    if a < 10:
        return (f"{a} - {b} = {a - b}",)
    ones = a % 10 if a % 10 >= b % 10 else a % 10 + 10
    tens, less = a - ones, b // 10 * 10
    return (
        f"{a} = {tens} + {ones}",
        f"Ones: {ones} - {b % 10} = {ones - b % 10}",
        f"Tens: {tens} - {less} = {tens - less}",
        f"Together: {tens - less} + {ones - b % 10} = {a - b}",
    )


def multiply_lines(a: int, b: int) -> tuple[str, ...]:
    """Split the second factor at 10 or 5 and add the two products."""
    first = 10 if b > 10 else 5
    if b <= 5:
        return (f"{a} x {b} = {a * b}",)
    rest = b - first
    return (
        f"{a} x {first} = {a * first}",
        f"{a} x {rest} = {a * rest}",
        f"{a * first} + {a * rest} = {a * b}",
    )


def add_turn(a: int, b: int, prompt: str) -> Turn:
    head = "I count on from the first number:" if max(a, b) < 10 else "I add the tens and the ones:"
    answer = f"{head}\n\n{steps(*add_lines(a, b))}\n\nSo {a} + {b} = **{a + b}**."
    return Turn("add", f"add {a} {b}", prompt, answer, a + b)


def subtract_turn(a: int, b: int, prompt: str) -> Turn:
    if a < b:
        head = "The second number is larger, so I swap them and the result is negative:"
        lines = subtract_lines(b, a)
    else:
        head = "I count back:" if a < 10 else "I take away the ones and the tens:"
        lines = subtract_lines(a, b)
    answer = f"{head}\n\n{steps(*lines)}\n\nSo {a} - {b} = **{a - b}**."
    return Turn("subtract", f"subtract {a} {b}", prompt, answer, a - b if a > b else None)


def multiply_turn(a: int, b: int, prompt: str) -> Turn:
    small, large = sorted((a, b))
    if small == 0:
        body = "Any number times 0 is 0."
    elif small == 1:
        body = f"Any number times 1 stays as it is, here {large}."
    elif large <= 5:
        body = f"I count {small} groups of {large}:\n\n{steps(*multiply_lines(small, large))}"
    else:
        part = 10 if large > 10 else 5
        head = f"I split {large} into {part} and {large - part}:"
        body = f"{head}\n\n{steps(*multiply_lines(small, large))}"
    answer = f"{body}\n\nSo {a} x {b} = **{a * b}**."
    return Turn("multiply", f"multiply {a} {b}", prompt, answer, a * b)


def divide_turn(a: int, b: int, prompt: str, wording: str) -> Turn:
    """Exact quotients only. They all are in training; what is held out is quotient and wording."""
    whole = a // b
    assert whole * b == a
    head = f"I look for how many times {b} fits into {a}:"
    answer = f"{head}\n\n{steps(f'{whole} x {b} = {a}')}\n\nSo {a} / {b} = **{whole}**."
    return Turn("divide", f"divide {a} {b}", prompt, answer, whole, form=wording)


def operand(rng: random.Random) -> int:
    """Mostly two digits; one-digit numbers more often than their share."""
    return rng.randint(0, 9) if rng.random() < 0.15 else rng.randint(10, 99)


def add(rng: random.Random) -> Turn:
    a, b = operand(rng), operand(rng)
    if rng.random() < 0.05:
        return add_turn(a, a, reword(rng, pick(rng, (f"Double {a}.", f"What is double {a}?"))))
    return add_turn(a, b, ask(rng, ADD_WORDINGS, a, b))


def subtract(rng: random.Random) -> Turn:
    a, b = operand(rng), operand(rng)
    if a < b and rng.random() < 0.9:
        a, b = b, a
    return subtract_turn(a, b, ask(rng, SUBTRACT_WORDINGS, a, b))


def factors(rng: random.Random) -> tuple[int, int]:
    """Up to 20 times 12, in either order."""
    a = rng.randint(2, 12) if rng.random() < 0.94 else rng.randint(0, 1)
    b = rng.randint(2, 12) if rng.random() < 0.7 else rng.randint(13, 20)
    return (a, b) if rng.random() < 0.5 else (b, a)


def multiply(rng: random.Random) -> Turn:
    a, b = factors(rng)
    return multiply_turn(a, b, ask(rng, MULTIPLY_WORDINGS, a, b))


def divide(rng: random.Random) -> Turn:
    b = rng.randint(2, 10)
    a = b * rng.randint(1, 12)
    if b == 2 and rng.random() < 0.4:
        wording = pick(rng, ("What is half of {a}?", "Half of {a}?", "Halve {a}."))
        return divide_turn(a, b, reword(rng, wording.format(a=a)), wording)
    wording = pick(rng, DIVIDE_WORDINGS)
    return divide_turn(a, b, ask(rng, (wording,), a, b), wording)


def compare(rng: random.Random) -> Turn:
    a, b = rng.sample(range(1, 100), 2)
    if rng.random() < 0.25:
        b = a // 10 * 10 + (a + rng.randint(1, 9)) % 10
    word, better = pick(rng, (("larger", max(a, b)), ("smaller", min(a, b))))
    frames = (f"Which is {word}, {a} or {b}?", f"Which number is {word}: {a} or {b}?")
    if a // 10 == b // 10:
        why = "The tens are the same, so I compare the ones:"
        lines = steps(f"{a} has {a % 10} ones", f"{b} has {b % 10} ones")
    else:
        why = "I compare the tens first:"
        lines = steps(f"{a} has {a // 10} tens", f"{b} has {b // 10} tens")
    answer = f"{why}\n\n{lines}\n\nOf {a} and {b}, the {word} number is **{better}**."
    key = f"compare {word} {a} {b}"
    return Turn("compare", key, reword(rng, pick(rng, frames)), answer, better)


def parity(rng: random.Random) -> Turn:
    n = rng.randint(0, 99)
    frames = (
        f"Is {n} even or odd?", f"Is {n} odd or even?", f"Is {n} an even number?", f"Is {n} odd?",
    )  # fmt: skip
    word = "odd" if n % 2 else "even"
    last = n % 10
    answer = f"{n} ends in {last}, and {last} is {word}.\n\nSo the number {n} is **{word}**."
    prompt = pick(rng, frames)
    return Turn("parity", f"parity {prompt}", reword(rng, prompt), answer)


def sequence(rng: random.Random) -> Turn:
    step, first = rng.randint(1, 12), rng.randint(0, 6)
    shown = [step * (first + i) for i in range(rng.randint(3, 5))]
    word, sign = "up", 1
    if rng.random() < 0.3:
        shown, word, sign = shown[::-1], "down", -1
        if shown[-1] < step:
            shown = [n + step for n in shown]
    following = shown[-1] + sign * step
    text = ", ".join(map(str, shown))
    frames = (
        f"What comes next: {text}?", f"Continue: {text}, ...", f"Which number comes next? {text}",
        f"What is the next number: {text}?",
    )  # fmt: skip
    line = f"{shown[-1]} {'+' if sign > 0 else '-'} {step} = {following}"
    head = f"The numbers go {word} by {step} each time:"
    answer = f"{head}\n\n{steps(line)}\n\nThe next number is **{following}**."
    wording = pick(rng, frames)
    prompt = reword(rng, wording)
    return Turn("sequence", f"sequence {text}", prompt, answer, following, form=wording)
