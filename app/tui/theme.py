"""Our two themes: quiet surfaces, one accent, and the three colours of confidence."""

from textual.theme import Theme


def _quiet(bar: str, paper: str) -> dict[str, str]:
    """Scroll bars that one sees when one looks for them."""
    return {
        "scrollbar": bar,
        "scrollbar-hover": bar,
        "scrollbar-background": paper,
        "scrollbar-background-hover": paper,
        "scrollbar-background-active": paper,
        "block-cursor-text-style": "none",
    }


DEFAULT = "orl-dark"

THEMES = (
    Theme(
        name="orl-dark",
        primary="#7aa2c9",
        secondary="#8fb7a5",
        accent="#d7a65f",
        foreground="#d6d9de",
        background="#15181d",
        surface="#1b1f26",
        panel="#252a33",
        success="#84bd7c",
        warning="#d9a94e",
        error="#dd6f69",
        dark=True,
        variables=_quiet("#3a414d", "#15181d"),
    ),
    Theme(
        name="orl-light",
        primary="#2f6492",
        secondary="#3d7a63",
        accent="#9a641a",
        foreground="#22262c",
        background="#faf9f7",
        surface="#f1efeb",
        panel="#e5e2dc",
        success="#2f7d32",
        warning="#96690b",
        error="#b3352e",
        dark=False,
        variables=_quiet("#c9c4ba", "#faf9f7"),
    ),
)


def sixteen_colours(*, dark: bool) -> dict[str, str]:
    """Variables for a terminal of sixteen colours. The nearest of them to our quiet ones would all
    be the same grey, so these are the sixteen themselves."""
    names = ("success", "warning", "error", "primary", "accent", "line")
    bright = ("#55ff55", "#ffff55", "#ff5555", "#55ffff", "#ffff55", "#555555")
    deep = ("#00aa00", "#aa5500", "#aa0000", "#0000aa", "#aa00aa", "#aaaaaa")
    found = dict(zip(names, bright if dark else deep, strict=True))
    return found | {f"text-{name}": found[name] for name in names[:3]}
