"""Medians of all resamples at once, for peak context.

A resample is a row of counts, so its median is a weighted one: sort the values once, add the
counts up along that order, and look where half is reached.
"""

import numpy as np

from pipeline.analysis.arrays import FloatArray
from pipeline.analysis.bootstrap import Estimate, ratio_or_nan, statistic


def weighted_medians(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the median of `values` under each row of whole-number weights.

    Equal to `numpy.median` of the values repeated by their weights.

    Args:
        values: shape (n,), without NaN.
        weights: shape (k, n), rows with a positive sum.
    """
    order = np.argsort(values)
    ordered = values[order]
    reached = np.cumsum(weights[:, order], axis=1)
    half = reached[:, -1:] / 2
    low = np.argmax(reached >= half - 1e-9, axis=1)
    high = np.argmax(reached > half + 1e-9, axis=1)
    medians: FloatArray = (ordered[low] + ordered[high]) / 2
    return medians


def ratio_of_medians(control: FloatArray, treatment: FloatArray, counts: FloatArray) -> Estimate:
    """Return the treatment's median over the control's, with intervals."""
    return statistic(
        lambda w: ratio_or_nan(weighted_medians(treatment, w), weighted_medians(control, w)),
        counts=counts,
        null=1.0,
    )


def median_ratio(control: FloatArray, treatment: FloatArray, counts: FloatArray) -> Estimate:
    """Return the median of per-instance ratios, with intervals."""
    ratios = ratio_or_nan(treatment, control)
    return statistic(lambda w: weighted_medians(ratios, w), counts=counts, null=1.0)
