"""Re-fetches and regret, against definitions carried out one line and one turn at a time."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analysis.behaviour.lines import DistinctLines
from pipeline.analysis.behaviour.lines import distinct_lines as lines_of_batch
from pipeline.analysis.behaviour.refetch import NEVER, Outputs, refetches_of
from pipeline.analysis.behaviour.regret import MAX_AGE, Hazard, hazard_of
from pipeline.analysis.bootstrap import resample_counts

from . import reference


def outputs_of(
    runs: list[int],
    *,
    reads: list[bool] | None = None,
    writes: list[bool] | None = None,
    pruned_at: list[int] | None = None,
    left: list[float] | None = None,
    commands: list[str] | None = None,
) -> Outputs:
    """Outputs whose turn and call are their places within their run, from 1."""
    n = len(runs)
    turns = [sum(r == runs[i] for r in runs[: i + 1]) for i in range(n)]
    return Outputs(
        run=np.array(runs),
        message_index=np.arange(n),
        turn=np.array(turns),
        call=np.array(turns),
        pruned_at_call=np.array(pruned_at or [NEVER] * n),
        left_share=np.array(left or [0.0] * n),
        is_read=np.array(reads or [True] * n),
        is_write=np.array(writes or [False] * n),
        command=pa.array(commands or ["cat f"] * n),
    )


def distinct_lines(texts: pa.Array, *, numbered: bool = False) -> DistinctLines:
    return lines_of_batch(texts, np.full(len(texts), numbered))


def found(outputs: Outputs, texts: list[str], **kwargs: float) -> list[tuple[int, int]]:
    result = refetches_of(outputs, distinct_lines(pa.array(texts)), **kwargs)  # type: ignore[arg-type]
    return list(zip(result.read.tolist(), result.source.tolist(), strict=True))


ABC = "alpha\nbeta\ngamma\n"


def test_the_same_lines_again_are_a_refetch():
    assert found(outputs_of([0, 0]), [ABC, ABC]) == [(1, 0)]


@pytest.mark.parametrize(
    "shown",
    [
        "12:alpha\n13:beta\n14-gamma",
        "src/a.py:12:alpha\nsrc/a.py-13-beta\nsrc/a.py:14:gamma",
        "     1\talpha\n     2\tbeta  \n\n     3\tgamma\n",
        "gamma\nbeta\nalpha\nalpha",
    ],
)
def test_line_numbers_paths_blanks_and_order_do_not_matter(shown: str):
    lines = distinct_lines(pa.array([ABC, shown]), numbered=True)
    assert refetches_of(outputs_of([0, 0]), lines).read.tolist() == [1]


def test_fewer_than_three_distinct_lines_are_no_read():
    assert found(outputs_of([0, 0]), ["a\nb\nb\nb", "a\nb\nb\nb"]) == []


def test_four_of_five_lines_are_enough_and_three_of_four_are_not():
    assert found(outputs_of([0, 0]), ["a\nb\nc\nd", "a\nb\nc\nd\ne"]) == [(1, 0)]
    assert found(outputs_of([0, 0]), ["a\nb\nc", "a\nb\nc\nd"]) == []


def test_the_source_is_the_best_overlap_and_the_newest_among_equals():
    texts = ["a\nb\nc\nd\ne", "a\nb\nc\nd", "a\nb\nc\nd\ne", "a\nb\nc\nd\ne"]
    assert found(outputs_of([0, 0, 0, 0]), texts) == [(1, 0), (2, 0), (3, 2)]


def test_a_file_seen_in_pieces_is_fetched_again_only_by_the_union_of_earlier_reads():
    texts = ["a\nb\nc\nd", "e\nf\ng", "a\nb\nc\nd\ne\nf\ng"]
    outputs = outputs_of([0, 0, 0], pruned_at=[3, NEVER, NEVER])
    assert found(outputs, texts) == []
    result = refetches_of(outputs, distinct_lines(pa.array(texts)), refetch_source="union")
    assert result.read.tolist() == [2]
    assert result.source.tolist() == [0], "the best overlap, not the newest"
    assert result.share.tolist() == [1]
    assert result.visible_share.tolist() == [0], "judged by the source alone"


def test_runs_do_not_read_for_each_other():
    assert found(outputs_of([0, 1]), [ABC, ABC]) == []


def test_what_is_no_read_is_neither_refetch_nor_source():
    assert found(outputs_of([0, 0, 0], reads=[False, True, False]), [ABC, ABC, ABC]) == []


def test_the_view_of_the_issuing_call_decides_whether_the_source_was_visible():
    """Pruned at call 3: the read at call 2 still saw it, the read at call 3 did not."""
    outputs = outputs_of([0, 0, 0], pruned_at=[3, NEVER, NEVER])
    at_two = refetches_of(outputs, distinct_lines(pa.array([ABC, ABC, "x"])))
    at_three = refetches_of(outputs, distinct_lines(pa.array([ABC, "x", ABC])))
    assert at_two.visible_share.tolist() == [1]
    assert at_three.visible_share.tolist() == [0]
    partly = outputs_of([0, 0], pruned_at=[2, NEVER], left=[0.25, 0])
    found_partly = refetches_of(partly, distinct_lines(pa.array([ABC, ABC])))
    assert found_partly.visible_share.tolist() == [0.25]


def test_a_read_after_a_write_to_its_file_verifies():
    commands = ["cat ./src/a.py", "sed -i s/x/y/ src/a.py", "cat src/a.py", "cat src/a.py"]
    outputs = outputs_of(
        [0] * 4,
        commands=commands,
        reads=[True, False, True, True],
        writes=[False, True, False, False],
    )
    result = refetches_of(outputs, distinct_lines(pa.array([ABC, "", ABC, ABC])))
    assert result.verifies.tolist() == [True, False]


texts_of_run = st.lists(
    st.lists(st.sampled_from("abcdefgh"), min_size=0, max_size=7).map("\n".join),
    min_size=1,
    max_size=8,
)


@given(st.lists(texts_of_run, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_the_sparse_product_finds_what_comparing_every_pair_finds(runs: list[list[str]]):
    texts = [text for run in runs for text in run]
    owners = [number for number, run in enumerate(runs) for _ in run]
    sets = [{line for line in text.split("\n") if line} for text in texts]
    expected = []
    for i, lines in enumerate(sets):
        earlier = [
            (len(lines & sets[j]), j)
            for j in range(i)
            if owners[j] == owners[i] and len(sets[j]) >= 3
        ]
        if len(lines) >= 3 and earlier and max(earlier)[0] / len(lines) >= 0.8 - 1e-9:
            expected.append((i, max(earlier)[1]))
    assert found(outputs_of(owners), texts) == expected


@given(st.lists(texts_of_run, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_the_union_counts_each_line_that_any_earlier_read_of_the_run_had(runs: list[list[str]]):
    expected = []
    at = 0
    for run in runs:
        seen: set[str] = set()
        for text in run:
            lines = {line for line in text.split("\n") if line}
            if len(lines) >= 3:
                share = len(lines & seen) / len(lines)
                if share >= 0.8 - 1e-9:
                    expected.append((at, pytest.approx(share)))
                seen |= lines
            at += 1
    owners = [number for number, run in enumerate(runs) for _ in run]
    texts = pa.array([text for run in runs for text in run])
    result = refetches_of(outputs_of(owners), distinct_lines(texts), refetch_source="union")
    assert list(zip(result.read.tolist(), result.share.tolist(), strict=True)) == expected


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_hazard_counts_output_turns_one_by_one(born: list[int], data: st.DataObject):
    last = data.draw(st.integers(max(born), 15))
    n = len(born)
    pruned = data.draw(
        st.lists(st.one_of(st.just(NEVER), st.integers(2, 16)), min_size=n, max_size=n)
    )
    pruned = [max(p, b + 1) for p, b in zip(pruned, born, strict=True)]
    events = data.draw(st.lists(st.one_of(st.none(), st.integers(2, 15)), min_size=n, max_size=n))
    events = [
        e if e is not None and b < e <= last else None for e, b in zip(events, born, strict=True)
    ]
    at_risk = {"kept": np.zeros(MAX_AGE + 1), "pruned": np.zeros(MAX_AGE + 1)}
    first = {"kept": np.zeros(MAX_AGE + 1), "pruned": np.zeros(MAX_AGE + 1)}
    for b, p, e in zip(born, pruned, events, strict=True):
        for turn in range(b + 1, (last if e is None else e) + 1):
            state = "pruned" if turn >= p else "kept"
            at_risk[state][turn - b] += 1
            if turn == e:
                first[state][turn - b] += 1
    sources = [i for i, e in enumerate(events) if e is not None]
    turns = born + [events[i] for i in sources]  # type: ignore[operator]
    outputs = Outputs(
        run=np.zeros(len(turns), dtype=np.int64),
        message_index=np.arange(len(turns)),
        turn=np.array(turns),
        call=np.array(turns),
        pruned_at_call=np.full(len(turns), NEVER),
        left_share=np.zeros(len(turns)),
        is_read=np.ones(len(turns), dtype=bool),
        is_write=np.zeros(len(turns), dtype=bool),
        command=pa.array([""] * len(turns)),
    )
    from pipeline.analysis.behaviour.refetch import Refetches

    refetches = Refetches(
        read=np.arange(n, len(turns)),
        source=np.array(sources, dtype=np.int64),
        share=np.ones(len(sources)),
        distance_turns=np.zeros(len(sources), dtype=np.int64),
        visible_share=np.ones(len(sources)),
        verifies=np.zeros(len(sources), dtype=bool),
    )
    hazard = hazard_of(
        outputs,
        refetches,
        n_runs=1,
        eligible=np.arange(len(turns)) < n,
        last_turn=np.full(len(turns), last),
        pruned_turn=np.array(pruned + [NEVER] * len(sources)),
    )
    assert hazard.kept_at_risk[0] == pytest.approx(at_risk["kept"])
    assert hazard.pruned_at_risk[0] == pytest.approx(at_risk["pruned"])
    assert hazard.kept_events[0] == pytest.approx(first["kept"])
    assert hazard.pruned_events[0] == pytest.approx(first["pruned"])


def test_age_matching_undoes_what_age_alone_explains():
    """Same hazard at each age, pruned outputs older: crude rates differ, the matched ratio is 1."""
    hazard_by_age = np.zeros(MAX_AGE + 1)
    hazard_by_age[1:] = 1 / np.arange(1, MAX_AGE + 1)
    kept, pruned = np.zeros(MAX_AGE + 1), np.zeros(MAX_AGE + 1)
    kept[1:11], pruned[5:41] = 100, 100
    kept[11:41] = 10
    hazard = Hazard(
        pruned_at_risk=pruned[None, :],
        kept_at_risk=kept[None, :],
        pruned_events=(pruned * hazard_by_age)[None, :],
        kept_events=(kept * hazard_by_age)[None, :],
    )
    crude = hazard.kept_events.sum() / hazard.kept_at_risk.sum()
    assert crude > 1.5 * hazard.pruned_rate
    assert hazard.ratio(np.ones((1, 1))).value == pytest.approx(1)


def test_the_interval_of_the_regret_ratio_resamples_instances_with_all_their_outputs():
    """Against a plain loop: each resample adds up the ages of the instances it drew."""
    rng = np.random.default_rng(3)
    n, ages = 15, MAX_AGE + 1
    at_risk = rng.poisson(8, size=(2, n, ages)).astype(float)
    events = rng.binomial(at_risk.astype(int), 0.1).astype(float)
    hazard = Hazard(
        pruned_at_risk=at_risk[0],
        kept_at_risk=at_risk[1],
        pruned_events=events[0],
        kept_events=events[1],
    )

    def ratio(places: Sequence[int]) -> float:
        expected = observed = 0.0
        for age in range(ages):
            exposed = [sum(at_risk[k, i, age] for i in places) for k in (0, 1)]
            came_back = [sum(events[k, i, age] for i in places) for k in (0, 1)]
            if all(exposed):
                observed += came_back[0]
                expected += came_back[1] / exposed[1] * exposed[0]
        return observed / expected

    counts = resample_counts(n, draws=300, rng=rng)
    found = hazard.ratio(counts)
    values = reference.resampled(ratio, counts)
    assert found.value == pytest.approx(ratio(range(n)))
    assert (found.low, found.high) == pytest.approx(reference.expanded_interval(values, n))


def test_rows_of_one_instance_are_added_up_and_those_of_other_arms_left_out():
    rows = np.arange(3.0)[:, None] * np.ones(MAX_AGE + 1)
    hazard = Hazard(pruned_at_risk=rows, kept_at_risk=rows, pruned_events=rows, kept_events=rows)
    assert hazard.by_group(np.array([1, 1, -1]), 2).kept_events[:, 0].tolist() == [0.0, 1.0]
