"""Runs as their trainers leave them, made by hand: no model, no torch."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from app.paths import paths
from finetune.config import FinetuneConfig
from finetune.runs import RunFolder, RunInfo, Status

ASKED = {"prompt": "What is 1 + 1?", "answer": "2", "verify": "number"}


def make_run(name: str = "sums", *, updates: int = 20, folder: Path | None = None) -> RunFolder:
    """A run that was not begun, in its usual place."""
    info = RunInfo(name, "demo", "/nowhere", "0", "", FinetuneConfig(updates=updates), ())
    path = (folder or paths().runs) / name
    return RunFolder.create(path, info, json.dumps(ASKED).encode() + b"\n")


def update(done: int, **changes: Any) -> dict[str, Any]:
    """An update as events.jsonl has it."""
    return {
        "kind": "update", "done": done, "update": done - 1, "answers": 8, "kept": 6, "errors": 0,
        "cut": 1, "prompts": 8, "prompts_passed": 6, "tokens": 320, "steps": 40, "tpf_steps": 8.0,
        "prediction": 0.4, "aec": 0.0001, "anchor": 0.02, "uncertain": 30, "positions": 100,
        "grad_norm": 0.7, "skipped": False, "rollout_seconds": 1.5, "learn_seconds": 0.5,
        "verify_seconds": 0.25,
        "samples": [],
    } | changes  # fmt: skip


def check(done: int, right: int, tpf: float) -> dict[str, Any]:
    """A held-out check of ten prompts."""
    return {
        "kind": "check", "done": done, "n": 10, "right": right, "interval": [0.1, 0.9], "tpf": tpf,
        "tpf_steps": tpf, "passes": [True] * right + [False] * (10 - right), "tokens": 400,
        "seconds": 3.0,
    }  # fmt: skip


def add(run: RunFolder, *events: dict[str, Any]) -> None:
    """Events, in their order."""
    for event in events:
        run.add_event(event)


def whole_state(run: RunFolder, done: int) -> Path:
    """A state that a run could go on from."""
    tensors = {"m": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    header = json.dumps(tensors).encode()
    with run.new_state(done) as folder:
        (folder / "state.json").write_text(json.dumps({"done": done, "row_tokens": 64}))
        data = struct.pack("<Q", len(header)) + header + bytes(8)
        (folder / "optimizer.safetensors").write_bytes(data)
    return run.path / "state" / f"{done:06}"


@contextmanager
def trainer(run: RunFolder, done: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A process that the run says is training it."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        run.write_status(of_process(run, process.pid, done))
        yield process
    finally:
        process.kill()
        process.wait()


def of_process(run: RunFolder, pid: int, done: int) -> Status:
    """Running in that process."""
    started, updates = psutil.Process(pid).create_time(), run.info().config.updates
    return Status("running", pid, started, update=done, updates=updates, best=0)
