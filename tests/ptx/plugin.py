"""A pytest plugin that puts the emulated card in place before tests are collected:

    EMULATED_CARD=sm_90 [EMULATED_SEED=1] python -m pytest -p tests.ptx.plugin FILES

Kernels are then launched on tensors in the host's memory, where tests ask for them.
"""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    from tests.ptx.card import Card, install

    install(Card(os.environ["EMULATED_CARD"], int(os.environ.get("EMULATED_SEED", "0"))))
