"""What a program printed, when it may have printed anything: the beginning and the end of it."""


class Output:
    """A stream's first and last bytes."""

    def __init__(self, kept: int) -> None:
        self._half = kept // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = max(self._half - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: -self._half]

    def text(self) -> str:
        left_out = self.total - len(self._head) - len(self._tail)
        between = f"\n[{left_out:,} bytes left out]\n".encode() if left_out else b""
        return (bytes(self._head) + between + bytes(self._tail)).decode("utf-8", "replace")
