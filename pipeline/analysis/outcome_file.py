"""Paired statistics from a table of outcomes alone: one row a run, nothing else known.

Columns: `task`, `arm`, and `solved` or `score`; where known `seed`, `model`, `cost` and `tokens`.
For tables that others published, and for runs that this pipeline did not make. There is no gate:
what such a table leaves out, it cannot tell.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.analysis.arrays import FloatArray

_NAMES = {
    "task": ("task", "instance_id", "instance", "task_id"),
    "arm": ("arm", "strategy", "condition", "policy"),
    "seed": ("seed", "run", "trial", "attempt"),
    "model": ("model",),
    "solved": ("solved", "resolved", "success", "passed"),
    "score": ("score", "reward"),
    "cost": ("cost", "cost_usd", "usd"),
    "tokens": ("tokens", "input_tokens", "total_tokens"),
}
"""What each column may be called; the first name that is there is taken."""
_TRUE, _FALSE = ("true", "yes", "y", "t"), ("false", "no", "n", "f")
_UNKNOWN = ("", "nan", "none", "null", "na", "n/a", "-")

NUMBERS = ("outcome", "cost", "tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeArm:
    """What one arm did; arrays have shape (tasks, seeds), NaN where nothing is known."""

    planned: np.typing.NDArray[np.bool_]
    values: Mapping[str, FloatArray]
    """By name: `outcome` (0 or 1, or a score from 0 to 1), `cost`, `tokens`."""

    def known(self, name: str) -> np.typing.NDArray[np.bool_]:
        """Return the tasks all of whose rows have a value; shape (tasks,)."""
        there = ~np.isnan(self.values[name])
        return np.asarray((there | ~self.planned).all(axis=1) & self.planned.any(axis=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeTable:
    """All runs of one model."""

    model: str
    tasks: tuple[str, ...]
    arms: Mapping[str, OutcomeArm]
    """In the order in which the file has them."""
    is_score: bool
    """Outcomes are scores from 0 to 1, not solved or not."""


def outcome_tables(path: Path) -> list[OutcomeTable]:
    """Return the runs of a file, model by model: they are never pooled.

    Args:
        path: CSV, or Parquet by its suffix.

    Raises:
        OSError: it cannot be read.
        ValueError: a column is missing or a value is none; the message says which row.
    """
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from error
    columns = _columns(table, path)
    n = table.num_rows
    rows = {name: table[column].to_pylist() for name, column in columns.items()}
    for needed in ("task", "arm"):
        empty = [i for i, value in enumerate(rows[needed]) if _is_unknown(value)]
        if empty:
            raise ValueError(f"row {empty[0] + 1} has no {needed}")
    outcome = "solved" if "solved" in rows else "score"
    read: dict[str, list[Any]] = {
        "task": [str(v) for v in rows["task"]],
        "arm": [str(v) for v in rows["arm"]],
        "model": [str(v) for v in rows.get("model", ["all runs"] * n)],
        "outcome": [_share(v, i, outcome) for i, v in enumerate(rows[outcome])],
        "cost": [_number(v, i, "cost") for i, v in enumerate(rows.get("cost", [None] * n))],
        "tokens": [_number(v, i, "tokens") for i, v in enumerate(rows.get("tokens", [None] * n))],
    }
    read["seed"] = [str(v) for v in rows["seed"]] if "seed" in rows else _numbered(read)
    _check_once(read)
    return [
        _table_of(model, {k: _where(v, read["model"], model) for k, v in read.items()}, outcome)
        for model in dict.fromkeys(read["model"])
    ]


def _columns(table: pa.Table, path: Path) -> dict[str, str]:
    there = {str(name).strip().lower(): str(name) for name in table.column_names}
    found = {
        ours: there[name]
        for ours, names in _NAMES.items()
        for name in [next((n for n in names if n in there), None)]
        if name is not None
    }
    missing = [name for name in ("task", "arm") if name not in found]
    if not {"solved", "score"} & set(found):
        missing.append("solved or score")
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}; it has {', '.join(table.column_names)}"
        )
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows")
    return found


def _is_unknown(value: Any) -> bool:
    return value is None or str(value).strip().lower() in _UNKNOWN


def _number(value: Any, row: int, name: str) -> float:
    if _is_unknown(value):
        return float("nan")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"row {row + 1}: {name} is {value!r}, not a number of zero or more")
    return number


def _share(value: Any, row: int, name: str) -> float:
    said = str(value).strip().lower()
    if said in (*_TRUE, *_FALSE):
        return float(said in _TRUE)
    number = _number(value, row, name)
    if number > 1 or (name == "solved" and number not in (0.0, 1.0) and not np.isnan(number)):
        wanted = "true, false, 1, 0 or nothing" if name == "solved" else "from 0 to 1"
        raise ValueError(f"row {row + 1}: {name} is {value!r}; it must be {wanted}")
    return number


def _numbered(read: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return seeds for a table without: repeated rows of a task and arm are numbered."""
    seen: Counter[tuple[str, str, str]] = Counter()
    seeds = []
    for key in zip(read["model"], read["task"], read["arm"], strict=True):
        seeds.append(str(seen[key]))
        seen[key] += 1
    return seeds


def _check_once(read: Mapping[str, Sequence[Any]]) -> None:
    keys = zip(*(read[name] for name in ("model", "task", "arm", "seed")), strict=True)
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if twice:
        _, task, arm, seed = twice[0]
        raise ValueError(
            f"{len(twice)} runs are there twice, the first is task {task}, arm {arm}, seed {seed}"
        )


def _where(values: Sequence[Any], models: Sequence[str], model: str) -> list[Any]:
    return [value for value, its in zip(values, models, strict=True) if its == model]


def _table_of(model: str, rows: Mapping[str, Sequence[Any]], outcome: str) -> OutcomeTable:
    tasks = {task: i for i, task in enumerate(dict.fromkeys(rows["task"]))}
    arms = {}
    for arm in dict.fromkeys(rows["arm"]):
        mine = [i for i, its in enumerate(rows["arm"]) if its == arm]
        seeds = {seed: k for k, seed in enumerate(sorted({rows["seed"][i] for i in mine}))}
        at = (
            np.array([tasks[rows["task"][i]] for i in mine]),
            np.array([seeds[rows["seed"][i]] for i in mine]),
        )
        planned = np.zeros((len(tasks), len(seeds)), dtype=bool)
        planned[at] = True
        values = {}
        for name in NUMBERS:
            array: FloatArray = np.full(planned.shape, np.nan)
            array[at] = [rows[name][i] for i in mine]
            values[name] = array
        arms[arm] = OutcomeArm(planned=planned, values=values)
    return OutcomeTable(model=model, tasks=tuple(tasks), arms=arms, is_score=outcome == "score")
