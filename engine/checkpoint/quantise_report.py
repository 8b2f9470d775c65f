"""What quantising a checkpoint came to: bytes, and the error of every kind of tensor."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """What became of one kind of tensor. Errors are of the weights that were packed: `relative` is
    the root of their squared errors over that of their squares, `largest` the worst in size."""

    tensors: int = 0
    packed: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    squared_error: float = 0.0
    squared_weight: float = 0.0
    largest: float = 0.0

    @property
    def relative(self) -> float:
        """Root mean square of the error over that of the weights; 0 where nothing was packed."""
        return (self.squared_error / self.squared_weight) ** 0.5 if self.squared_weight else 0.0

    def add(self, other: "Tally") -> None:
        """Take in what another shard came to."""
        for name in ("tensors", "packed", "bytes_before", "bytes_after"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.squared_error += other.squared_error
        self.squared_weight += other.squared_weight
        self.largest = max(self.largest, other.largest)


@dataclass
class Report:
    """The outcome, by kind of tensor."""

    kinds: dict[str, Tally] = field(default_factory=dict)

    def of(self, kind: str) -> Tally:
        """The tally of `kind`, empty at first."""
        return self.kinds.setdefault(kind, Tally())

    @property
    def total(self) -> Tally:
        """All kinds together."""
        total = Tally()
        for tally in self.kinds.values():
            total.add(tally)
        return total

    def to_json(self) -> dict[str, Any]:
        """As it is written into the folder."""
        return {
            kind: {**vars(tally), "relative": tally.relative} for kind, tally in self.kinds.items()
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Report":
        """What `to_json` made. Raises KeyError or TypeError for anything else."""
        names = list(vars(Tally()))
        return cls({kind: Tally(**{n: row[n] for n in names}) for kind, row in data.items()})
