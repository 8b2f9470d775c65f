"""Is this answer right? One function for each verifier that looks at text alone.

Each takes the options, the part of the answer that counts, and the reference, and says (passed,
reason). What is asked of them takes no time; those that might (a regular expression of the user's,
a schema, mathematics) are called in a process of their own by `judging.py`.
"""

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from finetune.specs import CHOICES
from finetune.taking import squeeze, take

_PLAIN = str.maketrans({"\u2212": "-", ",": None, " ": None, "\u00a0": None, "\u202f": None})

Judgement = tuple[bool, str]
Judge = Callable[[Mapping[str, Any], str, str | None], Judgement]

LONGEST_SHOWN = 80
MOST_DIGITS = 400

_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:[,\u00a0\u202f]\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4})?(?:\s*/\s*\d+)?%?"
    r"|(?<![\w.])[-+\u2212]?\.\d+(?:[eE][-+]?\d{1,4})?%?"
)


def exact(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """The same words in the same order; spaces and line breaks do not count."""
    given, expected = _comparable(options, text), _comparable(options, answer or "")
    return given == expected, f"expected {shown(answer or '')}, got {shown(text)}"


def contains(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """The reference occurs somewhere."""
    found = _comparable(options, answer or "") in _comparable(options, text)
    return found, f"{shown(answer or '')} does not occur in {shown(text)}"


def regex(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """The pattern matches somewhere."""
    flags = re.IGNORECASE if options.get("ignore_case") else 0
    found = re.search(options["pattern"], text, flags) is not None
    return found, f"{shown(options['pattern'])} matches nowhere in {shown(text)}"


def number(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """The last number is the reference, give or take the tolerance."""
    expected, given = last_number(answer or ""), last_number(text)
    if expected is None:
        return False, f"the reference {shown(answer or '')} holds no number"
    if given is None:
        return False, f"there is no number in {shown(text)}"
    tolerance = Fraction(options.get("tolerance", 0))
    right = abs(given - expected) <= tolerance
    return right, f"expected {shown(answer or '')}, got {_decimal(given)}"


def choice(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """The letter (or word) that is chosen is the reference."""
    choices = [c.strip() for c in options.get("choices", CHOICES)]
    expected = next((c for c in choices if c.casefold() == (answer or "").strip().casefold()), None)
    if expected is None:
        return False, f"the reference {shown(answer or '')} is none of the choices"
    given = chosen(choices, text)
    return given == expected, f"expected {expected}, got {given or 'no choice'}"


def as_json(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """JSON that satisfies the schema, and equals the reference."""
    try:
        value = json.loads(_unfenced(text))
    except (ValueError, RecursionError) as error:
        return False, f"it is not JSON ({error})"
    if answer is not None and not _same(value, json.loads(answer)):
        return False, f"expected {shown(answer)}, got {shown(text)}"
    if "schema" not in options:
        return True, ""
    from jsonschema.validators import validator_for  # an extra, and slow to import
    from jsonschema_specifications import REGISTRY

    schema = options["schema"]
    # With a registry that is whole, a $ref to the network is an error and not a download.
    validator = validator_for(schema)(schema, registry=REGISTRY)
    wrong = next(validator.iter_errors(value), None)
    return wrong is None, f"the schema says: {shown(wrong.message if wrong else '')}"


def mathematics(options: Mapping[str, Any], text: str, answer: str | None) -> Judgement:
    """The last expression equals the reference."""
    from math_verify import parse, verify  # an extra, and slow to import

    # Its own time limits need the main thread's alarm; this process has another.
    reference = answer or ""
    marked = any(mark in reference for mark in ("$", "\\boxed", "\\(", "\\["))
    expected = parse(reference if marked else f"${reference}$", parsing_timeout=None)
    if not expected:
        return False, f"the reference {shown(answer or '')} is no mathematics"
    given = parse(text, parsing_timeout=None) or parse(f"${text}$", parsing_timeout=None)
    if not given:
        return False, f"there is no mathematics in {shown(text)}"
    right = verify(expected, given, timeout_seconds=None)
    return right, f"expected {shown(answer or '')}, got {shown(str(given[0]))}"


JUDGES: dict[str, Judge] = {
    "exact": exact,
    "contains": contains,
    "regex": regex,
    "number": number,
    "choice": choice,
    "json": as_json,
    "math": mathematics,
}


def shown(text: str) -> str:
    """`text` in quotes, cut where it is long."""
    text = squeeze(text)
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")


def last_number(text: str) -> Fraction | None:
    """The last number in a text: 1,234.5, -3, 2/3, 15 %, 6e23."""
    found = [match[0] for match in _NUMBER.finditer(text.replace("\\%", "%"))]
    for written in reversed(found):
        value = _value(written)
        if value is not None:
            return value
    return None


def _value(written: str) -> Fraction | None:
    digits = written.translate(_PLAIN).rstrip("%")
    if len(digits) > MOST_DIGITS:
        return None
    above, _, below = digits.partition("/")
    try:
        value = Fraction(above) / Fraction(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return value


def _decimal(value: Fraction) -> str:
    try:
        return f"{float(value):.10g}"
    except OverflowError:
        return "a huge number"


def chosen(choices: list[str], text: str) -> str | None:
    """Which of the choices a text settles on: said to be the answer, or alone in brackets, bold, a
    box or a line; else the last one that stands there as a word. None where it names none."""
    named = "|".join(re.escape(c) for c in sorted(choices, key=len, reverse=True))
    one = rf"(?<!\w)({named})(?!\w)"
    said = r"(?i:answer|choice|option|choose)(?:\s+(?i:is|would be))?\s*[:=]?"
    patterns = [
        rf"{said}(?:\\boxed\{{|[(\[*\s])*{one}",
        rf"(?:\\boxed\{{|\*\*|\(|\[)\s*\(?{one}\)?\.?\s*(?:\}}|\*\*|\)|\])",
        rf"(?m)^\W*{one}\W*$",
        rf"(?m)^\W*{one}\s*[.):]",
        one,
    ]
    tries = [(pattern, 0) for pattern in patterns] + [(p, re.IGNORECASE) for p in patterns[:-1]]
    if all(len(c) > 1 for c in choices):  # a small "a" in a sentence is no choice
        tries.append((one, re.IGNORECASE))
    for pattern, flags in tries:
        if found := re.findall(pattern, text, flags):
            return next(c for c in choices if c.casefold() == found[-1].casefold())
    return None


def _comparable(options: Mapping[str, Any], text: str) -> str:
    text = squeeze(text)
    return text.casefold() if options.get("ignore_case") else text


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; for Python, true would be 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _unfenced(text: str) -> str:
    return take("code", text) or ""
