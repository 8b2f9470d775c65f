"""What the first frame has to know of the settings: the colours, the letters, the mouse, whether
the keys are the usual ones.

The file is only glanced at for that. Reading it properly (`app.settings`) takes as long as
everything else until the first frame, so it comes right after it, tells what is wrong with the
file, and is what holds.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from app.settings import Settings

PREFIX = "ORL_CHAT_"
FLAGS = {
    **dict.fromkeys(("true", "1", "on", "yes", "t", "y"), True),
    **dict.fromkeys(("false", "0", "off", "no", "f", "n"), False),
}
"""What counts as yes and no, in the file and in the environment."""


@dataclass(frozen=True)
class Look:
    """`theme` None is ours; `usual_keys`: nobody chose others."""

    theme: str | None = None
    ascii: bool = False
    mouse: bool = True
    usual_keys: bool = True

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """As the settings have it."""
        theme = settings.theme if "theme" in settings.model_fields_set else None
        return cls(theme, settings.ascii, settings.mouse, not settings.keys)

    @classmethod
    def glance(cls, path: Path, environ: Mapping[str, str] = os.environ) -> Self:
        """As the file at `path` and the environment seem to have it; what cannot be read or taken
        is as if it were not there."""
        values = _values(path)
        for name in ("theme", "ascii", "mouse", "keys"):
            if value := environ.get(PREFIX + name.upper()):
                values[name] = value
        theme = values.get("theme")
        return cls(
            theme if isinstance(theme, str) else None,
            _flag(values.get("ascii"), cls.ascii),
            _flag(values.get("mouse"), cls.mouse),
            not values.get("keys"),
        )


def _values(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _flag(value: Any, otherwise: bool) -> bool:
    return FLAGS.get(str(value).strip().lower(), otherwise)
