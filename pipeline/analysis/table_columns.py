"""Columns that result tables share: what a row is about, and an estimate with its intervals."""

from typing import Any

from pipeline.analysis.bootstrap import Estimate
from pipeline.analysis.outcomes import Group

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
