"""The tensors that a config describes, held against those that there are."""

from engine.checkpoint.tensor_file import TensorInfo
from engine.config import CheckpointError

_SHOWN = 5


def report_differences(
    wanted: dict[str, tuple[int, ...]],
    found: dict[str, TensorInfo],
    source: str,
    config: str = "its config",
) -> None:
    """One CheckpointError that lists what is missing, unexpected or misshapen; or nothing."""
    missing = [name for name in wanted if name not in found]
    unexpected = [
        f"{name} {list(info.shape)}" for name, info in found.items() if name not in wanted
    ]
    misshapen = [
        f"{name} is {list(found[name].shape)} instead of {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name].shape != shape
    ]
    problems = [
        f"{len(items)} {kind}: {', '.join(items[:_SHOWN])}{', …' if len(items) > _SHOWN else ''}"
        for kind, items in (
            ("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen)
        )
        if items
    ]  # fmt: skip
    if problems:
        raise CheckpointError(
            f"{source} does not hold the tensors that {config} describes "
            f"({'; '.join(problems)}). Download it again, or check that both belong together."
        )
