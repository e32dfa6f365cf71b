"""May the sweep go on using GPUs? Its cap, against what all workers of all launches have used.

Counted with what the workers that live now will still use for the runs that they have begun, so
that the cap is what the sweep has used when the last of them ends. Read from the folder now and
then; what another worker is about to report is not known, so a cap is kept to some minutes.
"""

import time
from collections.abc import Callable

from pipeline.records.layout import Layout
from pipeline.records.usage import Usage, usage_of

LOOK_EVERY_S = 20.0


class GpuBudget:
    """One worker's view of the cap."""

    def __init__(
        self,
        layout: Layout,
        max_gpu_hours: float | None,
        run_s: Callable[[], float],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            layout: the results folder.
            max_gpu_hours: the cap; None: none.
            run_s: how long a run takes that is begun now.
            now_s: monotonic seconds.
        """
        self._layout, self._cap, self._run_s, self._now_s = layout, max_gpu_hours, run_s, now_s
        self._due_s = -1.0
        self._is_spent = False
        self._ended: dict[str, Usage] = {}

    def is_spent(self) -> bool:
        """Return whether no run may be begun any more."""
        if self._cap is None:
            return False
        now_s = self._now_s()
        if now_s >= self._due_s:
            self._due_s = now_s + LOOK_EVERY_S
            self._is_spent = self._expected_gpu_hours() >= self._cap
        return self._is_spent

    def _expected_gpu_hours(self) -> float:
        usages = usage_of(self._layout, self._ended)
        begun_s = self._run_s()
        return sum(u.gpu_hours + u.is_live * u.gpus * begun_s / 3600 for u in usages)
