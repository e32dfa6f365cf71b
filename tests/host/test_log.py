"""A word that cannot be written is not worth a run."""

import io
from pathlib import Path

import pytest

from pipeline.host.log import say


class _Unbuffered:
    """Writes text as a job's unbuffered stderr does."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw

    def write(self, text: str) -> None:
        self._raw.write(text.encode())

    def flush(self) -> None:
        self._raw.flush()


def test_what_is_said_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("four runs are left")
    assert capsys.readouterr().err == "four runs are left\n"


def test_a_full_disk_behind_stderr_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as raw:
        monkeypatch.setattr("sys.stderr", _Unbuffered(raw))
        say("no space for this")
        with pytest.raises(OSError, match="No space left"):
            raw.write(b"it really is full")


def test_a_closed_stderr_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    say("nobody listens")
