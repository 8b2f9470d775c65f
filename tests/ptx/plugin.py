"""A pytest plugin that puts the emulated card in place before tests are collected:

    EMULATED_CARD=sm_90 [EMULATED_SEED=1 EMULATED_RACES=0 EMULATED_AHEAD=1] \\
        pytest -p tests.ptx.plugin FILES

Kernels are then launched on tensors in the host's memory, where tests ask for them.
"""

import os
from contextlib import ExitStack
from typing import Any

import pytest

CARD = pytest.StashKey[Any]()
"""Where pytest's configuration holds the card."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    from tests.ptx.card import Card, emulated

    stack = ExitStack()
    seed, races = os.environ.get("EMULATED_SEED", "0"), os.environ.get("EMULATED_RACES", "1")
    ahead = os.environ.get("EMULATED_AHEAD", "0") == "1"
    card = Card(os.environ["EMULATED_CARD"], int(seed), finds_races=races == "1", ahead=ahead)
    config.stash[CARD] = stack.enter_context(emulated(card))
    config.add_cleanup(stack.close)
