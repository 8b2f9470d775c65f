"""`orl-chat bench compare`, and the figures of a trace: results that are there already."""

import json
from pathlib import Path

from app.bench.compare import compare
from app.bench.recorded import replayed
from app.bench.report import compared_text
from app.bench.result import read_result
from app.commands.bench import publish
from app.commands.bench_setup import check_out
from app.commands.running import say
from app.text import printable
from app.trace import read_recording


def compare_results(a: str, b: str, *, as_json: bool) -> int:
    """Print two saved results side by side; the exit code."""
    compared = compare(read_result(a), read_result(b))
    if as_json:
        print(json.dumps({"a": a, "b": b, **compared.to_json()}, ensure_ascii=False))
    else:
        print(printable(compared_text(compared, a, b)))
    return 0


def bench_trace(path: str, *, as_json: bool, out: str | None) -> int:
    """Print the figures of a recorded session; the exit code. No model is needed."""
    check_out(out)
    found = replayed(read_recording(path), Path(path).name)
    for doubt in found.doubts:
        say(doubt)
    publish(found.result, as_json=as_json, out=out)
    return 0
