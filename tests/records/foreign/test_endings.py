"""Endings of other people's runs: their maker's failures never judge an agent."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.records.failure import FailureClass
from pipeline.records.foreign.endings import Ending
from pipeline.records.foreign.mini import trajectory_from_mini
from tests.records.foreign.files import CASES, call, result, trajectory, words


def ending(status: str, error: str = "", **more: Any) -> FailureClass:
    return Ending(**{"exit_status": status, "error": error, "n_calls": 3, **more}).failure_class


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("LimitsExceeded", "limit_steps"),
        ("CostLimitExceeded", "limit_cost"),
        ("TimeExceeded", "limit_time"),
        ("AgentTimeoutError", "limit_time"),
        ("ContextWindowExceededError", "limit_context"),
        ("RepeatedFormatError", "limit_format"),
        ("CalledProcessError", "infra_sandbox"),
        ("OpenRouterAPIError", "infra_server"),
        ("litellm.exceptions.RateLimitError", "infra_server"),
        ("AuthenticationError: wrong key", "infra_server"),
        ("", "infra_node"),
        ("Submitted", "submitted_empty"),
        ("InsufficientQuota", "infra_server"),
        ("provider.QuotaExceededError", "infra_server"),
        ("OutOfCredits", "infra_server"),
        ("ConnectionTimeoutException", "infra_server"),
        ("ApptainerError", "infra_sandbox"),
    ],
)
def test_a_known_name_has_its_class(status: str, expected: str) -> None:
    assert ending(status) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("Error code: 402 - requires more credits, or fewer max_tokens", "infra_server"),
        ("You exceeded your current quota, please check your plan", "infra_server"),
        ("Invalid API key provided", "infra_server"),
        ("Connection refused", "infra_server"),
        ("503 Service Unavailable", "infra_server"),
        ("docker: Error response from daemon: no such image", "infra_sandbox"),
        ("OCI runtime exec failed", "infra_sandbox"),
        ("[Errno 28] No space left on device", "infra_disk"),
        ("Cannot allocate memory", "infra_node"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "limit_context"),
    ],
)
@pytest.mark.parametrize("status", ["RuntimeError", "BadRequestError"])
def test_an_unknown_name_is_judged_by_what_was_said(status: str, error: str, expected: str) -> None:
    assert ending(status, error) == expected


def test_a_name_and_a_text_that_say_nothing_are_a_class_of_their_own() -> None:
    assert ending("WeirdError", "the moon was full") is FailureClass.UNKNOWN_ENDING
    assert not FailureClass.UNKNOWN_ENDING.is_infra


@pytest.mark.parametrize("status", ["WeirdError", "LimitsExceeded", "TimeExceeded", "KeyError"])
def test_a_run_without_a_single_call_is_never_the_agents_failure(status: str) -> None:
    assert ending(status, n_calls=0).is_infra


def test_a_full_window_is_told_from_a_server_that_is_overloaded() -> None:
    said = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"
    assert ending("BadRequestError", said) is FailureClass.LIMIT_CONTEXT
    assert ending("RateLimitError", said) is FailureClass.INFRA_SERVER


@pytest.mark.parametrize(
    ("stats", "limits", "expected"),
    [
        ({"instance_cost": 3.01, "api_calls": 40}, {"cost_limit": 3.0, "step_limit": 250}, "cost"),
        (
            {"instance_cost": 3.01, "api_calls": 250},
            {"cost_limit": 3.0, "step_limit": 250},
            "steps",
        ),
        ({"instance_cost": 0.4, "api_calls": 250}, {"cost_limit": 3.0, "step_limit": 250}, "steps"),
        ({"instance_cost": 0.0, "api_calls": 250}, {"cost_limit": 0.0, "step_limit": 250}, "steps"),
        ({}, {}, "steps"),
    ],
)
def test_minis_one_name_for_two_limits_is_told_apart_by_the_cost(
    stats: dict[str, Any], limits: dict[str, Any], expected: str
) -> None:
    info = {"model_stats": stats, "config": {"model": {"model_name": "m"}, "agent": limits}}
    data = trajectory(call(1, "ls", 100), result(1, "a"), status="LimitsExceeded", info=info)
    assert trajectory_from_mini(data, words).failure_class == f"limit_{expected}"


def test_the_text_of_an_unknown_ending_is_kept() -> None:
    gone = {"role": "exit", "content": "WeirdError: the moon", "extra": {}}
    run = trajectory_from_mini(
        trajectory(call(1, "ls", 100), result(1, "a"), gone, status="WeirdError"), words
    )
    assert run.failure_class is FailureClass.UNKNOWN_ENDING
    assert run.failure == "WeirdError: the moon"


SHARED = {
    "BadRequestError": "limit_context",
    "CalledProcessError": "infra_sandbox",
    "CostLimitExceeded": "limit_cost",
    "OpenRouterAPIError": "infra_server",
}


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")
@pytest.mark.parametrize("name", SHARED)
def test_endings_that_were_met_in_the_wild(name: str) -> None:
    path: Path = CASES / "endings" / f"end-{name}.traj.json"
    run = trajectory_from_mini(json.loads(path.read_text()), words)
    assert run.failure_class == SHARED[name]
