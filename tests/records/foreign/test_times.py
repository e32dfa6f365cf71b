"""Times in any usual form; what is impossible is unknown and says so."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import ingest as ingest_door
from pipeline.records.foreign.times import duration, unix_seconds
from tests.records.foreign.files import call, result, trajectory, write

NOON = 1_764_590_400.0
"""1 December 2025, 12:00 UTC."""


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        int(NOON),
        int(NOON * 1000),
        int(NOON * 1_000_000),
        int(NOON * 1_000_000_000),
        "1764590400",
        "1764590400000",
        "2025-12-01T12:00:00Z",
        "2025-12-01T12:00:00",
        "2025-12-01 12:00:00.000000",
        "2025-12-01T12:00:00+00:00",
        "2025-12-01T13:00:00+01:00",
        "20251201T120000Z",
    ],
)
def test_every_usual_form_is_the_same_moment(value: Any) -> None:
    assert unix_seconds(value) == pytest.approx(NOON)


@pytest.mark.parametrize(
    "value", [None, True, "", "yesterday", 0, -5, float("nan"), float("inf"), "nan", [NOON], {}]
)
def test_what_is_no_time_is_unknown(value: Any) -> None:
    assert unix_seconds(value) is None


def test_a_duration_is_from_the_first_time_to_the_last() -> None:
    assert duration([NOON, NOON + 5, NOON + 4.5, NOON + 60]) == (60.0, None)
    assert duration([]) == (None, None)


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ([NOON, NOON - 3600], "backwards by 3600 s"),
        ([1.0, NOON], "days"),
    ],
)
def test_an_impossible_duration_is_unknown_with_a_note(times: list[float], why: str) -> None:
    took, note = duration(times)
    assert took is None
    assert why in str(note)


@pytest.mark.parametrize(
    ("first", "second", "wall_s"),
    [
        (NOON, NOON + 90, 90.0),
        ("2025-12-01T12:00:00Z", "2025-12-01T13:01:30+01:00", 90.0),
        (NOON * 1000, NOON * 1000 + 90_000, 90.0),
        (NOON, NOON - 900, None),
        ("noon", "later", None),
    ],
)
def test_a_file_in_any_of_them_is_ingested(
    tmp_path: Path, first: Any, second: Any, wall_s: float | None
) -> None:
    data = trajectory(call(1, "ls", 100, timestamp=first), result(1, "a", timestamp=second))
    path = write(tmp_path / "in" / "x.traj.json", data)
    argv = [str(path), "--out", str(tmp_path / "out"), "--token-counter", "chars/3.6"]
    assert ingest_door.main(argv) == 0
    (row,) = pq.read_table(tmp_path / "out/tables/runs").to_pylist()
    assert row["wall_s"] == (None if wall_s is None else pytest.approx(wall_s))
    notes = json.loads(row["extra"]).get("notes", [])
    assert [n for n in notes if "backwards" in n] == notes
    assert bool(notes) == (second == NOON - 900)
