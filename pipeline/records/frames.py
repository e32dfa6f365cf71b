"""The bytes of a journal: checksummed frames, and how they are found again in a damaged file.

A frame is a fixed header (magic, kind, lengths, checksum), a small JSON `head` that is never
compressed, so that states can be read without unpacking runs, and a zstd `body`. Reading skips
what does not check and goes on at the next magic; what a frame holds is `journal`'s business.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import xxhash

MAGIC = b"\x89PPJ\r\n\x1a\n"
"""Not text, and broken by a line-end conversion: a mangled copy is noticed at once."""

_START = struct.Struct("<8sHHIQQ")
"""magic, frame version, kind, head bytes, body bytes, unpacked bytes"""

_SUM = struct.Struct("<Q")
"""XXH3 of all other bytes of the frame"""

_HEADER_BYTES = _START.size + _SUM.size
_SEARCH_BYTES = 1 << 20

FRAME_VERSION = 1

ZSTD_LEVEL = 12
"""A 475 kB trajectory packs in 20 ms; level 19 saves 3% more and takes 15 times as long."""


class FrameKind(IntEnum):
    """What a frame holds. Values are on disk."""

    RUN = 1
    GRADE = 2
    SERVER = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as found: where it lies, and its head. Its body stays in the file until asked for.

    A journal may hold more than fits into memory.
    """

    kind: int
    """A `FrameKind`, or a newer one that this code does not know and leaves alone."""
    path: Path
    offset: int
    end: int
    head: Mapping[str, Any]
    packed_bytes: int
    unpacked_bytes: int

    def body(self) -> bytes:
        """Return the body.

        Raises:
            FileNotFoundError: the journal is gone.
        """
        with self.path.open("rb") as file:
            file.seek(self.end - self.packed_bytes)
            return unpacked(file.read(self.packed_bytes), self.unpacked_bytes)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no frame, in the middle of a file."""

    offset: int
    n_bytes: int


def packed_frame(kind: FrameKind, head: Mapping[str, Any], body: bytes) -> bytes:
    """Return one frame, ready to be appended."""
    head_bytes = json.dumps(head, separators=(",", ":")).encode()
    packed = _codec().compress(body, asbytes=True) if body else b""
    start = _START.pack(MAGIC, FRAME_VERSION, kind, len(head_bytes), len(packed), len(body))
    rest = head_bytes + packed
    return start + _SUM.pack(_checksum(start, rest)) + rest


def _checksum(start: bytes, rest: bytes) -> int:
    digest = xxhash.xxh3_64(start)
    digest.update(rest)
    return digest.intdigest()


def unpacked(packed: bytes, unpacked_bytes: int) -> bytes:
    """Return what was packed."""
    if not unpacked_bytes:
        return b""
    return bytes(_codec().decompress(packed, decompressed_size=unpacked_bytes, asbytes=True))


def _codec() -> Any:
    return pa.Codec("zstd", compression_level=ZSTD_LEVEL)


def frames_in(path: Path, start: int = 0) -> Iterator[Frame | Damage]:
    """Yield the frames of a file from the offset `start` on, and the damage between them.

    One frame at a time is in memory. What follows the last one is not reported: it may be a frame
    that is being written.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with path.open("rb") as file:
        # What is appended meanwhile is for the next look.
        size = os.fstat(file.fileno()).st_size
        position = good_end = start
        while (found := _next_magic(file, position, size)) is not None:
            frame = frame_in(file, path, found, size)
            if frame is None:
                position = found + 1
                continue
            if found > good_end:
                yield Damage(offset=good_end, n_bytes=found - good_end)
            yield frame
            position = good_end = frame.end


def frame_in(file: BinaryIO, path: Path, offset: int, size: int) -> Frame | None:
    """Return the frame that begins at `offset` of a file of `size` bytes, None if none does."""
    file.seek(offset)
    header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return None
    start = header[: _START.size]
    magic, version, kind, head_size, body_size, unpacked_bytes = _START.unpack(start)
    (stored,) = _SUM.unpack_from(header, _START.size)
    end = offset + _HEADER_BYTES + head_size + body_size
    if magic != MAGIC or version != FRAME_VERSION or end > size:
        return None
    rest = file.read(head_size + body_size)
    if _checksum(start, rest) != stored:
        return None
    return Frame(
        kind=kind,
        path=path,
        offset=offset,
        end=end,
        head=json.loads(rest[:head_size]),
        packed_bytes=body_size,
        unpacked_bytes=unpacked_bytes,
    )


def _next_magic(file: BinaryIO, position: int, size: int) -> int | None:
    """Return where the next magic is, at `position` or after it."""
    n_bytes = len(MAGIC)
    while position + len(MAGIC) <= size:
        file.seek(position)
        chunk = file.read(min(n_bytes, size - position))
        if (at := chunk.find(MAGIC)) >= 0:
            return position + at
        # The next chunk begins where a magic could have been cut.
        position += max(len(chunk) - len(MAGIC) + 1, 1)
        n_bytes = _SEARCH_BYTES
    return None
