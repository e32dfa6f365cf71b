"""Columns that result tables share: what a row is about, and an estimate with its intervals."""

from typing import Any

from pipeline.analysis.bootstrap import Estimate
from pipeline.analysis.outcomes import Group
from pipeline.analysis.rate_difference import RateDifference

Row = dict[str, Any]


def identity(group: Group) -> Row:
    """Return the columns that every table begins with."""
    return {
        "benchmark": group.benchmark,
        "model": group.model,
        "agent": group.agent,
        "evidence": group.evidence,
    }


def estimate_columns(name: str, estimate: Estimate) -> Row:
    """Return an estimate as columns."""
    return {
        name: estimate.value,
        f"{name}_low": estimate.low,
        f"{name}_high": estimate.high,
        f"{name}_bca_low": estimate.bca_low,
        f"{name}_bca_high": estimate.bca_high,
        f"{name}_p": estimate.p_value,
    }


def rate_columns(name: str, found: RateDifference) -> Row:
    """Return a difference in solve rate as columns."""
    return {
        name: found.value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_method": found.method,
    }
