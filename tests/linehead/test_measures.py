"""Metrics, baselines and linear rules: pure figures, checked by hand."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.linehead import __main__ as door
from pipeline.linehead.baselines import PlainOutput, baselines
from pipeline.linehead.extra import ExtraMissingError, require_extra
from pipeline.linehead.linear import discriminant, logistic_regression
from pipeline.linehead.metrics import (
    LineScored,
    Scored,
    auc,
    best_threshold,
    line_metrics,
    metrics_at,
    metrics_by_bucket,
    plain_metrics,
    threshold_sweep,
)
from pipeline.linehead.settings import SplitSettings
from pipeline.linehead.split import split_of
from pipeline.views.kept_lines import TokenLines


def bools(text: str):
    return np.array([c == "1" for c in text])


def test_figures_are_over_all_lines_together_and_keep_is_what_is_found():
    found = line_metrics([bools("1100"), bools("1")], [bools("1010"), bools("1")])
    assert (found.precision, found.recall, found.f1) == (2 / 3, 2 / 3, 2 / 3)
    assert (found.keep_rate, found.true_keep_rate) == (3 / 5, 3 / 5)
    assert (found.n_lines, found.n_outputs) == (5, 2)


def test_what_is_undefined_is_nan_and_none_in_json():
    nothing = line_metrics([bools("00")], [bools("00")])
    assert math.isnan(nothing.f1)
    assert plain_metrics(nothing)["f1"] is None
    assert line_metrics([bools("11")], [bools("00")]).f1 == 0.0
    assert math.isnan(line_metrics([], []).keep_rate)


def test_a_lines_score_is_the_mean_of_its_tokens():
    lines = TokenLines(first=np.array([0, 0, 1]), last=np.array([0, 1, 1]), n_lines=3)
    scored = Scored(scores=np.array([1.0, 0.5, 0.0]), lines=lines, kept=bools("110"))
    assert scored.line_scores[:2].tolist() == [0.75, 0.25]
    assert math.isnan(scored.line_scores[2])


def test_the_best_threshold_has_the_best_f1_and_ties_go_to_the_middle():
    output = LineScored(line_scores=np.array([0.9, 0.8, 0.3, 0.2]), kept=bools("1100"))
    sweep = threshold_sweep([output], (0.1, 0.4, 0.6, 0.85), fill_gaps=False)
    assert [round(p.metrics.f1, 2) for p in sweep] == [0.67, 1.0, 1.0, 0.67]
    assert best_threshold(sweep) in (0.4, 0.6)
    assert best_threshold(threshold_sweep([], (0.1,), fill_gaps=False)) == 0.5


def test_figures_by_length_cover_every_line():
    outputs = [LineScored(line_scores=np.ones(n), kept=np.ones(n, dtype=bool)) for n in (3, 4, 60)]
    by_length = metrics_by_bucket(outputs, 0.5, fill_gaps=True)
    assert {name: m.n_lines for name, m in by_length.items()} == {"3-5": 7, "51-100": 60}


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(pairs):
    scores = np.array([s for s, _ in pairs], dtype=float)
    truth = np.array([t for _, t in pairs])
    if truth.all() or not truth.any():
        assert math.isnan(auc(scores, truth))
        return
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in scores[truth] for b in scores[~truth]]
    assert auc(scores, truth) == pytest.approx(np.mean(wins))


def test_baselines_know_only_what_they_say():
    train = [
        PlainOutput(line_chars=np.array([50, 1] * 2), kept=bools("1010")),
        PlainOutput(line_chars=np.array([50, 1] * 30), kept=bools("10" * 6 + "0" * 48)),
    ]
    rules = baselines(train)
    assert list(rules) == ["keep_all", "majority", "length", "surface"]
    short = PlainOutput(line_chars=np.array([60, 1, 60]), kept=bools("101"))
    assert rules["keep_all"](short).line_scores.tolist() == [1.0] * 3
    assert rules["majority"](short).line_scores.tolist() == [0.0] * 3
    assert rules["length"](short).line_scores.tolist() == [0.5] * 3
    surface = rules["surface"](short).line_scores
    assert surface[0] > 2 * surface[1]
    # A length never met gets the share over all.
    long = PlainOutput(line_chars=np.ones(300, dtype=int), kept=np.zeros(300, dtype=bool))
    assert rules["length"](long).line_scores[0] == pytest.approx(8 / 64)


def test_linear_rules_find_the_direction_that_tells_the_classes_apart():
    rng = np.random.default_rng(0)
    truth = rng.random(400) < 0.3
    features = rng.normal(size=(400, 5)) * np.array([1, 10, 0.1, 1, 1])
    features[:, 1] += 30 * truth
    constant = np.concatenate([features, np.full((400, 1), 7.0)], axis=1)
    for rule in (
        logistic_regression(constant, truth, l2=1.0),
        discriminant(constant, truth, shrinkage=0.1),
    ):
        values = rule.values(constant)
        assert auc(values, truth) > 0.95
        assert (
            metrics_at([LineScored(line_scores=values, kept=truth)], 0.0, fill_gaps=False).f1 > 0.85
        )
        assert int(np.argmax(np.abs(rule.weights))) == 1


def test_logistic_regression_is_at_its_optimum():
    rng = np.random.default_rng(1)
    features, truth = rng.normal(size=(50, 3)), rng.random(50) < 0.5
    rule = logistic_regression(features, truth, l2=2.0)
    x = (features - rule.mean) / rule.scale
    error = rule.probabilities(features) - truth
    assert np.abs(x.T @ error + 2.0 * rule.weights).max() < 1e-2
    assert abs(error.sum()) < 1e-2


def test_a_discriminant_needs_both_classes():
    with pytest.raises(ValueError, match="both classes"):
        discriminant(np.zeros((3, 2)), np.ones(3, dtype=bool), shrinkage=0.1)


# --- splits --------------------------------------------------------------------------------------
INSTANCES = [f"i{n % 10}" for n in range(40)]


def test_whole_instances_validate_and_named_ones_are_only_tested():
    split = split_of(INSTANCES, SplitSettings(test_instances=("i3",), validation_share=0.2))
    groups = [{INSTANCES[i] for i in part} for part in (split.train, split.validation, split.test)]
    assert groups[2] == {"i3"}
    assert len(groups[1]) == 2
    assert not groups[0] & groups[1]
    assert sorted([*split.train, *split.validation, *split.test]) == list(range(40))


def test_the_papers_split_is_by_sample():
    split = split_of(INSTANCES, SplitSettings(by="sample"))
    assert (len(split.train), len(split.validation), len(split.test)) == (36, 4, 0)
    assert split == split_of(INSTANCES, SplitSettings(by="sample"))
    assert split != split_of(INSTANCES, SplitSettings(by="sample", seed=1))


def test_an_unknown_test_instance_and_too_little_data_are_refused():
    with pytest.raises(ValueError, match="no output is of test instance nope; known: i0, i1"):
        split_of(INSTANCES, SplitSettings(test_instances=("nope",)))
    with pytest.raises(ValueError, match="only 1 instances are left"):
        split_of(["a", "a"], SplitSettings())


# --- the door ------------------------------------------------------------------------------------
def test_a_missing_extra_is_named_with_what_to_install():
    with pytest.raises(ExtraMissingError, match=r"no_such_package.*planprune\[pruner\]"):
        require_extra(("no_such_package",))


def test_importing_the_package_and_asking_for_help_import_no_torch():
    import subprocess

    code = (
        "import sys; import pipeline.linehead.__main__ as m; m.main(['--help']); "
        "m.main(['train', 'out=x']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert "linehead train needs features=VALUE" in done.stderr


def test_an_unknown_command_is_named_with_the_known_ones(capsys):
    assert door.main(["lable"]) == 2
    assert "no command 'lable'; known: label, features" in capsys.readouterr().err
