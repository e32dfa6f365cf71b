"""Ports of one server on this node, held so that no other server gets them.

A port that was found free and let go again may be someone else's by the time vLLM binds it, an
hour of loading later. Here the kernel holds a lane of ports for as long as the worker lives. The
HTTP port is bound but not listened on; `SO_REUSEADDR`, set after binding, lets exactly one listener
in that asks for this very port, which vLLM does. The lanes lie below the range from which outgoing
connections take theirs.
"""

import contextlib
import socket
from collections.abc import Iterator

from pipeline.records.failure import ServerError

HOST = "127.0.0.1"
FIRST_PORT = 20_000
LANE_WIDTH = 64
N_LANES = 180


class Lane:
    """A range of ports of this node. `close` gives it back; so does the end of the process."""

    def __init__(self, base: int, held: list[socket.socket]) -> None:
        self.base = base
        self._held = held

    @property
    def http_port(self) -> int:
        """Where the server listens."""
        return self.base + 1

    @property
    def internal_port(self) -> int:
        """First of the ports that the server's processes use among themselves."""
        return self.base + 2

    def close(self) -> None:
        """Let go of the ports. May be called twice."""
        while self._held:
            self._held.pop().close()


def take_lane(start: int) -> Lane:
    """Return a lane that nobody holds, looking from the `start`-th on.

    Raises:
        ServerError: all are taken.
    """
    for base in _bases(start):
        held: list[socket.socket] = []
        try:
            held.append(_bound(base))
            held.append(_bound(base + 1))
        except OSError:
            for each in held:
                each.close()
            continue
        held[1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return Lane(base, held)
    raise ServerError(
        f"no free ports for a server between {FIRST_PORT} and {FIRST_PORT + N_LANES * LANE_WIDTH}; "
        "see what runs on this node"
    )


def is_listening(port: int) -> bool:
    """Return whether anybody accepts connections on `port` of the loopback."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=2.0):
        return True
    return False


def _bases(start: int) -> Iterator[int]:
    for step in range(N_LANES):
        yield FIRST_PORT + (start + step) % N_LANES * LANE_WIDTH


def _bound(port: int) -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind((HOST, port))
    except OSError:
        held.close()
        raise
    return held
