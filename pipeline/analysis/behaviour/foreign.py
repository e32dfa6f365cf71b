"""Foreign commits: a command that names a commit which nothing in the run had shown.

See docs/methods.md, Leaks.

A hash is of the task's own past if an earlier output of the run showed it, from a command that did
not itself look at other commits: `git log`, `git blame`, a changelog. A hash that git did not know
shows nothing. What is left came from the model's memory, and it showed a commit.

The limit: the tables hold no history of the repository, so whether such a commit lies after the
task's is not known, and one of its past that the model remembers counts as well. Hashes in a task's
text, or in an output's part that the scaffold cut out, are not seen either.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.analysis.arrays import BoolArray, IntArray
from pipeline.shell.leaks import named_commit

MIN_HASH = 7
"""Characters by which git shortens a hash, and by which two are compared."""

_NOT_KNOWN = re.compile(
    r"fatal: (?:bad object|bad revision|ambiguous argument|invalid object name|"
    r"Not a valid object name)|error: pathspec|fatal: invalid reference"
)


def names_foreign_commit(
    run: IntArray, commands: Sequence[str], contents: pa.Array, looks_elsewhere: BoolArray
) -> BoolArray:
    """Return which commands of a batch showed a commit that nothing in their run had shown.

    Args:
        run: place of each output's run; not decreasing.
        commands: of each output.
        contents: each output's text.
        looks_elsewhere: commands that look at other commits; what they show is no one's past.
    """
    foreign = np.zeros(len(commands), dtype=bool)
    hashes = {command: named_commit(command) for command in set(commands)}
    for at, command in enumerate(commands):
        commit = hashes[command]
        if commit is None or _NOT_KNOWN.search(contents[at].as_py() or ""):
            continue
        first = int(np.searchsorted(run, run[at]))
        earlier = (i for i in range(first, at) if not looks_elsewhere[i] and not foreign[i])
        foreign[at] = not any(commit[:MIN_HASH] in (contents[i].as_py() or "") for i in earlier)
    return foreign
