"""The files `interpreted_*.py` run in a process of their own (`test_interpreted.py` starts it):
Triton decides for or against its interpreter when it is imported."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    from tests.triton.interpreter import repair

    repair()
