"""A page for single runs: the trajectory, the plan, every cleanup, and what was fetched again.

Pages are made for the runs behind a flip (an instance that one arm solved and the other did not),
up to a limit, since those are the runs that people open.
"""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
from jinja2 import Environment, StrictUndefined

from pipeline.analysis.figures.style import evidence_word, short_number
from pipeline.analysis.output import replace_file
from pipeline.analysis.study import GroupStudy, Study
from pipeline.records.layout import file_name

MAX_FLIPS = 20
"""Instances an arm whose runs get pages."""

SHOWN_CHARS = 1_600
"""Of an output; longer ones are shown as head and tail."""


def write_run_pages(
    study: Study, connection: duckdb.DuckDBPyConnection, out: Path
) -> dict[str, str]:
    """Write the pages under `out`/runs; return run to page, relative to `out`."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["short"] = short_number
    source = files("pipeline.analysis.report").joinpath("run.html.j2").read_text("utf-8")
    template = environment.from_string(source)
    pages = {}
    for run_id in dict.fromkeys(r for group in study.groups for r in _runs_behind_flips(group)):
        shown = _run(study, connection, run_id)
        if shown["messages"]:
            pages[run_id] = f"runs/{file_name(run_id)}.html"
            replace_file(out / pages[run_id], template.render(**shown).encode())
    return pages


def _runs_behind_flips(study: GroupStudy) -> Iterator[str]:
    for contrast in study.contrasts:
        if contrast.solve is None:
            continue
        flips = [*contrast.solve.won, *contrast.solve.lost]
        for name in flips[:MAX_FLIPS]:
            at = study.group.instance_ids.index(name)
            for arm in (contrast.reference, contrast.arm):
                outcomes = study.group.arms[arm]
                runs = outcomes.run_id[at][outcomes.done[at]]
                yield from (str(run) for run in runs.tolist())


_RUN = """
SELECT r.run_id, r.instance_id, r.arm, r.model, r.seed, r.evidence, r.failure_class, r.n_steps,
  r.input_tokens, r.peak_context_tokens, r.n_pruned, r.pruned_tokens, r.patch, v.resolved
FROM done r LEFT JOIN verdicts v USING (run_id) WHERE r.run_id = ?
"""

_MESSAGES = """
SELECT message_index, step_index, role, tool, command, content, reasoning, n_tokens, returncode,
  pruned_at_call, replaced_by
FROM messages WHERE run_id = ? ORDER BY message_index
"""

_CLEANUPS = """
SELECT call_index, step_index, kind, prompt_tokens, completion_tokens, reply, reply_tool_calls
FROM calls WHERE run_id = ? AND kind <> 'step' ORDER BY call_index
"""

_PLAN = """
SELECT step_index, action, plan_step, title, status FROM plan_events
WHERE run_id = ? ORDER BY event_index
"""


def _run(study: Study, connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, Any]:
    facts = _rows(connection, _RUN, run_id)[0]
    messages = _rows(connection, _MESSAGES, run_id)
    again = _fetched_again(study, run_id)
    for message in messages:
        message["shown"] = _shortened(message["content"] or "")
        message["fetched_again_at"] = again.get(message["message_index"])
    calls = _rows(connection, _CLEANUPS, run_id)
    for call in calls:
        # What a cleanup chose is first missing from the step call that follows it.
        places = (call["call_index"], call["call_index"] + 1)
        call["dropped"] = [m for m in messages if m["pruned_at_call"] in places]
    return {
        "run": facts,
        "evidence": evidence_word(str(facts["evidence"])),
        "messages": messages,
        "calls": calls,
        "plan": _rows(connection, _PLAN, run_id),
        "n_fetched_again": len(again),
    }


def _rows(connection: duckdb.DuckDBPyConnection, query: str, run_id: str) -> list[dict[str, Any]]:
    cursor = connection.execute(query, [run_id])
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _fetched_again(study: Study, run_id: str) -> dict[int, int]:
    """Return, for each output that was read again, the first step that did so."""
    table = study.behaviour.refetches
    if not table.num_rows:
        return {}
    mine = table.filter(pc.equal(table["run_id"], run_id))
    sources, turns = mine["source_message_index"].to_pylist(), mine["turn"].to_pylist()
    first: dict[int, int] = {}
    for source, turn in zip(sources, turns, strict=True):
        first[source] = min(turn, first.get(source, turn))
    return first


def _shortened(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    half = SHOWN_CHARS // 2
    hidden = f"[... {len(text) - SHOWN_CHARS} characters not shown here ...]"
    return f"{text[:half]}\n{hidden}\n{text[-half:]}"
