"""May another run start? The job's end, and how long runs take.

A run that cannot end before its job does is lost work, so none is started when less time is left
than the 95th percentile of run times plus a margin. Pure arithmetic on clocks that are passed in;
signals and other reasons to stop are `pipeline.worker.stopping`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

MORE_THAN_IN_VAIN = 1.1
"""A run that its job cut short is begun again where it has so much more time than it had there."""
KNOWN_RUNS = 5
"""Until so many run times are known, the configured expectation is used."""


def percentile_95(values: list[float]) -> float:
    """Return the nearest-rank 95th percentile.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no run times")
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


@dataclass(slots=True)
class Deadline:
    """When this job ends, and what a run takes."""

    end_unix_s: float | None
    """None: nobody will end us."""
    margin_s: float
    """Kept free for draining and teardown."""
    expected_wall_s: float
    now_unix_s: Callable[[], float]
    setup_s: float = 0.0
    """What must come up before a run can begin (a server) takes; 0 once it is up."""
    wall_s: list[float] = field(default_factory=list)
    """Run times known so far, those of other workers included."""

    @property
    def run_s(self) -> float:
        """Return the time to allow a run."""
        if len(self.wall_s) < KNOWN_RUNS:
            return self.expected_wall_s
        return percentile_95(self.wall_s)

    @property
    def left_s(self) -> float:
        """Return the time until the job's end, infinite where there is none."""
        return math.inf if self.end_unix_s is None else self.end_unix_s - self.now_unix_s()

    @property
    def room_s(self) -> float:
        """Return the time that a run has which starts now."""
        return self.left_s - self.setup_s - self.margin_s

    def may_start(self) -> bool:
        """Return whether a run that starts now is likely to end in time."""
        return self.room_s >= self.run_s

    def is_hopeless(self, had_s: float | None) -> bool:
        """Return whether a run that a job cut short after `had_s` would end no better here."""
        return had_s is not None and self.room_s < had_s * MORE_THAN_IN_VAIN

    def must_abort(self, reserve_s: float) -> bool:
        """Return whether runs in flight have to be given up, to publish and clean up in time."""
        return self.left_s <= reserve_s
