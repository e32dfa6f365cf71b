"""Being told to stop: what Slurm and a closed terminal send counts as Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM and at a closed terminal too, inside the block.

    Otherwise they would end this process without a chance to keep what it has. Does nothing
    outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is not signal.SIG_IGN:  # `nohup` stays what it is
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
