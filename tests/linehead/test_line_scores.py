"""The question to a server with a line head, and what comes back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.views.kept_lines import TokenLines, output_tokens
from pipeline.views.line_scores import (
    LineScores,
    decoded,
    encoded,
    request_params,
    response_params,
    wanted_texts,
)


def over_the_wire(params):
    return json.loads(json.dumps(params))


@given(
    st.lists(st.text("ab\n\ré", min_size=1, max_size=5), min_size=1, max_size=12), st.integers(0, 9)
)
def test_scores_and_lines_come_back_as_they_were(tokens, seed):
    text = "".join(tokens)
    ends = np.cumsum([len(t) for t in tokens]).tolist()
    offsets = list(zip([0, *ends[:-1]], ends, strict=True))
    lines = output_tokens(offsets, text, 0).lines
    scores = np.round(np.random.default_rng(seed).random(len(tokens)), 4)
    scores[0] = np.nan
    params = over_the_wire(response_params([encoded(scores.tolist(), lines)], 0))
    (found,) = decoded(params, [text])
    assert isinstance(found, LineScores)
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(found.lines.first, lines.first)
    np.testing.assert_array_equal(found.lines.last, lines.last)
    assert found.lines.n_lines == lines.n_lines


def test_the_heads_time_is_told_in_milliseconds_or_as_unknown():
    told = response_params([], 0, head_s=0.0123456)["line_scores"]["head_ms"]
    assert told == 12.346
    assert response_params([], 0)["line_scores"]["head_ms"] is None


def test_a_question_carries_the_texts_in_order():
    assert wanted_texts(over_the_wire(request_params(["a\n", "é"]))) == ["a\n", "é"]


@pytest.mark.parametrize(
    "params", [None, {}, {"line_scores": None}, {"line_scores": {"texts": "a"}},
               {"line_scores": {"texts": [1]}}, {"do_remote_prefill": True}],
)  # fmt: skip
def test_a_request_of_another_kind_asks_nothing(params):
    assert wanted_texts(params) == []


ONE = TokenLines(first=np.array([0]), last=np.array([0]), n_lines=1)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        (None, "no line scores"),
        ({"other": 1}, "no line scores"),
        (response_params([], 0), "no line scores"),
        (response_params([{"error": "the head failed"}], 1), "the head failed"),
        (response_params([{"unknown": 1}], 0), "not understood"),
        (response_params([encoded([0.5], ONE)], 0), "another text"),
    ],
)
def test_whatever_is_wrong_is_a_reason_and_no_exception(params, reason):
    (found,) = decoded(params, ["two\nlines\n"])
    assert isinstance(found, str)
    assert reason in found
