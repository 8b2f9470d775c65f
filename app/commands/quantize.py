"""`orl-chat quantize`: an NVFP4 checkpoint of a bf16 one, and what that cost and changed."""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.running import CommandError, say
from app.models import resolve_model

if TYPE_CHECKING:
    from engine.checkpoint.nvfp4 import Style
    from engine.checkpoint.quantise_report import Report, Tally

_SECONDS = 0.5  # between two lines of progress


@dataclass(frozen=True)
class Quantization:
    """What to quantise, where to, and in whose spelling."""

    source: str
    target: str
    experts_only: bool = False
    style: str = "modelopt"


def quantize(
    request: Quantization,
    *,
    quiet: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Quantise and print the report; the exit code. `quiet` leaves the last line to the caller;
    `progress` is told bytes instead of the terminal."""
    style = _style(request.style)
    target = Path(request.target).expanduser()
    if target.exists() and not target.is_dir():
        raise CommandError(f"{target} is a file; name a new folder.")
    source = resolve_model(request.source)
    from engine.checkpoint.quantise import Quantiser

    quantiser = Quantiser(source.path, target, style=style, experts_only=request.experts_only)
    _check_space(target, quantiser.bytes_after)
    report = quantiser.run(progress or _progress())
    print(as_table(report))
    if not quiet:
        say(f"{target} is ready: orl-chat --model {target}")
    return 0


def _style(text: str) -> "Style":
    if text == "modelopt":
        return "modelopt"
    if text == "compressed-tensors":
        return "compressed-tensors"
    raise CommandError(f"--format is modelopt or compressed-tensors, got {text!r}.")


def as_table(report: "Report") -> str:
    """A line for each kind of tensor, and one for all."""
    rows = [("", "tensors", "before", "after", "rms error", "largest")]
    for kind, tally in (*report.kinds.items(), ("total", report.total)):
        rows.append((kind, f"{tally.tensors:,}", *_figures(tally)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        f"{row[0]:<{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def _figures(tally: "Tally") -> tuple[str, str, str, str]:
    sizes = (_size(tally.bytes_before), _size(tally.bytes_after))
    if not tally.packed:
        return (*sizes, "exact", "")
    return (*sizes, f"{100 * tally.relative:.2f} %", f"{tally.largest:.3g}")


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _check_space(target: Path, needed: int) -> None:
    """Before hours of work; what an earlier run has written counts as room."""
    there = next(path for path in (target.resolve(), *target.resolve().parents) if path.exists())
    written = (
        sum(file.stat().st_size for file in there.iterdir()) if there == target.resolve() else 0
    )
    free = shutil.disk_usage(there).free + written
    if free < needed:
        raise CommandError(
            f"The result takes {_size(needed)}, and {there} has {_size(free)} free; make room or "
            "name a folder on another disk."
        )


def _progress() -> Callable[[int, int], None] | None:
    """Tells how far it is, where somebody watches."""
    if not sys.stderr.isatty():
        return None
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last > _SECONDS:
            last = time.monotonic()
            print(
                f"\r{_size(done)} of {_size(total)}", end="\n" if done == total else "",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    return tell
