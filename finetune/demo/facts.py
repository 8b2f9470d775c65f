"""The few facts that the demo model knows. They are all in training: what is held out is the
exact way of typing a question."""

import random

from finetune.demo.turns import Turn, pick, reword

CAPITALS = {
    "France": ("Paris", "Europe"), "Germany": ("Berlin", "Europe"), "Spain": ("Madrid", "Europe"),
    "Italy": ("Rome", "Europe"), "Portugal": ("Lisbon", "Europe"), "Austria": ("Vienna", "Europe"),
    "Greece": ("Athens", "Europe"), "Poland": ("Warsaw", "Europe"), "Norway": ("Oslo", "Europe"),
    "Sweden": ("Stockholm", "Europe"), "England": ("London", "Europe"),
    "Ireland": ("Dublin", "Europe"), "Japan": ("Tokyo", "Asia"), "China": ("Beijing", "Asia"),
    "Egypt": ("Cairo", "Africa"), "Kenya": ("Nairobi", "Africa"), "Cuba": ("Havana", "America"),
    "Canada": ("Ottawa", "America"), "Peru": ("Lima", "America"), "Chile": ("Santiago", "America"),
}  # fmt: skip
CAPITAL_FRAMES = (
    "What is the capital of {x}?", "Capital of {x}?", "Tell me the capital of {x}.",
    "Which city is the capital of {x}?", "What's the capital of {x}?", "What is {x}'s capital?",
    "Do you know the capital of {x}?", "Name the capital of {x}.",
)  # fmt: skip

# question wordings -> a sentence with the fact in bold
FACTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("How many days are in a week?", "How many days does a week have?", "Days in a week?"),
     "A week runs from Monday to Sunday and has **7 days**."),
    (("How many months are in a year?", "How many months does a year have?", "Months in a year?"),
     "A year runs from January to December and has **12 months**."),
    (("How many legs does a spider have?", "How many legs do spiders have?", "Legs of a spider?"),
     "A spider is not an insect: it has **8 legs**."),
    (("How many legs does an insect have?", "How many legs do insects have?"),
     "An insect has three pairs of legs, that is **6 legs**."),
    (("How many legs does a dog have?", "How many legs do dogs have?"),
     "A dog walks on all of them: it has **4 legs**."),
    (("How many sides does a triangle have?", "How many corners does a triangle have?"),
     "A triangle has as many sides as corners, and that is **3**."),
    (("How many sides does a square have?", "How many corners does a square have?"),
     "A square has as many sides as corners, and that is **4**."),
    (("How many sides does a hexagon have?", "How many corners does a hexagon have?"),
     "A hexagon has as many sides as corners, and that is **6**."),
    (("What color is the sky?", "Which color is the sky?", "What is the color of the sky?"),
     "On a clear day the sky is **blue**."),
    (("What color is grass?", "Which color is grass?", "What is the color of grass?"),
     "Fresh grass is **green**."),
    (("What color is snow?", "Which color is snow?", "What is the color of snow?"),
     "Fresh snow is **white**."),
    (("What color is a banana?", "Which color is a ripe banana?", "What color are bananas?"),
     "A ripe banana is **yellow**."),
    (("Which planet is the largest?", "What is the largest planet?", "What's the biggest planet?"),
     "The largest planet that goes around our sun is **Jupiter**."),
    (("Which planet is closest to the sun?", "What is the closest planet to the sun?"),
     "The planet closest to the sun is **Mercury**."),
    (("How many planets are there?", "How many planets go around the sun?"),
     "Our sun has, from Mercury to Neptune, **8 planets**."),
    (("At what temperature does water boil?", "When does water boil?"),
     "At sea level water boils at **100 degrees Celsius**."),
    (("At what temperature does water freeze?", "When does water freeze?"),
     "Water turns to ice at **0 degrees Celsius**."),
    (("Which animal says meow?", "What animal says meow?"),
     "The animal that says meow is the **cat**."),
    (("Which is the largest ocean?", "What is the largest ocean?", "What's the biggest ocean?"),
     "The largest ocean on Earth is the **Pacific Ocean**."),
    (("How many letters are in the alphabet?", "How many letters does the alphabet have?"),
     "The English alphabet runs from A to Z and has **26 letters**."),
)  # fmt: skip


def capital_turn(country: str, prompt: str, key: str) -> Turn:
    city, continent = CAPITALS[country]
    answer = (
        f"{country} is a country in {continent}.\n\nThe capital of {country} is the city of "
        f"**{city}**."
    )
    return Turn("facts", key, prompt, answer, items=(country,), form=prompt)


def fact(rng: random.Random) -> Turn:
    if rng.random() < 0.5:
        country = pick(rng, tuple(CAPITALS))
        prompt = pick(rng, CAPITAL_FRAMES).format(x=country)
        return capital_turn(country, reword(rng, prompt), f"facts {prompt}")
    wordings, answer = pick(rng, FACTS)
    wording = pick(rng, wordings)
    prompt = reword(rng, wording)
    answer = f"I know this one.\n\n{answer}"
    return Turn("facts", f"facts {wording}", prompt, answer, form=prompt)
