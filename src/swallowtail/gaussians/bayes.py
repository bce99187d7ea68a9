"""Bayesian inference with Gaussians Q D Qᵀ: products, marginals, conditionals, linear regression, evidence.

Two Gaussians with the same Q need only arithmetic on eigenvalues, and blocks Σ[I, J] are products with unit vectors:
both are exact. Otherwise systems are solved by conjugate gradients, preconditioned with the fitted inverse, and
log-determinants are estimated by Lanczos quadrature of the preconditioned matrix. Both return how accurate they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.symmetric import fit_symmetric
from swallowtail.gaussians.normal import GivensNormal, same_basis
from swallowtail.gaussians.solvers import Matvec, conjugate_gradients, log_determinant
from swallowtail.metrics import Estimate
from swallowtail.operators import SymmetricOperator

DENSE = 2048  # up to this n log-determinants come from a Cholesky factor

__all__ = [
    "Conditional",
    "Product",
    "Regression",
    "conditional",
    "linear_regression",
    "marginal",
    "product",
]


class Product(NamedTuple):
    """p(x) q(x) = Z N(x; …)."""

    distribution: GivensNormal
    log_z: Estimate
    exact: bool  # whether the distribution is exact; otherwise its precision was refitted
    angle: float  # degrees between the true precision and the refitted one; 0 if exact


class Conditional(NamedTuple):
    """x_J given x_I."""

    rest: Tensor  # J, the coordinates that were not observed, in order
    mean: Tensor  # shape: (|J|,)
    precision: Matvec  # v (m, |J|) ↦ P_JJ v; the conditional covariance is its inverse
    error: float  # relative residual of the mean; 0 where it was solved directly
    iterations: int


class Regression(NamedTuple):
    """The posterior of y = Φw + ε; see `linear_regression`."""

    posterior: GivensNormal  # mean exact within `error`, precision Q D Qᵀ
    log_evidence: Estimate
    error: float  # relative residual of the posterior mean
    noise_variance: float

    def predict(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (m,) of y at new rows of Φ (m, n), noise included."""
        loc = self.posterior.loc
        features = checks.as_tensor("features", features, loc)
        checks.last_axis("features", features, len(loc), "the posterior's n")
        number = torch.promote_types(features.dtype, loc.dtype)
        features, loc = features.to(number), loc.to(number)
        return features @ loc, self.posterior.covariance.quadratic_form(features) + self.noise_variance


def product(p: GivensNormal, q: GivensNormal, n_rotations: int | None = None, seed: int = 0) -> Product:
    """The product of two densities, p(x) q(x) = Z N(x; m, P⁻¹).

    P = P_p + P_q, m = P⁻¹(P_p μ_p + P_q μ_q), log Z = log N(μ_p; μ_q, Σ_p + Σ_q).
    Exact where p and q share Q. Otherwise the mean is solved for, and P is refitted with ``n_rotations``.
    """
    _one(p)
    _one(q, "q")
    if p.event_shape != q.event_shape:
        raise ArgumentError("q", f"n = {p.event_shape[0]}, as p has", q.event_shape[0])
    a, b = p.precision, q.precision
    weighted, delta = a(p.loc) + b(q.loc), p.loc - q.loc
    if same_basis(p, q):
        P = SymmetricOperator(a.rotation, a.eigenvalues + b.eigenvalues)
        mean, both = (
            P.solve(weighted),
            GivensNormal(q.loc, q.covariance.function(lambda d: d + p.covariance.eigenvalues)),
        )
        return Product(
            GivensNormal(mean, precision=P), Estimate.around(float(both.log_prob(p.loc)), 0.0), True, 0.0
        )
    matvec: Matvec = lambda v: a(v) + b(v)
    fit = fit_symmetric(
        _columns(matvec), p.event_shape[0], n_rotations=n_rotations, wiring="pairs", seed=seed
    )
    P = _positive(fit.operator.to(p.loc.device, p.loc.dtype))
    precondition: Matvec = P.inverse()
    mean = conjugate_gradients(matvec, weighted[None], precondition).x[0]
    # (Σ_p + Σ_q)⁻¹ = P_q − P_q P⁻¹ P_q, and det(Σ_p + Σ_q) = det P / (det P_p det P_q).
    bd = b(delta)
    form = delta @ bd - bd @ conjugate_gradients(matvec, bd[None], precondition).x[0]
    logdet = _logdet(matvec, P, seed)
    n = p.event_shape[0]
    log_z = -0.5 * (float(form) + n * math.log(2 * math.pi) + logdet.value - float(a.logdet() + b.logdet()))
    return Product(
        GivensNormal(mean, precision=P), Estimate.around(log_z, 0.5 * logdet.error), False, fit.angle
    )


def marginal(p: GivensNormal, index: Any) -> MultivariateNormal:
    """The exact marginal of the coordinates ``index``: N(μ_I, Σ_II), Σ_II from |I| products with Σ."""
    index = _index(p, index)
    return MultivariateNormal(p.loc[index], _block(p.covariance, index))


def conditional(
    p: GivensNormal, index: Any, value: Tensor, tolerance: float = 1e-8, max_iterations: int = 1000
) -> Conditional:
    """x_J given x_I = value: mean μ_J − P_JJ⁻¹ P_JI (x_I − μ_I), precision P_JJ.

    With few coordinates observed the mean is μ_J + Σ_JI Σ_II⁻¹ (x_I − μ_I), solved directly. Otherwise P_JJ is solved
    by conjugate gradients preconditioned with Σ_JJ, which is its inverse but for a matrix of rank |I|.

    Args:
        p: a single distribution.
        index: I, the observed coordinates.
        value: x_I, shape (|I|,).
        tolerance, max_iterations: of conjugate gradients.
    """
    index, n = _index(p, index), p.event_shape[0]
    value = checks.as_tensor("value", value, p.loc)
    if value.shape != index.shape:
        raise ArgumentError("value", f"shape {tuple(index.shape)}, as index has", f"{tuple(value.shape)}")
    rest = torch.ones(n, dtype=torch.bool, device=p.loc.device)
    rest[index] = False
    J, delta = rest.nonzero()[:, 0], value - p.loc[index]
    P, S = p.precision, p.covariance
    within: Callable[[SymmetricOperator], Matvec] = lambda H: lambda v: H(_spread(v, J, n))[..., J]
    if len(index) <= DENSE:
        gain = torch.linalg.solve(_block(S, index), delta)
        mean = p.loc[J] + S(_spread(gain, index, n))[J]
        return Conditional(J, mean, within(P), 0.0, 0)
    right = -P(_spread(delta, index, n))[J]
    solved = conjugate_gradients(within(P), right[None], within(S), tolerance, max_iterations)
    return Conditional(J, p.loc[J] + solved.x[0], within(P), solved.error, solved.iterations)


def linear_regression(
    features: Tensor,
    y: Tensor,
    prior: GivensNormal,
    noise_variance: float,
    n_rotations: int | None = None,
    tolerance: float = 1e-10,
    seed: int = 0,
) -> Regression:
    """Bayesian linear regression y = Φw + ε, w ~ prior, ε ~ N(0, σ²).

    The posterior precision is P = P₀ + ΦᵀΦ/σ². Its mean is solved for by conjugate gradients with the fitted Q D Qᵀ as
    preconditioner, and the evidence is log p(y) = −½[N log 2πσ² + log det P − log det P₀ + ‖y − Φm‖²/σ²
    + (m − m₀)ᵀP₀(m − m₀)], with log det P exact up to n = 2048 and by `log_determinant` beyond.

    Args:
        features: Φ, shape (N, n). The arithmetic is in the common dtype of Φ, y and the prior, float32 at least.
        y: shape (N,).
        prior: a single GivensNormal over w.
        noise_variance: σ² > 0.
        n_rotations: of the posterior's Q.
        tolerance: of the mean.
        seed: for everything random.
    """
    _one(prior, "prior")
    features = checks.as_tensor("features", features, prior.loc)
    y = checks.as_tensor("y", y, features)
    if features.ndim != 2 or y.shape != features.shape[:1]:
        got = f"{tuple(features.shape)} and {tuple(y.shape)}"
        raise ArgumentError("", "features (N, n) and y (N,)", got)
    checks.last_axis("features", features, prior.event_shape[0], "the prior's n")
    noise_variance = checks.number("noise_variance", noise_variance, above=0)
    checks.finite("features", features)
    checks.finite("y", y)
    number = torch.float32
    for tensor in (features, y, prior.loc, prior.precision.eigenvalues):
        number = torch.promote_types(number, tensor.dtype)
    features, y, start = features.to(number), y.to(number), prior.loc.to(number)
    P0 = prior.precision.to(dtype=number)
    matvec: Matvec = lambda v: P0(v) + (v.to(number) @ features.mT) @ features / noise_variance
    fit = fit_symmetric(_columns(matvec), P0.n, n_rotations=n_rotations, wiring="pairs", seed=seed)
    P = _positive(fit.operator.to(features.device, features.dtype))
    right = P0(start) + features.mT @ y / noise_variance
    solved = conjugate_gradients(matvec, right[None], P.inverse(), tolerance)
    mean, logdet = solved.x[0], _logdet(matvec, P, seed)
    residual = float(((y - features @ mean) ** 2).sum()) / noise_variance
    residual += float(P0.quadratic_form(mean - start)) + len(y) * math.log(2 * math.pi * noise_variance)
    evidence = Estimate.around(-0.5 * (residual + logdet.value - float(P0.logdet())), 0.5 * logdet.error)
    return Regression(GivensNormal(mean, precision=P), evidence, solved.error, noise_variance)


def _logdet(matvec: Matvec, like: SymmetricOperator, seed: int) -> Estimate:
    if like.n > DENSE:
        return log_determinant(matvec, like, seed)
    dense = matvec(torch.eye(like.n, dtype=like.dtype, device=like.device))
    return Estimate.around(float(torch.linalg.slogdet(dense.double())[1]), 0.0)


def _columns(matvec: Matvec) -> Callable[[np.ndarray], np.ndarray]:
    """A function of rows as one of float64 columns, which is what the fitters take."""
    return lambda X: matvec(torch.from_numpy(np.ascontiguousarray(X.T))).detach().numpy().T


def _positive(P: SymmetricOperator) -> SymmetricOperator:
    """A fit from few products may have an eigenvalue below zero; a precision may not."""
    return P.function(lambda d: d.clamp_min(1e-10 * float(d.abs().max())))


def _one(p: GivensNormal, name: str = "p") -> None:
    checks.instance(name, p, GivensNormal)
    if p.batch_shape:
        got = f"a batch {tuple(p.batch_shape)}"
        raise ArgumentError(name, "a single distribution", got, "take one of it")


def _index(p: GivensNormal, index: Any) -> Tensor:
    _one(p)
    n = p.event_shape[0]
    expected = f"distinct coordinates in 0 … {n - 1}"
    try:
        result = torch.as_tensor(index, device=p.loc.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError("index", expected, type(index).__name__) from error
    if not result.numel():
        result = result.long()
    if result.dtype == torch.bool or result.is_floating_point() or result.is_complex():
        raise ArgumentError("index", expected, f"{result.dtype}", "try mask.nonzero()[:, 0] for a mask")
    result = result.long()
    if result.ndim != 1 or len(result.unique()) != len(result) or bool(((result < 0) | (result >= n)).any()):
        raise ArgumentError("index", expected, index)
    return result


def _spread(v: Tensor, index: Tensor, n: int) -> Tensor:
    """Entries v (…, |I|) at their places in a vector of n zeros."""
    out = v.new_zeros(*v.shape[:-1], n)
    out[..., index] = v
    return out


def _block(H: SymmetricOperator, index: Tensor) -> Tensor:  # shape: (|I|, |I|)
    """H[I, I], symmetric to the last bit."""
    eye = torch.eye(len(index), dtype=H.dtype, device=H.device)
    block = H(_spread(eye, index, H.n))[:, index]
    return (block + block.mT) / 2
