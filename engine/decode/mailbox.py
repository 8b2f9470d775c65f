"""The host's side of the mailbox: records in their order, and the snapshots still to be had."""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.kernels.loop_state import A_STEP, RECORD, RING, Mailbox


@dataclass(frozen=True)
class Snapshot:
    """A block after a step, one entry a position."""

    token_ids: tuple[int, ...]
    confidences: tuple[float, ...]
    unmasked: tuple[bool, ...]
    edited: tuple[bool, ...]


@dataclass(frozen=True)
class Record:
    """What `RECORD` names; `snapshot` of a step, None when it was overwritten before the read."""

    kind: int
    block: int
    step: int
    unmasked: int
    edited: int
    forwards: int
    fused: bool
    commits: int
    committed: bool
    stopped: bool
    outcome: int
    snapshot: Snapshot | None = None


# A round writes two snapshots at most, and one may be under way that is not yet told of.
_MARGIN = 4


class Reader:
    """Reads one answer's records as they come."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._read = self._steps = 0

    def new(self) -> Iterator[Record]:
        """The records that have come since the last call."""
        while self._read < int(self._mailbox.written):
            row = self._mailbox.log[self._read].tolist()
            values = dict(zip(RECORD, row, strict=False))
            snapshot = self._snapshot() if values["kind"] == A_STEP else None
            self._read += 1
            for name in ("fused", "committed", "stopped"):
                values[name] = bool(values[name])
            yield Record(**values, snapshot=snapshot)

    def _snapshot(self) -> Snapshot | None:
        line = self._steps % RING
        self._steps += 1
        box = self._mailbox
        tokens, sure, marks = (
            part[line].tolist() for part in (box.tokens, box.confidences, box.marks)
        )
        # Looked at after the copy: each record since then may have been a step.
        if int(box.written) - self._read + _MARGIN > RING:
            return None
        return Snapshot(
            tuple(tokens), tuple(sure), tuple(bool(m & 1) for m in marks),
            tuple(bool(m & 2) for m in marks),
        )  # fmt: skip

    def final(self, block: int) -> list[int]:
        """The tokens with which a block ended."""
        length = self._mailbox.tokens.shape[1]
        tokens: list[int] = self._mailbox.final[block * length : (block + 1) * length].tolist()
        return tokens
