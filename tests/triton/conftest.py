"""The files `cases_*.py` run in processes of their own, once under Triton's interpreter
(`test_interpreted.py`) and once compiled, on the emulated card (`tests/ptx/test_compiled.py`):
Triton decides for or against its interpreter when it is imported."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    from tests.triton.interpreter import repair

    repair()
