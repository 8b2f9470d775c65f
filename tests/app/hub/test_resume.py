"""Downloads that are interrupted, cut, damaged, or changed on the way: what came is kept, the bar
never runs backwards, and nothing is called ready that is not."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.hub.cache import RepoCache
from app.hub.client import downloader_command
from app.hub.manifest import cached, manifests
from app.hub.messages import (
    Cancelled,
    FileState,
    Notice,
    Paused,
    Progress,
    Ready,
    Resumed,
    Retry,
    Start,
    encode,
)
from app.models import resolve_model
from engine.config import CheckpointError
from tests.app.hub.conftest import QUICK, REPO, SHARD, model_files, noise
from tests.app.hub.hub_server import FakeHub, Seen, sha256

BIG = "model-00001-of-00003.safetensors"
SLOW = 250_000.0
"""Bytes a second and connection, so that there is a middle to interrupt at."""


def parts(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in cache.rglob("*.incomplete")}


def kept(cache: Path) -> int:
    blobs = cache / "models--somebody--some-model" / "blobs"
    return sum(path.stat().st_size for path in blobs.iterdir())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


async def gone(pid: int) -> bool:
    for _ in range(200):
        if not is_running(pid):
            return True
        await asyncio.sleep(0.05)
    return False


async def finish(hub: FakeHub, download: Any, cache: Path) -> list[Seen]:
    """Download the rest at full speed; the bodies that were asked for."""
    before = kept(cache)
    hub.faults.rate = 0
    hub.seen.clear()
    told = await download()
    assert isinstance(told.last, Ready)
    assert told.plan.kept == before
    assert told.last.fetched == told.plan.total - before
    assert (Path(told.last.path) / BIG).read_bytes() == model_files()[BIG]
    assert cached(REPO) == Path(told.last.path)
    told.check_bar()
    return hub.bodies()


# --- ended in the middle ------------------------------------------------------------------------


async def test_killed_in_the_middle_it_goes_on(
    hub: FakeHub, begin: Any, download: Any, cache: Path
) -> None:
    hub.faults.rate = SLOW
    running = await begin()
    await running.until_bytes(300_000)
    running.client.kill()
    told = await running.end()
    assert told.last.kind == "died"
    assert "SIGKILL" in told.last.message
    told.check_bar()

    (begun,) = manifests(REPO)
    assert begun.finished is None, "it is on the list of downloads"
    assert cached(REPO) is None
    assert not (cache / "models--somebody--some-model" / "snapshots").exists()
    with pytest.raises(CheckpointError, match="not whole yet"):
        resolve_model(REPO)

    sizes = parts(cache)
    assert sum(sizes.values()) > 0
    assert begun.bytes_here(RepoCache(REPO)) == kept(cache)
    files = model_files()
    asked = {seen.name: seen.start for seen in await finish(hub, download, cache)}
    for name in asked:
        assert asked[name] == sizes.get(f"{sha256(files[name])}.incomplete", 0)


@pytest.mark.slow
async def test_cancelled_it_keeps_the_parts(
    hub: FakeHub, begin: Any, download: Any, cache: Path
) -> None:
    hub.faults.rate = SLOW
    running = await begin()
    await running.until_bytes(300_000)
    running.client.cancel()
    told = await running.end()
    assert isinstance(told.last, Cancelled)
    assert told.last.total - told.last.kept > 0
    assert abs(told.last.kept - kept(cache)) < 100_000, "threads write until the process ends"
    assert running.client.pid is None
    await finish(hub, download, cache)


@pytest.mark.slow
async def test_cancelled_while_nothing_comes_it_ends_at_once(hub: FakeHub, begin: Any) -> None:
    hub.faults.stall[BIG] = [10_000]
    running = await begin(limits={"stall": 30.0})
    await running.until_bytes(10_000)
    clock = asyncio.get_running_loop().time
    begun = clock()
    running.client.cancel()
    assert isinstance((await running.end()).last, Cancelled)
    assert clock() - begun < 10


@pytest.mark.slow
async def test_it_ends_with_its_parent(hub: FakeHub, cache: Path) -> None:
    """A terminal that was closed leaves no download behind: stdin ends, or the parent does."""
    hub.faults.rate = SLOW
    start = encode(Start(REPO, limits={"margin": 0.0})).decode()
    command = f"""
import subprocess, sys, time
child = subprocess.Popen({downloader_command()!r}, stdin=subprocess.PIPE, start_new_session=True)
child.stdin.write({start!r}.encode()); child.stdin.flush()
print(child.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        while not list(cache.rglob("*.incomplete")):
            await asyncio.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert await gone(pid)


async def test_paused_nothing_comes(hub: FakeHub, begin: Any, cache: Path) -> None:
    hub.faults.rate = SLOW
    running = await begin()
    await running.until_bytes(200_000)
    running.client.pause()
    await running.until(Paused)
    await asyncio.sleep(0.2)
    before = kept(cache)
    await asyncio.sleep(0.3)
    assert kept(cache) == before
    running.client.pause()  # a second one changes nothing
    running.client.resume()
    await running.until(Resumed)
    hub.faults.rate = 0
    told = await running.end()
    assert isinstance(told.last, Ready)
    assert len(told.of(Paused)) == len(told.of(Resumed)) == 1
    assert any(seen.start > 0 for seen in hub.bodies()), "it went on where it was"
    told.check_bar()


# --- connections that break ---------------------------------------------------------------------


async def test_a_body_that_is_cut_again_and_again(hub: FakeHub, download: Any) -> None:
    """Far more often than there would be retries without a byte: each time something came."""
    hub.faults.cut[BIG] = [20_000] * 14
    told = await download(limits={"patience": 5.0})
    assert isinstance(told.last, Ready)
    bodies = hub.bodies(BIG)
    assert [seen.start for seen in bodies] == [20_000 * i for i in range(15)]
    retries = [event for event in told.of(Retry) if event.path == BIG]
    assert len(retries) == 14
    assert {event.attempt for event in retries} == {1}
    assert all("was cut" in event.reason for event in retries)
    assert told.last.fetched == told.last.total
    told.check_bar()


@pytest.mark.slow
async def test_without_a_byte_for_too_long_it_gives_up_and_keeps_what_came(
    hub: FakeHub, download: Any, cache: Path
) -> None:
    hub.faults.cut[BIG] = [20_000] + [0] * 1000
    told = await download(limits={"patience": 0.3})
    assert told.last.kind == "network"
    assert parts(cache)[f"{sha256(model_files()[BIG])}.incomplete"] == 20_000
    hub.faults.cut.clear()
    assert isinstance((await download()).last, Ready)


@pytest.mark.slow
async def test_a_connection_that_goes_silent_is_made_again(hub: FakeHub, download: Any) -> None:
    hub.faults.stall[BIG] = [30_000]
    told = await download(limits={"stall": 2.5})
    assert isinstance(told.last, Ready)
    assert [seen.start for seen in hub.bodies(BIG)] == [0, 30_000]
    (retry,) = [event for event in told.of(Retry) if event.path == BIG]
    assert "sends nothing any more" in retry.reason
    silent = [event for event in told.of(Progress) if event.stalled]
    assert silent, "the bar says that it stalls"
    assert all(event.speed == 0 and event.left is None for event in silent)


@pytest.mark.slow
async def test_a_server_that_cannot_continue_a_file(hub: FakeHub, download: Any) -> None:
    hub.faults.whole_only = True
    hub.faults.cut[BIG] = [200_000]
    told = await download()
    assert isinstance(told.last, Ready)
    assert "thrown away: the server does not continue a file" in told.notices
    told.check_bar()


@pytest.mark.slow
async def test_a_server_that_never_gets_to_the_end(hub: FakeHub, download: Any) -> None:
    """Bytes that come again are no progress: patience ends."""
    hub.faults.whole_only = True
    hub.faults.cut[BIG] = [100_000] * 10_000
    told = await download(limits={"patience": 0.5})
    assert told.last.kind == "network"


@pytest.mark.slow
async def test_a_server_that_sends_another_place(hub: FakeHub, download: Any) -> None:
    hub.faults.cut[BIG] = [50_000]
    hub.faults.wrong_range = True
    told = await download(limits={"patience": 0.5})
    assert told.last.kind == "server"
    assert "another place" in told.last.message
    hub.faults.wrong_range = False
    assert isinstance((await download()).last, Ready), "nothing of it was written"


# --- content that is wrong ----------------------------------------------------------------------


async def test_a_file_with_a_wrong_hash_is_named_and_fetched_again(
    hub: FakeHub, download: Any
) -> None:
    hub.faults.corrupt[BIG] = 1
    told = await download()
    assert isinstance(told.last, Ready)
    assert (Path(told.last.path) / BIG).read_bytes() == model_files()[BIG]
    assert f"{BIG}: 300 kB were thrown away: its hash is not the one" in told.notices
    assert [seen.start for seen in hub.bodies(BIG)] == [0, 0]
    assert len(hub.bodies("tokenizer.json")) == 1, "only the bad one"
    states = [event.state for event in told.of(FileState) if event.path == BIG]
    assert states == ["fetching", "checking", "fetching", "checking", "checked"]
    told.check_bar()


@pytest.mark.slow
async def test_a_file_that_is_always_wrong_is_never_ready(
    hub: FakeHub, download: Any, cache: Path
) -> None:
    hub.faults.corrupt["tokenizer.json"] = 1000
    told = await download()
    assert told.last.kind == "damaged"
    assert "tokenizer.json arrived damaged 3 times" in told.last.message
    assert cached(REPO) is None
    assert not (cache / "models--somebody--some-model" / "snapshots").exists()
    hub.faults.corrupt.clear()
    assert isinstance((await download()).last, Ready)


@pytest.mark.parametrize("longer", [0, 7])
@pytest.mark.slow
async def test_a_part_that_is_not_the_file_s_beginning(
    hub: FakeHub, download: Any, cache: Path, longer: int
) -> None:
    """Left by a crash of the machine, or by something else: found out, and fetched again."""
    blobs = cache / "models--somebody--some-model" / "blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{sha256(model_files()[BIG])}.incomplete"
    part.write_bytes(noise(SHARD + longer, 77))
    told = await download()
    assert isinstance(told.last, Ready)
    assert (Path(told.last.path) / BIG).read_bytes() == model_files()[BIG]
    assert f"{BIG}: 300 kB were thrown away" in told.notices
    told.check_bar()


@pytest.mark.slow
async def test_what_another_program_holds_is_waited_for(
    hub: FakeHub, begin: Any, cache: Path
) -> None:
    locks = cache / ".locks" / "models--somebody--some-model"
    locks.mkdir(parents=True)
    with open(locks / f"{sha256(model_files()[BIG])}.lock", "wb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        running = await begin()
        while "another program" not in running.told.notices:
            await running.until(Notice)
        assert not hub.bodies(BIG)
    told = await running.end()
    assert isinstance(told.last, Ready)
    assert len(hub.bodies(BIG)) == 1


# --- a revision that moves ----------------------------------------------------------------------


@pytest.mark.slow
async def test_a_revision_that_moved_meanwhile_is_finished_first(
    hub: FakeHub, begin: Any, download: Any
) -> None:
    hub.faults.rate = SLOW
    old = hub.branches["main"]
    running = await begin()
    await running.until_bytes(200_000)
    new = hub.commit(model_files(seed=50))
    running.client.kill()
    await running.end()
    hub.faults.rate = 0
    hub.seen.clear()
    told = await download()
    assert told.last.commit == told.plan.commit == old
    assert f"main moved from {old[:7]} to {new[:7]}" in told.notices
    assert {seen.path.split("/")[4] for seen in hub.bodies()} == {old}
    assert str(cached(REPO, old)).endswith(old)


@pytest.mark.slow
async def test_it_moves_during_the_download(hub: FakeHub, begin: Any) -> None:
    hub.faults.rate = SLOW
    old = hub.branches["main"]
    running = await begin()
    await running.until_bytes(200_000)
    hub.commit(model_files(seed=50))
    hub.faults.rate = 0
    told = await running.end()
    assert told.last.commit == old
    assert (Path(told.last.path) / BIG).read_bytes() == model_files()[BIG]


@pytest.mark.slow
async def test_a_commit_that_was_begun_and_is_gone(hub: FakeHub, begin: Any, download: Any) -> None:
    hub.faults.rate = SLOW
    old = hub.branches["main"]
    running = await begin()
    await running.until_bytes(200_000)
    running.client.kill()
    await running.end()
    hub.faults.rate = 0
    new = hub.commit(model_files(seed=50))
    del hub.commits[old]
    told = await download()
    assert told.last.commit == new
    assert "no longer there; the newest is taken" in told.notices
    assert [manifest.plan.commit for manifest in manifests(REPO)] == [new]


@pytest.mark.slow
async def test_waits_grow_and_do_not_hold_up_a_pause(hub: FakeHub, begin: Any) -> None:
    hub.faults.file["config.json"] = [(503, {"Retry-After": "500"})]
    running = await begin(limits={**QUICK, "patience": 1.0})
    retry = await running.until(Retry)
    assert (retry.wait, retry.path) == (500.0, "config.json")
    running.client.pause()
    await running.until(Paused)
    running.client.resume()
    told = await asyncio.wait_for(running.end(), 300)
    assert isinstance(told.last, Ready)
