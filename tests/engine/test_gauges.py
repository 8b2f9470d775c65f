"""A card's gauges: which card, what it tells, and what it need not tell."""

from typing import Any

import pytest
import torch

from engine.machine import gauges
from engine.machine.gauges import Gauges, Reading, gauges_of
from tests.engine.stand_ins import GIB, RTX_3090, Gpu, Nvml, no_nvml, raising


def gauges_for(gpu: Gpu, uuid: str = "") -> Gauges:
    found = Gauges.of(uuid or gpu.uuid, lambda: Nvml(RTX_3090, gpu))
    assert found is not None
    return found


def test_a_card_tells_what_it_does() -> None:
    gpu = Gpu(free=7.8, reasons=0x4 | 0x1)
    total, free = int(31.8 * GIB), int(7.8 * GIB)
    # torch gives the same name without its kind in front.
    for uuid in (gpu.uuid, gpu.uuid.removeprefix("GPU-")):
        assert gauges_for(gpu, uuid).read() == Reading(
            total - free, total, 388.0, 66, 97, "power limit"
        )


def test_a_part_of_a_card_is_found_by_its_own_name() -> None:
    part = Gpu(total=39.4, free=39.0, uuid="MIG-7777")
    found = gauges_for(Gpu(mig=[part]), "7777").read()
    assert found.memory_total == int(39.4 * GIB)


def test_what_a_card_does_not_tell_is_missing() -> None:
    reading = gauges_for(Gpu(total=None, draw=None, reasons=None)).read()
    assert reading == Reading(temperature_c=66, utilisation=97)


@pytest.mark.parametrize(
    ("reasons", "words"),
    [(0x1, None), (0x2 | 0x100, None), (0x20 | 0x4, "heat"), (0x8, "hardware")],
)
def test_only_what_holds_it_back_is_named(reasons: int, words: str | None) -> None:
    assert gauges_for(Gpu(reasons=reasons)).read().throttle == words


def test_power_is_the_mean_of_the_time_between(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 14.0, 20.0, 30.0])
    monkeypatch.setattr(gauges.time, "monotonic", lambda: next(now))
    gpu = Gpu(joules=1000.0)
    card = gauges_for(gpu)
    mark = card.mark()
    gpu.joules = 1800.0
    assert card.since(mark).power_watts == 200.0
    gpu.joules = None
    assert card.since(card.mark()).power_watts == 388.0, "what it takes now, without a counter"


@pytest.mark.parametrize("load", [no_nvml, raising(ImportError("pynvml")), Nvml])
def test_without_nvml_or_the_card_there_are_none(load: Any) -> None:
    assert Gauges.of("GPU-1", load) is None
    assert Gauges.of("", lambda: Nvml(Gpu(uuid=""))) is None
    assert gauges_of(torch.device("cpu")) is None
