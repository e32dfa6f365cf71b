"""A difficulty prior: how often each instance was solved before, by a file or a pilot's folder."""

import csv
import json
from collections import defaultdict
from pathlib import Path

from pipeline.records.layout import Layout
from pipeline.records.lock import read_lock
from pipeline.records.plan import read_plan
from pipeline.records.states import run_states


class PriorError(ValueError):
    """The prior cannot be read, or says what no rate is."""


def prior_rates(named: str | None) -> dict[str, float]:
    """Return each instance's expected solve rate, from 0 to 1; nothing where no prior is named.

    Args:
        named: a JSON object or a CSV (`instance_id,solve_rate`) by instance, or the results folder
            of a pilot: its graded runs of all arms, (solved + 1/2) / (runs + 1).

    Raises:
        PriorError: it is none of these.
        LockError: a results folder that is damaged.
    """
    if named is None:
        return {}
    source = Path(named)
    if source.is_dir():
        return _of_folder(Layout(source))
    try:
        text = source.read_text(encoding="utf-8")
        if source.suffix == ".json":
            rates = {str(name): float(rate) for name, rate in json.loads(text).items()}
        else:
            rows = csv.DictReader(text.splitlines())
            rates = {row["instance_id"]: float(row["solve_rate"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PriorError(
            f"prior={source}: cannot be read ({error!r}); give a JSON object of instance to solve "
            "rate, a CSV with the columns instance_id and solve_rate, or a pilot's results folder"
        ) from None
    wrong = [name for name, rate in rates.items() if not 0 <= rate <= 1]
    if wrong:
        raise PriorError(f"prior={source}: {wrong[0]} has the rate {rates[wrong[0]]}, not 0 to 1")
    return rates


def _of_folder(layout: Layout) -> dict[str, float]:
    read_lock(layout.lock)
    states = run_states(layout)
    seen: dict[str, list[bool]] = defaultdict(list)
    for run in read_plan(layout.plan):
        state = states.get(run.run_id)
        if state is not None and state.resolved is not None:
            seen[run.instance_id].append(state.resolved)
    if not seen:
        raise PriorError(f"prior={layout.root}: no run is graded there")
    return {name: (sum(solved) + 0.5) / (len(solved) + 1) for name, solved in seen.items()}
