"""Runs a server and ends it, with all its processes, when the worker that wanted it is gone.

A worker that is killed with -9 cannot stop its server, and an orphaned engine would hold the GPU
until the job ends. The guard leads the server's session, and its standard input is a pipe from the
worker: the kernel closes that pipe however the worker ends.

    python -m pipeline.serving.guard COMMAND ...      (started by `server`, not by people)

Its exit status is the command's, 128 + N after signal N, and 143 when the pipe was closed. Standard
library only, so that it is up at once and small.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from pipeline.host.proctable import ProcessIdentity, all_processes, is_alive, signal_process

GRACE_S = 5.0
_POLL_S = 0.2
_TERMINATED = 143


def main(argv: Sequence[str]) -> int:
    """Run `argv` to its end, or to the end of standard input; return the exit status."""
    # The worker signals the session as a whole; our part is to outlive the others. Unlike an
    # ignored signal, a handler is not inherited by what we start.
    signal.signal(signal.SIGTERM, lambda *_: None)
    child = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL)
    while (status := child.poll()) is None:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 1):
            _end_session(GRACE_S)
            return _TERMINATED
    # Its engine may live on when the server itself was killed.
    _end_session(0.0)
    return status if status >= 0 else 128 - status


def _others() -> list[ProcessIdentity]:
    """Return who else lives in our session."""
    session, own = os.getsid(0), os.getpid()
    return [
        ProcessIdentity(stat.pid, stat.start_ticks)
        for stat in all_processes()
        if stat.session == session and stat.pid != own and stat.state not in "ZX"
    ]


def _end_session(grace_s: float) -> None:
    for identity in _others():
        signal_process(identity, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and _others():
        time.sleep(_POLL_S)
    while living := [identity for identity in _others() if is_alive(identity)]:
        for identity in living:
            signal_process(identity, signal.SIGKILL)
        time.sleep(_POLL_S / 10)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
