"""Which cards there are in NVML's and torch's eyes, what each can do, and which one to use."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from engine.machine.facts import Capability, Card, TorchBuild, TorchDevice

Fp4 = Literal["native", "w4a16"]
"""How NVFP4 weights are multiplied: by FP4 units, or decoded to 16 bits first."""

LEAST: Capability = (8, 0)
"""The oldest generation with bfloat16 units."""

_GENERATIONS: dict[Capability, str] = {
    (8, 0): "Ampere",
    (8, 6): "Ampere",
    (8, 7): "Ampere, Jetson Orin",
    (8, 9): "Ada",
    (9, 0): "Hopper",
    (10, 0): "Blackwell, B200",
    (10, 3): "Blackwell, B300",
    (11, 0): "Blackwell, Jetson Thor",
    (12, 0): "Blackwell",
    (12, 1): "Blackwell, DGX Spark",
}
_NATIVE_FP4 = (10, 11, 12)


def generation(capability: Capability) -> str:
    """The name that NVIDIA gave to a generation of cards."""
    if capability in _GENERATIONS:
        return _GENERATIONS[capability]
    return "older than Ampere" if capability < LEAST else "a generation newer than this program"


def fp4_plan(capability: Capability | None) -> Fp4 | None:
    """How a card of this capability multiplies NVFP4 weights; None: it is too old for either."""
    if capability is None or capability < LEAST:
        return None
    return "native" if capability[0] in _NATIVE_FP4 else "w4a16"


def has_kernels(architectures: tuple[str, ...], capability: Capability) -> bool:
    """Whether a torch that was built for `architectures` runs on a card.

    Machine code ("sm_86") runs on the same major version from its minor on, that of one
    architecture ("sm_90a") on exactly this, PTX ("compute_80") on everything from there on.
    """
    return any(_runs(name, capability) for name in architectures)


def _runs(architecture: str, capability: Capability) -> bool:
    kind, _, number = architecture.partition("_")
    digits = number.rstrip("af")
    if not digits.isdigit():
        return False
    built = (int(digits[:-1] or 0), int(digits[-1]))
    if number.endswith("a"):
        return built == capability
    if kind == "compute" and not number.endswith("f"):
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def merge(
    cards: tuple[Card, ...], devices: tuple[TorchDevice, ...], free: Callable[[int], int | None]
) -> tuple[Card, ...]:
    """NVML's cards with torch's numbers, and behind them those that only torch has seen.

    The two count differently (bus order against speed, and CUDA_VISIBLE_DEVICES renumbers), so
    cards are told by UUID. `free` gives free bytes of cuda:N where NVML has no figure.
    """
    merged = list(cards)
    alone = []
    for device in devices:
        place = _find(merged, device)
        if place is None:
            alone.append(_from_torch(device, free))
            continue
        card = replace(merged[place], torch_index=device.index, capability=device.capability)
        if card.total is None and not card.unified:
            card = replace(card, total=device.total, free=free(device.index))
        merged[place] = card
    return (*merged, *alone)


def _find(cards: list[Card], device: TorchDevice) -> int | None:
    """Where torch's device stands among NVML's cards. A MIG instance may bear its own UUID in
    torch or that of the whole card."""
    free = [place for place, card in enumerate(cards) if card.torch_index is None]
    own = [place for place in free if _same(cards[place].uuid, device.uuid)]
    parts = [place for place in free if _same(cards[place].parent, device.uuid)]
    return next(iter(own + parts), None)


def _same(nvml: str, torch: str) -> bool:
    """Whether NVML's "GPU-4c1f..." or "MIG-..." is torch's "4c1f..."."""
    bare = nvml.lower().removeprefix("gpu-").removeprefix("mig-")
    return bare != "" and bare == torch.lower()


def _from_torch(device: TorchDevice, free: Callable[[int], int | None]) -> Card:
    return Card(
        index=None,
        uuid=f"GPU-{device.uuid}" if device.uuid else "",
        name=device.name,
        capability=device.capability,
        total=device.total,
        free=free(device.index),
        torch_index=device.index,
    )


def is_usable(card: Card, torch: TorchBuild) -> bool:
    """Whether torch offers the card and can compute on it."""
    if card.torch_index is None or card.capability is None:
        return False
    if torch.rocm:  # AMD's numbers mean something else, and its torch holds no foreign cards
        return True
    return card.capability >= LEAST and has_kernels(torch.architectures, card.capability)


def choose(cards: tuple[Card, ...], torch: TorchBuild, need: int) -> Card | None:
    """The card to use: one with `need` bytes to spare if there is any, then one with FP4
    units, then the one with most to spare, then torch's first."""
    usable = [card for card in cards if is_usable(card, torch)]
    return min(usable, key=lambda card: _rank(card, need), default=None)


def _rank(card: Card, need: int) -> tuple[bool, bool, int, int]:
    free = card.spare or 0
    return (free < need, fp4_plan(card.capability) != "native", -free, card.torch_index or 0)
