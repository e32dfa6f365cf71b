"""One command's output on its way in: what is kept of it, and how it becomes text.

Owns the bounds on an output, the noise of an image that is taken off its beginning, and the
decoding, which never changes a byte silently. Reads from no descriptor.
"""

import codecs
from dataclasses import dataclass

from pipeline.host.output import HeadTail
from pipeline.protocols import WHOLE_LIMIT_BYTES

_NOISE_LIMIT_BYTES = 1 << 16


class OutputStream:
    """Collects the output of one command in bounded memory."""

    def __init__(
        self, limit_bytes: int, *, whole_after: bytes | None = None, begins_after: bytes = b""
    ) -> None:
        """Keep at most `limit_bytes`.

        Args:
            limit_bytes: of the head and the tail together.
            whole_after: an output whose first line is this is kept whole as well, up to
                `WHOLE_LIMIT_BYTES`.
            begins_after: what precedes this mark is the image's and dropped; without the mark
                everything stays.
        """
        self._kept = HeadTail(limit_bytes)
        self.stream_bytes = 0
        """Of the output so far, what precedes the mark aside."""
        self._whole = None if whole_after is None else _Whole(whole_after)
        self._mark = begins_after
        self._before_mark = bytearray()

    def append(self, chunk: bytes) -> None:
        """Add the stream's next bytes."""
        if not self._mark:
            self._keep(chunk)
            return
        self._before_mark += chunk
        _, found, rest = bytes(self._before_mark).partition(self._mark)
        if found or len(self._before_mark) > _NOISE_LIMIT_BYTES:
            self._keep(rest if found else bytes(self._before_mark))
            self._mark, self._before_mark = b"", bytearray()

    def end(self) -> None:
        """Keep what was held back; nothing more comes."""
        self._keep(bytes(self._before_mark))
        self._mark, self._before_mark = b"", bytearray()

    def _keep(self, chunk: bytes) -> None:
        self._kept.append(chunk)
        self.stream_bytes += len(chunk)
        if self._whole is not None:
            self._whole.append(chunk)

    @property
    def dropped_bytes(self) -> int:
        """How many bytes of the middle are missing in `text`."""
        return self._kept.dropped_bytes

    @property
    def whole(self) -> bytes | None:
        """The whole output, where that was asked for and could be kept."""
        return None if self._whole is None else self._whole.data()

    def text(self) -> "DecodedOutput":
        """Return the output as text, with a line at the gap if the middle was dropped."""
        if not self._kept.dropped_bytes:
            return decoded(self._kept.joined())
        # A cut may have split a character on either side; its halves would show as noise.
        head = self._kept.head
        head = head[: len(head) - len(_torn_end(head))]
        before = decoded(head)
        after = decoded(self._kept.tail.lstrip(bytes(range(0x80, 0xC0))))
        return DecodedOutput(
            text=f"{before.text}\n[{self._kept.dropped_bytes} bytes dropped]\n{after.text}",
            undecodable_bytes=before.undecodable_bytes + after.undecodable_bytes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodedOutput:
    """An output as text."""

    text: str
    undecodable_bytes: int
    """Bytes that are no UTF-8; `text` has replacement characters in their place."""


def decoded(data: bytes) -> DecodedOutput:
    """Return `data` as UTF-8, with replacement characters for what is none."""
    try:
        return DecodedOutput(text=data.decode(), undecodable_bytes=0)
    except UnicodeDecodeError:
        escaped = data.decode(errors="surrogateescape")
        undecodable = sum("\udc80" <= character <= "\udcff" for character in escaped)
        return DecodedOutput(text=data.decode(errors="replace"), undecodable_bytes=undecodable)


def unsendable(command: str) -> str | None:
    """Return why no shell can be given `command` as it is; None where it can.

    A command that lost a character is another command, so it is not run at all.
    """
    if (at := command.find("\0")) >= 0:
        return f"it holds a NUL byte (character {at + 1}), which no command line can hold"
    try:
        command.encode()
    except UnicodeEncodeError as error:
        half = ascii(command[error.start])[1:-1]
        return (
            f"it holds half of a surrogate pair ({half}, character {error.start + 1}), which UTF-8 "
            "cannot hold"
        )
    return None


class _Whole:
    """Keeps a stream that begins with a given line, and nothing of any other."""

    def __init__(self, first_line: bytes) -> None:
        self._first_line = first_line
        self._data: bytearray | None = bytearray()
        self._begins_so = False

    def append(self, chunk: bytes) -> None:
        if self._data is None:
            return
        self._data += chunk
        if not self._begins_so:
            line, newline, _ = bytes(self._data).lstrip().partition(b"\n")
            if newline or len(line) > _NOISE_LIMIT_BYTES:
                self._begins_so = line.strip() == self._first_line
                self._data = self._data if self._begins_so else None
        if self._data is not None and len(self._data) > WHOLE_LIMIT_BYTES:
            self._data = None

    def data(self) -> bytes | None:
        if self._data is None or not (self._begins_so or self._data.strip() == self._first_line):
            return None
        return bytes(self._data)


def _torn_end(data: bytes) -> bytes:
    """Return the last bytes of `data` that begin a character and do not end it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return decoder.getstate()[0]
