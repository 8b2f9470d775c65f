"""What ORL does to the demo model: accuracy and TPF before and after, variants, small sets.

    python -m tests.benchmarks.orl main      [--seeds 0 1 2] [--updates N] [--set NAME=VALUE ...]
    python -m tests.benchmarks.orl ablations [--seeds 0 1 2] [--only NAME ...]
    python -m tests.benchmarks.orl small     [--sizes 64 200] [--set train=lora]

Training prompts come from the demo's training mixture, 400 held-out ones steer the choices, and 600
more are only ever looked at here. Intervals are over prompts. Unless said, every weight is trained,
as finetuning does with so small a model.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from engine.config import DecodeConfig
from engine.generate import Engine
from finetune.checks import best_check, check_event, should_end
from finetune.config import FinetuneConfig, recipe
from finetune.demo.corpus import DemoItem, heldout, training
from finetune.evaluate import Comparison, Evaluation, Result, evaluate_prompts
from finetune.prompts import Prompt, prompt_id
from finetune.rollout import answer_prompts, roll_out
from finetune.trainer import Trainer
from finetune.verifiers import Verdict

DEMO = Path(__file__).parents[2] / "assets" / "demo"
HELD, HELD_SEED = 400, 0
FRESH, FRESH_SEED = 600, 20_000
PRESETS = ("careful", "quality")


class Demo:
    """The demo's questions as prompts, and the check that each of them has."""

    def __init__(self) -> None:
        self._items: dict[str, DemoItem] = {}

    def prompts(self, items: Sequence[DemoItem]) -> list[Prompt]:
        found = []
        for item in items:
            id = prompt_id(item.messages)
            self._items[id] = item
            found.append(Prompt(item.messages, item.answer, item.task, 0, id))
        return found

    def verify(self, prompt: Prompt, text: str) -> Verdict:
        return Verdict(self._items[prompt.id].check(text), "", 0.0)


DEMO_ITEMS = Demo()
verify = DEMO_ITEMS.verify
as_prompts = DEMO_ITEMS.prompts


def training_prompts(count: int, seed: int) -> list[Prompt]:
    return as_prompts(list(islice(training(10_000 + seed), count)))


def held_prompts() -> list[Prompt]:
    return as_prompts(heldout(HELD, HELD_SEED))


def fresh_prompts() -> list[Prompt]:
    """600 that are not among the held-out ones."""
    used = {prompt.id for prompt in held_prompts()}
    found = as_prompts(heldout(FRESH + HELD, FRESH_SEED))
    return [prompt for prompt in found if prompt.id not in used][:FRESH]


def measure(engine: Engine, prompts: Sequence[Prompt], config: DecodeConfig) -> Evaluation:
    rollouts = answer_prompts(engine, prompts, verify, config, rows=32)
    return Evaluation(tuple(
        Result(str(r.prompt.verify), r.finish.text, r.kept, r.finish.stats) for r in rollouts
    ))  # fmt: skip


def figures(evaluation: Evaluation) -> str:
    low, high = evaluation.interval
    return (
        f"right {evaluation.accuracy:.3f} [{low:.3f}, {high:.3f}]  TPF {evaluation.tpf:.2f}  "
        f"per step {evaluation.tpf_steps:.2f}"
    )


def at_presets(engine: Engine, prompts: Sequence[Prompt]) -> dict[str, Evaluation]:
    config = {name: DecodeConfig.preset(name, max_new_tokens=256) for name in PRESETS}
    return {name: measure(engine, prompts, config[name]) for name in PRESETS}


def compared(before: Evaluation, after: Evaluation) -> str:
    gained, low, high = (c := Comparison(before, after)).change
    return (
        f"TPF x {c.speedup:.2f}, accuracy {gained:+.3f} [{low:+.3f}, {high:+.3f}] "
        f"(+{len(c.fixed)} -{len(c.broken)})"
    )


# --- variants -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A way to train: settings, and what is done to the trainer and to the trained model."""

    settings: dict[str, Any]
    make: Callable[..., Trainer] = Trainer
    before_measuring: Callable[[Engine], None] = lambda engine: None


def stale(engine: Engine, prompts: Any, verifier: Any, config: FinetuneConfig) -> Trainer:
    """Rollouts come from the frozen start, not from the weights as they are now."""
    start = Engine(
        copy.deepcopy(engine.model), engine.tokenizer, mask_id=engine.mask_id,
        stop_ids=engine.stop_ids,
    )  # fmt: skip

    def old(_: Engine, *arguments: Any, **options: Any) -> Any:
        return roll_out(start, *arguments, **options)

    return Trainer(engine, prompts, verifier, config, roll_out=old)


def constant(engine: Engine, prompts: Any, verifier: Any, config: FinetuneConfig) -> Trainer:
    """The adapter is fed one and the same vector for every z."""
    trainer = Trainer(engine, prompts, verifier, config)
    adapter = engine.model.residual_adapter
    assert adapter is not None
    forward, fixed = adapter.forward, engine.model.embedding_table.detach().float().mean(0)
    adapter.forward = lambda z: forward(fixed.expand_as(z))  # type: ignore[method-assign]
    return trainer


def unverified(engine: Engine, prompts: Any, _: Any, config: FinetuneConfig) -> Trainer:
    """Whatever ended by itself is learnt from."""
    return Trainer(engine, prompts, lambda prompt, text: Verdict(True, "", 0.0), config)


def switch_off(engine: Engine) -> None:
    engine.model.residual = replace(engine.model.residual, alpha=0.0)


VARIANTS: dict[str, Variant] = {
    "orl": Variant({}),
    "LoRA": Variant({"train": "lora"}),
    "adapter only": Variant({"train": "adapter"}),
    "adapter only, constant z": Variant({"train": "adapter"}, constant),
    "no residual": Variant({"residual": False}),
    "residual off at decode": Variant({}, Trainer, switch_off),
    "constant z": Variant({}, constant),
    "stale rollouts": Variant({}, stale),
    "no AEC": Variant({"aec_weight": 0.0}),
    "no anchor": Variant({"anchor_weight": 0.0}),
    "no gate": Variant({"gate": 1.0}),
    "no verifier": Variant({}, unverified),
}


def trained(
    start: Path, variant: Variant, name: str, seed: int, changes: dict[str, Any]
) -> tuple[Engine, str]:
    """An engine trained by the named recipe in the variant's way, and the time that took."""
    engine = Engine.load(start, device="cpu")
    settings = {**variant.settings, **changes, "seed": seed}
    train = settings.pop("train", "full")
    config = recipe(name, train, engine.config.hidden_size, **settings)
    prompts = training_prompts(config.prompts_per_update * config.updates, seed)
    begin, cpu = time.monotonic(), time.process_time()
    trainer = variant.make(engine, prompts, verify, config)
    for number in range(config.updates):
        report = trainer.update(number)
        if name != "quick" and (number + 1) % 10 == 0:
            sums = report.sums
            print(
                f"  update {number + 1}: kept {report.kept}/{len(report.rollouts)}, per step "
                f"{report.tpf_steps:.2f}, CE {sums.prediction:.3f}, AEC {sums.aec:.4f}, anchor "
                f"{sums.anchor:.4f}, |g| {sums.grad_norm:.2f}, uncertain {sums.uncertain} of "
                f"{sums.positions}; {report.rollout_seconds:.2f} + {report.learn_seconds:.2f} s",
                flush=True,
            )
    spent = f"{time.monotonic() - begin:.0f} s, {time.process_time() - cpu:.0f} s of processor"
    variant.before_measuring(engine)
    return engine, spent


# --- what is run ----------------------------------------------------------------------------------


def run_main(model: Path, seeds: Sequence[int], changes: dict[str, Any], fresh: bool) -> None:
    """Before and after with the presets, on the held-out and on the fresh prompts."""
    sets = {"held out": held_prompts()} | ({"fresh": fresh_prompts()} if fresh else {})
    start = Engine.load(model, device="cpu")
    before = {name: at_presets(start, prompts) for name, prompts in sets.items()}
    for name, found in before.items():
        for preset, evaluation in found.items():
            print(f"start, {name}, {preset}: {figures(evaluation)}", flush=True)
    for seed in seeds:
        engine, spent = trained(model, VARIANTS["orl"], "normal", seed, dict(changes))
        print(f"seed {seed}: {spent}", flush=True)
        for name, prompts in sets.items():
            for preset, evaluation in at_presets(engine, prompts).items():
                print(
                    f"  {name}, {preset}: {figures(evaluation)}; "
                    f"{compared(before[name][preset], evaluation)}",
                    flush=True,
                )


def run_ablations(
    model: Path, seeds: Sequence[int], only: Sequence[str], changes: dict[str, Any]
) -> None:
    """Every variant with every seed and the same budget, on the held-out prompts."""
    held, start = held_prompts(), Engine.load(model, device="cpu")
    before = at_presets(start, held)
    rows = {f"start, {preset}": [figures(e)] for preset, e in before.items()}
    print(json.dumps(rows, indent=1), flush=True)
    for name in only or VARIANTS:
        for seed in seeds:
            engine, spent = trained(model, VARIANTS[name], "quick", seed, dict(changes))
            for preset, evaluation in at_presets(engine, held).items():
                print(
                    f"{name:<26} seed {seed} {preset:<8} {figures(evaluation)}; "
                    f"{compared(before[preset], evaluation)}; {spent}",
                    flush=True,
                )


def run_small(
    model: Path, sizes: Sequence[int], seeds: Sequence[int], changes: dict[str, Any]
) -> None:
    """A person's own set: the quick recipe with its held-out checks, then fresh prompts."""
    fresh = fresh_prompts()
    start = Engine.load(model, device="cpu")
    before = at_presets(start, fresh)
    for size in sizes:
        for seed in seeds:
            begin = time.monotonic()
            engine, done = small_run(model, size, seed, changes)
            print(f"{size} prompts, seed {seed}: {time.monotonic() - begin:.0f} s, best {done}")
            for preset, evaluation in at_presets(engine, fresh).items():
                line = compared(before[preset], evaluation)
                print(f"  fresh, {preset}: {figures(evaluation)}; {line}", flush=True)


def small_run(model: Path, size: int, seed: int, changes: dict[str, Any]) -> tuple[Engine, int]:
    """Train on `size` prompts, a quarter of them held out; the best checkpoint's engine."""
    engine = Engine.load(model, device="cpu")
    every = training_prompts(size, 500 + seed)
    held, own = every[: size // 4], every[size // 4 :]
    settings = {**changes, "seed": seed}
    train = settings.pop("train", "full")
    config = recipe("quick", train, engine.config.hidden_size, **settings)
    trainer = Trainer(engine, own, verify, config)
    checks = [check_event(0, evaluate_prompts(engine, held, verify, config))]
    states = {0: trainer.optimizer.state()}
    for number in range(config.updates):
        trainer.update(number)
        done = number + 1
        if done % config.check_every == 0 or done == config.updates:
            checks.append(check_event(done, evaluate_prompts(engine, held, verify, config)))
            states[done] = trainer.optimizer.state()
            print(f"  {done}: {checks[-1]['right']}/{len(held)}, TPF {checks[-1]['tpf']:.2f}")
            if should_end(checks, config):
                break
    best = int(best_check(checks)["done"])
    trainer.optimizer.restore(states[best])
    return engine, best


def _settings(pairs: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            yield name, json.loads(value)
        except ValueError:
            yield name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("main", "ablations", "small"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 200])
    parser.add_argument("--only", nargs="+", default=[], choices=list(VARIANTS))
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--no-fresh", action="store_true", help="held-out prompts only")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--model", type=Path, default=DEMO, help="another start")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    changes = dict(_settings(arguments.set))
    if arguments.what == "main":
        run_main(arguments.model, arguments.seeds, changes, not arguments.no_fresh)
    elif arguments.what == "ablations":
        run_ablations(arguments.model, arguments.seeds, arguments.only, changes)
    else:
        run_small(arguments.model, arguments.sizes, arguments.seeds, changes)


if __name__ == "__main__":
    main()
