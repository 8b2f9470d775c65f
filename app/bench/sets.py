"""The sets of prompts that can be named: shipped ones, and two public ones from the hub."""

import importlib.resources
import json
import tempfile
from pathlib import Path
from typing import Any

from app.bench.prompts import BenchSet, read_set

SHIPPED = {
    "demo": "questions that the demo model can answer, with their results",
    "chat": "everyday requests; timed only",
    "code": "small Python functions, with tests",
    "math": "short word problems, with their results",
}
HUB = {
    "gsm8k": ("openai/gsm8k", "main/test-00000-of-00001.parquet"),
    "humaneval": ("openai/openai_humaneval", "openai_humaneval/test-00000-of-00001.parquet"),
}
"""Name to a repository of data and the file in it."""


class SetError(ValueError):
    """A set that is not to be had; the message is a sentence for the user."""


def load_set(name: str, *, offline: bool = False, endpoint: str | None = None) -> BenchSet:
    """The set called `name`; one from the hub is downloaded unless it is in the cache.

    Raises:
        SetError: there is none, or it cannot be fetched or read.
    """
    if name in SHIPPED:
        return read_set(
            Path(str(importlib.resources.files("assets") / "prompts" / f"{name}.jsonl")), name
        )
    if name not in HUB:
        known = ", ".join((*SHIPPED, *HUB))
        raise SetError(f"There is no set {name!r}; there are {known}, or name a file: --prompts.")
    return _from_hub(name, offline, endpoint)


def _from_hub(name: str, offline: bool, endpoint: str | None) -> BenchSet:
    parquet = _parquet(name)
    repo, file = HUB[name]
    try:
        from huggingface_hub import hf_hub_download

        path = hf_hub_download(
            repo, file, repo_type="dataset", endpoint=endpoint, local_files_only=offline
        )
    except Exception as error:  # whatever the network and its library say
        raise SetError(
            f"The set {name} ({repo}) could not be fetched ({type(error).__name__}); go online, or "
            "name a file of it: --prompts FILE.jsonl."
        ) from error
    return _of_rows(name, parquet.read_table(path).to_pylist())


def _of_rows(name: str, rows: list[dict[str, Any]]) -> BenchSet:
    """Read as a file of JSON Lines is, so that both give the same prompts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return read_set(path, name)


def _parquet(name: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise SetError(
            f"The set {name} comes as Parquet, which takes a package more: pip install pyarrow; or "
            "name a file of it: --prompts FILE.jsonl."
        ) from error
    return pyarrow.parquet
