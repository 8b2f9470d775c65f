"""How sure a figure is: 95 % intervals of shares, and of paired differences between them.

No torch here: the benchmark and the screens read results without a model.
"""

import math
from collections.abc import Sequence

Z = 1.96  # a 95 % interval


def wilson(right: int, n: int) -> tuple[float, float]:
    """Wilson's score interval for `right` successes of n; (0, 1) when nothing was tried."""
    if n == 0:
        return 0.0, 1.0
    share, spread = right / n, Z * Z / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_change(fixed: int, broken: int, n: int) -> tuple[float, float, float]:
    """What a share of n gained when `fixed` became right and `broken` became wrong, and the 95 %
    interval of that difference, over items only.

    The interval is Wald's with half an item more in each of the four cells (Agresti and Min,
    Statistics in Medicine 24, 2005). Without them few items would look sure of themselves: one of
    no width where nothing changed, and 68 of 100 instead of 95 that hold the truth for 16 items of
    which 5 % break and 2 % are fixed.
    """
    more, less, of = fixed + 0.5, broken + 0.5, n + 2
    middle = (more - less) / of
    half = Z * math.sqrt(more + less - (more - less) ** 2 / of) / of
    return (fixed - broken) / n, max(-1.0, middle - half), min(1.0, middle + half)


def not_worse(before: Sequence[bool], after: Sequence[bool]) -> bool:
    """Whether accuracy held: no more is lost than one standard error of the paired difference."""
    pairs = list(zip(before, after, strict=True))
    fixed = sum(now and not was for was, now in pairs)
    broken = sum(was and not now for was, now in pairs)
    return broken - fixed <= math.sqrt(broken + fixed)
