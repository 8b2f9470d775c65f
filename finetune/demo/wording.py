"""The same answer in other words.

People do not word an answer always alike, and a model that learns from them is unsure where the
words are free, however sure it is of the result: it has to decide one after the other what it could
have written at once. That is what on-policy training takes away, since the model then learns from
its own choices. The demo model is trained on free wordings for this reason: it starts where
real models start.

Results, operands and bold spans stay as they are.
"""

import random
import re

SHARES = (0.6, 0.25, 0.15)
"""Of a place's three wordings: no preset but speed would decide on 0.6 without a second look."""

_PLACES: tuple[tuple[str, str, str, str], ...] = (
    (r"^I (?=(?:add|take|split|look|count|compare|put|divide)\b)", "I ", "Let me ", "We "),
    (" = ", " = ", " is ", " makes "),
    ("^- Tens: ", "- Tens: ", "- The tens: ", "- For the tens: "),
    ("^- Ones: ", "- Ones: ", "- The ones: ", "- For the ones: "),
    ("^- Together: ", "- Together: ", "- In total: ", "- Both: "),
    ("^So ", "So ", "That means ", "And so "),
    (", so I ", ", so I ", ", and I ", ", so we "),
    (" starts with ", " starts with ", " has ", " first has "),
    (" now has ", " now has ", " then has ", " has "),
    ("^Then ", "Then ", "After that ", "Next "),
    (r" left\.$", " left.", " now.", " at the end."),
    (r" back\.$", " back.", " in change.", " in return."),
    (" first:$", " first:", " and go on:", ", then the next:"),
    ("^From ", "From ", "In order from ", "Here from "),
    ("^In alphabetical order:", "In alphabetical order:", "In order:", "The words in order:"),
    (r" so it comes first\.", " so it comes first.", " so I start there.", " and I begin there."),
    ("^The next number is ", "The next number is ", "Next comes ", "So the next is "),
    (" each time:$", " each time:", " in each step:", " every time:"),
    ("^Each one gets ", "Each one gets ", "So each gets ", "Each of them gets "),
    (r"^I know this one\.", "I know this one.", "I know that.", "That is a fact."),
    ("^The capital of ", "The capital of ", "And the capital of ", "So the capital of "),
    (r"\Z", "", "\n\nAsk me another one.", "\n\nWhat is next?"),
)
"""Where answers are free: a pattern (lines begin at ^), and what may stand there."""


def vary(rng: random.Random, answer: str) -> str:
    """`answer` with each of its places worded independently of the others."""
    for pattern, *wordings in _PLACES:
        parts = re.split(f"(?m:{pattern})", answer)
        answer = parts[0] + "".join(rng.choices(wordings, SHARES)[0] + part for part in parts[1:])
    return answer
