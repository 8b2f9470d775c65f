"""Tells the terminal process what the card does while a model is on it, twice a second."""

import threading
from dataclasses import asdict

from app.outbox import Outbox
from app.protocol import Gpu
from engine.machine.gauges import Gauges

SECONDS = 0.5


class CardWatch(threading.Thread):
    """Reads `gauges` and sends what has changed, from `start` until `end`."""

    def __init__(self, outbox: Outbox, gauges: Gauges) -> None:
        super().__init__(name="card watch", daemon=True)
        self._outbox, self._gauges = outbox, gauges
        self._ended = threading.Event()

    def run(self) -> None:
        """The first figures at once."""
        last = None
        while True:
            reading = self._gauges.read()
            if reading != last:
                last = reading
                self._outbox.aside(Gpu(**asdict(reading)))
            if self._ended.wait(SECONDS):
                break
        self._gauges.close()

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
