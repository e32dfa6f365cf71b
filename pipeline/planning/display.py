"""What a person sees of a sweep: the live display, the status page, the plan of a dry run."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.planning.estimate import hours_text
from pipeline.planning.progress import FailedRun, Progress
from pipeline.planning.situation import GpuHours, Situation
from pipeline.plural import plural
from pipeline.records.plan import PlannedRun

PLAIN_EVERY_S = 10.0
MAX_FAILED = 10
"""Failed runs that the status page names."""


class LiveDisplay:
    """Shows progress in place on a terminal, as a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._last_line_at = 0.0
        self._last_phase = ""

    def __enter__(self) -> "LiveDisplay":
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, phase: str, progress: Progress) -> None:
        """Show `progress`; `phase` is what is being done."""
        if self._live is not None:
            self._live.update(live_view(phase, progress))
            return
        now = time.monotonic()
        if phase != self._last_phase or now - self._last_line_at >= PLAIN_EVERY_S:
            self._last_phase, self._last_line_at = phase, now
            self._console.print(f"{phase}: {one_line(progress)}", highlight=False)


def one_line(progress: Progress) -> str:
    """Return the state of a sweep in one line."""
    parts = [
        f"{progress.finished}/{progress.planned} runs",
        f"{progress.graded} graded",
        f"{progress.running} running",
    ]
    if progress.infra_failed:
        parts.append(f"{progress.infra_failed} infrastructure failures, to be repeated")
    if progress.tokens_per_s:
        parts.append(f"{progress.tokens_per_s:,.0f} tokens/s")
    if progress.eta_s is not None and not progress.all_run:
        parts.append(f"{duration(progress.eta_s)} left")
    return ", ".join(parts)


def live_view(phase: str, progress: Progress) -> RenderableType:
    """Return the in-place display."""
    done = progress.graded if phase == "grading" else progress.finished
    bar = ProgressBar(total=max(1, progress.planned), completed=done, width=40)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(phase, style="bold"), bar, Text(f"{done}/{progress.planned}"))
    return Group(grid, Text(one_line(progress), style="dim"))


def status_view(progress: Progress) -> RenderableType:
    """Return the progress of a sweep, cell by cell."""
    table = Table(title=None, header_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in ("model", "agent", "arm", "seed"):
        table.add_column(column)
    for column in ("planned", "finished", "failed (ours)", "graded", "format errors"):
        table.add_column(column, justify="right")
    for cell in progress.cells:
        counts = (cell.planned, cell.finished, cell.infra_failed, cell.graded)
        errors = f"{cell.format_errors:,}"
        if cell.calls_as_text:
            errors += f" ({plural(cell.calls_as_text, 'call')} as text)"
        names = (cell.model, cell.agent, cell.arm, str(cell.seed))
        table.add_row(*names, *map(str, counts), errors)
    lines = [Text(one_line(progress), style="bold")]
    if progress.failure_classes:
        lines.append(Text("runs by ending: " + counted(progress.failure_classes)))
    if progress.grade_classes and progress.all_graded:
        lines.append(Text("grades: " + counted(progress.grade_classes)))
    lines += [
        Text(f"{arm} was ended: {n} of its planned runs are not made")
        for arm, n in progress.ended_arms.items()
    ]
    lines += map(Text, failed_lines(progress.failed))
    lines += [Text(worker_line(worker)) for worker in progress.workers]
    if not progress.all_run:
        lines += [Text(stopped_line(worker), style="red") for worker in progress.stopped]
    lines += [
        Text(f"journal {name} is damaged; its readable part counts", style="yellow")
        for name in progress.damaged_journals
    ]
    return Group(table, *lines)


def failed_lines(failed: Sequence[FailedRun]) -> Iterator[str]:
    """Yield the failed runs by id and class, and how to see what became of one."""
    for run in failed[:MAX_FAILED]:
        times = f", {run.attempts} times" if run.attempts > 1 else ""
        yield f"failed: {run.run_id}  {run.failed_as}{times}"
    if len(failed) > MAX_FAILED:
        yield f"failed: {len(failed) - MAX_FAILED} more; --json lists them all"
    if failed:
        yield "why: python -m pipeline.show RESULTS RUN_ID"


def situation_view(now: Situation) -> RenderableType:
    """Return the page that `status` shows."""
    parts: list[RenderableType] = [status_view(now.progress)]
    if now.queue:
        reasons = f" (pending: {counted(now.pending)})" if now.pending else ""
        parts.append(Text("queue: " + counted(now.queue) + reasons))
    if now.gpu_hours.used or now.gpu_hours.left:
        parts.append(Text(gpu_hours_line(now.gpu_hours)))
    for finding in now.findings:
        parts.append(Text(finding.what, style="yellow"))
        parts.append(Text(f"-> {finding.do}"))
    return Group(*parts)


def gpu_hours_line(hours: GpuHours) -> str:
    """Return what a sweep has used of GPUs, will use and may use, in one line."""
    cap = "" if hours.cap is None else f", {hours_text(hours.cap)} allowed"
    used, left = hours_text(hours.used), hours_text(hours.left)
    return f"GPU-hours: {used} used, about {left} for open runs{cap}"


def worker_line(worker: Mapping[str, Any]) -> str:
    """Return one live worker in one line."""
    return (
        f"worker {worker.get('worker')} on {worker.get('host')}: "
        f"{worker.get('finished', 0)} finished, {len(worker.get('in_flight') or ())} in flight, "
        f"last sign {worker.get('age_s', 0.0):.0f} s ago"
    )


def stopped_line(worker: Mapping[str, Any]) -> str:
    """Return why a worker ended, in one line."""
    return (
        f"worker {worker.get('worker')} on {worker.get('host')} stopped "
        f"{duration(worker.get('age_s', 0.0))} ago: {worker.get('stopped')}"
    )


def grid_view(runs: Sequence[PlannedRun]) -> RenderableType:
    """Return the cells of a plan as a table."""
    cells = Counter((run.benchmark, run.model, run.agent, run.arm, run.seed) for run in runs)
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in ("benchmark", "model", "agent", "arm", "seed"):
        table.add_column(column)
    table.add_column("runs", justify="right")
    for key, n_runs in sorted(cells.items()):
        table.add_row(*map(str, key), str(n_runs))
    return table


def counted(counts: Mapping[str, int]) -> str:
    """Return counts as `3 ok, 1 limit_steps`, most frequent first."""
    return ", ".join(f"{n} {name}" for name, n in Counter(dict(counts)).most_common())


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
