"""What can go wrong: each with a sentence of its own, a next move, and no traceback and no token
anywhere."""

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.hub.manifest import cached, manifests
from app.hub.messages import Planned, Ready, Retry
from tests.app.hub.conftest import REPO, SHARD, Told, model_files
from tests.app.hub.hub_server import FakeHub, sha256

BIG = "model-00001-of-00003.safetensors"
SLOW = partial(pytest.param, marks=pytest.mark.slow)
LIMITED = {"patience": 0.4, "plan_patience": 0.4}


def failed(told: Told, kind: str) -> str:
    """The sentences that a download of the given end said."""
    error = told.last
    assert error.kind == kind, error
    assert error.message.endswith(".")
    assert error.hint.endswith(".")
    assert "Traceback" not in f"{error.message} {error.hint} {error.detail}"
    return f"{error.message} {error.hint}"


# --- access -------------------------------------------------------------------------------------


async def test_not_found(hub: FakeHub, download: Any) -> None:
    """With a token the hub tells that there is nothing."""
    told = await download("somebody/else", environment={"HF_TOKEN": hub.token})
    assert "has no repository somebody/else that this token may read" in failed(told, "not_found")


@pytest.mark.slow
async def test_without_a_token_nobody_tells_what_is_not_there(hub: FakeHub, download: Any) -> None:
    told = await download("somebody/else")
    assert "private, or there is no repository" in failed(told, "private")


async def test_private(hub: FakeHub, download: Any) -> None:
    hub.private = True
    assert "set HF_TOKEN" in failed(await download(), "private")
    told = await download(environment={"HF_TOKEN": hub.token})
    assert isinstance(told.last, Ready)
    assert (told.plan.token, told.plan.access) == ("HF_TOKEN", "private")


async def test_gated(hub: FakeHub, download: Any, tmp_path: Path) -> None:
    hub.gated = True
    words = failed(await download(), "gated")
    assert "no token is set" in words
    assert f"{hub.endpoint}/{REPO}" in words
    hub.granted = False
    words = failed(await download(environment={"HF_TOKEN": hub.token}), "gated")
    assert "The token has no access" in words
    assert f"{hub.endpoint}/{REPO}" in words
    hub.granted = True
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(hub.token)  # as `hf auth login` leaves it
    told = await download()
    assert isinstance(told.last, Ready)
    assert (told.plan.token, told.plan.access) == ("token file", "gated")


async def test_a_token_that_is_not_accepted(hub: FakeHub, download: Any) -> None:
    told = await download(environment={"HF_TOKEN": "hf_wrongwrongwrong"})
    assert "does not accept the token" in failed(told, "bad_token")


@pytest.mark.slow
async def test_a_token_that_none_can_be(hub: FakeHub, download: Any) -> None:
    told = await download(environment={"HF_TOKEN": "hf_schlüssel"})
    assert "characters that no token has" in failed(told, "bad_token")


@pytest.mark.slow
async def test_forbidden(hub: FakeHub, download: Any) -> None:
    hub.faults.api = [(403, {})]
    assert "access is refused (403)" in failed(await download(), "forbidden")


async def test_a_revision_that_is_not_there(hub: FakeHub, download: Any) -> None:
    words = failed(await download(revision="v9"), "revision_not_found")
    assert "has no revision 'v9'" in words


@pytest.mark.parametrize(
    ("repo", "revision"),
    [("nonsense", "main"), ("../../etc", "main"), ("a/b/c", "main"), (REPO, "../main"), (REPO, "")],
)
@pytest.mark.slow
async def test_names_that_are_none(hub: FakeHub, download: Any, repo: str, revision: str) -> None:
    failed(await download(repo, revision=revision), "bad_request")
    assert not hub.seen


@pytest.mark.slow
async def test_the_same_token_after_a_kill_and_never_to_the_file_server(
    hub: FakeHub, begin: Any, download: Any
) -> None:
    hub.private, hub.redirect = True, True
    hub.faults.rate = 250_000
    environment = {"HF_TOKEN": hub.token}
    running = await begin(environment=environment)
    await running.until_bytes(200_000)
    running.client.kill()
    await running.end()
    hub.faults.rate = 0
    assert isinstance((await download(environment=environment)).last, Ready)
    by_server: dict[str, set[str | None]] = {"hub": set(), "cdn": set()}
    for seen in hub.seen:
        by_server[seen.server].add(seen.headers.get("authorization"))
    assert by_server == {"hub": {f"Bearer {hub.token}"}, "cdn": {None}}
    assert any(seen.start > 0 for seen in hub.seen if seen.server == "cdn")


async def test_the_token_and_signed_links_are_nowhere(
    hub: FakeHub, download: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in events, not in the log, not in the arguments, whatever goes wrong."""
    monkeypatch.setenv("HF_DEBUG", "1")
    hub.redirect = True
    hub.private = True
    hub.faults.cut[BIG] = [1000, 1000]
    hub.faults.cdn = [(403, {}), (500, {}), (404, {})]
    told = [await download(environment={"HF_TOKEN": hub.token}), await download(token=hub.token)]
    assert {one.plan.token for one in told} == {"HF_TOKEN", "given"}
    told.append(await download(environment={"HF_TOKEN": "hf_" + "b" * 30}))
    said = "".join(repr(event) for one in told for event in one.events)
    log = (tmp_path / "download.log").read_text()
    written = "".join(path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file())
    for text in (said, log, written):
        for secret in (hub.token, "b" * 30, "secret-signature"):
            assert secret not in text
    assert "HTTP" in log, "something was logged"


# --- servers ------------------------------------------------------------------------------------


async def test_429_and_5xx_are_waited_out(hub: FakeHub, download: Any) -> None:
    hub.faults.api = [(429, {"Retry-After": "0"}), (500, {}), (503, {})]
    hub.faults.file[BIG] = [
        (429, {"RateLimit": '"resolvers";r=0;t=1'}), (502, {}), (504, {}), (408, {}),
    ]  # fmt: skip
    told = await download()
    assert isinstance(told.last, Ready)
    planning = [event for event in told.of(Retry) if event.path is None]
    assert [event.attempt for event in planning] == [1, 2, 3]
    assert "asks to slow down (429)" in planning[0].reason
    fetching = [event for event in told.of(Retry) if event.path == BIG]
    assert [event.attempt for event in fetching] == [1, 2, 3, 4]
    assert fetching[0].wait == 1.0, "as the server asks"
    assert "has trouble (502)" in fetching[1].reason


@pytest.mark.parametrize(("status", "kind"), [(429, "busy"), (503, "server")])
@pytest.mark.slow
async def test_those_that_do_not_end(hub: FakeHub, download: Any, status: int, kind: str) -> None:
    hub.faults.api = [(status, {})] * 1000
    assert str(status) in failed(await download(limits=LIMITED), kind)


@pytest.mark.parametrize("status", [SLOW(401), SLOW(403), 404, SLOW(410)])
async def test_a_file_that_is_refused(hub: FakeHub, download: Any, status: int) -> None:
    hub.faults.file[BIG] = [(status, {})] * 100
    told = await download()
    kinds = {401: "private", 403: "forbidden", 404: "not_found", 410: "server"}
    failed(told, kinds[status])
    assert len([seen for seen in hub.seen if seen.name == BIG]) == 1, "no use in trying again"
    assert cached(REPO) is None


@pytest.mark.parametrize("xet", [SLOW(False), True])
async def test_redirects(hub: FakeHub, download: Any, xet: bool) -> None:
    """Large files come from a file server, whose signed links expire. What is in xet storage can
    also be had that way, and can be continued then."""
    hub.private, hub.redirect, hub.xet = True, True, xet
    hub.faults.cdn = [(403, {}), (403, {})]
    hub.faults.cut[BIG] = [50_000]
    told = await download(environment={"HF_TOKEN": hub.token})
    assert isinstance(told.last, Ready)
    assert {seen.server for seen in hub.bodies(BIG)} == {"cdn"}
    sent = {(seen.server, seen.headers.get("authorization")) for seen in hub.seen}
    assert sent == {("hub", f"Bearer {hub.token}"), ("cdn", None)}
    assert [seen.start for seen in hub.bodies(BIG)] == [0, 50_000]
    assert [event.reason for event in told.of(Retry) if "refused the link (403)" in event.reason]


async def test_a_login_page_in_between(hub: FakeHub, download: Any) -> None:
    hub.faults.page = b"<html>Welcome to the hotel</html>"
    assert "is not a hub's answer" in failed(await download(), "not_a_hub")


@pytest.mark.slow
async def test_a_size_that_is_not_the_file_s(hub: FakeHub, download: Any) -> None:
    hub.faults.size[BIG] = SHARD + 10
    words = failed(await download(limits=LIMITED), "server")
    assert f"it has {SHARD:,} bytes there" in words
    hub.faults.size[BIG] = SHARD - 10
    failed(await download(limits=LIMITED), "server")
    hub.faults.size.clear()
    assert isinstance((await download()).last, Ready)


@pytest.mark.slow
async def test_a_length_that_is_not_the_body_s(hub: FakeHub, download: Any) -> None:
    hub.faults.length[BIG] = SHARD + 10
    failed(await download(limits=LIMITED), "server")


@pytest.mark.slow
async def test_a_repository_that_is_no_model(hub: FakeHub, download: Any) -> None:
    hub.commit({"README.md": b"data", "model.bin": b"x"})
    assert "holds no model" in failed(await download(), "unsuitable")
    files = model_files()
    del files["model-00003-of-00003.safetensors"]
    hub.commit(files)
    words = failed(await download(), "unsuitable")
    assert "lacks 1 weight files that its index names" in words


# --- networks -----------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("address", ["port", SLOW("hub.invalid")])
async def test_no_network(download: Any, address: str) -> None:
    if address == "port":
        address = f"127.0.0.1:{closed_port()}"
    told = await download(environment={"HF_ENDPOINT": f"http://{address}"}, limits=LIMITED)
    assert f"There is no connection to {address}." in failed(told, "network")
    assert told.of(Retry)


@pytest.mark.slow
async def test_an_address_that_is_none(download: Any) -> None:
    told = await download(environment={"HF_ENDPOINT": "nonsense"})
    assert "Check HF_ENDPOINT" in failed(told, "endpoint")


async def test_offline_mode(hub: FakeHub, download: Any) -> None:
    told = await download(environment={"HF_HUB_OFFLINE": "1"})
    assert "Offline mode is on" in failed(told, "offline")
    assert not hub.seen


@pytest.mark.slow
async def test_the_network_goes_away_in_the_middle(hub: FakeHub, begin: Any, download: Any) -> None:
    hub.faults.rate = 250_000
    running = await begin(limits={"patience": 0.5, "connect": 1.0, "stall": 1.0})
    await running.until_bytes(200_000)
    hub.close()
    hub.faults.cut[BIG] = [0] * 1000
    for name in model_files():
        hub.faults.cut[name] = [0] * 1000
    told = await running.end()
    assert "There is no connection" in failed(told, "network")
    told.check_bar()
    assert cached(REPO) is None


async def test_a_proxy_is_used_and_shown(hub: FakeHub, download: Any) -> None:
    """The test server stands in for the proxy: it gets whole addresses to fetch."""
    proxy = hub.endpoint.replace("://", "://user:geheim@")
    environment = {"HTTP_PROXY": proxy, "HF_ENDPOINT": "http://hub.invalid"}
    told = await download(environment=environment)
    assert told.events[1].proxy == hub.endpoint if isinstance(told.events[1], Planned) else False
    assert isinstance(told.last, Ready)
    assert all(seen.path.startswith("http://hub.invalid/") for seen in hub.seen)
    assert "geheim" not in repr(told)


@pytest.mark.slow
async def test_a_proxy_that_refuses(hub: FakeHub, download: Any) -> None:
    hub.faults.api = [(407, {})] * 100
    environment = {"HTTP_PROXY": hub.endpoint, "HF_ENDPOINT": "http://hub.invalid"}
    words = failed(await download(environment=environment), "proxy")
    assert "asks for a name and a password" in words
    assert hub.endpoint in words
    dead = f"http://127.0.0.1:{closed_port()}"
    told = await download(
        environment={"HTTP_PROXY": dead, "HF_ENDPOINT": "http://hub.invalid"}, limits=LIMITED
    )
    assert f"through the proxy {dead}" in failed(told, "network")


# --- disks --------------------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A file system of its own at `place`; skips the test where that is not allowed."""
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_too_little_room_is_told_before_the_first_byte(
    hub: FakeHub, download: Any, tmp_path: Path
) -> None:
    with mounted(tmp_path / "hub", "size=512k"):
        told = await download()
        words = failed(told, "disk_full")
        assert "more are needed" in words
        assert told.last.counts["missing"] == told.last.counts["need"] - told.last.counts["free"]
        assert not hub.bodies()


@pytest.mark.slow
async def test_a_disk_that_fills_up(
    hub: FakeHub, begin: Any, download: Any, tmp_path: Path
) -> None:
    """Something else takes the room meanwhile; when it is given back, the rest is fetched."""
    with mounted(tmp_path / "hub", "size=1200k") as disk:
        hub.faults.rate = 100_000
        running = await begin()
        await running.until_bytes(150_000)
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        told = await running.end()
        words = failed(told, "disk_full")
        assert "more are needed" in words
        assert "and 0 B are free" in words
        told.check_bar()
        kept = sum(path.stat().st_size for path in disk.rglob("blobs/*"))
        assert kept >= 150_000, "what came stays"
        ballast.unlink()
        hub.faults.rate = 0
        again = await download()
        assert isinstance(again.last, Ready)
        assert again.plan.kept == kept
        assert again.last.fetched == again.plan.need


async def test_a_cache_that_cannot_be_written(hub: FakeHub, download: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "hub", "ro"):
        words = failed(await download(), "read_only")
        assert "cannot be written" in words
        assert "HF_HUB_CACHE" in words
        assert not hub.bodies()


@pytest.mark.slow
async def test_a_cache_below_a_file(hub: FakeHub, download: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = await download(environment={"HF_HUB_CACHE": str(tmp_path / "file" / "hub")})
    failed(told, "read_only")


@pytest.mark.slow
async def test_a_read_only_cache_that_is_whole_is_ready(
    hub: FakeHub, download: Any, tmp_path: Path
) -> None:
    first = await download()
    place = tmp_path / "hub"
    subprocess.run(["cp", "-a", place, tmp_path / "copy"], check=True)
    with mounted(place, "size=4m"):
        subprocess.run(["cp", "-a", f"{tmp_path}/copy/.", place], check=True)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        told = await download()
        assert isinstance(told.last, Ready)
        assert told.last.path == first.last.path
        assert cached(REPO) == Path(first.last.path)


@pytest.mark.slow
async def test_where_nothing_can_be_recorded_it_still_works(
    hub: FakeHub, download: Any, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    told = await download()
    assert isinstance(told.last, Ready)
    assert "cannot be written" in told.notices
    assert "checked again next time" in told.notices
    assert not list(manifests())
    assert cached(REPO) is None


async def test_the_plan_is_recorded_before_the_first_byte(hub: FakeHub, begin: Any) -> None:
    hub.faults.stall["config.json"] = [0]
    hub.faults.stall["README.md"] = [0]
    hub.faults.stall["LICENSE"] = [0]
    running = await begin(limits={"stall": 30.0})
    await running.until(Planned)
    for _ in range(100):
        if list(manifests(REPO)):
            break
        await asyncio.sleep(0.05)
    (begun,) = manifests(REPO)
    assert begun.plan.commit == hub.branches["main"]
    assert {file.path: file.sha256 for file in begun.plan.files}[BIG] == sha256(model_files()[BIG])
