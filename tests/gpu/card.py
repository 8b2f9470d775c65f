"""The card of these tests: a CUDA device, or the emulated one that EMULATED_CARD names, whose
memory is the host's (`tests/ptx`). The tests are the same on both."""

import os

import pytest
import torch

from engine.kernels.plans import Capability

EMULATED = os.environ.get("EMULATED_CARD")
DEVICE = "cpu" if EMULATED else "cuda"
# A race shows on a card by chance, if often enough is tried; emulated it is found in one run.
TIMES = 2 if EMULATED else 300

needs_card = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (EMULATED or torch.cuda.is_available()), reason="needs a CUDA device"),
]


def capability() -> Capability:
    """Of the card."""
    if EMULATED:
        major, minor = divmod(int(EMULATED.removeprefix("sm_")), 10)
        return major, minor
    return torch.cuda.get_device_capability()
