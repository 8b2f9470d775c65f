"""A hub on the loopback, a cache of one's own, and a download process to try them with."""

import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.hub.client import DownloadClient
from app.hub.messages import Event, Notice, Planned, Progress, Start
from tests.app.hub.hub_server import FakeHub

REPO = "somebody/some-model"
SHARD = 300_000

QUICK = {"first_wait": 0.01, "longest_wait": 0.05, "patience": 20.0, "plan_patience": 2.0}
"""Waits that tests can afford."""


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def model_files(seed: int = 0) -> dict[str, bytes]:
    """A repository as models have it, with things in it that must not be fetched."""
    shards = {f"model-0000{i}-of-00003.safetensors": noise(SHARD, seed + i) for i in (1, 2, 3)}
    index = json.dumps({"weight_map": {f"w{i}": name for i, name in enumerate(shards)}})
    return {
        ".gitattributes": b"*.safetensors filter=lfs",
        "README.md": b"# A model",
        "LICENSE": b"Apache",
        "config.json": b'{"model_type": "llada2_moe"}',
        "generation_config.json": b"{}",
        "tokenizer.json": noise(20_000, seed + 9),
        "tokenizer_config.json": b'{"eos_token": "<|endoftext|>"}',
        "chat_template.jinja": b"{{ messages }}",
        "model.safetensors.index.json": index.encode(),
        "modeling_llada2_moe.py": b"raise SystemExit('code of a repository ran')",
        "pytorch_model.bin": b"a pickle",
        "assets/picture.png": b"a picture",
        **shards,
    }


UNWANTED = {".gitattributes", "modeling_llada2_moe.py", "pytorch_model.bin", "assets/picture.png"}


@pytest.fixture(autouse=True)
def quiet_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> dict[str, str]:
    """No hub, token or proxy of whoever runs the tests."""
    for name in list(os.environ):
        if name.upper().startswith(("HF_", "HUGGING")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # many processes, started often
    values = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", values["HF_HUB_CACHE"])
    return values


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    server = FakeHub(REPO, model_files())
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    yield server
    server.close()


@dataclass
class Told:
    """Everything that a download process said."""

    events: list[Event] = field(default_factory=list)

    @property
    def last(self) -> Any:
        return self.events[-1]

    @property
    def plan(self) -> Planned:
        return self.of(Planned)[-1]

    @property
    def notices(self) -> str:
        return "\n".join(event.text for event in self.of(Notice))

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def check_bar(self) -> None:
        """It never runs backwards, neither of the whole nor of a file."""
        done, files = 0, dict.fromkeys([row["path"] for row in self.plan.files], 0)
        for event in self.of(Progress):
            assert done <= event.done <= event.total
            done = event.done
            for row in event.files:
                assert files[row["path"]] <= row["done"]
                files[row["path"]] = row["done"]


class Download:
    """A download process that tests follow and steer."""

    def __init__(self, client: DownloadClient) -> None:
        self.client = client
        self.told = Told()
        self._events = client.events()

    async def until(self, kind: type) -> Any:
        """Follow it to the next event of `kind`."""
        async for event in self._events:
            self.told.events.append(event)
            if isinstance(event, kind):
                return event
        pytest.fail(f"it ended without {kind.__name__}: {self.told.events[-3:]}")

    async def until_bytes(self, count: int) -> None:
        """Follow it until `count` bytes are done."""
        while (await self.until(Progress)).done < count:
            pass

    async def end(self) -> Told:
        async for event in self._events:
            self.told.events.append(event)
        return self.told


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Any]:
    """Starts download processes, and ends what is left of them."""
    clients: list[DownloadClient] = []

    async def start(
        repo: str = REPO, *, environment: dict[str, str] | None = None, **options: Any
    ) -> Download:
        limits = {**QUICK, "margin": 0.0, "rate": 50.0, **options.pop("limits", {})}
        client = DownloadClient(log=tmp_path / "download.log", environment=environment)
        clients.append(client)
        await client.start(Start(repo, limits=limits, **options))
        return Download(client)

    yield start
    for client in clients:
        client.kill()
        await client.close()


@pytest.fixture
def download(begin: Any) -> Any:
    """A whole download: everything it said."""

    async def run(repo: str = REPO, **options: Any) -> Told:
        return await (await begin(repo, **options)).end()

    return run
