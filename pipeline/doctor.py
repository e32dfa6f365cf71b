"""Check this machine and its cluster before a sweep is launched, and say what to fix.

    python -m pipeline.doctor [cluster=NAME] [+sweep=NAME] [key=value ...]
    python -m pipeline.doctor --server URL [model=NAME]

Takes launch's words, so that it checks what launch would use; without a sweep it takes the demo's.
With --server it holds a short conversation with a running server (http://HOST:PORT/v1): its model,
its window, the fields it takes, how it counts, and what its prefix cache makes of an edited
history (docs/foreign-servers.md). On many clusters containers and GPUs are on compute nodes only:
use slurm/doctor.sbatch there.

Exit status: 0 all well, 1 something to look at, 2 a sweep would fail.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.benchmarks.rows import DatasetError
from pipeline.host.environment import environment
from pipeline.planning.config import ConfigError, sweep_spec
from pipeline.planning.doctor import Check, Level, fail, ok, warn, worst
from pipeline.planning.doctor_disk import disk_checks
from pipeline.planning.doctor_host import host_checks
from pipeline.planning.doctor_server import server_report
from pipeline.planning.doctor_slurm import slurm_checks
from pipeline.planning.estimate import estimated
from pipeline.planning.history import History
from pipeline.planning.limits import limit_problems, limit_remarks
from pipeline.planning.prepare import prepare
from pipeline.planning.problem import runnable
from pipeline.plural import plural
from pipeline.records.failure import ServerError
from pipeline.records.layout import Layout
from pipeline.records.plan import PlannedRun
from pipeline.spec.sweep import SweepSpec

STATUS = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}
STYLE = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help="as for launch")
    parser.add_argument("--server", metavar="URL", help="URL of a running server, up to /v1")
    parser.add_argument("--json", action="store_true", help="with --server: print one JSON object")
    options = parser.parse_intermixed_args(arguments)
    if options.json and options.server is None:
        parser.error("--json needs --server; site checks print a table only")
    words = list(options.words)
    if not any(word.lstrip("+").startswith("sweep=") for word in words):
        words.insert(0, "+sweep=demo")
    try:
        spec = sweep_spec(_with_address(words, options.server))
        if options.server is not None:
            return _server(spec, options.server, as_json=options.json)
        checks = list(site_checks(spec))
    except ConfigError as error:
        print(f"doctor: {error}", file=sys.stderr)
        return 2
    _show(checks, words, on_slurm=spec.cluster.kind == "slurm")
    return STATUS[worst(checks)]


def site_checks(spec: SweepSpec) -> Iterator[Check]:
    """Yield every check of the site that `spec` would run on."""
    runs: Sequence[PlannedRun] = ()
    yield from host_checks(spec, environment())
    try:
        sweep = prepare(spec)
    except DatasetError as error:
        problem, _, fix = str(error).partition("; ")
        yield fail("dataset", problem, fix or "python -m pipeline.stage dataset --help")
    else:
        runs = sweep.runs
        yield ok("dataset", f"{plural(len(sweep.rows), 'instance')}, {plural(len(runs), 'run')}")
    yield from disk_checks(spec, estimated(spec, runs))
    yield from _limits(spec)
    yield from slurm_checks(Layout(Path(spec.results)), spec)


def _limits(spec: SweepSpec) -> Iterator[Check]:
    refused = list(limit_problems(spec, History()))
    for problem in refused:
        yield fail("limits", problem.message, problem.field)
    for remark in limit_remarks(spec, History()):
        key, _, message = remark.partition(": ")
        yield warn("limits", message, key)
    if not refused:
        yield ok("limits", "jobs are long enough for a run and for a grading")


def _show(checks: Sequence[Check], words: Sequence[str], *, on_slurm: bool) -> None:
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in checks:
        style = STYLE[check.level]
        table.add_row(f"[{style}]{check.level.value}[/]", check.name, check.found)
        if check.fix:
            table.add_row("", "", f"-> {runnable(check.fix, words, on_slurm=on_slurm)}")
    console.print(table)
    counts = {level: sum(c.level is level for c in checks) for level in Level}
    print(", ".join(f"{n} {level.value}" for level, n in counts.items()))


def _server(spec: SweepSpec, url: str, *, as_json: bool) -> int:
    if len(spec.models) != 1:
        print("doctor: name the model that the server runs: model=NAME", file=sys.stderr)
        return 2
    (model,) = (replace(m, base_url=url) for m in spec.models.values())
    try:
        report = server_report(spec, model, environment())
    except (ServerError, ValueError) as error:
        print(f"doctor: {url}: {error}", file=sys.stderr)
        return 2
    probe = report.probe
    if as_json:
        found = asdict(probe) if probe is not None else {}
        print(json.dumps({**found, "checks": [asdict(c) for c in report.checks]}, indent=2))
    else:
        _show(report.checks, (), on_slurm=False)
        if probe is not None and (said := probe.text()):
            print(said)
    return STATUS[worst(report.checks)]


def _with_address(words: Sequence[str], url: str | None) -> list[str]:
    """Return `words` with the server's address where they name an endpoint without one."""
    given = any(re.match(r"\+*model\.base_url=", word) for word in words)
    if url is None or given or "model=endpoint" not in words:
        return list(words)
    return [*words, f'model.base_url="{url}"']


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
