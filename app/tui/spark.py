"""Small pictures made of characters: a strip of bars and a meter."""

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
METER_FULL, METER_EMPTY = "━", "─"


def spark(values: Sequence[float | None], width: int) -> str:
    """The latest `width` values as bars against the greatest of them; gaps are blanks."""
    shown = list(values)[-width:]
    top = max((v for v in shown if v is not None), default=0.0)
    if top <= 0:
        return " " * width
    bars = (
        " " if v is None else BARS[min(len(BARS) - 1, round(v / top * (len(BARS) - 1)))]
        for v in shown
    )
    return "".join(bars).ljust(width)


def meter(share: float, width: int) -> tuple[str, str]:
    """A bar of `width` cells as its full and its empty part; anything above zero shows."""
    filled = min(width, round(share * width))
    if share > 0:
        filled = max(1, filled)
    return METER_FULL * filled, METER_EMPTY * (width - filled)
