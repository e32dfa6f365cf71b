"""The distinct lines of outputs, as numbers: what re-fetches are found by.

Everything is Arrow and NumPy over a whole batch of outputs: a full sweep has some hundred million
lines. What makes two lines equal is `pipeline.shell.lines`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analysis.arrays import BoolArray, IntArray
from pipeline.shell.lines import comparable


@dataclass(frozen=True, kw_only=True, slots=True)
class DistinctLines:
    """Which output holds which line; sorted by output, then line, each pair once."""

    output: IntArray
    """Place in the batch."""
    line: IntArray
    """Number of the line, the same for equal lines of a batch."""
    counts: IntArray
    """Distinct lines of each output of the batch."""


def distinct_lines(contents: pa.Array, numbered: BoolArray) -> DistinctLines:
    """Return the distinct lines of each text of a batch; null texts have none.

    Args:
        contents: the texts.
        numbered: which of them may have numbers before their lines.
    """
    pieces = pc.split_pattern(contents, "\n")
    output = pc.list_parent_indices(pieces).to_numpy(zero_copy_only=False)
    lines = pc.list_flatten(pieces)
    # A file of 10,000 lines has few distinct ones across reads, and only those need the regexes.
    encoded = lines.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    forms = [comparable(encoded.dictionary, numbered=stripped) for stripped in (False, True)]
    again = pa.concat_arrays(forms).dictionary_encode()
    final = again.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    final = final[codes + len(encoded.dictionary) * numbered[output]]
    kept = ~pc.equal(again.dictionary, "").to_numpy(zero_copy_only=False)[final]
    n_lines = max(len(again.dictionary), 1)
    keys = _sorted_distinct(output[kept].astype(np.int64) * n_lines + final[kept])
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
