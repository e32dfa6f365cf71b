"""Grade what a sweep left ungraded, check a site with the gold patches, or grade a log again.

    python -m pipeline.grade RESULTS             grade on this machine what has no grade yet
    python -m pipeline.grade RESULTS --gold      grade the gold patches; lists what to quarantine
    python -m pipeline.grade --from-log TEST_OUTPUT --instance ID --patch FILE --dataset FILE

Launch grades by itself; this is for what is left, and for after a change of the harness.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.benchmarks.registry import format_of
from pipeline.benchmarks.rows import DatasetError, select_rows
from pipeline.benchmarks.swe_bench.columns import load_rows
from pipeline.benchmarks.swe_qa.format import JudgeGrader
from pipeline.compact import compact_folder
from pipeline.grading.evaluation import eval_site
from pipeline.grading.harness import START_OF_TESTS, grade_log
from pipeline.grading.verdict import UNDECIDED
from pipeline.host.process import hear_interrupts
from pipeline.judging.endpoint import NoJudgeError
from pipeline.planning.display import LiveDisplay, counted
from pipeline.planning.local_run import StuckError, grade_all
from pipeline.planning.progress import progress_of
from pipeline.plural import plural
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError, GradeClass, SandboxError, ServerError
from pipeline.records.layout import Layout
from pipeline.records.lock import LockError, read_lock, read_rows
from pipeline.records.patch import patch_text
from pipeline.records.plan import read_plan
from pipeline.records.states import States
from pipeline.worker.gold import GoldGrade, grade_gold
from pipeline.worker.judge_noise import measure_noise
from pipeline.worker.sandboxes import OpenSandboxes, sandbox_factory

REFUSALS = (
    NoJudgeError,
    ServerError,
    LockError,
    DatasetError,
    StuckError,
    SandboxError,
    DiskError,
    ClaimError,
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, nargs="?", help="the results folder")
    parser.add_argument("--gold", action="store_true", help="grade the gold patches on this site")
    parser.add_argument(
        "--judge-noise", type=int, metavar="N", help="put N graded answers to the judge again"
    )
    log = parser.add_argument_group("a stored test log")
    log.add_argument("--from-log", type=Path, metavar="TEST_OUTPUT", help="the test log")
    log.add_argument("--instance", metavar="ID", help="whose log it is")
    log.add_argument("--patch", type=Path, metavar="FILE", help="the patch that was tested")
    log.add_argument("--dataset", type=Path, metavar="FILE", help="rows in SWE-bench's v5 format")
    log.add_argument("--json", action="store_true", help="print the report as JSON only")
    options = parser.parse_args(arguments)
    hear_interrupts()
    try:
        if options.from_log is not None:
            return _from_log(parser, options)
        if options.results is None:
            parser.error("name a results folder, or a log with --from-log")
        if options.judge_noise:
            return _judge_noise(options.results, options.judge_noise)
        return _gold(options.results) if options.gold else _grade_missing(options.results)
    except KeyboardInterrupt:
        print(
            "\nstopped; finished grades are kept. Run the same command to resume.", file=sys.stderr
        )
        return 130
    except (*REFUSALS, OSError) as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2


def _from_log(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    missing = [
        f"--{name}" for name in ("instance", "patch", "dataset") if getattr(options, name) is None
    ]
    if missing:
        parser.error(f"--from-log also needs {', '.join(missing)}")
    row = select_rows(load_rows(options.dataset), instance_ids=[options.instance])[0]
    patch = patch_text(options.patch.read_bytes())
    with tempfile.TemporaryDirectory(prefix="planprune-") as folder:
        report = grade_log(_readable(options.from_log, Path(folder)), row, patch)
    if options.json:
        print(json.dumps({options.instance: report}))
        return 0
    print(json.dumps({options.instance: report}, indent=2))
    print(f"{options.instance}: {'resolved' if report['resolved'] else 'not resolved'}")
    return 0


def _readable(log: Path, folder: Path) -> Path:
    """Return the log, or a copy in which bytes that are no UTF-8 are replaced, as in a sweep.

    Raises:
        DatasetError: it is text of another kind.
    """
    data = log.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if START_OF_TESTS.encode() not in data:
            raise DatasetError(f"{log} is not a test log: {error}") from None
        print(f"grade: {log}: bytes that are no UTF-8 are replaced ({error})", file=sys.stderr)
        log = folder / log.name
        log.write_text(data.decode(errors="replace"))
    return log


def _grade_missing(results: Path) -> int:
    layout = Layout(results)
    lock, runs = read_lock(layout.lock), read_plan(layout.plan)
    with LiveDisplay(Console(highlight=False)) as display:
        grade_all(layout, lock, runs, display.show)
    compact_folder(results)
    progress = progress_of(layout, runs, States(layout))
    print(
        f"{plural(progress.planned, 'run')} = {counted(progress.grade_classes) or 'none graded'}"
        f" + {progress.planned - sum(progress.grade_classes.values())} without a grade"
    )
    if progress.all_graded:
        return 0
    missing = progress.planned - progress.finished
    ungraded = progress.finished - progress.graded
    if missing:
        print(
            f"grade: {plural(missing, 'planned run has', 'planned runs have')} no valid record; "
            "launch the same sweep again to "
            "run what is missing",
            file=sys.stderr,
        )
    if ungraded:
        print(
            f"grade: {plural(ungraded, 'finished run has', 'finished runs have')} no valid "
            f"grade; {layout.logs} has the "
            "reasons; run the same command to try again",
            file=sys.stderr,
        )
    return 1


def _judge_noise(results: Path, n: int) -> int:
    layout = Layout(results)
    grader = format_of(read_lock(layout.lock).spec.benchmark).grader
    if not isinstance(grader, JudgeGrader):
        raise NoJudgeError(f"{results} is not graded by a judge")
    noise = measure_noise(layout, read_plan(layout.plan), grader, n)
    n_twice = len(noise.first)
    print(
        f"{plural(n_twice, 'answer')} graded twice: {noise.n_equal} with the same score; "
        f"standard deviation of one grading {noise.sd:.3f} (scores from 0 to 1), "
        f"of the mean of {n_twice} "
        f"{noise.sd / max(n_twice, 1) ** 0.5:.3f}; cost so far {grader.asker.budget.spent:,.2f}"
    )
    return 0


def _gold(results: Path) -> int:
    layout = Layout(results)
    spec = read_lock(layout.lock).spec
    rows = list(read_rows(layout.dataset).values())
    sandboxes = OpenSandboxes(sandbox_factory(spec, trusted=True))
    sandboxes.factory.janitor()
    grades = grade_gold(
        rows,
        sandboxes,
        layout.gold,
        concurrency=spec.cluster.grading.concurrency,
        timeout_s=spec.grade_timeout_s,
        site=eval_site(spec.cluster),
        grader=format_of(spec.benchmark).grader,
        say=_say,
    )
    unknown = [g for g in grades if g.grade_class in UNDECIDED]
    bad = [g for g in grades if g.grade_class not in {GradeClass.RESOLVED, *UNDECIDED}]
    n_resolved = len(grades) - len(bad) - len(unknown)
    print(f"gold patches: {n_resolved} of {len(grades)} resolved here")
    for grade in bad:
        print(f"  quarantine {grade.instance_id}: {grade.grade_class}: {grade.reason}")
    for grade in unknown:
        print(f"  undecided {grade.instance_id}: {grade.grade_class}: {grade.reason}")
    if unknown:
        print("undecided instances are unknown: fix the cause, then run this again")
    if bad or unknown:
        names = ",".join(g.instance_id for g in (*bad, *unknown))
        print(f"exclude them before launching: analysis.exclusions=[{names}]")
    return 1 if bad or unknown else 0


def _say(grade: GoldGrade, n_done: int, n_all: int) -> None:
    print(f"{n_done}/{n_all} {grade.instance_id}: {grade.grade_class} in {grade.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
