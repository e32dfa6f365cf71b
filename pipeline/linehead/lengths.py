"""Length buckets: what the head is told about how long an output is."""

from bisect import bisect_left

EDGES = (2, 5, 10, 20, 50, 100, 200)
"""The largest line count of each bucket but the last: an edge belongs to the lower bucket, as in
the published heads."""

N_BUCKETS = len(EDGES) + 1


def length_bucket(n_lines: int) -> int:
    """Return the bucket, 0 to 7, of an output with `n_lines` lines."""
    return bisect_left(EDGES, n_lines)


def bucket_name(bucket: int) -> str:
    """Return the bucket's line counts as people write them: `0-2`, `3-5`, ..., `201+`."""
    low = 0 if bucket == 0 else EDGES[bucket - 1] + 1
    return f"{low}+" if bucket == len(EDGES) else f"{low}-{EDGES[bucket]}"
