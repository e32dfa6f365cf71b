"""The bytes of a journal: checksummed frames, and how they are found again in a damaged file.

A frame is a fixed header (magic, kind, lengths, checksum), a small JSON `head` that is never
compressed, so that states can be read without unpacking runs, and a zstd `body`. Reading skips
what does not check and goes on at the next magic; what a frame holds is `journal`'s business.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa
import xxhash

MAGIC = b"\x89PPJ\r\n\x1a\n"
"""Not text, and broken by a line-end conversion: a mangled copy is noticed at once."""

_START = struct.Struct("<8sHHIQQ")
"""magic, frame version, kind, head bytes, body bytes, unpacked bytes"""

_SUM = struct.Struct("<Q")
"""XXH3 of all other bytes of the frame"""

_HEADER_BYTES = _START.size + _SUM.size

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
    """One frame as found: where it lies, its head, and its body still packed."""

    kind: int
    """A `FrameKind`, or a newer one that this code does not know and leaves alone."""
    offset: int
    end: int
    head: Mapping[str, Any]
    packed: bytes
    unpacked_bytes: int

    def body(self) -> bytes:
        """Return the body."""
        return unpacked(self.packed, self.unpacked_bytes)


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


def frames_in(data: bytes, *, base: int = 0) -> Iterator[Frame | Damage]:
    """Yield the frames of `data`, and the damage between them.

    What follows the last frame is not reported: it may be a frame that is being written. `base`
    is the offset of `data` in its file.
    """
    position, good_end = 0, 0
    while (position := data.find(MAGIC, position)) >= 0:
        frame = _frame_at(data, position, base)
        if frame is None:
            position += 1
            continue
        if position > good_end:
            yield Damage(offset=base + good_end, n_bytes=position - good_end)
        yield frame
        position = good_end = frame.end - base


def _frame_at(data: bytes, position: int, base: int) -> Frame | None:
    body_at = position + _HEADER_BYTES
    if body_at > len(data):
        return None
    start = data[position : position + _START.size]
    _, version, kind, head_size, body_size, unpacked_bytes = _START.unpack(start)
    (stored,) = _SUM.unpack_from(data, position + _START.size)
    end = body_at + head_size + body_size
    if version != FRAME_VERSION or end > len(data):
        return None
    rest = data[body_at:end]
    if _checksum(start, rest) != stored:
        return None
    return Frame(
        kind=kind,
        offset=base + position,
        end=base + end,
        head=json.loads(rest[:head_size]),
        packed=rest[head_size:],
        unpacked_bytes=unpacked_bytes,
    )
