"""A download from a name to "ready": plan, room on the disk, files, check, links.

The order matters: the plan is on the disk before the first byte, so that a download is never
forgotten; a file enters the cache only after it was checked; the snapshot appears, and the branch
is recorded, only when every file did. At any moment the process may be killed: the next start goes
on from what is there.
"""

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from time import time

from app.hub.cache import RepoCache, free_bytes
from app.hub.control import Control, Stopped
from app.hub.faults import FailureError, from_disk, no_space
from app.hub.files import FileJob, Workshop
from app.hub.limits import Limits
from app.hub.messages import Event, Notice, Planned, Ready
from app.hub.plan import INDEX, PlannedFile, require_whole_index
from app.hub.planning import Decided, Planner
from app.hub.progress import Tally
from app.hub.secret import without_user
from app.hub.text import size_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """What to download. `only_plan` and `recheck` as in `app.hub.messages.Start`."""

    repo: str
    revision: str
    only_plan: bool = False
    recheck: bool = False


class Job:
    """One download. `emit` is called from several threads at once.

    `working` is true from the plan to the end: while `tally` says something.
    """

    def __init__(
        self,
        order: Order,
        planner: Planner,
        *,
        limits: Limits,
        control: Control,
        emit: Callable[[Event], None],
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.order = order
        self.planner = planner
        self.limits = limits
        self.control = control
        self.emit = emit
        self.free = free
        self.tally: Tally | None = None
        self.working = False
        self._lock = Lock()
        self._told_unsaved = False
        self._pool: ThreadPoolExecutor | None = None

    def run(self) -> None:
        """Do it all; the last event is `Ready` (`Planned` when only that was ordered).

        Raises:
            FailureError: it did not work; the failure says what to do.
            Stopped: it was cancelled.
        """
        try:
            self._run(self.planner.decide())
        except FailureError as error:
            # A commit that was begun and is gone: what the branch holds now, instead.
            if error.failure.kind not in ("gone", "revision_not_found"):
                raise
            newer = self.planner.decide_anew() if self._start_again() else None
            if newer is None:
                raise
            self.emit(Notice("The commit that was begun is no longer there; the newest is taken."))
            self._run(newer)

    def _run(self, decided: Decided) -> None:
        self._begin(decided)
        todo = self._announce()
        if self.order.only_plan:
            return
        self._save()
        self.shop.require_space(todo)
        self.working = True
        self._fetch_all()
        self.working = False
        self._publish()

    def _begin(self, decided: Decided) -> None:
        self.working = False
        self.decided = decided
        self.manifest = decided.manifest
        self.plan = decided.manifest.plan
        self.cache = RepoCache(self.plan.repo)
        limits = self.limits
        if not decided.online:  # what is damaged would have to be fetched, and nobody answers
            limits = replace(limits, patience=limits.plan_patience)
        self.tally = Tally(self.plan.files)
        self.shop = Workshop(
            plan=self.plan,
            cache=self.cache,
            tally=self.tally,
            asked=replace(decided.asked, revision=self.plan.commit),
            headers=decided.headers,
            limits=limits,
            control=self.control,
            emit=self.emit,
            free=self.free,
        )

    def _announce(self) -> list[PlannedFile]:
        """Tell the plan; the files that must be fetched, as far as their sizes tell."""
        assert self.tally is not None
        rows, todo = [], []
        for file in self.plan.files:
            place = self.cache.find(file, self.plan.commit)
            kept = file.size if place is not None else min(self.cache.part_size(file), file.size)
            self.tally.have(file.path, kept)
            if place is None:
                todo.append(file)
            trusted = place is not None and self._trusted(file, place)
            state = "checked" if trusted else "waiting"
            rows.append({"path": file.path, "size": file.size, "kept": kept, "state": state})
        kept = sum(int(str(row["kept"])) for row in rows)
        self.emit(
            Planned(
                repo=self.plan.repo,
                revision=self.order.revision,
                commit=self.plan.commit,
                path=str(self.cache.snapshot(self.plan.commit)),
                files=rows,
                total=self.plan.total,
                kept=kept,
                need=self.shop.need(todo),
                free=self.free(self.cache.folder),
                endpoint=without_user(self.decided.asked.endpoint),
                proxy=self.decided.asked.proxy,
                token=self.decided.token_source,
                licence=self.plan.licence,
                access=self.plan.access,
                online=self.decided.online,
            )
        )
        if kept and todo and not self.order.only_plan:
            self.emit(Notice(f"{size_text(kept)} are here already and are kept."))
        return todo

    def _trusted(self, file: PlannedFile, place: Path) -> bool:
        return not self.order.recheck and self.manifest.is_checked(file, place)

    def _fetch_all(self) -> None:
        """Every file to "checked"; the first failure ends the others. Raises as `run`."""
        pool = self._pool = ThreadPoolExecutor(max(int(self.limits.workers), 1), "file")
        try:
            for round_ in _without_twins(self.plan.in_order()):
                futures = [pool.submit(self._fetch_one, file) for file in round_]
                wait(futures, return_when=FIRST_EXCEPTION)
                _raise_first(futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _start_again(self) -> bool:
        """After a failure, when the other files' threads ended; False after a cancel."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        return self.control.start_again()

    def _fetch_one(self, file: PlannedFile) -> None:
        try:
            place = self.cache.find(file, self.plan.commit)
            trusted = place is not None and self._trusted(file, place)
            place = FileJob(self.shop, file, lambda: self._forget(file)).run(trusted=trusted)
            if file.path == INDEX:
                require_whole_index(self.plan, place)
            with self._lock:
                self.manifest = self.manifest.with_checked(file, place)
                self._save()
        except Stopped:
            raise
        except Exception as error:
            self.control.stop()
            raise self._final(error) from error

    def _forget(self, file: PlannedFile) -> None:
        """`file` is damaged: the model is not ready until it was fetched again."""
        with self._lock:
            self.manifest = self.manifest.without(file)
            self._save()

    def _final(self, error: Exception) -> Exception:
        """Disk errors in words, a full disk with its numbers."""
        if isinstance(error, OSError):
            error = FailureError(from_disk(error, str(self.cache.root)))
        if not isinstance(error, FailureError) or error.failure.kind != "disk_full":
            return error
        missing = [
            file for file in self.plan.files if self.cache.find(file, self.plan.commit) is None
        ]
        need = self.shop.need(missing) + int(self.limits.margin)
        free = self.free(self.cache.folder)
        return FailureError(no_space(str(self.cache.root), need, free)) if need > free else error

    def _save(self) -> None:
        """Record what is known; where that is not possible, say so and go on."""
        try:
            self.manifest.save()
        except OSError as error:
            if not self._told_unsaved:
                self._told_unsaved = True
                log.warning("the manifest cannot be written: %s", error)
                self.emit(
                    Notice(
                        f"{self.manifest.path.parent} cannot be written ({error.strerror}), so the "
                        "files will be read and checked again next time."
                    )
                )

    def _publish(self) -> None:
        """Let the snapshot appear, and be ready."""
        assert self.tally is not None
        try:
            for file in self.plan.files:
                self.cache.link(file, self.plan.commit)
        except OSError as error:
            raise self._final(error) from error
        with contextlib.suppress(OSError):  # a cache that is read-only and whole is fine
            self.cache.record(self.order.revision, self.plan.commit)
        self.manifest = replace(self.manifest, finished=time())
        self._save()
        self.emit(
            Ready(
                repo=self.plan.repo,
                revision=self.order.revision,
                commit=self.plan.commit,
                path=str(self.cache.snapshot(self.plan.commit)),
                total=self.plan.total,
                fetched=self.tally.fetched,
                elapsed=round(self.tally.elapsed, 1),
            )
        )


def _without_twins(files: list[PlannedFile]) -> tuple[list[PlannedFile], list[PlannedFile]]:
    """Files of different content, and then those whose content is among them."""
    firsts: dict[str, PlannedFile] = {}
    for file in files:
        firsts.setdefault(file.blob, file)
    return list(firsts.values()), [file for file in files if firsts[file.blob] is not file]


def _raise_first(futures: list[Future[None]]) -> None:
    """What ended the first of them, the end of the others being its consequence."""
    errors = [error for future in futures if future.done() and (error := future.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
        raise error
