"""A run from where it stands to its end: updates, checks, checkpoints, requests, alarms.

After every update its whole state is on disk, so whatever ends the process costs at most the
update in progress, and going on reaches the very weights of a run that nothing interrupted.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from engine.checkpoint.revision import BASE_FILE
from engine.checkpoint.tensor_writer import save_tensors
from finetune.adapters import save_adapter
from finetune.alarms import alarms
from finetune.checks import best_check, check_event, should_end
from finetune.evaluate import evaluate_prompts
from finetune.files import whole_folder, write_json
from finetune.merge import save_whole
from finetune.prompts import Prompt
from finetune.runs import RunError, RunFolder, State, Status, own_status
from finetune.trainer import OutOfMemoryError, Report, Trainer, is_out_of_memory
from finetune.update_event import update_event

Tell = Callable[[dict[str, Any]], None]

SKIPS_IN_A_ROW = 3
PAUSE_SECONDS = 0.2
_NO_MEMORY = (
    "Memory ran out; lower rows or max_new_tokens in the recipe, train the residual adapter only, "
    "or close other programs."
)
_TURNS: dict[str, State] = {"pause": "paused", "go": "running"}


class Session:
    """Runs one run folder. `tell` is given every event, alarms and status changes included."""

    def __init__(
        self,
        run: RunFolder,
        trainer: Trainer,
        held: Sequence[Prompt],
        *,
        tell: Tell = lambda event: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.run, self.trainer, self.held = run, trainer, held
        self.info = run.info()
        self.config = self.info.config
        self._tell, self._stop = tell, stop
        self._events: list[dict[str, Any]] = []
        self._before: Status | None = None
        self._told: set[str] = set()
        self._skips = 0
        self.done = 0

    def go(self) -> Status:
        """Train to the end; the final status. Whatever fails is written into the status.

        Raises RunError for a failure that is worded; any other error as it came.
        """
        status = self.run.status()
        if status.alive and status.pid != os.getpid():
            raise RunError(f"{self.run.name} is already running (pid {status.pid}).")
        self._before = status
        try:
            self._status("running")
            self._begin()
            return self._train()
        except KeyboardInterrupt:
            self._try_status("stopped", "Stopped from the keyboard.")
            raise
        except OSError as error:
            message = _disk_sentence(error, self.run.path)
            self._try_status("failed", message)
            raise RunError(message) from error
        except (OutOfMemoryError, RunError) as error:
            self._try_status("failed", str(error))
            raise RunError(str(error)) from error
        except Exception as error:
            if is_out_of_memory(error):  # not while learning, where half a row is tried
                self._try_status("failed", _NO_MEMORY)
                raise RunError(_NO_MEMORY) from error
            self._try_status("failed", f"{type(error).__name__}: {error}")
            raise

    def _begin(self) -> None:
        self.run.take_requests()  # those that came too late for the process before
        self._restore()
        self.run.keep_events(self.done)
        self._events = self.run.events()
        self._before = None
        self._told = set(alarms(self._events))
        if self.held and not self._checks:
            self._check()

    def _train(self) -> Status:
        while self.done < self.config.updates:
            word = self._obey()
            if word is not None:
                return self._end("stopped", word)
            report = self.trainer.update(self.done)
            self.done += 1
            self._note(update_event(report))
            self._guard(report)
            if self._due():
                self._check()
            self._save_state()
            self._status("running")
            self._alarm()
            if self.held and should_end(self._checks, self.config):
                waited = self.config.patience * self.config.check_every
                return self._end("done", f"No better checkpoint in {waited} updates.")
        return self._end("done", "")

    # --- what happens around an update --------------------------------------------------------

    def _obey(self) -> str | None:
        """Do what was asked for from outside, and wait for more while the run is paused; a
        sentence when it should end."""
        state: State = "running"
        while True:
            words = self.run.take_requests()
            if "save" in words:
                self._keep()
            end = "Stopped on request." if "stop" in words else None
            if end is None and self._stop():
                end = "Stopped from the keyboard."
            turns: list[State] = [_TURNS[word] for word in words if word in _TURNS]
            wanted = "running" if end is not None else (turns or [state])[-1]
            if wanted != state:
                self._status(wanted)
                state = wanted
            if state == "running":
                return end
            time.sleep(PAUSE_SECONDS)

    def _keep(self) -> None:
        """See to it that there is a checkpoint of these weights."""
        kept = (e["done"] for e in self._events if e["kind"] in ("check", "saved"))
        if self.done not in kept:
            self._check()

    def _guard(self, report: Report) -> None:
        self._skips = self._skips + 1 if report.skipped else 0
        if self._skips >= SKIPS_IN_A_ROW:
            raise RunError(
                f"The loss was not a number in {self._skips} updates in a row; start again with a "
                "lower learning rate (--lr)."
            )

    def _due(self) -> bool:
        last = self.done == self.config.updates
        return bool(self.held) and (last or self.done % self.config.check_every == 0)

    def _check(self) -> None:
        """Hold the weights against the held-out prompts, and keep them as a checkpoint."""
        event: dict[str, Any] = {"kind": "saved", "done": self.done}
        if self.held:
            begin = time.perf_counter()
            evaluation = evaluate_prompts(
                self.trainer.engine, self.held, self.trainer.verifier, self.config
            )
            event = check_event(self.done, evaluation)
            event["seconds"] = round(time.perf_counter() - begin, 3)
        self._save_checkpoint(event)
        self._note(event)
        self.run.prune(self.config.keep, self._best())

    def _alarm(self) -> None:
        found = alarms(self._events)
        for name in found.keys() - self._told:
            self._note({"kind": "alarm", "done": self.done, "name": name, "text": found[name]})
        self._told = set(found)

    # --- what is written ----------------------------------------------------------------------

    @property
    def _checks(self) -> list[dict[str, Any]]:
        return [event for event in self._events if event["kind"] == "check"]

    def _best(self) -> int | None:
        return best_check(self._checks)["done"] if self._checks else None

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        self.run.add_event(event)
        self._tell(event)

    def _status(self, state: State, message: str = "") -> Status:
        """Write where the run stands; before it is restored, where it stood."""
        before = self._before
        status = own_status(
            state=state,
            update=self.done if before is None else before.update,
            updates=self.config.updates,
            best=self._best() if before is None else before.best,
            message=message,
        )
        self.run.write_status(status)
        return status

    def _try_status(self, state: State, message: str) -> None:
        """The last word of a run that fails; the disk may be full."""
        try:
            self._tell(asdict(self._status(state, message)) | {"kind": "status"})
        except OSError:
            self._tell({"kind": "status", "state": state, "message": message})

    def _end(self, state: State, message: str) -> Status:
        self._keep()
        if self.done not in (int(folder.name) for folder in self.run.states()):
            self._save_state()
        status = self._status(state, message)
        self._tell(asdict(status) | {"kind": "status"})
        return status

    def _save_state(self) -> None:
        with self.run.new_state(self.done) as folder:
            save_tensors(self.trainer.optimizer.state(), folder / "optimizer.safetensors")
            write_json(
                folder / "state.json", {"done": self.done, "row_tokens": self.trainer.row_tokens}
            )

    def _restore(self) -> None:
        """Take over the newest state that can be read; a run that never had any begins.

        Raises RunError when there is none left: beginning anew would take the place of what the
        run has learnt.
        """
        for folder in self.run.states():
            try:
                state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
                done, row_tokens = int(state["done"]), int(state["row_tokens"])
                tensors = load_file(folder / "optimizer.safetensors")
            except (OSError, ValueError, KeyError, TypeError, SafetensorError):
                continue  # damaged by a power failure; the one before it is whole
            self.trainer.optimizer.restore(tensors)
            self.trainer.row_tokens, self.done = row_tokens, done
            return
        if self.run.states() or (self._before is not None and self._before.update):
            raise RunError(
                f"No state of the run {self.run.name} can be read any more, so it cannot go on; "
                "its checkpoints can still be used. Begin a new run."
            )

    def _save_checkpoint(self, event: dict[str, Any]) -> None:
        model, base = self.trainer.engine.model, Path(self.info.base)
        with whole_folder(self.run.checkpoint(self.done)) as folder:
            write_json(folder / "check.json", event)
            named = {"model": self.info.model, "revision": self.info.revision}
            if self.config.train == "full":
                save_whole(model, base, folder, self.trainer.engine.dtype)
                write_json(folder / BASE_FILE, named)
            else:
                save_adapter(model, folder, alpha=self.config.lora_alpha, base=named)


def _disk_sentence(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full, so {folder} could not be written; its last state is whole. "
            f"Make room, then go on with --resume {folder}."
        )
    return f"{error.filename or folder}: {error.strerror or error}."
