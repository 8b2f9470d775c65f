"""Stored canvases of the golden runs fed to the loop's launches: what the reference predicted
there, and what it made of the canvas. `cases_answers.py` has whole runs.

Of each run two steps: the one that edits most (or the first), and the last that decides something.
What stands before the canvas is brought into the cache by the reference's forward. Equality is
exact for tokens, as the goldens leave room around every decision; probabilities to 1e-3, what
float32 sums in another order leave alone.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.decode.denoise import Denoiser
from engine.decode.loop_launches import LoopLaunches
from engine.generate import Engine
from tests.engine.conftest import Golden
from tests.triton.cases_answers import RUNS

DATA = Path(__file__).parents[1] / "data" / "llada2_tiny"
META = json.loads((DATA / "golden_meta.json").read_text())
GOLDEN = Golden(DATA, load_file(DATA / "golden.safetensors"), META["forwards"], META["generate"])
OTHERS = sorted(set(META["generate"]) - {run for run, _ in RUNS})


def chosen_steps(run: str) -> list[int]:
    changed = GOLDEN[f"gen_{run}_step_nmask_nedit"]
    last = int((changed.sum(1) > 0).nonzero().max())
    return sorted({int(changed[:, 1].argmax()), last})


def before(run: str, step: int) -> list[int]:
    """All tokens in front of the step's block, as they were left."""
    blocks = GOLDEN.tokens(f"gen_{run}_step_block")
    after, prompt = GOLDEN.tokens(f"gen_{run}_step_after"), GOLDEN.tokens(f"gen_{run}_prompt")
    length = len(after[0])
    left = {block: after[i] for i, block in enumerate(blocks)}  # the last of each block stays
    whole = prompt[: blocks[0] * length]
    for block in range(blocks[0], blocks[step]):
        whole += left[block]
    return whole


def opened(denoiser: Denoiser, launches: LoopLaunches, run: str, step: int, start: int) -> None:
    """The loop's state as it was before the step."""
    canvas = GOLDEN[f"gen_{run}_step_before"][step].long()
    protected = max(min(len(GOLDEN.tokens(f"gen_{run}_prompt")) - start, len(canvas)), 0)
    undecided = canvas == denoiser.mask_id
    launches.begin(denoiser)
    control = {"last_start": start + 2 * len(canvas), "most": 100}
    launches.state.begin([], start, denoiser.mask_id, control)
    launches.state.tokens[0] = canvas
    launches.state.undecided[0] = undecided.int()
    state = [start, protected, 1, 0, int(not undecided.any())]
    launches.state.states[0] = torch.tensor(state)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(DATA, device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("run", OTHERS)
def test_stored_canvases(engine: Engine, run: str) -> None:
    for step in chosen_steps(run):
        prefix = before(run, step)
        start, length = len(prefix), META["generate"][run]["block_length"]
        engine.reset_cache()
        _, denoiser = engine._prepare([*prefix, 1], GOLDEN.config(run), False, None)
        cache = denoiser.cache
        cache.keep_prefix([], length)
        cache.reserve(start + 2 * length)
        if prefix:
            with torch.no_grad():
                embeds = engine.model.embed(torch.tensor(prefix))
                engine.model.trunk(embeds, torch.arange(start), cache.attend(0))
            cache.commit(prefix)
        launches = LoopLaunches(denoiser, (8, 0), pinned=False)
        opened(denoiser, launches, run, step, start)
        launches.narrow()
        state, names = launches.state, ("x0", "prob", "after")
        best, sure, after = (GOLDEN[f"gen_{run}_step_{name}"][step] for name in names)
        assert state.best[length:].tolist() == best.tolist()
        torch.testing.assert_close(state.best_probability[length:], sure, rtol=0, atol=1e-3)
        launches.advance()
        assert launches.mailbox.tokens[0].tolist() == after.tolist()
