"""Foreign commits: hashes that came from nowhere in the run."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.analysis.behaviour.foreign import names_foreign_commit
from pipeline.shell.leaks import looks_at_other_commits

LOG = ("git log --oneline -3", "a19b528 Fix the parser\n77c0d1e Start")
SHOW = ("git show a19b528", "commit a19b528c11\nAuthor: A\n\n    Fix the parser")


def foreign(*steps: tuple[str, str], runs: list[int] | None = None) -> list[bool]:
    commands = [command for command, _ in steps]
    found = names_foreign_commit(
        np.array(runs or [0] * len(steps)),
        commands,
        pa.array([output for _, output in steps]),
        np.array([looks_at_other_commits(c) for c in commands]),
    )
    return [bool(f) for f in found]


def test_a_commit_that_the_history_showed_is_not_foreign():
    assert foreign(LOG, SHOW) == [False, False]


def test_the_whole_hash_of_a_commit_that_was_shown_shortened_is_not_foreign():
    assert foreign(LOG, ("git show a19b528c11", "commit a19b528c11")) == [False, False]


def test_a_commit_that_nothing_had_shown_is_foreign():
    assert foreign(SHOW) == [True]
    assert foreign(("ls", "a.py"), SHOW, LOG) == [False, True, False], "later outputs do not count"


def test_showing_a_foreign_commit_does_not_make_it_known():
    assert foreign(SHOW, SHOW) == [True, True]


def test_what_other_branches_showed_stays_foreign():
    assert foreign(("git log --all --oneline", LOG[1]), SHOW) == [False, True]


def test_runs_do_not_show_for_each_other():
    assert foreign(LOG, SHOW, runs=[0, 1]) == [False, True]


@pytest.mark.parametrize(
    "answer",
    [
        "fatal: bad object a19b528",
        "fatal: ambiguous argument 'a19b528': unknown revision or path not in the working tree.",
        "fatal: Not a valid object name a19b528",
        "error: pathspec 'a19b528' did not match any file(s) known to git",
    ],
)
def test_a_hash_that_git_does_not_know_shows_nothing(answer: str):
    assert foreign(("git show a19b528", answer)) == [False]
