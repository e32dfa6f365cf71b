"""What makes results doubtful, in the words that a reader needs to mend it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that makes results doubtful."""

    code: str
    sentence: str
    remedy: str
    blocks: bool = True
    """False: a note that every reader should see, which refuses nothing."""
    model: str = ""
    """Whose runs it counts; empty: every model's."""
    agent: str = ""
    """Whose runs it counts; empty: every agent's."""
    arms: tuple[str, ...] = ()
    """Whose runs it counts; empty: every arm's."""
    runs: tuple[str, ...] = ()
    """Ids of the runs that it counts, where it counts runs."""
