"""Which tool outputs are worth a label: the filter and the draw.

See docs/methods.md, SWE-Pruner Pro.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.linehead.recorded_run import RecordedRun
from pipeline.linehead.settings import SampleSettings
from pipeline.views.kept_lines import count_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One tool output of a recorded run."""

    run: RecordedRun
    message_index: int

    @property
    def sample_id(self) -> str:
        """Names the output in every file of the line head."""
        return f"{self.run.run_id}:{self.message_index}"

    @property
    def text(self) -> str:
        """The output as the model first saw it."""
        return self.run.trajectory.messages[self.message_index].content


def samples_of(runs: Iterable[RecordedRun], settings: SampleSettings) -> list[Sample]:
    """Return the outputs to label, in the order of the runs.

    The draws depend on the seed and on what is there, not on the order of files.
    """
    rng = random.Random(settings.seed)
    found = list(_fitting(runs, settings))
    if settings.max_per_run is not None:
        found = _at_most_per_run(found, settings.max_per_run, rng)
    if settings.max_samples is not None and len(found) > settings.max_samples:
        chosen = set(_drawn([s.sample_id for s in found], settings.max_samples, rng))
        found = [s for s in found if s.sample_id in chosen]
    return found


def _fitting(runs: Iterable[RecordedRun], settings: SampleSettings) -> Iterator[Sample]:
    seen: set[str] = set()
    for run in runs:
        for message in run.trajectory.observations():
            n_lines = count_lines(message.content)
            if not message.is_prunable or not settings.min_lines <= n_lines <= settings.max_lines:
                continue
            if settings.drop_repeats and message.content in seen:
                continue
            seen.add(message.content)
            yield Sample(run=run, message_index=message.index)


def _at_most_per_run(found: list[Sample], limit: int, rng: random.Random) -> list[Sample]:
    by_run: dict[str, list[str]] = {}
    for sample in found:
        by_run.setdefault(sample.run.run_id, []).append(sample.sample_id)
    chosen = {i for run_id in sorted(by_run) for i in _drawn(by_run[run_id], limit, rng)}
    return [s for s in found if s.sample_id in chosen]


def _drawn(ids: list[str], limit: int, rng: random.Random) -> list[str]:
    return ids if len(ids) <= limit else rng.sample(sorted(ids), limit)
