r"""The distinct lines of outputs, as numbers: what re-fetches are found by.

Raw text, without what a scaffold's template puts around it. Line numbers (`cat -n`, `nl`,
`grep -n`), `path:NN:` prefixes, trailing space and blank lines are stripped, so that the same code
read by `sed` and by `grep -n` is the same line.

Everything is Arrow and NumPy over a whole batch of outputs: a full sweep has some hundred million
lines.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analysis.arrays import IntArray

_NUMBERING = r"^(?:[\w./+@-]+[:-])?\d+[:\-]|^\s*\d+\t"
"""`path:12:`, `12:`, grep's context form `12-`, and `   12<tab>`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DistinctLines:
    """Which output holds which line; sorted by output, then line, each pair once."""

    output: IntArray
    """Place in the batch."""
    line: IntArray
    """Number of the line, the same for equal lines of a batch."""
    counts: IntArray
    """Distinct lines of each output of the batch."""


def distinct_lines(contents: pa.Array) -> DistinctLines:
    """Return the distinct lines of each text of a batch; null texts have none."""
    pieces = pc.split_pattern(contents, "\n")
    output = pc.list_parent_indices(pieces).to_numpy(zero_copy_only=False)
    lines = pc.list_flatten(pieces)
    # A file of 10,000 lines has few distinct ones across reads, and only those need the regexes.
    encoded = lines.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    stripped = pc.utf8_trim_whitespace(
        pc.replace_substring_regex(encoded.dictionary, _NUMBERING, "", max_replacements=1)
    )
    again = stripped.dictionary_encode()
    final = again.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    empty = pc.equal(stripped, "").to_numpy(zero_copy_only=False)
    kept = ~empty[codes]
    n_lines = max(len(again.dictionary), 1)
    keys = _sorted_distinct(output[kept].astype(np.int64) * n_lines + final[codes[kept]])
    owners = keys // n_lines
    return DistinctLines(
        output=owners,
        line=keys % n_lines,
        counts=np.bincount(owners, minlength=len(contents)).astype(np.int64),
    )


def _sorted_distinct(keys: IntArray) -> IntArray:
    """Return the distinct keys in order; several times quicker here than `numpy.unique`."""
    keys.sort()
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    return keys[first]
