"""How sure a figure is: 95 % intervals of shares, and of paired differences between them.

No torch here: the benchmark and the screens read results without a model.
"""

import math

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
    interval of that difference, over items only."""
    gained = (fixed - broken) / n
    half = Z * math.sqrt(max(fixed + broken - (fixed - broken) ** 2 / n, 0.0)) / n
    return gained, gained - half, gained + half
