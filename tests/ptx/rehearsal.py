"""A pytest plugin, beside `tests.ptx.plugin`, under which the card's own tests (`tests/gpu`) run on
the emulated card: what lies in the host's memory is served by Triton, as what lies on a card is."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    import engine.kernels
    from engine.kernels import triton_matrix, triton_nvfp4
    from tests.gpu.card import capability

    engine.kernels.runs_triton = lambda tensor: True
    for module in (triton_matrix, triton_nvfp4):
        module.capability_of = lambda tensor: capability()
