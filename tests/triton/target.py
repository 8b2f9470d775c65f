"""What the cases' kernels are compiled for: nothing under the interpreter, else the active card."""

import os

import pytest

from engine.kernels.plans import Capability, has_fp4_units


def needs_its_fp4_units(card: Capability, rounded: bool) -> None:
    """Skip a test that multiplies W4A4 by the plans of a card with FP4 units, where the kernels are
    compiled for one without them: Triton 3.6 aborts there. By other plans weights are decoded."""
    if not (rounded and has_fp4_units(card)) or os.environ.get("TRITON_INTERPRET") == "1":
        return
    from triton.runtime.driver import driver

    major, minor = divmod(driver.active.get_current_target().arch, 10)
    if not has_fp4_units((major, minor)):
        pytest.skip(f"FP4 units are asked for, and sm_{major}{minor} has none")
