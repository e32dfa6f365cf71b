"""A table of outcomes alone: read as people write it, compared as the sweeps are."""

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.outcome_contrasts import outcome_contrasts, outcome_lines
from pipeline.analysis.outcome_file import OutcomeTable, outcome_tables
from pipeline.analyze import main
from pipeline.spec.analysis import AnalysisPlan

PLAN = AnalysisPlan(resamples=2000)


def file_of(tmp_path: Path, *rows: str, header: str = "task,arm,solved,cost,tokens") -> Path:
    path = tmp_path / "outcomes.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def read(tmp_path: Path, *rows: str, **more: str) -> OutcomeTable:
    (table,) = outcome_tables(file_of(tmp_path, *rows, **more))
    return table


def paired(tmp_path: Path, won: int, lost: int, both: int) -> OutcomeTable:
    """Two arms: `b` solves `won` tasks that `a` does not, and so on; `b` costs half."""
    outcomes = [(0, 1)] * won + [(1, 0)] * lost + [(1, 1)] * both
    rows = [
        f"t{i},{arm},{solved},{cost},{tokens}"
        for i, pair in enumerate(outcomes)
        for arm, solved, cost, tokens in zip("ab", pair, (2, 1), (100, 80), strict=True)
    ]
    return read(tmp_path, *rows)


def p_by_enumeration(won: int, lost: int) -> float:
    """Whole arms change places within each task that differs; all ways are counted."""
    gaps = [1] * won + [-1] * lost
    ways = [abs(sum(s * g for s, g in zip(signs, gaps, strict=True)))
            for signs in product((1, -1), repeat=len(gaps))]  # fmt: skip
    return sum(way >= abs(won - lost) for way in ways) / len(ways)


@pytest.mark.parametrize(("won", "lost"), [(7, 1), (3, 3), (0, 6), (9, 2)])
def test_the_p_value_counts_all_ways_to_swap_the_arms(tmp_path: Path, won: int, lost: int) -> None:
    (found,) = outcome_contrasts(paired(tmp_path, won, lost, 10), reference="a", plan=PLAN)
    assert found.p_value == pytest.approx(p_by_enumeration(won, lost))
    assert found.difference.value == pytest.approx((won - lost) / (10 + won + lost))
    assert found.discordance == pytest.approx((won + lost) / (10 + won + lost))


def test_ratios_are_of_sums_over_complete_pairs(tmp_path: Path) -> None:
    rows = ["x,a,1,2,10", "x,b,1,3,5", "y,a,1,4,10", "y,b,0,,20", "z,a,1,4,10"]
    (found,) = outcome_contrasts(read(tmp_path, *rows), reference="a", plan=PLAN)
    assert found.tokens.value == pytest.approx(25 / 20)
    assert found.cost.value == pytest.approx(3 / 2)
    assert (found.n_paired, found.n_lost) == (2, 1)


def test_holms_correction_is_over_all_arms(tmp_path: Path) -> None:
    rows = []
    for i in range(12):
        rows += [f"t{i},a,0,,", f"t{i},b,{int(i < 8)},,", f"t{i},c,{int(i < 3)},,"]
    b, c = outcome_contrasts(read(tmp_path, *rows), reference="a", plan=PLAN)
    assert b.holm_p == pytest.approx(2 * b.p_value)
    assert c.holm_p == pytest.approx(max(c.p_value, 2 * b.p_value))


def test_a_table_like_those_that_are_published_ends_in_an_honest_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 tasks x 6 arms, one run each: every pair of arms differs on 16 tasks, none by much."""
    rows = []
    for task, (k, arm) in product(range(100), enumerate("abcdef")):
        flipped = task // 8 == k
        rows.append(f"t{task},{arm},{int((task % 2 == 0) != flipped)},{1 + k},100")
    assert main(["--outcomes", str(file_of(tmp_path, *rows))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "100 tasks x 6 arms, 1 run a task and arm" in text
    assert "No arm is shown to differ from a in solve rate" in text
    assert "That is no sign that the arms are as good" in text
    assert "a true difference must be" in text
    assert "b, c, d, e, f: not shown to be as good" in text
    assert "cheaper" not in text


def test_a_difference_that_is_shown_is_said_with_its_interval(tmp_path: Path) -> None:
    table = paired(tmp_path, 0, 14, 20)
    found = outcome_contrasts(table, reference="a", plan=PLAN)
    text = "\n".join(outcome_lines(table, "a", found))
    assert "b has a lower solve rate than a by -41.2 [" in text


def test_scores_are_compared_by_their_means(tmp_path: Path) -> None:
    rows = [f"t{i},{arm},{s}" for i in range(20) for arm, s in (("a", 0.2), ("b", 0.3 + 0.01 * i))]
    table = read(tmp_path, *rows, header="task,arm,score")
    (found,) = outcome_contrasts(table, reference="a", plan=PLAN)
    gaps = [0.1 + 0.01 * i for i in range(20)]
    assert found.difference.value == pytest.approx(float(np.mean(gaps)))
    assert found.difference.low > 0
    assert found.sameness is None
    assert "higher score" in "\n".join(outcome_lines(table, "a", [found]))


def test_seeds_of_a_task_are_averaged_first(tmp_path: Path) -> None:
    rows = ["x,a,0,1", "x,a,1,0", "x,b,0,1", "x,b,1,1", "y,a,0,0", "y,a,1,0", "y,b,0,1", "y,b,1,0"]
    table = read(tmp_path, *rows, header="task,arm,seed,solved")
    (found,) = outcome_contrasts(table, reference="a", plan=PLAN)
    assert (found.reference_rate, found.rate) == (0.25, 0.75)


def test_models_are_never_pooled(tmp_path: Path) -> None:
    rows = [f"x,{arm},{model},1" for arm, model in product("ab", ("m", "n"))]
    tables = outcome_tables(file_of(tmp_path, *rows, header="task,arm,model,solved"))
    assert [table.model for table in tables] == ["m", "n"]


@pytest.mark.parametrize(
    ("yes", "no"), [("true", "false"), ("Yes", "no"), ("1", "0"), ("1.0", "0.0")]
)
def test_solved_may_be_written_in_several_ways(tmp_path: Path, yes: str, no: str) -> None:
    table = read(tmp_path, f"x,a,{yes},,", f"x,b,{no},,")
    assert [float(arm.values["outcome"][0, 0]) for arm in table.arms.values()] == [1.0, 0.0]


def test_parquet_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    csv = tmp_path / "w.csv"
    csv.write_bytes(b"\xef\xbb\xbfTask,Arm,Resolved\r\nx,a,True\r\nx,b,False\r\n")
    parquet = tmp_path / "w.parquet"
    columns = {"task": ["x", "x"], "arm": ["a", "b"], "resolved": [True, False]}
    pq.write_table(pa.table(columns), parquet)
    for path in (csv, parquet):
        (table,) = outcome_tables(path)
        assert list(table.arms) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,arm\nx,a\n", "has no column solved or score; it has task, arm"),
        ("task,arm,solved\n", "has no rows"),
        ("task,arm,solved\nx,a,maybe\n", "row 1: solved is 'maybe'"),
        ("task,arm,solved\nx,a,0.5\n", "row 1: solved is 0.5; it must be true, false"),
        ("task,arm,score\nx,a,7\n", "row 1: score is 7; it must be from 0 to 1"),
        ("task,arm,solved,cost\nx,a,1,-2\n", "row 1: cost is -2"),
        ("task,arm,solved\n,a,1\n", "row 1 has no task"),
        ("task,arm,seed,solved\nx,a,0,1\nx,a,0,1\n", "task x, arm a, seed 0"),
        ("task,arm,solved\nx,a,1\ny,b,1\n", "b and a share no task"),
        ("", "cannot be read as a table"),
    ],
)
def test_what_cannot_be_compared_is_named(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "o.csv"
    path.write_text(text)
    assert main(["--outcomes", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_reference_is_refused_with_those_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"t{i},{arm},1,," for i, arm in product(range(3), "ab")]
    assert main(["--outcomes", str(file_of(tmp_path, *rows)), "--reference", "z"]) == 2
    assert "no arm 'z'; choose another with --reference: a, b" in capsys.readouterr().err
    assert main(["--outcomes", str(file_of(tmp_path, *rows)), "--reference", "b"]) == 0
    assert "reference" in capsys.readouterr().out


def test_a_single_arm_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    table = read(tmp_path, "x,a,1,1,1")
    assert "nothing to compare" in "\n".join(outcome_lines(table, "a", []))


def test_every_pair_of_arms_can_be_compared(tmp_path: Path) -> None:
    rows = [f"t{i},{arm},{(i + k) % 2},1,1" for i in range(6) for k, arm in enumerate("abc")]
    table = read(tmp_path, *rows)
    for reference, arm in combinations("abc", 2):
        found = outcome_contrasts(table, reference=reference, plan=PLAN)
        assert arm in {c.arm for c in found}
