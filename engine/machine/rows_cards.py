"""Rows about the cards: what each is, which one is used, and why another is not."""

from engine.machine.cards import LEAST, fp4_plan, generation, is_usable
from engine.machine.facts import DISPLAY_RESERVE, Card, Facts, Row
from engine.machine.room import gib, held_by
from engine.machine.rows_driver import is_too_old
from engine.machine.rows_software import lacks_kernels

_DESKTOP_5090 = 1792e9  # bytes/s, the card that speeds are compared with


def card_rows(facts: Facts, chosen: Card | None) -> list[Row]:
    """One row a card, and one about the speed of the chosen one."""
    if not facts.cards:
        return [_none_row(facts)]
    rows = [_card_row(card, facts, chosen) for card in facts.cards]
    if chosen is not None:
        rows += _speed_row(chosen, facts)
    return rows


def _none_row(facts: Facts) -> Row:
    if facts.system.nvidia_on_bus:
        found = "an NVIDIA card that cannot be asked (see NVIDIA driver)"
        return Row("Graphics card", "no", found, "nothing for the demo")
    found = "no NVIDIA card or driver found; the processor works, but is very slow for large models"
    return Row("Graphics card", "warn", found, "nothing for the demo")


def _card_row(card: Card, facts: Facts, chosen: Card | None) -> Row:
    found = describe(card, amd=facts.torch.rocm)
    if card == chosen:
        several = len(facts.cards) > 1
        return Row(card.label, "ok", found + ("; this one is used" if several else ""))
    if is_usable(card, facts.torch):
        assert chosen is not None
        found = f"{found}{held_by(card)}; not used, {chosen.label} suits better"
        return Row(card.label, "ok", found)
    why, fix = why_not(card, facts)
    hidden = _hidden(facts) and chosen is not None
    return Row(card.label, "ok" if hidden else "no", f"{found}; {why}", "", "" if hidden else fix)


def describe(card: Card, *, amd: bool = False) -> str:
    """A card in one line."""
    parts = [card.name]
    if card.capability is not None and not amd:
        plan = fp4_plan(card.capability)
        units = {"native": ", FP4 units", "w4a16": ", no FP4 units", None: ""}[plan]
        parts.append(f"compute {card.capability[0]}.{card.capability[1]}")
        parts.append(generation(card.capability) + units)
    if card.unified:
        parts.append("shares the machine's memory")
    elif card.total is not None:
        free = "" if card.free is None else f", {gib(card.free)} free"
        parts.append(gib(card.total) + free)
    if card.display:
        parts.append(f"drives a display ({gib(DISPLAY_RESERVE)} are left to it)")
    if card.short_id:
        parts.append(f"id {card.short_id}")
    return ", ".join(parts)


def why_not(card: Card, facts: Facts) -> tuple[str, str]:
    """Why a card cannot be used, and the way out."""
    torch = facts.torch
    if card.capability is not None and card.capability < LEAST and not torch.rocm:
        return "too old: compute 8.0 (Ampere) is needed", "use the demo model on the processor."
    if card.mig_empty:
        where = f"-i {card.index} " if card.index is not None else ""
        return "in MIG mode without an instance", f"sudo nvidia-smi {where}-mig 0"
    if torch.version is None or (torch.cuda is None and not torch.rocm):
        return "PyTorch cannot use it", "see PyTorch."
    if is_too_old(facts):
        return "the driver is too old", "see NVIDIA driver."
    if lacks_kernels(torch, card):
        return "PyTorch has no kernels for it", "see PyTorch."
    if not torch.devices and (facts.system.denied or facts.system.no_uvm):
        return "CUDA cannot start", "see Rights."
    if _hidden(facts):
        return "hidden by CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES"
    said = f" ({torch.error})" if torch.error else ""
    return f"CUDA does not offer it{said}", "run nvidia-smi; if it fails too: sudo reboot"


def _hidden(facts: Facts) -> bool:
    return facts.system.visible_devices is not None


def _speed_row(card: Card, facts: Facts) -> list[Row]:
    """Memory bandwidth bounds the speed; a battery or a lowered power limit takes from it."""
    found = []
    if card.bandwidth is not None:
        share = card.bandwidth / _DESKTOP_5090
        found.append(f"{card.bandwidth / 1e9:,.0f} GB/s from memory")
        if "laptop" in card.name.lower():
            found.append(f"about {share:.0%} of a desktop RTX 5090's speed")
    if card.power_limit is not None:
        found.append(f"power limit {card.power_limit:.0f} W")
    if facts.system.on_battery:
        found.append("on battery, which slows the card down")
        return [Row("GPU speed", "warn", ", ".join(found), "mains", "plug in the charger.")]
    lowered = card.power_default is not None and (card.power_limit or 0) < 0.95 * card.power_default
    if lowered and card.power_limit is not None and card.power_default is not None:
        found[-1] += f" of {card.power_default:.0f} W"
        number = card.index if card.index is not None else 0
        fix = f"sudo nvidia-smi -i {number} -pl {card.power_default:.0f}"
        return [Row("GPU speed", "warn", ", ".join(found), "", fix)]
    return [Row("GPU speed", "ok", ", ".join(found))] if found else []
