"""Recorded runs as load for a model server, and the settings of the server to compare under it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.fields.bounds import Amount, Count
from pipeline.fields.identity import Runtime


@dataclass(frozen=True, kw_only=True)
class ServingSetting:
    """One way to serve; the rest is as the model's config says."""

    flags: Runtime[tuple[str, ...]] = ()
    """Words of `vllm serve`, after those of the model; of a flag given twice the last counts."""
    slots: Runtime[Count | None] = None
    """Runs at once; None: `cluster.rollout.concurrency`."""
    priority: Runtime[bool] = False
    """Send each call with the number of calls that its run still has to make: fewer go first."""


@dataclass(frozen=True, kw_only=True)
class LoadSpec:
    """What `+sweep=serving` plays back, and to which servers."""

    settings: Runtime[Mapping[str, ServingSetting]]
    """By name; the first is what the others are compared with."""
    trajectories: Runtime[str | None] = None
    """Trajectory files in a folder, one file, or a results folder."""
    runs: Runtime[Count] = 32
    """How many runs are played; recordings are taken in turn."""
    max_calls: Runtime[Count | None] = None
    """Calls of a run beyond these are left out; None: all are made."""
    max_answer_tokens: Runtime[Count | None] = None
    """Longer answers are cut to these; None: as long as recorded."""
    pace: Runtime[Amount] = 1.0
    """Times the recorded waits between an answer and the next call."""

    def __post_init__(self) -> None:
        if not self.settings:
            raise ValueError("load.settings: name a setting at least, such as default: {}")
