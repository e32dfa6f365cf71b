"""SWE-Pruner v1 over HTTP, against a server with its interface."""

from typing import Any

import pytest

from pipeline.arms.swe_pruner import SwePruner
from pipeline.protocols import PrunerError
from pipeline.pruners.swe_pruner import TRIES, SwePrunerClient, kept_of
from pipeline.views.kept_lines import count_lines
from tests.pruners.outputs import ODD, request, shown
from tests.pruners.prune_server import Answer, PruneServer

TEXT = "alpha\nneedle one\nbeta\ngamma\nneedle two\n"


def client(server: PruneServer, **spec: Any) -> SwePrunerClient:
    return SwePrunerClient(SwePruner(url=server.url, **spec))


def test_the_lines_that_the_server_names_stay() -> None:
    with PruneServer() as server:
        kept = client(server, threshold=0.4).prune(request(TEXT, "where is the needle?"))
    assert shown(TEXT, kept) == "needle one\nneedle two"
    assert server.bodies == [
        {
            "query": "where is the needle?",
            "code": TEXT,
            "threshold": 0.4,
            "always_keep_first_frags": False,
            "chunk_overlap_tokens": 50,
        }
    ]


def test_without_a_question_the_server_is_not_even_asked() -> None:
    with PruneServer() as server:
        assert client(server).prune(request(TEXT, None)) is None
    assert server.bodies == []


@pytest.mark.parametrize("what", sorted(ODD))
def test_its_line_numbers_fit_any_text(what: str) -> None:
    text = ODD[what]
    with PruneServer() as server:
        kept = client(server).prune(request(text, "short données żółw"))
    assert kept is not None
    assert len(kept) == count_lines(text)


def test_a_line_stays_if_any_part_does_that_the_server_takes_for_a_line() -> None:
    text = "10%\r20%\rneedle\r\nplain\x0cneedle\nlast\n"
    numbers = [n for n, part in enumerate(text.splitlines(), 1) if part == "needle"]
    assert kept_of({"kept_frags": numbers}, text).tolist() == [True, True, False]
    assert kept_of({"kept_frags": [2]}, text).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((500, {"detail": "boom"}), "HTTP 500"),
        ((422, {"detail": "no such field"}), "HTTP 422"),
        ((200, b"<html>"), "no JSON"),
        ((200, [1]), "no JSON object"),
        ((200, {"kept_frags": [1, 99]}), "do not fit 5 lines"),
        ((200, {"kept_frags": [0]}), "do not fit"),
        ((200, {"kept_frags": ["1"]}), "do not fit"),
        ((200, {"kept_frags": [True]}), "do not fit"),
        ((200, {}), "do not fit"),
        ((200, {"kept_frags": [1], "error_msg": "too long"}), "says: too long"),
    ],
)
def test_a_bad_answer_is_an_error_and_no_decision(answer: tuple[int, Any], says: str) -> None:
    always: Answer = lambda _: answer  # noqa: E731
    with PruneServer(always) as server, pytest.raises(PrunerError, match=says):
        client(server).prune(request(TEXT))
    assert len(server.bodies) == (TRIES if answer[0] == 500 else 1)


def test_a_server_that_fails_once_is_asked_again() -> None:
    answers = iter([(503, {}), (200, {"kept_frags": [2]})])
    with PruneServer(lambda _: next(answers)) as server:
        assert shown(TEXT, client(server).prune(request(TEXT))) == "needle one"


def test_a_server_that_goes_away_is_an_error_for_the_output() -> None:
    with PruneServer() as server:
        made = client(server)
    with pytest.raises(PrunerError, match="failed"):
        made.prune(request(TEXT))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", None])
def test_a_server_that_is_not_there_is_found_at_once(url: str | None) -> None:
    with pytest.raises(PrunerError, match=r"no SWE-Pruner server answers|give arms\.ARM"):
        SwePrunerClient(SwePruner(url=url))


def test_a_server_that_is_not_healthy_is_found_at_once() -> None:
    with PruneServer(healthy=False) as server, pytest.raises(PrunerError, match="answers 503"):
        client(server)
