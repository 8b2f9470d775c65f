"""Checks of single values, with a message that names the value's owner."""

import math
from typing import Any


def is_int(value: Any) -> bool:
    """Whether it is a whole number; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    # Not isfinite, which an int beyond float's range makes raise.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def check_int(name: str, value: Any, least: int) -> None:
    """ValueError unless `value` is a whole number, `least` or more."""
    if not (is_int(value) and value >= least):
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")


def check_range(name: str, value: Any, low: float, high: float) -> None:
    """ValueError unless `value` is a number from `low` to `high` (math.inf: no limit)."""
    if not (is_number(value) and low <= value <= high):
        limit = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {limit}, got {value!r}")
