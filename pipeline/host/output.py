"""A stream of any length kept in bounded memory: its beginning and its end.

Owns the cut. Does not decode, and does not say to anyone that something was cut: it counts.
"""

from collections import deque


class HeadTail:
    """Collects a stream and keeps at most `limit_bytes` of it, half from either end."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total_bytes = 0

    def append(self, chunk: bytes) -> None:
        """Add the stream's next bytes."""
        self._total_bytes += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self._tail.append(chunk)
        self._tail_bytes += len(chunk)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
            self._tail_bytes -= len(self._tail.popleft())

    @property
    def dropped_bytes(self) -> int:
        """How many bytes of the stream `head` and `tail` lack, all from its middle."""
        kept = len(self._head) + min(self._tail_bytes, self._tail_limit)
        return self._total_bytes - kept

    @property
    def head(self) -> bytes:
        """The first bytes of the stream."""
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The last bytes of the stream, without any that are in `head`."""
        if not self._tail_limit:
            return b""
        return b"".join(self._tail)[-self._tail_limit :]

    def joined(self) -> bytes:
        """Return head and tail; a gap between them is not marked."""
        return self.head + self.tail
