"""A run from where it stands to its end: updates, checks, checkpoints, requests, alarms.

After every update its whole state is on disk, so whatever ends the process costs at most the
update in progress, and going on reaches the very weights of a run that nothing interrupted.
"""

import errno
import json
import math
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
from finetune.checks import best_check, check_event, evaluate_prompts, should_end
from finetune.merge import save_whole
from finetune.prompts import Prompt
from finetune.runs import RunError, RunFolder, State, Status, own_status, whole_folder, write_json
from finetune.trainer import OutOfMemoryError, Report, Trainer

Tell = Callable[[dict[str, Any]], None]

SKIPS_IN_A_ROW = 3
PAUSE_SECONDS = 0.2
SAMPLES = 3


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
        try:
            self._status("running", before=status)
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
            self._try_status("failed", f"{type(error).__name__}: {error}")
            raise

    def _begin(self) -> None:
        self.run.take_request()  # one that came too late for the process before
        self._restore()
        self.run.keep_events(self.done)
        self._events = self.run.events()
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
        """Do what was asked for from outside; a sentence when the run should end."""
        word = self.run.take_request()
        if word == "save":
            self._check()
        if word == "pause":
            self._status("paused")
            while word not in ("go", "stop") and not self._stop():
                time.sleep(PAUSE_SECONDS)
                word = self.run.take_request()
            self._status("running")
        if self._stop():
            return "Stopped from the keyboard."
        return "Stopped on request." if word == "stop" else None

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

    def _status(self, state: State, message: str = "", before: Status | None = None) -> Status:
        """Write where the run stands; `before` it is restored, where it stood."""
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
        if not self._checks or self._checks[-1]["done"] != self.done:
            self._check()
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
        """Take over the newest state that can be read; without any the run begins."""
        for folder in self.run.states():
            try:
                state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
                tensors = load_file(folder / "optimizer.safetensors")
            except (OSError, ValueError, SafetensorError):
                continue  # damaged by a power failure; the one before it is whole
            self.trainer.optimizer.restore(tensors)
            self.trainer.row_tokens = state["row_tokens"]
            self.done = state["done"]
            return

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


def update_event(report: Report) -> dict[str, Any]:
    """One update as events.jsonl holds it."""
    sums = report.sums
    return {
        "kind": "update",
        "done": report.update + 1,
        "update": report.update,
        "answers": len(report.rollouts),
        "kept": report.kept,
        "errors": report.errors,
        "cut": sum(rollout.finish.reason != "end" for rollout in report.rollouts),
        "prompts": len({rollout.prompt.id for rollout in report.rollouts}),
        "prompts_passed": len({rollout.prompt.id for rollout in report.rollouts if rollout.kept}),
        "steps": report.steps,
        "tpf_steps": report.tpf_steps,
        **{name: _number(value) for name, value in asdict(sums).items()},
        "packed": sums.tokens,
        "tokens": report.tokens,
        "skipped": report.skipped,
        "rollout_seconds": round(report.rollout_seconds, 3),
        "verify_seconds": round(report.verify_seconds, 3),
        "learn_seconds": round(report.learn_seconds, 3),
        "card": None if report.card is None else asdict(report.card),
        "time": time.time(),
        "samples": [
            {
                "prompt": rollout.prompt.id,
                "text": rollout.finish.text[:400],
                "passed": rollout.kept,
                "reason": rollout.verdict.reason[:200],
                "tpf_steps": rollout.finish.stats.tpf_steps,
            }
            for rollout in report.rollouts[:SAMPLES]
        ],
    }


def _number(value: float) -> float | None:
    """JSON has no word for what is not a number."""
    return value if math.isfinite(value) else None


def _disk_sentence(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full, so {folder} could not be written; its last state is whole. "
            f"Make room, then go on with --resume {folder}."
        )
    return f"{error.filename or folder}: {error.strerror or error}."
