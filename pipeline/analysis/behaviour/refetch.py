"""Re-fetches: reads whose lines an earlier read of the same run had shown.

See docs/methods.md, Re-fetch.

A read is a re-fetch if at least `MIN_SHARE` of its distinct lines stood in one earlier read, or, by
the analysis plan's choice, in the earlier reads together: a file seen in pieces and then whole. Its
source is either way the earlier read with the best overlap, ties to the newest. Whether the source
was still to be seen is judged in the view of the call that issued the read. A read after a write to
the same file is marked: it verifies rather than fetches again.

All pairs of a batch are found by one product of a sparse reads-by-lines matrix with its transpose.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import sparse

from pipeline.analysis.arrays import BoolArray, FloatArray, IntArray
from pipeline.analysis.behaviour.lines import DistinctLines
from pipeline.shell.refetch import MIN_LINES, MIN_SHARE
from pipeline.spec.analysis import RefetchSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """Outputs of actions of a batch of runs, in order within each run; one entry an output."""

    run: IntArray
    """Place of the run in the batch; not decreasing."""
    message_index: IntArray
    turn: IntArray
    """Step of the output."""
    call: IntArray
    """Call that issued it."""
    pruned_at_call: IntArray
    """First call without it; `NEVER` where it was never pruned."""
    left_share: FloatArray
    """Of its distinct lines, those that its replacement still shows."""
    is_read: BoolArray
    is_write: BoolArray
    command: pa.Array


NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, slots=True)
class Refetches:
    """Re-fetches of a batch; one entry each, indices into `Outputs`."""

    read: IntArray
    source: IntArray
    share: FloatArray
    """Of the read's distinct lines, those that the source had; with `union`, any earlier read."""
    distance_turns: IntArray
    visible_share: FloatArray
    """Of the source's lines, those in the view of the issuing call: 1 unless it was pruned."""
    verifies: BoolArray
    """A file that both name was written in between."""


def eligible_reads(
    outputs: Outputs, lines: DistinctLines, *, min_lines: int = MIN_LINES
) -> BoolArray:
    """Return which outputs count as reads: by command, and with enough distinct lines."""
    eligible: BoolArray = outputs.is_read & (lines.counts >= min_lines)
    return eligible


def refetches_of(
    outputs: Outputs,
    lines: DistinctLines,
    *,
    refetch_source: RefetchSource = "one",
    min_share: float = MIN_SHARE,
    min_lines: int = MIN_LINES,
) -> Refetches:
    """Return every re-fetch of a batch, ordered by read.

    Args:
        outputs: the batch.
        lines: `distinct_lines` of the outputs' raw texts.
        refetch_source: whether `one` earlier read must have had the lines, or their `union`.
        min_share: of the read's distinct lines, in what `refetch_source` says.
        min_lines: reads with fewer distinct lines are no reads.
    """
    eligible = eligible_reads(outputs, lines, min_lines=min_lines)
    reads = np.flatnonzero(eligible)
    rows, columns = _numbered(outputs, lines, eligible)
    later, earlier, overlap = _overlaps(rows, columns, n_reads=len(reads))
    together = refetch_source == "union"
    shown = _shown_before(rows, columns, n_reads=len(reads))[later] if together else overlap
    share = shown / lines.counts[reads[later]]
    found = share >= min_share - 1e-9
    later, earlier, overlap, share = later[found], earlier[found], overlap[found], share[found]
    # Best overlap last, ties to the newest: the last of each read wins.
    order = np.lexsort((earlier, overlap, later))
    later, earlier, share = later[order], earlier[order], share[order]
    last = np.append(later[1:] != later[:-1], True) if len(later) else np.zeros(0, dtype=bool)
    read, source = reads[later[last]], reads[earlier[last]]
    return Refetches(
        read=read,
        source=source,
        share=share[last],
        distance_turns=outputs.turn[read] - outputs.turn[source],
        visible_share=np.where(
            outputs.pruned_at_call[source] <= outputs.call[read], outputs.left_share[source], 1.0
        ),
        verifies=_verifies(outputs, read, source),
    )


def _numbered(
    outputs: Outputs, lines: DistinctLines, eligible: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return (read, line) of every distinct line of a read, both numbered from 0."""
    kept = eligible[lines.output]
    place = np.cumsum(eligible) - 1
    rows: IntArray = place[lines.output[kept]]
    # Numbering the lines by run keeps pairs within a run.
    n_lines = int(lines.line.max(initial=0)) + 1
    return rows, _compact(outputs.run[lines.output[kept]] * n_lines + lines.line[kept])


def _overlaps(
    rows: IntArray, columns: IntArray, *, n_reads: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return (later read, earlier read, shared lines) for all pairs within a run."""
    if n_reads == 0:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    shape = (n_reads, int(columns.max()) + 1)
    ones = np.ones(len(rows), dtype=np.int32)
    matrix = sparse.csr_matrix((ones, (rows, columns)), shape=shape)
    product = sparse.tril(matrix @ matrix.T, k=-1).tocoo()
    return (
        product.row.astype(np.int64),
        product.col.astype(np.int64),
        product.data.astype(np.int64),
    )


def _shown_before(rows: IntArray, columns: IntArray, *, n_reads: int) -> IntArray:
    """Return how many lines of each read stood in any earlier read of its run."""
    first = np.full(int(columns.max(initial=-1)) + 1, n_reads)
    # Reads come in order, so the first write of a reversed pass is the earliest.
    first[columns[::-1]] = rows[::-1]
    counts: IntArray = np.bincount(rows[rows > first[columns]], minlength=n_reads)
    return counts.astype(np.int64)


def _compact(keys: IntArray) -> IntArray:
    """Return keys renumbered from 0 without gaps, in their order."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    numbers = np.zeros(len(keys), dtype=np.int64)
    numbers[1:] = np.cumsum(ordered[1:] != ordered[:-1])
    compact: IntArray = np.empty_like(numbers)
    compact[order] = numbers
    return compact


def _verifies(outputs: Outputs, read: IntArray, source: IntArray) -> BoolArray:
    """Return whether a file that both read and source name was written between them."""
    verifies = np.zeros(len(read), dtype=bool)
    writes = np.flatnonzero(outputs.is_write)
    first = np.searchsorted(writes, source, side="right")
    last = np.searchsorted(writes, read, side="left")
    for i in np.flatnonzero(last > first):
        paths = _paths(outputs, int(read[i])) & _paths(outputs, int(source[i]))
        if paths:
            between = writes[first[i] : last[i]]
            verifies[i] = any(
                path in str(outputs.command[int(w)]) for w in between for path in paths
            )
    return verifies


def _paths(outputs: Outputs, at: int) -> set[str]:
    """Return the words of a command that look like file paths, without a leading `./`."""
    command = outputs.command[at].as_py() or ""
    words = (word.strip("'\"(),;:") for word in command.split())
    return {w.removeprefix("./") for w in words if "." in w.rsplit("/", 1)[-1][1:]}
