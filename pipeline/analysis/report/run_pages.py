"""A page for single runs: the trajectory, the plan, every cleanup, and what was fetched again.

Pages are made for the runs behind a flip (an instance that one arm solved and the other did not),
up to a limit, since those are the runs that people open.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment, StrictUndefined

from pipeline.analysis.behaviour.collect import Behaviour, collect
from pipeline.analysis.figures.style import evidence_word, short_number
from pipeline.analysis.output import replace_file
from pipeline.analysis.study import GroupStudy, Study
from pipeline.analysis.tables import open_tables
from pipeline.records.layout import Layout, file_name

MAX_FLIPS = 10
"""Instances won, and instances lost, of each arm that get a pair of pages."""

SHOWN_CHARS = 1_600
"""Of an output; longer ones are shown as head and tail."""


def write_run_pages(
    study: Study, connection: duckdb.DuckDBPyConnection, out: Path
) -> dict[str, str]:
    """Write the pages under `out`/runs; return run to page, relative to `out`."""
    run_ids = list(dict.fromkeys(r for group in study.groups for r in _runs_behind_flips(group)))
    if not run_ids:
        return {}
    again = _fetched_again(study.behaviour, run_ids)
    pages = {}
    for run_id, page in _pages(connection, run_ids, again):
        pages[run_id] = f"runs/{file_name(run_id)}.html"
        replace_file(out / pages[run_id], page)
    return pages


def write_run_page(results: Path, run_id: str, out: Path) -> None:
    """Write the page of one run of a results folder to the file `out`.

    Raises:
        KeyError: the tables do not have the run.
    """
    layout = Layout(results)
    with open_tables(results) as connection:
        query = "SELECT journal FROM runs WHERE run_id = ?"
        found = connection.execute(query, [run_id]).fetchone()
        if found is None:
            raise KeyError(f"no run {run_id} in {layout.table_file('runs')}")
        behaviour = collect(connection, [layout.table_part("messages", found[0])])
        for _, page in _pages(connection, [run_id], _fetched_again(behaviour, [run_id])):
            replace_file(out, page)


def _pages(
    connection: duckdb.DuckDBPyConnection,
    run_ids: Sequence[str],
    again: Mapping[str, Mapping[int, int]],
) -> Iterator[tuple[str, bytes]]:
    """Yield the page of each run that has messages."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["short"] = short_number
    source = files("pipeline.analysis.report").joinpath("run.html.j2").read_text("utf-8")
    template = environment.from_string(source)
    # One scan a table for all pages: a scan a page would read the sweep a hundred times over.
    rows = {name: _rows_by_run(connection, query, run_ids) for name, query in _QUERIES.items()}
    for run_id in run_ids:
        mine = {name: found[run_id] for name, found in rows.items()}
        if mine["messages"]:
            yield run_id, template.render(**_shown(mine, again.get(run_id, {}))).encode()


def _runs_behind_flips(study: GroupStudy) -> Iterator[str]:
    """Yield one pair of runs a flip: on the first common seed on which the arms differ."""
    for contrast in study.contrasts:
        if contrast.solve is None:
            continue
        old, new = study.group.arms[contrast.reference], study.group.arms[contrast.arm]
        flips = [*contrast.solve.won[:MAX_FLIPS], *contrast.solve.lost[:MAX_FLIPS]]
        for name in flips:
            at = study.group.instance_ids.index(name)
            pairs = [
                (old.resolved[at, o], new.resolved[at, n], old.run_id[at, o], new.run_id[at, n])
                for o, seed in enumerate(old.seeds)
                for n in [new.seeds.index(seed) if seed in new.seeds else -1]
                if n >= 0
            ]
            differing = [pair for pair in pairs if pair[0] != pair[1]]
            for _, _, before, after in (differing or pairs)[:1]:
                yield from (str(before), str(after))


_RUN = """
SELECT r.run_id, r.instance_id, r.arm, r.model, r.seed, r.evidence, r.failure_class, r.n_steps,
  r.input_tokens, r.peak_context_tokens, r.n_pruned, r.pruned_tokens, r.patch, v.resolved
FROM runs r LEFT JOIN verdicts v USING (run_id) WHERE r.run_id IN (SELECT unnest(?))
"""

_MESSAGES = """
SELECT run_id, message_index, step_index, role, tool, command, content, reasoning, n_tokens,
  returncode, pruned_at_call, replaced_by
FROM messages WHERE run_id IN (SELECT unnest(?)) ORDER BY message_index
"""

_CLEANUPS = """
SELECT run_id, call_index, step_index, kind, prompt_tokens, completion_tokens, reply,
  reply_tool_calls
FROM calls WHERE run_id IN (SELECT unnest(?)) AND kind <> 'step' ORDER BY call_index
"""

_PLAN = """
SELECT run_id, step_index, action, plan_step, title, status FROM plan_events
WHERE run_id IN (SELECT unnest(?)) ORDER BY event_index
"""


_QUERIES = {"run": _RUN, "messages": _MESSAGES, "calls": _CLEANUPS, "plan": _PLAN}

_Rows = list[dict[str, Any]]


def _shown(rows: Mapping[str, _Rows], again: Mapping[int, int]) -> dict[str, Any]:
    """Return what the template shows of one run."""
    facts, messages, calls = rows["run"][0], rows["messages"], rows["calls"]
    for message in messages:
        message["shown"] = _shortened(message["content"] or "")
        message["fetched_again_at"] = again.get(message["message_index"])
    for call in calls:
        # What a cleanup chose is first missing from the step call that follows it.
        places = (call["call_index"], call["call_index"] + 1)
        call["dropped"] = [m for m in messages if m["pruned_at_call"] in places]
    return {
        "run": facts,
        "evidence": evidence_word(str(facts["evidence"])),
        "messages": messages,
        "calls": calls,
        "plan": events_once(rows["plan"]),
        "n_fetched_again": len(again),
    }


def events_once(events: _Rows) -> _Rows:
    """Return plan events without the line that joins all titles, where each has one of its own."""
    listed = {e["step_index"] for e in events if e["action"] == "set" and e["plan_step"]}
    return [
        e for e in events if e["action"] != "set" or e["plan_step"] or e["step_index"] not in listed
    ]


def _rows_by_run(
    connection: duckdb.DuckDBPyConnection, query: str, run_ids: Sequence[str]
) -> dict[str, _Rows]:
    cursor = connection.execute(query, [list(run_ids)])
    names = [column[0] for column in cursor.description or ()]
    found: dict[str, _Rows] = defaultdict(list)
    for row in cursor.fetchall():
        values = dict(zip(names, row, strict=True))
        found[values["run_id"]].append(values)
    return found


def _fetched_again(behaviour: Behaviour, run_ids: Sequence[str]) -> dict[str, dict[int, int]]:
    """Return by run, for each output that was read again, the first step that did so."""
    first: dict[str, dict[int, int]] = defaultdict(dict)
    table = behaviour.refetches
    if not table.num_rows:
        return first
    mine = table.filter(pc.is_in(table["run_id"], value_set=pa.array(run_ids)))
    columns = (mine[name].to_pylist() for name in ("run_id", "source_message_index", "turn"))
    for run_id, source, turn in zip(*columns, strict=True):
        first[run_id][source] = min(turn, first[run_id].get(source, turn))
    return first


def _shortened(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    half = SHOWN_CHARS // 2
    hidden = f"[... {len(text) - SHOWN_CHARS} characters not shown here ...]"
    return f"{text[:half]}\n{hidden}\n{text[-half:]}"
