"""The first start and the download screen: real keys, a real download process, a hub on the
loopback. The doctor is a process too; mostly one that prints what the real one said of a machine
that tests describe."""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from textual.widgets import Button, Input, OptionList

from app.doctor import examine
from app.models import DEFAULT_REPO, DEMO
from app.settings import SettingsFile
from app.tui.download_state import Stage
from app.tui.machine_check import CheckFailedError, ask_doctor, doctor_command
from app.tui.model_choice import is_first_start
from app.tui.screens.download import DownloadScreen
from app.tui.screens.models import ModelsScreen
from engine.hardware import Hardware, Row
from engine.machine.self_test import NAME
from tests.app.hub.conftest import QUICK, UNWANTED, model_files
from tests.app.hub.hub_server import FakeHub
from tests.app.hub.test_faults import closed_port
from tests.app.hub.test_resume import gone, is_running
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script
from tests.engine.stand_ins import CPU_TORCH, machine, no_nvml

SLOW = partial(pytest.param, marks=pytest.mark.slow)
TOTAL = sum(len(body) for name, body in model_files().items() if name not in UNWANTED)
LAZY = 60_000.0
"""Bytes a second of a file, at which there is a middle to do something in."""


def report_of(hardware: Hardware, folder: Path) -> list[str]:
    """A command that prints the doctor's report about `hardware`."""
    report = examine(hardware, lambda device: Row(NAME, "ok", "agrees with the reference"))
    (folder / "report.json").write_text(json.dumps(report.to_json()))
    return ["cat", str(folder / "report.json")]


def laptop(folder: Path) -> list[str]:
    return report_of(machine(no_nvml(), CPU_TORCH, nvidia_on_bus=False), folder)


def workstation(folder: Path) -> list[str]:
    return report_of(machine(), folder)


@contextlib.asynccontextmanager
async def first_start(
    folder: Path, doctor: list[str], *, first: bool = True, size: tuple[int, int] = (110, 34),
    **limits: float,
) -> AsyncIterator[Window]:  # fmt: skip
    """The program as it starts when nothing was chosen."""
    trace = Script(pace=0.001).answer("Yes").write(folder / "trace")
    limits = {**QUICK, "margin": 0.0, "rate": 50.0, **limits}
    options = {"first": first, "doctor": doctor, "limits": limits}
    if first:
        options["model"] = "auto"
    async with window(trace, size=size, options=options) as shown:
        yield shown


@pytest.fixture(autouse=True)
def default_repo(hub: FakeHub) -> None:
    """The hub holds the checkpoint that the program offers."""
    hub.repo = DEFAULT_REPO


async def marked(shown: Window, choice: str) -> None:
    """The list marks `choice`, by more than its colour."""
    await shown.until(lambda: re.search(rf"\u203a {choice}", shown.text))


async def mark(shown: Window, choice: str) -> None:
    """Move the mark there with the arrows."""
    await shown.until(lambda: isinstance(shown.app.focused, OptionList))
    await shown.press(
        "home", *["down"] * ("Download the checkpoint", "I have the folder").index(choice)
    )
    await marked(shown, choice)


async def download(shown: Window) -> None:
    """Choose the download and see it begin."""
    await mark(shown, "Download the checkpoint")
    await shown.press("enter")
    await shown.until(lambda: isinstance(shown.app.screen, DownloadScreen))


async def stage(shown: Window, wanted: Stage) -> None:
    """The download stands there, and the screen knows."""
    await shown.until(lambda: (s := shown.app.models.download.state) and s.stage is wanted)
    await shown.pilot.pause()


async def begun(shown: Window, count: int = 50_000) -> None:
    """So many bytes came."""
    await shown.until(lambda: (s := shown.app.models.download.state) and s.done >= count)


async def in_chat(shown: Window) -> None:
    await shown.until(lambda: shown.app.screen is shown.app.chat)


def buttons(shown: Window) -> list[str]:
    found = [str(b.label) for b in shown.app.screen.query(Button) if b.display]
    return [label.strip("[ ]") for label in found]


def watched(shown: Window) -> list[tuple[int, ...]]:
    """Bytes done, of all and of each file, each time anything changes."""
    seen: list[tuple[int, ...]] = []
    link = shown.app.models.download
    tell = link.changed

    def changed(state: Any) -> None:
        seen.append((state.done, *(row.done for _, row in sorted(state.rows.items()))))
        tell(state)

    link.changed = changed
    return seen


def never_backwards(seen: list[tuple[int, ...]]) -> bool:
    planned = [row for row in seen if len(row) > 1]
    return all(
        now >= before
        for earlier, later in pairwise(planned)
        for before, now in zip(earlier, later, strict=True)
    )


def squeezed(text: str) -> str:
    """Without what wrapping and frames put between the letters."""
    return re.sub(r"[\W_]+", "", text)


# --- the first start ----------------------------------------------------------------------------


async def test_without_a_card_the_demo_is_one_enter_away(hub: FakeHub, tmp_path: Path) -> None:
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await shown.shows("first start")
        await marked(shown, "Use the demo")
        await shown.shows("the demo model runs on the processor")
        await shown.shows("NVIDIA driver")
        await marked(shown, "Use the demo")
        assert hub.seen == [], "nobody is asked about what was not wanted"
        assert shown.app.link.pid is None, "nothing is loaded before the choice"
        await shown.press("enter")
        await in_chat(shown)
        await shown.ready()
        assert shown.app.link.model == DEMO
        await shown.shows("Ask something")
    file = SettingsFile.open()
    assert file.settings.model == DEMO
    assert not is_first_start(None, file)


def test_when_it_is_the_first_start(home: Path) -> None:
    assert is_first_start(None, SettingsFile.open())
    assert not is_first_start("demo", SettingsFile.open())
    file = SettingsFile.open()
    file.set(theme="nord")
    assert is_first_start(None, SettingsFile.open()), "a theme is no model"
    file.path.write_text("= no TOML")
    assert not is_first_start(None, SettingsFile.open()), "nothing could be kept"


def test_a_model_of_the_environment_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORL_CHAT_MODEL", "demo")
    assert not is_first_start(None, SettingsFile.open())


async def test_a_card_that_runs_it_gets_the_download_which_loads_itself(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    async with first_start(tmp_path, workstation(tmp_path)) as shown:
        await marked(shown, "Download the checkpoint")
        await shown.shows("can run on GPU 0 (NVIDIA GeForce RTX 5090)")
        await shown.shows(f"{DEFAULT_REPO} at {hub.branches['main'][:7]}")
        await shown.shows("920 kB to fetch")
        await shown.shows("free on the disk")
        await shown.shows("with the token from HF_TOKEN")
        assert hub.bodies() == [], "only asked"
        assert hub.token not in shown.text
        assert "secret" not in shown.text
        seen = watched(shown)
        await shown.press("enter")
        await in_chat(shown)
        await shown.ready()
        assert shown.app.link.model == DEFAULT_REPO
        assert seen[-1][0] == TOTAL
        assert never_backwards(seen)
    assert SettingsFile.open().settings.model == DEFAULT_REPO


async def test_rows_say_what_lacks_and_the_command_that_mends_it(tmp_path: Path) -> None:
    from tests.engine.stand_ins import Gpu, Nvml

    hardware = machine(Nvml(Gpu()), CPU_TORCH)
    fix = next(row.fix for row in hardware.rows if row.name == "PyTorch")
    async with first_start(tmp_path, report_of(hardware, tmp_path), size=(150, 60)) as shown:
        await shown.until(lambda: squeezed(f"-> {fix}") in squeezed(shown.text))
        await shown.until(lambda: "ok Terminal" in shown.text)  # the last row
        lines = [line for line in shown.text.splitlines() if re.match(r" (ok|NO| !) ", line)]
        states = [line[1:3] for line in lines]
        assert states == sorted(states, key=["NO", " !", "ok"].index)
        assert {"ok", "NO"} <= set(states)


@pytest.mark.slow
async def test_a_check_that_fails_says_so_and_can_be_repeated(tmp_path: Path) -> None:
    doctor = laptop(tmp_path)
    broken = tmp_path / "report.json"
    good = broken.read_text()
    broken.write_text('{"rows": 1')
    async with first_start(tmp_path, doctor) as shown:
        await shown.shows("ended without a report")
        await shown.shows("orl-chat doctor")
        broken.write_text(good)
        await shown.press("f6")
        await shown.shows("the demo model runs on the processor")
        assert "without a report" not in shown.text


async def test_a_check_that_never_ends_holds_nobody_up(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="did not end"):
        await ask_doctor(["sleep", "100"], patience=0.05)
    with pytest.raises(CheckFailedError, match="cannot be started"):
        await ask_doctor([str(tmp_path / "nothing")])

    def sleepers() -> list[psutil.Process]:
        children = psutil.Process().children()
        return [p for p in children if p.status() != psutil.STATUS_ZOMBIE and p.name() == "sleep"]

    async with first_start(tmp_path, ["sleep", "1000"]) as shown:
        await shown.shows("Looking at this machine")
        await shown.until(sleepers)
        await marked(shown, "Use the demo")
        await shown.press("enter")
        await shown.ready()
        await shown.until(lambda: not sleepers())


@pytest.mark.slow
async def test_the_real_doctor_in_its_own_process() -> None:
    verdict = await ask_doctor(doctor_command())
    assert verdict.can_chat
    assert {"Python", "Memory", "PyTorch", NAME, "Demo model"} <= {row.name for row in verdict.rows}


@pytest.mark.parametrize("size", [pytest.param((60, 20), id="60x20"), SLOW((100, 30), id="100x30")])
async def test_the_choices_are_seen_at_every_size(
    hub: FakeHub, tmp_path: Path, size: tuple[int, int]
) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path), size=size) as shown:
        await shown.until(lambda: squeezed("runs on the processor") in squeezed(shown.text))
        for words in (
            "Download the checkpoint",
            "I have the folder",
            "\u203a Use the demo",
            "enter",
        ):
            assert words in shown.text
        await download(shown)
        await begun(shown)
        for words in ("[ Pause ]", "[ Cancel, keep parts ]", "[ Demo meanwhile ]", "of 920 kB"):
            await shown.shows(words)


# --- the download -------------------------------------------------------------------------------


async def test_pause_and_go_on(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        seen = watched(shown)
        await download(shown)
        await begun(shown)
        await shown.shows("kB/s (mean of 10 s)")
        await shown.press("p")
        await shown.shows("Paused: nothing is asked for")
        assert buttons(shown) == ["Go on", "Cancel, keep parts", "Demo meanwhile"]
        state = shown.app.models.download.state
        assert state is not None
        await asyncio.sleep(0.3)
        before = state.done
        await asyncio.sleep(0.4)
        assert state.done == before < TOTAL
        hub.faults.rate = 0
        await shown.press("enter")  # the button has the focus
        await stage(shown, Stage.READY)
        await shown.shows("Every file is here and was checked.")
        assert never_backwards(seen)
        assert any(request.start > 0 for request in hub.bodies()), "it went on where it was"
        assert buttons(shown) == ["Load it and chat", "Demo", "Another"], "not by itself, here"
        assert shown.app.link.pid is None
        await shown.press("enter")
        await shown.ready()
        assert shown.app.link.model == DEFAULT_REPO


@pytest.mark.slow
async def test_cancel_keeps_the_parts(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        seen = watched(shown)
        await download(shown)
        await begun(shown, 300_000)
        pid = shown.app.models.download.pid
        assert pid is not None
        await shown.press("x")
        await shown.shows("What came is kept")
        assert await gone(pid)
        assert buttons(shown) == ["Try again", "Demo", "Another"]
        hub.faults.rate, sent = 0, sum(request.sent for request in hub.bodies())
        assert sent < TOTAL
        await shown.press("r")
        await stage(shown, Stage.READY)
        assert never_backwards(seen)
        fetched = shown.app.models.download.state.ready.fetched  # type: ignore[union-attr]
        assert fetched < TOTAL - 200_000
        await shown.shows("are here already and are kept")


@pytest.mark.slow
async def test_a_killed_download_process_is_a_card_and_goes_on(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        seen = watched(shown)
        await download(shown)
        await begun(shown, 200_000)
        pid = shown.app.models.download.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await shown.shows("The download process was killed")
        await shown.shows("Start it again: it goes on where it was.")
        hub.faults.rate = 0
        await shown.press("enter")  # Try again
        await stage(shown, Stage.READY)
        assert never_backwards(seen)


async def test_the_demo_meanwhile(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await download(shown)
        await begun(shown)
        await shown.press("d")
        await in_chat(shown)
        await shown.ready()
        assert shown.app.link.model == DEMO
        await shown.until(lambda: re.search(r"download \d+ % · demo", shown.text))
        assert "model" not in SettingsFile.open().settings.model_fields_set, "still open"
        hub.faults.rate = 0
        await shown.shows(f"{DEFAULT_REPO} is here")
        assert "download" not in shown.text.splitlines()[0]
        button = next(b for b in shown.app.chat.query(Button) if b.name == "load")
        button.press()
        await shown.until(lambda: shown.app.link.model == DEFAULT_REPO)
        await shown.ready()
    assert SettingsFile.open().settings.model == DEFAULT_REPO


@pytest.mark.slow
async def test_a_download_that_fails_while_one_chats(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await download(shown)
        await begun(shown)
        await shown.press("d")
        await in_chat(shown)
        pid = shown.app.models.download.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await shown.shows(f"The download of {DEFAULT_REPO} ended")
        button = next(b for b in shown.app.chat.query(Button) if b.name == "models")
        button.press()
        await shown.until(lambda: isinstance(shown.app.screen, ModelsScreen))


@pytest.mark.slow
async def test_quitting_in_the_middle_leaves_no_process(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults.rate = LAZY
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await download(shown)
        await begun(shown)
        pid = shown.app.models.download.pid
        assert pid is not None
        assert is_running(pid)
        await shown.press("ctrl+q")
        assert await gone(pid)
    assert is_first_start(None, SettingsFile.open()), "the next start offers it again"


def _gated(hub: FakeHub) -> None:
    hub.gated = True


def _private(hub: FakeHub) -> None:
    hub.private = True


def _damaged(hub: FakeHub) -> None:
    hub.faults.corrupt["model-00001-of-00003.safetensors"] = 3


def _busy(hub: FakeHub) -> None:
    hub.faults.api = [(429, {})] * 1000


def _trouble(hub: FakeHub) -> None:
    hub.faults.api = [(503, {})] * 1000


def _forbidden(hub: FakeHub) -> None:
    hub.faults.api = [(403, {})] * 10


def _no_model(hub: FakeHub) -> None:
    hub.commit({"README.md": b"# nothing"})


def _login_page(hub: FakeHub) -> None:
    hub.faults.page = b"<html>Please log in</html>"


@pytest.mark.parametrize(
    ("fault", "heading", "words"),
    [
        pytest.param(_gated, "Its terms must be accepted first", "set HF_TOKEN", id="gated"),
        SLOW(_private, "It is private, or not there", "set HF_TOKEN", id="private"),
        SLOW(_damaged, "A file keeps arriving damaged", "arrived damaged 3 times", id="damaged"),
        SLOW(_busy, "The hub asks to wait", "(429)", id="busy"),
        SLOW(_trouble, "The hub has trouble", "(503)", id="trouble"),
        SLOW(_forbidden, "Access is refused", "(403)", id="forbidden"),
        SLOW(_no_model, "This is no model for orl-chat", "Name another", id="unsuitable"),
        SLOW(_login_page, "That is no hub", "Check HF_ENDPOINT", id="not-a-hub"),
    ],
)
async def test_an_error_is_a_card_and_can_be_tried_again(
    hub: FakeHub, tmp_path: Path, fault: Any, heading: str, words: str
) -> None:
    fault(hub)
    async with first_start(tmp_path, laptop(tmp_path), plan_patience=0.3) as shown:
        await download(shown)
        await stage(shown, Stage.FAILED)
        await shown.shows(heading)
        error = shown.app.models.download.state.error  # type: ignore[union-attr]
        assert error is not None
        assert words in f"{error.message} {error.hint}"
        for sentence in (error.message, error.hint):
            assert squeezed(sentence) in squeezed(shown.text)
        offered = [b for b in buttons(shown) if b not in ("Token", "Details")]
        assert offered == ["Try again", "Demo", "Another"]
        assert ("Token" in buttons(shown)) == (fault in (_gated, _private, _forbidden))
        if fault is _no_model:
            return
        hub.gated = hub.private = False
        hub.faults.api, hub.faults.page = [], None
        hub.faults.corrupt.clear()
        await shown.press("r")
        await stage(shown, Stage.READY)


@pytest.mark.slow
async def test_no_network_and_no_room(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with first_start(tmp_path, laptop(tmp_path), margin=1e18) as shown:
        await download(shown)
        await shown.shows("The disk is too full")
        await shown.shows("set HF_HUB_CACHE")
    assert hub.bodies() == [], "told before the first byte"
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    async with first_start(tmp_path, laptop(tmp_path), plan_patience=0.3) as shown:
        await mark(shown, "Download the checkpoint")
        await shown.shows("There is no connection to 127.0.0.1")
        await download(shown)
        await shown.shows("No connection")
        await shown.press("d")
        await shown.ready()
        assert shown.app.link.model == DEMO
    assert SettingsFile.open().settings.model == DEMO, "no download is left to wait for"


# --- a folder -----------------------------------------------------------------------------------


async def name_folder(shown: Window, text: str) -> None:
    field = shown.app.screen.query_one("#folder", Input)
    field.value = text
    await shown.press("enter")


async def test_a_folder_is_checked_and_used(tmp_path: Path) -> None:
    good, half = tmp_path / "good", tmp_path / "half"
    demo = Path(__file__).parents[3] / "assets" / "demo"
    for folder in (good, half):
        folder.mkdir()
        for name in ("config.json", "tokenizer.json"):
            (folder / name).write_bytes((demo / name).read_bytes())
    (good / "model.safetensors").write_bytes(b"")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (half / "model.safetensors.index.json").write_text(json.dumps(index))
    (half / "model-1.safetensors").write_bytes(b"")
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await mark(shown, "I have the folder")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        for text, words in (
            ("", "Type the folder that holds config.json"),
            (str(tmp_path / "nowhere"), "There is no folder"),
            (str(good / "config.json"), "is a file; name the folder that holds it"),
            (str(half), "lacks model-2.safetensors that its index names"),
            (str(tmp_path), "has no config.json"),
        ):
            await name_folder(shown, text)
            wanted = squeezed(words)
            await shown.until(lambda w=wanted: w in squeezed(shown.text))  # type: ignore[misc]
        nearby = squeezed(f"a checkpoint is in {good}")
        await shown.until(lambda: nearby in squeezed(shown.text))
        (good / "config.json").write_text('{"model_type": "llama"}')
        await name_folder(shown, str(good))
        await shown.until(lambda: "llama" in shown.text)
        (good / "config.json").write_bytes((demo / "config.json").read_bytes())
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.focused, OptionList))
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await name_folder(shown, f'"{good}"')
        await in_chat(shown)
        assert shown.app.link.model == str(good)
    assert SettingsFile.open().settings.model == str(good)


@pytest.mark.slow
async def test_the_name_of_a_repository_is_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    hub.repo = "somebody/some-model"
    async with first_start(tmp_path, workstation(tmp_path)) as shown:
        await mark(shown, "I have the folder")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await name_folder(shown, "https://huggingface.co/somebody/some-model")
        await stage(shown, Stage.READY)
        await shown.shows("Load it and chat")
        await shown.press("enter")
        await shown.ready()
        assert shown.app.link.model == "somebody/some-model"


# --- later --------------------------------------------------------------------------------------


async def test_later_it_is_in_the_palette(hub: FakeHub, tmp_path: Path) -> None:
    async with first_start(tmp_path, laptop(tmp_path), first=False) as shown:
        await shown.ready()
        pid = shown.app.link.pid
        await shown.press("ctrl+p")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.burst(*"models")
        await shown.shows("Download one, choose one, check the machine")
        await shown.press("enter")
        await shown.shows("now: demo")
        await marked(shown, "Use the demo")
        await shown.press("escape")
        await in_chat(shown)
        for _ in range(5):  # left while the look at the machine ends
            shown.app.models.verdict = None
            shown.app.action_models()
            await shown.until(lambda: isinstance(shown.app.focused, OptionList))
            shown.app.screen.dismiss(None)
            await in_chat(shown)
        shown.app.action_models()
        await shown.shows("now: demo")
        await shown.until(lambda: isinstance(shown.app.focused, OptionList))
        await marked(shown, "Use the demo")
        await shown.press("enter")
        await in_chat(shown)
        assert shown.app.link.pid == pid, "what is in use is not loaded again"


async def test_a_window_that_was_too_small_has_its_focus_back(tmp_path: Path) -> None:
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await mark(shown, "I have the folder")
        await shown.pilot.resize_terminal(50, 12)
        await shown.shows("needs a window of 60 x 20")
        await shown.until(lambda: shown.app.focused is None)
        await shown.pilot.resize_terminal(110, 34)
        await shown.until(lambda: isinstance(shown.app.focused, OptionList))
        await shown.press("down")
        await marked(shown, "Use the demo")
