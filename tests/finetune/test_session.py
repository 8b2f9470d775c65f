"""A run from beginning to end, its interruptions, and what goes wrong on the way."""

import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.checkpoint.load import load_model
from engine.generate import Engine
from finetune.config import FinetuneConfig
from finetune.runs import RunError, RunFolder, Status
from finetune.trainer import OutOfMemoryError
from finetune.verifiers import Verdict
from tests.finetune.tiny import new_run, session, tiny_config, tiny_engine


def final_state(run: RunFolder) -> dict[str, Tensor]:
    tensors = load_file(run.states()[0] / "optimizer.safetensors")
    return {name: tensor.clone() for name, tensor in tensors.items()}  # not the file's own memory


def figures(run: RunFolder) -> list[dict[str, Any]]:
    """The events without what the clock says."""
    timed = ("rollout_seconds", "verify_seconds", "learn_seconds", "seconds", "time")
    return [{k: v for k, v in event.items() if k not in timed} for event in run.events()]


def short_config(**changes: Any) -> FinetuneConfig:
    """Four updates."""
    return tiny_config(**({"updates": 4} | changes))


@pytest.fixture
def run(tmp_path: Path, tiny_checkpoint: Path) -> RunFolder:
    return new_run(tmp_path / "run", tiny_checkpoint, short_config())


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> tuple[RunFolder, list[dict[str, Any]], dict[str, bytes]]:
    """A run that nothing interrupted, what was told of it, and its base's files before."""
    run = new_run(tmp_path_factory.mktemp("trained") / "run", tiny_checkpoint, short_config())
    assert run.status() == replace(Status(updates=4), changed=run.status().changed)
    before = {path.name: path.read_bytes() for path in tiny_checkpoint.iterdir()}
    told: list[dict[str, Any]] = []
    session(run, tiny_checkpoint, tell=told.append).go()
    return run, told, before


@pytest.fixture
def done(trained: Any, tmp_path: Path) -> RunFolder:
    """A finished run to do harm to."""
    shutil.copytree(trained[0].path, tmp_path / "done")
    return RunFolder(tmp_path / "done")


def test_a_whole_run(trained: Any, tiny_checkpoint: Path) -> None:
    run, told, _ = trained
    status, events = run.status(), run.events()
    assert (status.state, status.update) == ("done", 4)
    assert [event["done"] for event in events if event["kind"] == "update"] == [1, 2, 3, 4]
    assert [event["done"] for event in events if event["kind"] == "check"] == [0, 2, 4]
    for event in (event for event in events if event["kind"] == "update"):
        assert (event["prompts"], event["prompts_passed"]) == (event["answers"], event["kept"])
        assert event["steps"] < event["tokens"] <= 16 * event["answers"]
        assert event["packed"] > event["tokens"]  # the prompts and every state among them
    assert told[:-1] == events
    assert (told[-1]["kind"], told[-1]["best"]) == ("status", status.best)
    assert len(run.states()) == 2
    assert [path.name for path in run.checkpoints()] == ["000000", "000002", "000004"]
    assert run.best() == run.checkpoint(status.best or 0)
    engine = Engine.load(tiny_checkpoint, device="cpu", adapter=run.checkpoint(4))
    assert engine.model.residual_adapter is not None
    assert not list(run.path.rglob("*.part"))


def test_checkpoints_that_are_neither_new_nor_the_best_go(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    config = short_config(updates=3, check_every=1, keep=1)
    run = new_run(tmp_path / "run", tiny_checkpoint, config)
    status = session(run, tiny_checkpoint).go()
    assert {path.name for path in run.checkpoints()} == {"000003", f"{status.best:06}"}


def test_a_whole_model_is_a_checkpoint_of_its_own(tmp_path: Path, tiny_checkpoint: Path) -> None:
    run = new_run(tmp_path / "full", tiny_checkpoint, short_config(train="full", updates=2))
    ran = session(run, tiny_checkpoint)
    ran.go()
    folder = run.checkpoint(2)
    model = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    for name, tensor in ran.trainer.engine.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    engine = Engine.load(folder, device="cpu")
    assert engine.tokenizer is not None
    assert engine.model.residual_adapter is not None


class KilledError(BaseException):
    """Nothing may catch this."""


@pytest.mark.parametrize("train", ["lora", pytest.param("full", marks=pytest.mark.slow)])
def test_going_on_reaches_the_same_weights(
    tmp_path: Path, tiny_checkpoint: Path, train: str
) -> None:
    config = short_config(train=train, temperature=0.8)
    whole = new_run(tmp_path / "whole", tiny_checkpoint, config)
    session(whole, tiny_checkpoint).go()
    broken = new_run(tmp_path / "broken", tiny_checkpoint, config)
    for after in (1, 0, 2):
        ran = session(broken, tiny_checkpoint)
        learn, calls = ran.trainer.update, iter(range(after))

        def update(number: int, learn: Any = learn, calls: Any = calls) -> Any:
            if next(calls, None) is None:
                raise KilledError
            return learn(number)

        ran.trainer.update = update  # type: ignore[method-assign]
        with pytest.raises(KilledError):
            ran.go()
    session(broken, tiny_checkpoint).go()
    assert figures(broken) == figures(whole)
    mine, other = final_state(broken), final_state(whole)
    assert mine.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in mine.items())


def test_a_state_cut_short_is_passed_over(done: RunFolder, tiny_checkpoint: Path) -> None:
    want = final_state(done)
    newest = done.states()[0]
    (newest / "optimizer.safetensors").write_bytes(b"half")
    with (done.path / "events.jsonl").open("a") as file:
        file.write('{"kind": "upd')
    session(done, tiny_checkpoint).go()
    assert all(torch.equal(tensor, want[name]) for name, tensor in final_state(done).items())
    assert [e["done"] for e in done.events() if e["kind"] == "update"] == [1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["", "{}", "null", '{"done": "x", "row_tokens": 1}', None])
def test_without_any_whole_state_nothing_is_thrown_away(
    done: RunFolder, tiny_checkpoint: Path, damage: str | None
) -> None:
    before, events = done.status(), done.events()
    for state in done.states():
        if damage is None:
            shutil.rmtree(state)
        else:
            (state / "state.json").write_text(damage)
    with pytest.raises(RunError, match="No state of the run done can be read"):
        session(done, tiny_checkpoint).go()
    status = done.status()
    assert (status.state, status.update, status.best) == ("failed", 4, before.best)
    assert done.events() == events
    assert len(done.checkpoints()) == 3


def forked(run: RunFolder, checkpoint: Path) -> int:
    """Train in a process of its own; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            session(run, checkpoint).go()
        finally:
            os._exit(0)
    return pid


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_twenty_kills_at_random_moments(tmp_path: Path, tiny_checkpoint: Path) -> None:
    torch.set_num_threads(1)
    config = tiny_config(updates=40, check_every=3, patience=100)
    whole = new_run(tmp_path / "whole", tiny_checkpoint, config)
    begin = time.monotonic()
    session(whole, tiny_checkpoint).go()
    length = time.monotonic() - begin
    broken = new_run(tmp_path / "broken", tiny_checkpoint, config)
    rng, kills, lost = random.Random(5), 0, []
    while broken.status().state != "done":
        pid = forked(broken, tiny_checkpoint)
        if kills < 20:
            time.sleep(rng.uniform(0.2, 1.0) * length / 24)  # half of it in all
            before = len(broken.states()) and int(broken.states()[0].name)
            os.kill(pid, signal.SIGKILL)
            kills += 1
            lost.append(before)
        os.waitpid(pid, 0)
        if broken.status().state not in ("done", "new"):
            assert broken.status().state == "interrupted"
    assert kills == 20
    assert lost == sorted(lost)  # no kill takes back an update that was on disk
    assert figures(broken) == figures(whole)
    mine, other = final_state(broken), final_state(whole)
    assert all(torch.equal(tensor, other[name]) for name, tensor in mine.items())


# --- requests from outside ---------------------------------------------------------------------


def test_stop_pause_go_and_save(run: RunFolder, tiny_checkpoint: Path) -> None:
    words = {1: "save", 2: "pause", 3: "stop"}
    states: list[str] = []

    def tell(event: dict[str, Any]) -> None:
        if event["kind"] == "update":
            states.append(run.status().state)
            if event["done"] in words:
                run.request(words[event["done"]])  # type: ignore[arg-type]

    ran = session(run, tiny_checkpoint, tell=tell)

    def sleep(seconds: float) -> None:
        states.append(run.status().state)
        run.request("go")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("finetune.session.time.sleep", sleep)
        status = ran.go()
    assert (status.state, status.update) == ("stopped", 3)
    assert "paused" in states
    assert run.checkpoint(1).is_dir()
    assert [e["done"] for e in run.events() if e["kind"] == "check"] == [0, 1, 2, 3]
    with pytest.raises(RunError, match="is not running"):
        run.request("stop")
    assert session(run, tiny_checkpoint).go().state == "done"


def test_what_is_asked_for_while_paused_is_done(run: RunFolder, tiny_checkpoint: Path) -> None:
    def tell(event: dict[str, Any]) -> None:
        if event["kind"] == "update" and event["done"] == 1:
            run.request("pause")
            run.request("save")

    asked = iter((("save",), ("stop", "save")))

    def sleep(seconds: float) -> None:
        assert run.status().state == "paused"
        for word in next(asked):
            run.request(word)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("finetune.session.time.sleep", sleep)
        status = session(run, tiny_checkpoint, tell=tell).go()
    assert (status.state, status.update) == ("stopped", 1)
    assert [e["done"] for e in run.events() if e["kind"] == "check"] == [0, 1], "once is enough"


def test_a_stop_before_the_first_update_can_be_gone_on_from(
    run: RunFolder, tiny_checkpoint: Path
) -> None:
    assert session(run, tiny_checkpoint, stop=lambda: True).go().state == "stopped"
    assert [folder.name for folder in run.states()] == ["000000"]
    assert session(run, tiny_checkpoint).go().update == 4


def test_a_stop_from_the_keyboard_keeps_what_is_learnt(
    run: RunFolder, tiny_checkpoint: Path
) -> None:
    calls = iter(range(3))
    status = session(run, tiny_checkpoint, stop=lambda: next(calls, None) is None).go()
    assert status.state == "stopped"
    assert "keyboard" in status.message
    assert run.best() is not None


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_full_disk_ends_the_run_in_words(
    run: RunFolder, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = session(run, tiny_checkpoint)
    saved = iter(range(2))

    def full(tensors: Any, path: Path, **options: Any) -> None:
        if path.name == "optimizer.safetensors" and next(saved, None) is None:
            words = "I/O error: No space left on device (os error 28)"
            raise SafetensorError(f"Error while serializing: {words}")
        save_file(tensors, path, **options)

    monkeypatch.setattr("engine.checkpoint.tensor_writer.save_file", full)
    with pytest.raises(RunError, match=r"disk is full.*--resume"):
        ran.go()
    assert run.status().state == "failed"
    assert [path.name for path in run.states()] == ["000002", "000001"]
    assert not list(run.path.rglob("*.part"))
    monkeypatch.undo()
    assert session(run, tiny_checkpoint).go().state == "done"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OutOfMemoryError("Memory ran out with rows of 512 tokens; lower row_tokens."),
            "lower row",
        ),
        (RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory"), "lower rows or"),
        (MemoryError(), "lower rows or"),
    ],
)
def test_lack_of_memory_ends_the_run_in_words(
    run: RunFolder, tiny_checkpoint: Path, error: Exception, words: str
) -> None:
    ran = session(run, tiny_checkpoint)

    def update(number: int) -> Any:
        raise error

    ran.trainer.update = update  # type: ignore[method-assign]
    with pytest.raises(RunError, match=words):
        ran.go()
    assert run.status().message.startswith("Memory ran out")


def test_losses_that_stay_no_numbers_end_the_run(run: RunFolder, tiny_checkpoint: Path) -> None:
    ran = session(run, tiny_checkpoint)
    losses = ran.trainer.losses

    def broken(*arguments: Any) -> Any:
        found = losses(*arguments)
        return replace(found, prediction=found.prediction * float("inf"))

    ran.trainer.losses = broken  # type: ignore[method-assign]
    with pytest.raises(RunError, match="3 updates in a row"):
        ran.go()
    events = run.events()
    assert [e["skipped"] for e in events if e["kind"] == "update"] == [True] * 3
    assert events[-1]["grad_norm"] is None


def test_a_run_s_alarms_are_told_once(tmp_path: Path, tiny_checkpoint: Path) -> None:
    run = new_run(tmp_path / "run", tiny_checkpoint, short_config(updates=6, check_every=50))
    told: list[dict[str, Any]] = []
    session(
        run,
        tiny_checkpoint,
        lambda prompt, text: Verdict(False, "no", 0.0, error=True),
        tell=told.append,
    ).go()
    alarms = [event for event in told if event["kind"] == "alarm"]
    assert sorted(event["name"] for event in alarms) == ["errors", "nothing kept"]
    assert {event["done"] for event in alarms} == {1, 5}


def test_an_early_end_keeps_the_best(tmp_path: Path, tiny_checkpoint: Path) -> None:
    config = short_config(updates=40, check_every=1, patience=2, lr=1e-9, adapter_lr=1e-9)
    run = new_run(tmp_path / "run", tiny_checkpoint, config)
    status = session(run, tiny_checkpoint).go()
    assert (status.state, status.update, status.best) == ("done", 2, 0)
    assert "No better" in status.message
    assert run.best() == run.checkpoint(0)


def test_a_check_that_was_asked_for_does_not_bring_the_end_nearer(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    config = short_config(check_every=2, patience=1, lr=1e-9, adapter_lr=1e-9)
    run = new_run(tmp_path / "run", tiny_checkpoint, config)

    def tell(event: dict[str, Any]) -> None:
        if event["kind"] == "update" and event["done"] == 1:
            run.request("save")

    status = session(run, tiny_checkpoint, tell=tell).go()
    assert [e["done"] for e in run.events() if e["kind"] == "check"] == [0, 1, 2]
    assert (status.state, status.update) == ("done", 2)


def test_two_processes_do_not_train_one_run(run: RunFolder, tiny_checkpoint: Path) -> None:
    import psutil

    parent = psutil.Process(os.getppid())
    run.write_status(Status("running", parent.pid, parent.create_time()))
    with pytest.raises(RunError, match="already running"):
        session(run, tiny_checkpoint).go()


def test_another_recipe_s_state_is_refused(done: RunFolder, tiny_checkpoint: Path) -> None:
    data = json.loads((done.path / "run.json").read_text())
    data["config"]["lora_rank"] = 3
    (done.path / "run.json").write_text(json.dumps(data))
    with pytest.raises(Exception, match="other weights"):
        session(done, tiny_checkpoint).go()


def test_the_base_is_not_touched(trained: Any, tiny_checkpoint: Path) -> None:
    assert {path.name: path.read_bytes() for path in tiny_checkpoint.iterdir()} == trained[2]
    assert tiny_engine(tiny_checkpoint).model.residual_adapter is None
