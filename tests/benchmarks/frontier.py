"""Accuracy against tokens per forward, threshold by threshold, of checkpoints: table and picture.

    python -m tests.benchmarks.frontier assets/demo assets/demo-tuned --svg frontier.svg

The demo's held-out questions, greedy, editing threshold 0.9 throughout. Counts only, no times: they
are the same on every machine.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from engine.config import DecodeConfig
from engine.generate import Engine
from finetune.compare import frontier
from finetune.demo.corpus import heldout
from finetune.evaluate import Evaluation
from tests.benchmarks.orl import as_prompts, verify

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
COLOURS = ("#8a8f98", "#2f6fde")
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 24, 52

Curve = Mapping[float, Evaluation]


def table(curves: Mapping[str, Curve]) -> str:
    """Markdown, a line a threshold."""
    heads = "".join(f" {name}: right, TPF, per step |" for name in curves)
    lines = [f"| threshold |{heads}", "|---|" + "---|" * len(curves)]
    for threshold in THRESHOLDS:
        cells = ""
        for curve in curves.values():
            e = curve[threshold]
            low, high = e.interval
            cells += f" {e.accuracy:.3f} [{low:.3f}, {high:.3f}], {e.tpf:.2f}, {e.tpf_steps:.2f} |"
        lines.append(f"| {threshold:g} |{cells}")
    return "\n".join(lines)


def picture(curves: Mapping[str, Curve]) -> str:
    """An SVG: TPF to the right, accuracy upwards, whiskers for its 95 % interval."""
    points = [e for curve in curves.values() for e in curve.values()]
    most = max(e.tpf for e in points) * 1.08
    least = min(e.interval[0] for e in points) - 0.01

    def place(tpf: float, accuracy: float) -> tuple[float, float]:
        x = LEFT + tpf / most * (WIDTH - LEFT - RIGHT)
        y = TOP + (1 - accuracy) / (1 - least) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_axes(most, least, place),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        at = {threshold: place(e.tpf, e.accuracy) for threshold, e in curve.items()}
        line = " ".join(f"{x},{y}" for x, y in at.values())
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for threshold, (x, y) in at.items():
            low, high = (place(0, value)[1] for value in curve[threshold].interval)
            parts += [
                f'<line x1="{x}" y1="{low}" x2="{x}" y2="{high}" stroke="{colour}" opacity="0.4"/>',
                f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>',
                f'<text x="{x + 5}" y="{y - 6}" fill="{colour}">{threshold:g}</text>',
            ]
        legend = HEIGHT - BOTTOM - 16 * (len(curves) - number)
        parts.append(f'<text x="{LEFT + 12}" y="{legend}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _axes(
    most: float, least: float, place: Callable[[float, float], tuple[float, float]]
) -> list[str]:
    """Lines and numbers: whole tokens below, accuracies in steps of .02 or .05 at the left."""
    grey = 'stroke="#d5d8dd"'
    parts = []
    for tpf in range(0, int(most) + 1, 2):
        x, bottom = place(tpf, least)
        parts += [
            f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}" {grey}/>',
            f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{tpf}</text>',
        ]
    step = 2 if 1 - least < 0.15 else 5
    for percent in range(100, int(least * 100), -step):
        x, y = place(0, percent / 100)
        parts += [
            f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" {grey}/>',
            f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{percent} %</text>',
        ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">tokens per forward (TPF); '
        "numbers are thresholds; upwards: right answers</text>"
    )
    return parts


def measure(model: Path, count: int, seed: int) -> Curve:
    prompts = as_prompts(heldout(count, seed))
    config = DecodeConfig(editing_threshold=0.9, max_new_tokens=256)
    return frontier(Engine.load(model, device="cpu"), prompts, verify, config, THRESHOLDS)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    curves = {m.name: measure(m, arguments.n, arguments.seed) for m in arguments.models}
    print(table(curves))
    if arguments.svg:
        arguments.svg.write_text(picture(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
