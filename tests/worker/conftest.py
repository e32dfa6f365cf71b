"""A small real sweep in a temporary folder: the toy benchmark, simulated, nothing replaced."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.planning.config import sweep_spec
from pipeline.planning.folder import check_folder, write_folder
from pipeline.planning.prepare import prepared
from pipeline.records.layout import Layout

MakeSweep = Callable[..., Layout]

SMALL = (
    "+sweep=demo",
    "seeds=[0]",
    "instances.ids=[toy__ledger-1,toy__tabular-1]",
    "~arms.no_plan",
    "~arms.sham_cleanup",
)


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    """Returns a function that launches into a folder everything but the workers."""

    def make(*overrides: str, name: str = "sweep") -> Layout:
        scratch = tmp_path / "scratch"
        words = [*SMALL, f"cluster.scratch={scratch}", f"results={tmp_path / name}", *overrides]
        layout = Layout(tmp_path / name)
        opened, sweep = check_folder(layout, prepared(sweep_spec(words)))
        write_folder(layout, sweep, opened)
        return layout

    return make
