"""Downloads that work, through the real client, in a real process."""

from pathlib import Path
from typing import Any

from app.hub.manifest import cached, manifests
from app.hub.messages import FileState, Ready, Started
from tests.app.hub.conftest import REPO, UNWANTED, model_files
from tests.app.hub.hub_server import FakeHub


async def test_whole(hub: FakeHub, download: Any, cache: Path) -> None:
    told = await download()
    assert isinstance(told.events[0], Started)
    assert isinstance(told.last, Ready)
    folder = Path(told.last.path)
    assert folder == cache / "models--somebody--some-model" / "snapshots" / hub.branches["main"]
    wanted = {name: body for name, body in model_files().items() if name not in UNWANTED}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == wanted
    assert all(path.is_symlink() for path in folder.iterdir())
    assert told.last.total == sum(map(len, wanted.values()))
    assert told.last.fetched == told.last.total - len(b"{}"), "equal files are fetched once"
    assert told.last.commit == told.plan.commit == hub.branches["main"]
    assert {event.path for event in told.of(FileState) if event.state == "checked"} == set(wanted)
    assert cached(REPO) == folder
    told.check_bar()
