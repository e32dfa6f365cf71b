"""Two linear rules, fitted exactly: logistic regression and Fisher's discriminant. NumPy, SciPy."""

from dataclasses import dataclass

import numpy as np

from pipeline.views.kept_lines import BoolArray, FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearRule:
    """A direction in standardised features, and an offset."""

    mean: FloatArray
    scale: FloatArray
    weights: FloatArray
    offset: float

    def values(self, features: FloatArray) -> FloatArray:
        """Return each row's place along the direction; above 0 is the positive side."""
        places: FloatArray = ((features - self.mean) / self.scale) @ self.weights + self.offset
        return places

    def probabilities(self, features: FloatArray) -> FloatArray:
        """Return the logistic function of `values`."""
        from scipy.special import expit

        return np.asarray(expit(self.values(features)), dtype=np.float64)


def logistic_regression(features: FloatArray, truth: BoolArray, *, l2: float) -> LinearRule:
    """Return the rule that minimises mean log loss + l2 / (2 n) |weights|^2 (offset not penalised).

    With one class only, the rule is constant.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    mean, scale = _standard(features)
    x = (features - mean) / scale
    y = truth.astype(np.float64)
    n = len(y)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        weights, offset = parameters[:-1], parameters[-1]
        z = x @ weights + offset
        error = (expit(z) - y) / n
        value = float(np.mean(np.logaddexp(0, z) - y * z) + l2 / (2 * n) * weights @ weights)
        return value, np.append(x.T @ error + l2 / n * weights, error.sum())

    found = minimize(
        loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 500}
    )
    return LinearRule(mean=mean, scale=scale, weights=found.x[:-1], offset=float(found.x[-1]))


def discriminant(features: FloatArray, truth: BoolArray, *, shrinkage: float) -> LinearRule:
    """Return Fisher's linear discriminant, within-class spread 1, zero half-way between the means.

    Args:
        features: shape (rows, features).
        truth: the positive rows; both classes must occur.
        shrinkage: 0 uses the pooled covariance as it is, 1 a multiple of the identity.
    """
    mean, scale = _standard(features)
    x = (features - mean) / scale
    high, low = x[truth], x[~truth]
    if not len(high) or not len(low):
        raise ValueError("a discriminant needs rows of both classes")
    centred = np.concatenate([high - high.mean(axis=0), low - low.mean(axis=0)])
    pooled = centred.T @ centred / max(1, len(x) - 2)
    even = np.trace(pooled) / len(pooled)
    # Without any shrinkage, columns that say the same twice would make this singular.
    within = (1 - shrinkage) * pooled + max(shrinkage, 1e-6) * even * np.eye(len(pooled))
    weights = np.linalg.solve(within, high.mean(axis=0) - low.mean(axis=0))
    spread = float(np.sqrt(weights @ pooled @ weights))
    weights = weights / (spread or 1.0)
    middle = (high.mean(axis=0) + low.mean(axis=0)) / 2
    return LinearRule(mean=mean, scale=scale, weights=weights, offset=float(-weights @ middle))


def _standard(features: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean, scale = features.mean(axis=0), features.std(axis=0)
    return mean, np.where(scale > 0, scale, 1.0)
