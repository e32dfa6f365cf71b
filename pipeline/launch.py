"""Launch a sweep, or go on with one: expand, validate, lock, run or submit, grade, report.

    python -m pipeline.launch +sweep=NAME [cluster=local|slurm|grace] [key=value ...]

Sweeps are files in conf/sweep. `dry_run=true` prints cells, runs, jobs and cost and writes nothing.
Launching again resumes: only what is missing, or failed on our side, is run.

Keys of every day:
    results=DIR       results folder (default: results/<sweep>)
    model=NAME        a model of conf/model, instead of the sweep's
    dataset=PATH      file with the benchmark's rows (json, jsonl or parquet)
    sandbox=KIND      local | apptainer
    seeds=[0,1,2]     replicates
    instances.sample=25, instances.ids=[ID,...]
    arms.NAME.KEY=VALUE   a parameter of one arm; +arm@arms.NEW=ARM adds an arm
    max_gpu_hours=N   a cap over all launches of the sweep: workers stop at it
    submit=false      write lock and plan only, for `grade --gold` before the first run
    force=true        submit although earlier jobs may be alive
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.analyze import analyze_folder
from pipeline.benchmarks.rows import DatasetError
from pipeline.compact import compact_folder
from pipeline.host.interruption import ended_like_ctrl_c
from pipeline.host.slurm_facts import has_slurm
from pipeline.planning.cluster_run import (
    AliveError,
    refuse_while_alive,
    site_problems,
    submit_sweep,
)
from pipeline.planning.config import ConfigError, known, sweep_spec
from pipeline.planning.disk_estimate import disk_text
from pipeline.planning.display import LiveDisplay, grid_view
from pipeline.planning.estimate import Estimate, estimate_text, estimated
from pipeline.planning.folder import FolderError, check_folder, write_folder
from pipeline.planning.history import History, history_of
from pipeline.planning.judge_check import judge_remark
from pipeline.planning.levers import levers_text
from pipeline.planning.limits import limit_remarks
from pipeline.planning.local_run import StuckError, run_all
from pipeline.planning.preflight import expected_hours, problems
from pipeline.planning.prepare import Prepared, prepare
from pipeline.planning.problem import Problem, runnable
from pipeline.planning.submit import SubmitError
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError, SandboxError, ServerError
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError
from pipeline.records.states import run_states
from pipeline.sessions.recordings import SourceError
from pipeline.sessions.serving_load import serving_table
from pipeline.spec.parse import plain
from pipeline.spec.published import differences

REFUSALS = (
    *(ConfigError, DatasetError, FolderError, LockError, DiskError),
    *(StuckError, AliveError, SubmitError, ClaimError, SandboxError),
    *(ServerError, SourceError),
)


_LOCKED = """locked; nothing was submitted, and settings may still change until then
next: python -m pipeline.grade {root} --gold    (can this site grade these instances?)
then: launch again without submit=false"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    console = Console(highlight=False, soft_wrap=True)
    if not arguments or {"-h", "--help"} & set(arguments):
        console.print(__doc__, markup=False)
        for group in ("sweep", "arm", "model", "cluster"):
            console.print(f"{group}s: {', '.join(known(group))}", markup=False)
        return 0
    try:
        return launch(arguments, console)
    except REFUSALS as error:
        print(f"launch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; finished runs are kept. Launch again to resume.", file=sys.stderr)
        return 130


def launch(overrides: Sequence[str], console: Console) -> int:
    """Launch what `overrides` describe; return the exit status."""
    spec = sweep_spec(overrides)
    if spec.load is not None:
        # A server that this process leaves behind would keep its GPU.
        with ended_like_ctrl_c():
            for line in serving_table(spec, spec.load):
                console.print(line, markup=False)
        return 0
    layout = Layout(Path(spec.results))
    opened, sweep = check_folder(layout, prepare(spec))
    states = run_states(layout) if opened != "new" else {}
    past = history_of(layout, sweep.runs, states)
    estimate = estimated(spec, past.todo, run_s=past.mean_wall_s)
    console.print(f"sweep {spec.name} ({opened}) in {layout.root}", markup=False)
    if spec.dry_run or opened != "resumed":
        console.print(grid_view(sweep.runs))
    if past.todo:
        said = estimate_text(
            estimate,
            used_gpu_hours=past.used_gpu_hours,
            expected_gpu_hours=expected_hours(sweep, estimate, past),
        )
        console.print(said, markup=False)
    if spec.dry_run:
        console.print(plan_text(sweep), markup=False)
        console.print(disk_text(spec, sweep.rows, len(past.todo)), markup=False)
    on_slurm = spec.cluster.kind == "slurm"
    if on_slurm and not (spec.dry_run or spec.force):
        refuse_while_alive(layout)
    status = _check(layout, sweep, estimate, past, overrides, console)
    if status is not None:
        return status
    write_folder(layout, sweep, opened)
    if not spec.submit:
        console.print(_LOCKED.format(root=layout.root), markup=False)
        return 0
    return _carry_out(layout, sweep, console)


def plan_text(sweep: Prepared) -> str:
    """Return what levers would save of a sweep that is not launched yet, and its power."""
    # SciPy takes a second to import, which a launch need not pay.
    from pipeline.analysis.planned_power import power_text

    spec = sweep.lock.spec
    n_instances = len({run.instance_id for run in sweep.runs})
    gpu_hours = estimated(spec, sweep.runs).gpu_hours
    power = power_text(spec.analysis, n_instances=n_instances)
    return f"{levers_text(spec, sweep.runs, gpu_hours)}\n{power}"


def _check(
    layout: Layout,
    sweep: Prepared,
    estimate: Estimate,
    past: History,
    words: Sequence[str],
    console: Console,
) -> int | None:
    """Say every problem; return the exit status if this launch ends here, else None."""
    spec = sweep.lock.spec
    found = problems(sweep, estimate, past)
    if spec.study is not None:
        for difference in differences(spec.study, plain(spec)):
            console.print(f"note: not as in {spec.study.source}: {difference}", markup=False)
    if past.todo:
        judging = judge_remark(spec, sweep.rows, past.todo)
        for remark in (*limit_remarks(spec, past), *([judging] if judging else [])):
            console.print(f"note: {remark}", markup=False)
    at_site: list[Problem] = []
    if spec.cluster.kind == "slurm" and not found and (has_slurm() or not spec.dry_run):
        at_site = list(site_problems(layout, sweep))
    for problem in (*found, *at_site):
        said = runnable(str(problem), words, on_slurm=spec.cluster.kind == "slurm")
        print(f"launch: {said}", file=sys.stderr)
    if spec.dry_run:
        # A plan may be looked at anywhere; only the sweep's own problems fail a dry run.
        console.print("dry run: nothing was written")
        return 2 if found else 0
    return 2 if found or at_site else None


def _carry_out(layout: Layout, sweep: Prepared, console: Console) -> int:
    """Submit or run what is open; once nothing is, compact, analyse and print the paired table."""
    if sweep.lock.spec.cluster.kind == "slurm":
        if submit_sweep(layout, sweep, console):
            return 0
    else:
        with LiveDisplay(console) as display:
            run_all(layout, sweep.lock, sweep.runs, display.show)
    compact_folder(layout.root)
    if sweep.lock.spec.analyze and sweep.lock.spec.grade:
        return analyze_folder(layout.root, console)
    console.print(f"done; next: python -m pipeline.analyze {layout.root}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
