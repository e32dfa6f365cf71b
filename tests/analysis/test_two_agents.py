"""Two agents in one sweep: nothing is pooled over them, and each has its own grid of deletions."""

import re

import numpy as np
import pytest

from pipeline.analysis.gate_limits import window_limit
from pipeline.analysis.grid import DIMENSIONS
from pipeline.analysis.paired_tests import holm
from pipeline.analysis.publish import AnalysisSummary, analyze_results
from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import ArmTruth, SyntheticSweep
from pipeline.analysis.tally import ENDINGS, GRADES, TallyRow
from pipeline.spec.analysis import AnalysisPlan

AGENTS = ("mini", "trae")
GRID = {
    f"delete_{scope}_turn{rate}_{timing}": ArmTruth(
        policy="deletion",
        parameters={
            "scope": scope,
            "rate": rate / 100,
            "reasoning_delay": delay,
            "output_delay": delay,
        },
        tokens=1 - rate / 200,
        prunes=True,
    )
    for scope in ("reasoning", "output")
    for rate in (25, 75)
    for timing, delay in (("delayed", 2), ("immediate", 0))
}


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> AnalysisSummary:
    results = tmp_path_factory.mktemp("two-agents")
    sweep = SyntheticSweep(
        n_instances=12,
        seeds=(0, 1),
        mean_steps=10,
        agents=AGENTS,
        arms={"full_history": ArmTruth(), **GRID},
    )
    write_sweep(sweep, results, plan=AnalysisPlan(resamples=500))
    return analyze_results(results)


def test_each_agent_is_a_group_with_a_holm_family_and_noise_of_its_own(analysed: AnalysisSummary):
    groups = analysed.study.groups
    assert [g.group.agent for g in groups] == list(AGENTS)
    for group in groups:
        assert {c.arm for c in group.contrasts} == set(GRID)
        solves = [c.solve for c in group.contrasts if c.solve is not None]
        expected = holm([solve.test.p_value for solve in solves])
        assert np.allclose([solve.holm_p for solve in solves], expected)
        assert group.noise["full_history"].n_seed_pairs == 1
    first, second = (g.contrasts[0].tokens.value for g in groups)
    assert first != second


def test_every_planned_run_is_counted_under_its_agent(analysed: AnalysisSummary):
    rows = analysed.study.gate.tally
    assert {(row.agent, row.arm): row.planned for row in rows} == {
        (agent, arm): 24 for agent in AGENTS for arm in ("full_history", *GRID)
    }
    assert all(row.adds_up for row in rows)
    seen = {(t.agent, t.arm): t.n_runs for t in analysed.study.gate.treatments}
    assert seen == {(row.agent, row.arm): row.done for row in rows}


def test_figures_are_drawn_for_each_agent(analysed: AnalysisSummary):
    titles = {g.group.title for g in analysed.study.groups}
    for name in {figure.name for figure in analysed.figures}:
        assert {f.group for f in analysed.figures if f.name == name} == titles


def test_the_grid_of_each_agent_counts_what_was_cheaper(analysed: AnalysisSummary):
    page = analysed.report.read_text()
    for group in analysed.study.groups:
        assert len(group.grid) == 4
        assert all(set(row.by_timing) == {"delayed", "immediate"} for row in group.grid)
        names = [c.arm for row in group.grid for c in row.by_timing.values()]
        assert sorted(names) == sorted(GRID)
        for sentence in group.cheaper:
            said = re.match(r"(\d+) of 8 configurations .* \((.+)\), (\d+) of them", sentence)
            assert said is not None
            ratios = [
                b.ratio
                for name in GRID
                for b in group.bills
                if b.arm == name and b.prices == said[2] and b.ratio is not None
            ][:: len([b for b in group.bills if b.arm == names[0] and b.prices == said[2]])]
            assert int(said[1]) == sum(ratio.value < 1 for ratio in ratios)
            assert int(said[3]) == sum(ratio.high < 1 for ratio in ratios)
            assert sentence in page
        assert {"under caching prices" in s for s in group.cheaper} == {True, False}
    assert page.count("Every configuration of the deletion grid") == len(AGENTS)
    assert page.count("Effects by dimension within the deletion grid") == len(AGENTS)


def test_effects_by_dimension_are_pairs_of_one_agents_arms(analysed: AnalysisSummary):
    for group in analysed.study.groups:
        assert {m.dimension for m in group.matched} == set(DIMENSIONS) - {"unit"}
        assert all(len(m.pairs) == 4 for m in group.matched)


def row(agent: str, arm: str, full: int) -> TallyRow:
    endings = {**dict.fromkeys(ENDINGS, 0), "limit_context": full, "ok": 100 - full}
    return TallyRow(model="m", agent=agent, arm=arm, planned=100, endings=endings, done=100,
                    grades=dict.fromkeys(GRADES, 0), limit_time=0, loops=0, no_status=0,
                    test_settings=0)  # fmt: skip


def test_a_window_that_binds_on_one_agent_alone_is_no_difference_between_arms():
    """Arms of two agents were once compared with each other."""
    rows = [row("mini", "full_history", 0), row("mini", "mask", 0),
            row("trae", "full_history", 9), row("trae", "mask", 9)]  # fmt: skip
    assert list(window_limit(rows, blocks=True)) == []
    (problem,) = window_limit([*rows, row("trae", "other", 0)], blocks=True)
    assert (problem.model, problem.agent) == ("m", "trae")
