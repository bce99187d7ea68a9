"""How far B is from A: the paper's error angle and the relative Frobenius error, with confidence intervals.

Both need nothing but products with columns, so A and B may be dense, sparse, operators or plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.products import Product, as_product

NORMAL_95 = 1.96  # standard errors from the mean to either end of a normal 95 % interval
_BLOCK = 1 << 21  # numbers in one block of probes: 16 MiB
_STREAM = int.from_bytes(b"probes", "big")  # any number but 0: default_rng([seed, 0]) is default_rng(seed)
_STEEP, _RANGE = 0.9999, (1e-200, 1e200)  # cosines below, and squared norms between, need no care


class Estimate(NamedTuple):
    """A number with the ends of its 95 % confidence interval; all three are equal where it is exact.

    >>> Estimate.around(3.0, error=0.0)
    Estimate(value=3.0, low=3.0, high=3.0)
    """

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, error: float) -> Estimate:
        """An estimate with a standard error, 0 where it is exact."""
        return cls(value, value - NORMAL_95 * error, value + NORMAL_95 * error)

    @classmethod
    def of_angles(cls, angles: np.ndarray, factor: float = NORMAL_95) -> Estimate:
        """The mean of angles in degrees, ``factor`` standard errors to either side; of a single one, ± 90."""
        mean, count = float(angles.mean()), len(angles)
        half = factor * float(angles.std(ddof=1)) / count**0.5 if count > 1 else 90.0
        return cls(mean, max(0.0, mean - half), min(180.0, mean + half))

    @property
    def error(self) -> float:
        """The standard error that an interval of this width has."""
        return (self.high - self.low) / (2 * NORMAL_95)


def probe_generator(seed: int) -> np.random.Generator:
    """Of the vectors that something is measured with.

    Not ``default_rng(seed)``: data are often drawn from that, with the same small seed and rows of the same length. The
    probes would then be rows of the data, on which their own covariance is fitted better than elsewhere.
    """
    return np.random.default_rng([checks.seed("seed", seed), _STREAM])


def error_angle(A: Any, B: Any, n_probes: int = 2000, seed: int = 0, *, n: int | None = None) -> float:
    """Mean angle between A x and B x over Gaussian x, in degrees: the paper's measure of quality.

    Where exactly one of the two vectors is zero the angle is 90 degrees; where both are, 0.

    Args:
        A, B: same shape; each a dense tensor or array, anything with ``@`` on columns (n, k), such as an
            operator of this package, a scipy sparse matrix or LinearOperator, or a function of columns.
        n_probes: how many x.
        seed: of the x; the same seed gives the same x.
        n: number of columns of A and B, needed only if both are functions.

    Returns:
        Degrees, between 0 and 180.

    >>> round(error_angle(np.eye(3), -np.eye(3)), 6)
    180.0
    """
    return float(_angles(A, B, n_probes, seed, n).mean())


def error_angle_interval(
    A: Any, B: Any, n_probes: int = 2000, seed: int = 0, *, n: int | None = None, confidence: float = 0.95
) -> Estimate:
    """`error_angle` with Student's confidence interval for the mean over all Gaussian x.

    Args:
        A, B, n_probes, seed, n: as in `error_angle`; at least two probes.
        confidence: probability that the interval covers the true mean.

    Returns:
        The mean and the ends of its interval, in degrees.
    """
    angles = _angles(A, B, checks.integer("n_probes", n_probes, at_least=2), seed, n)
    return Estimate.of_angles(angles, _quantile(confidence, len(angles)))


def relative_error(
    A: Any, B: Any, n_probes: int = 200, seed: int = 0, *, n: int | None = None, confidence: float = 0.95
) -> Estimate:
    """‖A − B‖_F / ‖A‖_F: exact if both are dense, otherwise estimated from products.

    For Gaussian x, E‖(A − B)x‖² = ‖A − B‖²_F and E‖A x‖² = ‖A‖²_F (Hutchinson), so the squared error is a
    ratio of two means over the same x; the interval is that of the ratio's logarithm, by the delta method.
    If A = 0 the error is 0 for B = 0 and infinite otherwise.

    Args:
        A, B, n_probes, seed, n: as in `error_angle`; at least two probes, not used if both are dense.
        confidence: probability that the interval covers the true value.

    Returns:
        The error and the ends of its interval.

    >>> relative_error(np.eye(2), 0.5 * np.eye(2))
    Estimate(value=0.5, low=0.5, high=0.5)
    """
    n_probes = checks.integer("n_probes", n_probes, at_least=2)
    factor = _quantile(confidence, n_probes)
    left, right, n = _operands(A, B, n)
    if left.dense is not None and right.dense is not None:
        # Dividing by the largest entry keeps the squares of very large and very small numbers in range.
        scale = max(_largest(left.dense), _largest(right.dense))
        a, b = left.dense / scale, right.dense / scale
        value = _ratio(float(np.linalg.norm(a - b)), float(np.linalg.norm(a)))
        return Estimate(value, value, value)

    differences, sizes = [], []
    for a, b in _images(left, right, n, n_probes, seed):
        differences.append(np.linalg.norm(a - b, axis=0))
        sizes.append(np.linalg.norm(a, axis=0))
    p, q = np.concatenate(differences), np.concatenate(sizes)
    scale = max(_largest(p), _largest(q))
    p, q = (p / scale) ** 2, (q / scale) ** 2
    ratio = _ratio(float(p.mean()), float(q.mean()))
    value = ratio**0.5
    if ratio == 0.0 or not np.isfinite(ratio):
        return Estimate(value, value, value)
    # The ratio r = p̄/q̄ has variance Var(p − r q)/(k q̄²); half the logarithm's width is the root's.
    log_half = 0.5 * factor * float(np.std(p - ratio * q, ddof=1)) / (n_probes**0.5 * float(p.mean()))
    return Estimate(value, value * float(np.exp(-log_half)), value * float(np.exp(log_half)))


def _operands(A: Any, B: Any, n: int | None) -> tuple[Product, Product, int]:
    left, right = as_product("A", A), as_product("B", B)
    if left.shape is not None and right.shape is not None and left.shape != right.shape:
        raise ArgumentError("", "A and B of one shape", f"{left.shape} and {right.shape}")
    shape = left.shape or right.shape
    if shape is None and n is None:
        raise ArgumentError("n", "the number of columns, since A and B are functions", None, "try n=64")
    if shape is not None and n is not None and checks.integer("n", n, at_least=1) != shape[1]:
        raise ArgumentError("n", f"{shape[1]}, the number of columns of A or B", n, "leave it out")
    return left, right, shape[1] if shape is not None else checks.integer("n", n, at_least=1)


def _images(
    left: Product, right: Product, n: int, n_probes: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A X and B X for blocks X of Gaussian columns that fit in memory."""
    rng = probe_generator(seed)
    block = max(1, _BLOCK // max(1, n))
    for start in range(0, n_probes, block):
        X = rng.standard_normal((min(block, n_probes - start), n)).T
        a, b = left.apply(X), right.apply(X)
        if a.shape != b.shape:
            raise ArgumentError("", "A x and B x of one shape", f"{a.shape} and {b.shape}")
        yield a, b


def _angles(A: Any, B: Any, n_probes: int, seed: int, n: int | None) -> np.ndarray:
    n_probes = checks.integer("n_probes", n_probes, at_least=1)
    return np.concatenate([column_angles(a, b) for a, b in _images(*_operands(A, B, n), n_probes, seed)])


def column_angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Angles in degrees between the columns of a and b, both (n, k); zero vectors as in `error_angle`."""
    a, b = (np.asarray(z, np.float64) for z in (a, b))
    with np.errstate(all="ignore"):
        aa, bb, ab = (np.einsum("ij,ij->j", y, z) for y, z in ((a, a), (b, b), (a, b)))
        cosine = ab / (np.sqrt(aa) * np.sqrt(bb))
    # arccos loses digits near 0 and 180 degrees, and squares can over- and underflow: such columns are done with care.
    in_range = (np.minimum(aa, bb) > _RANGE[0]) & (np.maximum(aa, bb) < _RANGE[1])
    plain = in_range & (np.abs(cosine) < _STEEP)
    result = np.empty(len(cosine))
    result[plain] = np.arccos(cosine[plain])
    if not plain.all():
        result[~plain] = _careful_angles(a[:, ~plain], b[:, ~plain])
    return np.degrees(result)


def _careful_angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of `column_angles`, in radians: all digits at every angle and size, in ten times the time."""
    sizes = [np.abs(z).max(axis=0, initial=0.0) for z in (a, b)]
    zero = [size == 0.0 for size in sizes]
    units = []
    for z, size, none in zip((a, b), sizes, zero, strict=True):
        z = z / np.where(none, 1.0, size)  # the largest entry first: squares then neither over- nor underflow
        units.append(z / np.where(none, 1.0, np.linalg.norm(z, axis=0)))
    # ∠ = 2 atan(‖â − b̂‖ / ‖â + b̂‖) keeps its digits near 0 and 180 degrees.
    apart, together = (np.linalg.norm(units[0] + sign * units[1], axis=0) for sign in (-1, 1))
    return np.where(zero[0] & zero[1], 0.0, 2 * np.arctan2(apart, together))


def _quantile(confidence: float, n_probes: int) -> float:
    if not 0.0 < confidence < 1.0:
        raise ArgumentError("confidence", "a number between 0 and 1", confidence, "try 0.95")
    return float(scipy.special.stdtrit(n_probes - 1, 0.5 + confidence / 2))


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0.0)) or 1.0


def _ratio(top: float, bottom: float) -> float:
    if bottom == 0.0:
        return 0.0 if top == 0.0 else float("inf")
    return top / bottom
