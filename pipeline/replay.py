"""What each arm would have sent over recorded runs: tokens, three views of the cache, break-even.

    python -m pipeline.replay PATH... --arms ARM... [--pricing NAME] [--json]
    python -m pipeline.replay sessions
    python -m pipeline.replay PILOT... --pilot ARM [--values V...] [--match-on WHAT] [--as NAME]

PATH is a file of a format in docs/trajectories.md, a folder that holds some, a results folder of
ours, or the name of a tool whose sessions are on this machine: claude-code, codex, opencode.
`sessions` lists those, newest first, without opening any. ARM is the name of a file in conf/arm, of
one of the 42 deletions, `grid42` or `all`; parameters are changed as in
`observation_mask[keep_last_turns=5]`. A file that cannot be read is named, and the others are
replayed. No GPU, no model.

`--pilot` finds the values of an arm's parameter that meet three budgets on pilot recordings (or,
without --values, on the runs of a pilot sweep) and writes them for `+sweep=budget_matched`:
docs/budgets.md.

Replay holds the recorded behavior fixed. It does not predict what the agent would have done with
another view: no re-reading, no other steps, no other outcome.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import yaml
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from pipeline.accounting.template import TemplateRules
from pipeline.host.environment import environment
from pipeline.records.foreign.files import repeated_in
from pipeline.records.ingested import ARM as RECORDED_ARM
from pipeline.replaying.calibration import (
    SHARES,
    Pilot,
    levels_of,
    merged_text,
    pilot_of_runs,
    report_lines,
)
from pipeline.replaying.money_answer import answer_lines
from pipeline.replaying.pilot import measured, pilot_points
from pipeline.replaying.replay import Replayer, ReplaySettings
from pipeline.replaying.replay_choices import RULES, AnswerLengths
from pipeline.replaying.replay_report import REFERENCE, Priced, table_lines
from pipeline.replaying.self_check import SelfCheck, total
from pipeline.sessions.found import TOOLS, all_sessions, listing, sessions_of
from pipeline.sessions.jobs import Done, Job, replay_all, replayed
from pipeline.sessions.kept import replayed_or_kept
from pipeline.sessions.page import Dearest, session_page
from pipeline.sessions.recordings import (
    SourceError,
    counter_for,
    counter_named,
    recordings,
    sources,
)
from pipeline.spec.arm import ArmSpec, MatchOn
from pipeline.spec.deletion_grid import deletion_grid
from pipeline.spec.parse import SpecError, parsed
from pipeline.spec.pricing import Pricing, pricing_from

MAX_NOTES = 20
LISTING = Path("sessions")
"""Named alone, it stands for what is on this machine."""
CONF = Path(__file__).resolve().parents[1] / "conf"


class ReplayError(Exception):
    """Something the command line named cannot be used; the message says what can."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.json and options.html is not None:
        print("replay: --html has the table in it; leave --json out", file=sys.stderr)
        return 2
    try:
        return _replay(options)
    except (ReplayError, SourceError, SpecError, OSError, ValueError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("trajectories", type=Path, nargs="+", metavar="PATH")
    add("--arms", nargs="+", default=[REFERENCE], metavar="ARM")
    add("--pricing", help="a name in conf/pricing, or a file; by default ratios, or a tool's usual")
    add("--prices", metavar="LIST", help="the list of the pricing that `caching` is billed by")
    add("--json", action="store_true", help="print one object a trajectory and arm")
    add("--html", type=Path, metavar="FILE", help="write one page that holds all it shows")
    add("--no-text", action="store_true", help="nothing that anybody wrote on the page")
    add("--calls", type=Path, metavar="FILE", help="write one JSON object a call to FILE")
    add(
        "--cleanup-choice",
        choices=sorted(RULES),
        default="unused",
        help="used where a recording has no model answer",
    )
    add("--cleanup-every", type=int, default=10, help="turns per step if a recording has no plan")
    add("--cleanup-output", type=int, default=300, help="tokens of an unrecorded answer")
    add("--template", choices=get_args(TemplateRules), default="keep_reasoning")
    add("--block", type=int, default=16, help="tokens per block of the server's cache")
    add("--context-length", type=int, default=131_072)
    add("--seed", type=int, default=0)
    add("--token-counter", metavar="NAME", help="what counts single texts (docs/trajectories.md)")
    add("--pilot", metavar="ARM", help="calibrate this arm's parameter to three budgets")
    add(
        "--values",
        type=float,
        nargs="+",
        help="parameter values to replay; default: use recorded runs",
    )
    add(
        "--match-on",
        choices=get_args(MatchOn),
        default="mean_prompt",
        help="measure that the budget refers to",
    )
    add("--budgets", type=float, nargs="+", default=SHARES, help="tokens, or shares up to 1")
    add("--as", dest="alias", metavar="NAME", help="name prefix of the calibrated arms")
    add("--out", type=Path, default=CONF / "arms" / "budgets.yaml", help="file for --pilot")
    add("--no-cache", action="store_true", help="do not keep the results of large logs")
    add("--processes", type=int, default=os.cpu_count() or 1)
    return parser


def _calibrate(options: argparse.Namespace) -> int:
    """Write the levels of one arm into a file of conf/arms."""
    arm = _named(options.pilot, _arm_files())
    pilot = _pilot(options, arm)
    levels = levels_of(arm, pilot, options.budgets)
    name = options.alias or arm.name
    out: Path = options.out
    before = yaml.safe_load(out.read_text(encoding="utf-8")) if out.exists() else {}
    out.write_text(merged_text(before or {}, name, levels, pilot, options.match_on))
    print("\n".join(report_lines(name, levels, pilot, options.match_on)))
    print(f"wrote {out}; +sweep=budget_matched takes its arms from conf/arms/budgets.yaml")
    return 0


def _pilot(options: argparse.Namespace, arm: ArmSpec) -> Pilot:
    if options.values is None:
        if len(options.trajectories) != 1 or not options.trajectories[0].is_dir():
            raise ReplayError("--pilot without --values reads the runs of one results folder")
        return pilot_of_runs(options.trajectories[0], arm, options.match_on)
    settings = _settings(options)
    replayers = [
        Replayer(recording, counter_named(counter), settings)
        for source in sources(options.trajectories)
        for counter in [counter_for(source, options.token_counter)]
        for recording in recordings(source, counter, arms=(REFERENCE, RECORDED_ARM))
    ]
    (whole,) = chosen_arms([REFERENCE])
    sizes = [measured(replayer.replay(whole), options.match_on) for replayer in replayers]
    return Pilot(
        points=pilot_points(arm, options.values, replayers, options.match_on),
        reference=sum(sizes) / len(sizes) if sizes else None,
        source=f"replay of {len(replayers)} recordings",
    )


def _replay(options: argparse.Namespace) -> int:
    if options.pilot is not None:
        return _calibrate(options)
    here = environment()
    if options.trajectories == [LISTING] and not LISTING.exists():
        print("\n".join(listing(all_sessions(here), here)))
        return 0
    name = options.pricing or _usual_pricing(options.trajectories)
    pricing = pricing_from(yaml.safe_load(_pricing_file(name).read_text()) or {})
    _check_list(pricing, options.prices)
    jobs = _jobs(options, pricing)
    all_done = _gather(jobs, options)
    if all_done.n_left_out:
        n = all_done.n_left_out
        print(f"replay: {n} of {len(jobs)} sources were left out", file=sys.stderr)
    if not all_done.by_arm:
        raise ReplayError("nothing could be replayed")
    check = list(total(all_done.checks).sentences)
    if options.json:
        print("\n".join(check), file=sys.stderr)
    else:
        answer = list(answer_lines(all_done.by_arm, pricing))
        table = list(table_lines(all_done.by_arm, _settings(options)))
        print("\n".join([*answer, "", *table, *check]))
        if options.html is not None:
            page = session_page(answer, table, check, all_done.dearest, currency=pricing.currency)
            options.html.write_text(page, encoding="utf-8")
            print(f"page: {options.html}")
    for note in all_done.notes[:MAX_NOTES]:
        print(f"replay: {note}", file=sys.stderr)
    if len(all_done.notes) > MAX_NOTES:
        print(f"replay: and {len(all_done.notes) - MAX_NOTES} more notes", file=sys.stderr)
    return 0


def _paths(named: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths; in place of a tool's name, its sessions, oldest first.

    Raises:
        ReplayError: the tool has none on this machine.
    """
    for path in named:
        if str(path) not in TOOLS or path.exists():
            yield path
            continue
        found = sessions_of(str(path), environment())
        if not found:
            raise ReplayError(
                f"no session of {path} is on this machine; python -m pipeline.replay sessions says"
                " where it was looked for"
            )
        yield from (session.path for session in reversed(found))


def _usual_pricing(named: Sequence[Path]) -> str:
    """Return the pricing where none is named: a tool's usual one, else ratios alone."""
    usual = {TOOLS[str(p)].pricing if str(p) in TOOLS and not p.exists() else None for p in named}
    return next(iter(usual)) or "default" if len(usual) == 1 else "default"


def _jobs(options: argparse.Namespace, pricing: Pricing) -> list[Job]:
    (reference,) = chosen_arms([REFERENCE])
    arms = chosen_arms(options.arms if options.json else [REFERENCE, *options.arms])
    files = sources(_paths(options.trajectories))
    repeated = repeated_in(files)
    return [
        Job(
            source=source,
            reference=reference,
            arms=arms,
            settings=_settings(options),
            pricing=pricing,
            prices=options.prices,
            counter=counter_for(source, options.token_counter),
            by_call=options.calls is not None,
            page=options.html is not None,
            no_text=options.no_text,
            billed_elsewhere=repeated.get(source, frozenset()),
        )
        for source in files
    ]


@dataclass(slots=True)
class _AllDone:
    """What came of all jobs."""

    by_arm: dict[str, list[Priced]] = field(default_factory=dict)
    checks: list[SelfCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dearest: Dearest = field(default_factory=Dearest)
    n_left_out: int = 0


def _gather(jobs: Sequence[Job], options: argparse.Namespace) -> _AllDone:
    """Run the jobs; what is written by trajectory or by call goes out as it comes."""
    found = _AllDone()
    one = replayed if options.no_cache else replayed_or_kept
    with ExitStack() as stack:
        by_call = options.calls and stack.enter_context(options.calls.open("w"))
        for done in _watched(jobs, replay_all(jobs, options.processes, one)):
            for result in done.results:
                found.by_arm.setdefault(result.row.arm, []).append(result)
                if options.json:
                    print(json.dumps(asdict(result.row)))
            for call in done.calls:
                print(json.dumps(call), file=by_call)
            found.checks += done.checks
            found.notes += done.notes
            found.dearest.take(done.facts)
            if done.left_out:
                found.n_left_out += 1
                print(f"replay: left out: {done.left_out}", file=sys.stderr)
    return found


def _watched(jobs: Sequence[Job], done: Iterator[Done]) -> Iterator[Done]:
    """Yield what is done; on a terminal, show how far the work is and at what rate."""
    sizes = [job.source.stat().st_size if job.source.is_file() else 0 for job in jobs]
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("replaying", total=sum(sizes))
        for size, one in zip(sizes, done, strict=True):
            bar.advance(task, size)
            yield one


def _settings(options: argparse.Namespace) -> ReplaySettings:
    return ReplaySettings(
        seed=options.seed,
        context_length=options.context_length,
        block_tokens=options.block,
        rules=options.template,
        cleanup_choice=options.cleanup_choice,
        cleanup_every=options.cleanup_every,
        lengths=AnswerLengths(cleanup_tokens=options.cleanup_output),
    )


# --- arms and prices -----------------------------------------------------------------------------
def chosen_arms(names: Iterable[str]) -> tuple[ArmSpec, ...]:
    """Return the arms that the command line names, each once.

    Raises:
        ReplayError: an unknown name; the message lists the known ones.
        SpecError: a parameter that the arm does not have.
    """
    grid = {arm.name: arm for arm in deletion_grid()}
    files = _arm_files()
    chosen: dict[str, ArmSpec] = {}
    for name in names:
        if name == "all":
            chosen |= {stem: _arm_from(path, {}) for stem, path in sorted(files.items())}
        elif name == "grid42":
            chosen |= grid
        elif name in grid:
            chosen[name] = grid[name]
        else:
            chosen[name] = replace(_named(name, files), name=name)
    return tuple(chosen.values())


def _arm_files() -> dict[str, Path]:
    return {path.stem: path for path in (CONF / "arm").glob("*.yaml")}


def _named(name: str, files: dict[str, Path]) -> ArmSpec:
    match = re.fullmatch(r"([\w.-]+)(?:\[(.*)\])?", name)
    if match is None or match[1] not in files:
        raise ReplayError(
            f"no arm called {name}; known: all, grid42, {', '.join(sorted(files))}, and the 42"
            " deletions by name"
        )
    pairs = [pair.partition("=") for pair in (match[2] or "").split(",") if pair]
    return _arm_from(files[match[1]], {key: yaml.safe_load(value) for key, _, value in pairs})


def _arm_from(path: Path, parameters: dict[str, Any]) -> ArmSpec:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return parsed(ArmSpec, {**data, "policy": {**data["policy"], **parameters}})


def _check_list(pricing: Pricing, name: str | None) -> None:
    if name is not None and name not in pricing.lists:
        known = ", ".join(pricing.lists)
        raise ReplayError(f"pricing {pricing.name} has no list {name}; it has {known}")


def _pricing_file(name: str) -> Path:
    for path in (CONF / "pricing" / f"{name}.yaml", Path(name)):
        if path.is_file():
            return path
    known = ", ".join(sorted(p.stem for p in (CONF / "pricing").glob("*.yaml")))
    raise ReplayError(f"no pricing called {name}; known: {known}, or give a file")


if __name__ == "__main__":
    sys.exit(main())
