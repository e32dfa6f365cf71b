"""`python -m pipeline.proxy` as a process of its own."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


class Started:
    """The running command; its words are read as they come."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.start_line = self.wait_for("point your client")
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.start_line)[1])

    def wait_for(self, word: str, within_s: float = 60.0) -> str:
        with self._news:
            found = self._news.wait_for(
                lambda: [line for line in self.lines if word in line] or self._ended(), within_s
            )
        assert isinstance(found, list), self.lines
        return found[0]

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def end(self, number: int) -> int:
        self.signal(number)
        status = self._popen.wait(60)
        self._reader.join()
        return status

    def _ended(self) -> bool:
        return not self._reader.is_alive()

    def _read(self) -> None:
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


@contextmanager
def started(*words: str) -> Iterator[Started]:
    command = [sys.executable, "-m", "pipeline.proxy", *words, "--token-counter", "sim"]
    popen = subprocess.Popen(
        command, cwd=CHECKOUT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Started(popen)
    finally:
        popen.kill()
        popen.wait()
        for stream in (popen.stderr, popen.stdout):
            stream.close()
