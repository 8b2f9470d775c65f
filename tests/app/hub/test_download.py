"""Downloads that work, through the real client, in a real process."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.hub.manifest import cached, manifests
from app.hub.messages import FileState, Planned, Ready, Started
from app.models import resolve_model
from engine.config import CheckpointError
from tests.app.hub.conftest import REPO, UNWANTED, model_files
from tests.app.hub.hub_server import FakeHub, blob_name

WANTED = {name: body for name, body in model_files().items() if name not in UNWANTED}
BIG = "model-00002-of-00003.safetensors"
SLOW = partial(pytest.param, marks=pytest.mark.slow)
TOTAL = sum(map(len, WANTED.values()))


def snapshot(cache: Path, hub: FakeHub) -> Path:
    return cache / "models--somebody--some-model" / "snapshots" / hub.branches["main"]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_whole(hub: FakeHub, download: Any, cache: Path) -> None:
    told = await download()
    assert isinstance(told.events[0], Started)
    assert isinstance(told.last, Ready)
    folder = Path(told.last.path)
    assert folder == snapshot(cache, hub)
    assert content(folder) == WANTED, "and no code, no pickles"
    assert told.last.total == told.plan.total == told.plan.need == TOTAL
    assert told.last.fetched == TOTAL
    assert told.last.commit == told.plan.commit == hub.branches["main"]
    assert (told.plan.licence, told.plan.access) == ("apache-2.0", "public")
    assert {event.path for event in told.of(FileState) if event.state == "checked"} == set(WANTED)
    told.check_bar()
    assert cached(REPO) == folder
    assert resolve_model(REPO).path == folder
    assert not list(cache.rglob("*.incomplete"))


async def test_a_second_time_nothing_is_fetched_and_nothing_read(
    hub: FakeHub, download: Any
) -> None:
    await download()
    hub.seen.clear()
    told = await download()
    assert isinstance(told.last, Ready)
    assert told.last.fetched == 0
    assert [seen.path.partition("?")[0] for seen in hub.seen] == [
        f"/api/models/{REPO}/revision/main"
    ]
    assert not [event for event in told.of(FileState) if event.state == "checking"]


async def test_offline_what_is_whole_is_ready(hub: FakeHub, download: Any) -> None:
    first = await download()
    hub.close()
    assert cached(REPO) == Path(first.last.path)
    told = await download(limits={"plan_patience": 0.3})
    assert isinstance(told.last, Ready)
    assert told.last.path == first.last.path
    assert not told.plan.online
    assert "no connection to 127.0.0.1" in told.notices


@pytest.mark.slow
async def test_in_offline_mode_it_can_be_rechecked(hub: FakeHub, download: Any) -> None:
    await download()
    hub.seen.clear()
    told = await download(environment={"HF_HUB_OFFLINE": "1"}, recheck=True)
    assert isinstance(told.last, Ready)
    assert "Offline mode" in told.notices
    assert not hub.seen
    assert [event for event in told.of(FileState) if event.state == "checking"]


async def test_what_another_program_downloaded_is_used(
    hub: FakeHub, download: Any, cache: Path
) -> None:
    """The hub's own client fetches first, into the same cache; ours reads and checks."""
    from huggingface_hub import hf_hub_download

    for name in ("config.json", "model-00001-of-00003.safetensors"):
        hf_hub_download(REPO, name, cache_dir=cache, endpoint=hub.endpoint)
    hub.seen.clear()
    told = await download()
    assert isinstance(told.last, Ready)
    assert content(snapshot(cache, hub)) == WANTED
    assert not hub.bodies("config.json")
    assert not hub.bodies("model-00001-of-00003.safetensors")
    assert told.plan.kept == len(WANTED["config.json"]) + 300_000
    assert told.plan.need == TOTAL - told.plan.kept


async def test_other_programs_use_what_is_downloaded_here(
    hub: FakeHub, download: Any, cache: Path
) -> None:
    from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download

    told = await download()
    hub.seen.clear()
    assert snapshot_download(REPO, cache_dir=cache, local_files_only=True) == told.last.path
    path = hf_hub_download(REPO, "config.json", cache_dir=cache, endpoint=hub.endpoint)
    assert path == str(snapshot(cache, hub) / "config.json")
    assert not hub.bodies()
    scan = scan_cache_dir(cache)
    assert not scan.warnings
    (revision,) = next(iter(scan.repos)).revisions
    assert {file.file_name for file in revision.files} == set(WANTED)
    assert revision.refs == {"main"}


async def test_only_the_plan(hub: FakeHub, download: Any, cache: Path) -> None:
    told = await download(only_plan=True)
    assert isinstance(told.last, Planned)
    assert {row["path"] for row in told.last.files} == set(WANTED)
    assert (told.last.total, told.last.kept, told.last.need) == (TOTAL, 0, TOTAL)
    assert told.last.free > TOTAL
    assert told.last.endpoint == hub.endpoint
    assert not cache.exists()
    assert not list(manifests())
    assert not hub.bodies()


@pytest.mark.slow
async def test_a_revision_is_pinned(hub: FakeHub, download: Any) -> None:
    old = hub.branches["main"]
    hub.commit(model_files(seed=50))
    hub.branches["v1"] = old
    tagged = await download(revision="v1")
    assert tagged.last.commit == old
    assert {seen.path.split("/")[4] for seen in hub.bodies()} == {old}
    assert cached(REPO) is None, "main stands elsewhere"
    assert cached(REPO, "v1") == cached(REPO, old) == Path(tagged.last.path)
    by_hash = await download(revision=old)
    assert (by_hash.last.commit, by_hash.last.fetched) == (old, 0)
    assert cached(REPO, "v1") == Path(tagged.last.path)


@pytest.mark.slow
async def test_an_update_leaves_the_old_one_ready_until_it_is_whole(
    hub: FakeHub, download: Any, cache: Path
) -> None:
    first = await download()
    files = {**model_files(), "config.json": b'{"new": 1}'}
    new = hub.commit(files)
    hub.faults.file["config.json"] = [(404, {"X-Error-Code": "EntryNotFound"})]
    assert (await download()).last.kind == "gone"
    assert cached(REPO) == Path(first.last.path)
    hub.seen.clear()
    told = await download()
    assert told.last.commit == new
    assert [seen.name for seen in hub.bodies()] == ["config.json"], "the rest is the same"
    assert cached(REPO) == Path(told.last.path)
    assert (cache / "models--somebody--some-model" / "refs" / "main").read_text() == new


@pytest.mark.parametrize("change", [SLOW("shorter"), "other", SLOW("gone")])
async def test_what_was_changed_behind_our_back_is_not_ready(
    hub: FakeHub, download: Any, cache: Path, change: str
) -> None:
    told = await download()
    place = Path(told.last.path) / BIG
    blob = place.resolve()
    if change == "gone":
        blob.unlink()
    else:
        body = blob.read_bytes()
        blob.write_bytes(body[:-1] if change == "shorter" else body[:-1] + b"\0")
    assert cached(REPO) is None
    with pytest.raises(CheckpointError, match=f"orl-chat download {REPO}"):
        resolve_model(REPO)
    hub.seen.clear()
    again = await download()
    assert isinstance(again.last, Ready)
    assert {seen.name for seen in hub.bodies()} == {place.name}
    assert place.read_bytes() == WANTED[place.name]
    if change == "other":
        assert f"{place.name} in the cache is damaged" in again.notices
    assert cached(REPO) == Path(told.last.path)


@pytest.mark.slow
async def test_recheck_finds_what_sizes_and_times_do_not_tell(hub: FakeHub, download: Any) -> None:
    told = await download()
    blob = (Path(told.last.path) / BIG).resolve()
    before = blob.stat()
    blob.write_bytes(b"\0" * before.st_size)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (await download()).last.fetched == 0
    hub.faults.file[BIG] = [(404, {})]
    assert (await download(recheck=True)).last.kind == "not_found"
    assert cached(REPO) is None, "what is known to be damaged is not ready"
    again = await download()
    assert isinstance(again.last, Ready)
    assert [seen.name for seen in hub.bodies()[len(WANTED) :]] == [BIG]
    assert cached(REPO) == Path(told.last.path)


@pytest.mark.slow
async def test_a_moved_cache_is_not_ready_where_it_no_longer_is(
    hub: FakeHub, download: Any, cache: Path
) -> None:
    await download()
    shutil.rmtree(cache)
    assert cached(REPO) is None


@pytest.mark.slow
async def test_twice_at_once(hub: FakeHub, begin: Any) -> None:
    """Two programs that want the same: one fetches each file, the other waits for it."""
    hub.faults.rate = 600_000
    one, other = await begin(), await begin()
    told, also = await one.end(), await other.end()
    assert isinstance(told.last, Ready)
    assert isinstance(also.last, Ready)
    for name in WANTED:
        if name.endswith(".safetensors"):
            assert len(hub.bodies(name)) == 1
    assert told.last.fetched + also.last.fetched == TOTAL


@pytest.mark.slow
async def test_equal_files_are_fetched_once(hub: FakeHub, download: Any) -> None:
    hub.commit({**model_files(), "vocab.json": b"{}", "empty.json": b""})
    told = await download()
    assert isinstance(told.last, Ready)
    assert told.last.fetched == TOTAL
    folder = Path(told.last.path)
    assert (folder / "vocab.json").resolve() == (folder / "generation_config.json").resolve()
    assert (folder / "empty.json").read_bytes() == b""


def test_the_names_of_blobs_are_the_hub_s(hub: FakeHub, cache: Path) -> None:
    from huggingface_hub import hf_hub_download

    for name in ("config.json", "model-00001-of-00003.safetensors"):
        path = Path(hf_hub_download(REPO, name, cache_dir=cache, endpoint=hub.endpoint))
        assert path.resolve().name == blob_name(name, WANTED[name])
