"""A patch that a command printed after a line of ours: a submission, or the diff at a limit."""

from dataclasses import dataclass

from pipeline.protocols import CommandResult
from pipeline.records.patch import patch_text


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedPatch:
    """A patch, or the size of one that is too large to keep."""

    patch: str = ""
    """As in `records.patch`: its bytes are those that were printed."""
    oversize_bytes: int | None = None


NO_PATCH = PrintedPatch()


def patch_after(first_line: bytes, result: CommandResult) -> PrintedPatch | None:
    """Return what a command printed after `first_line`; None where it failed or began otherwise."""
    if result.returncode != 0 or result.timed_out:
        return None
    stream = result.whole
    if stream is None:
        stream = result.output.encode(errors="surrogateescape")
    first, newline, patch = stream.lstrip().partition(b"\n")
    if first.strip() != first_line:
        return None
    if result.whole is None and result.dropped_bytes:
        return PrintedPatch(oversize_bytes=result.stream_bytes - len(first + newline))
    return PrintedPatch(patch=patch_text(patch))
