"""GivensNormal: the multivariate normal whose covariance or precision is Q D Qᵀ, for torch.distributions.

With Q a product of Givens rotations, log-density, sample and entropy cost O(n log n) each, and all of them are
differentiable in the mean, the angles and the eigenvalues: it can be a likelihood or a variational posterior.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    constraints,
    register_kl,
)

from swallowtail import checks, ops
from swallowtail.errors import ArgumentError
from swallowtail.operators import SymmetricOperator

EXACT_TRACE = 4096  # up to this n, tr(P Σ) between two bases is summed over n rows; beyond it is estimated
N_PROBES = 256  # vectors of random signs in that estimate; its variance is in `trace_of_product`
_BLOCK = 2**22  # numbers in one block of rows


class GivensNormal(Distribution):
    """N(loc, Σ) with Σ = Q D Qᵀ, or Σ⁻¹ = Q D Qᵀ.

    log p(x) = −½ (x − loc)ᵀ Σ⁻¹ (x − loc) − ½ log det Σ − ½ n log 2π.

    Args:
        loc: mean, shape (*batch, n).
        covariance: Σ as a `SymmetricOperator` with positive eigenvalues; or
        precision: Σ⁻¹ as one. Exactly one of the two; either may carry batch axes.
        validate_args: as in all of torch.distributions.

    >>> from swallowtail import Rotation
    >>> covariance = SymmetricOperator(Rotation.identity(2), torch.tensor([1.0, 4.0]))
    >>> round(GivensNormal(torch.zeros(2), covariance).log_prob(torch.zeros(2)).item(), 4)
    -2.531
    """

    arg_constraints = {  # noqa: RUF012 (torch's own convention)
        "loc": constraints.real_vector,
        "angles": constraints.real_vector,
        "eigenvalues": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance: SymmetricOperator | None = None,
        precision: SymmetricOperator | None = None,
        validate_args: bool | None = None,
    ) -> None:
        operator = precision if covariance is None else covariance
        if (covariance is None) == (precision is None) or not isinstance(operator, SymmetricOperator):
            got = f"covariance={type(covariance).__name__}, precision={type(precision).__name__}"
            expected = "exactly one SymmetricOperator, as covariance=… or precision=…"
            raise ArgumentError("", expected, got)
        loc = checks.as_tensor("loc", loc, operator.eigenvalues)
        checks.last_axis("loc", loc, operator.n, "n")
        checks.same_device(loc=loc, eigenvalues=operator.eigenvalues)
        batch = torch.broadcast_shapes(loc.shape[:-1], operator.batch_shape)
        self._operator, self._is_precision = operator, covariance is None
        self.loc = loc.expand(*batch, operator.n)
        self.angles, self.eigenvalues = operator.rotation.angles, operator.eigenvalues
        super().__init__(batch, torch.Size((operator.n,)), validate_args=validate_args)

    @property
    def wiring(self) -> Any:
        """Which coordinates Q rotates together."""
        return self._operator.rotation.wiring

    @property
    def covariance(self) -> SymmetricOperator:
        """Σ as an operator."""
        return self._operator.inverse() if self._is_precision else self._operator

    @property
    def precision(self) -> SymmetricOperator:
        """Σ⁻¹ as an operator."""
        return self._operator if self._is_precision else self._operator.inverse()

    @property
    def covariance_matrix(self) -> Tensor:  # shape: (*batch, n, n)
        """Σ, dense."""
        return self.covariance.to_dense().expand(*self.batch_shape, *self.event_shape, *self.event_shape)

    @property
    def precision_matrix(self) -> Tensor:  # shape: (*batch, n, n)
        """Σ⁻¹, dense."""
        return self.precision.to_dense().expand(*self.batch_shape, *self.event_shape, *self.event_shape)

    @property
    def mean(self) -> Tensor:
        """Loc, shape (*batch, n)."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """Loc again."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """diag Σ, shape (*batch, n)."""
        return self.covariance.diagonal().expand(self.loc.shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density of value (*sample, *batch, n); shape (*sample, *batch)."""
        if self._validate_args:
            self._validate_sample(value)
        q = self._mahalanobis(value - self.loc)
        return -0.5 * (q + self.event_shape[0] * math.log(2 * math.pi)) - 0.5 * self._logdet()

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        """Loc + Q D^½ z with z standard normal: differentiable. FactoredCovariance (*sample_shape, *batch, n)."""
        shape = self._extended_shape(torch.Size(sample_shape))
        z = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        root = self.eigenvalues.rsqrt() if self._is_precision else self.eigenvalues.sqrt()
        return self.loc + ops.rotate(z * root, self.wiring, self.angles)

    def entropy(self) -> Tensor:
        """½ n (1 + log 2π) + ½ log det Σ, shape (*batch,)."""
        value = 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + 0.5 * self._logdet()
        return value.expand(self.batch_shape)

    def expand(self, batch_shape: Any, _instance: Any = None) -> GivensNormal:
        """The same distributions with more batch axes, as all of torch.distributions do it."""
        batch = torch.Size(batch_shape)
        new = self._get_checked_instance(GivensNormal, _instance)
        new._operator, new._is_precision = self._operator, self._is_precision
        new.loc = self.loc.expand(*batch, *self.event_shape)
        new.angles, new.eigenvalues = self.angles, self.eigenvalues
        super(GivensNormal, new).__init__(batch, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _logdet(self) -> Tensor:
        """Log det Σ; shape (*batch of the eigenvalues)."""
        return self.eigenvalues.log().sum(-1) * (-1.0 if self._is_precision else 1.0)

    def _mahalanobis(self, x: Tensor) -> Tensor:
        """xᵀ Σ⁻¹ x; the operator it is asked of keeps its coefficients between calls."""
        return self.precision.quadratic_form(x)


def same_basis(p: GivensNormal, q: GivensNormal) -> bool:
    """Whether p and q have the same Q: then products, sums and traces of their matrices need only D."""
    return p.wiring == q.wiring and (
        p._operator.rotation is q._operator.rotation
        or (p.angles.shape == q.angles.shape and torch.equal(p.angles, q.angles))
    )


def trace_of_product(
    P: SymmetricOperator, S: SymmetricOperator, n_probes: int | None = None, seed: int = 0
) -> Tensor:
    """tr(P S) for S with positive eigenvalues, shape (*batch,); differentiable.

    With S = Q D Qᵀ and M = D^½ Qᵀ P Q D^½ it is tr M = Σᵢ eᵢᵀ M eᵢ, n quadratic forms of P.

    Args:
        P, S: same n.
        n_probes: None sums over all eᵢ if n ≤ 4096. Otherwise the mean of zᵀMz over so many vectors z of random
            signs: unbiased, variance 2(‖M‖²_F − Σ Mᵢᵢ²) / n_probes; nothing is lost where the bases agree.
        seed: of z.
    """
    n, root = S.n, S.eigenvalues.sqrt()
    if n_probes is None and n > EXACT_TRACE:
        n_probes = N_PROBES
    batch = torch.broadcast_shapes(P.batch_shape, S.batch_shape)
    axes = (slice(None),) + (None,) * len(batch)
    count = n if n_probes is None else n_probes
    generator = torch.Generator().manual_seed(checks.seed("seed", seed))
    total, step = (
        torch.zeros((), dtype=S.dtype, device=S.device),
        max(1, _BLOCK // (n * max(1, batch.numel()))),
    )
    for start in range(0, count, step):
        rows = torch.arange(start, min(start + step, count), device=S.device)
        if n_probes is None:
            z = torch.nn.functional.one_hot(rows, n).to(S.dtype)
        else:
            z = (torch.randint(0, 2, (len(rows), n), generator=generator) * 2 - 1).to(S.device, S.dtype)
        x = ops.rotate(z[axes] * root, S.rotation.wiring, S.rotation.angles)
        total = total + P.quadratic_form(x).sum(0)
    return total if n_probes is None else total / n_probes


@register_kl(GivensNormal, GivensNormal)
def _kl_givens_givens(p: GivensNormal, q: GivensNormal) -> Tensor:
    """½ [tr(Σ_q⁻¹ Σ_p) + δᵀ Σ_q⁻¹ δ − n + log det Σ_q − log det Σ_p], δ = loc_q − loc_p.

    Closed form in one basis; otherwise the trace is summed exactly up to n = 4096 and estimated, without bias,
    from 256 fixed probes beyond; see `trace_of_product`.
    """
    if same_basis(p, q):
        trace = (p.covariance.eigenvalues * q.precision.eigenvalues).sum(-1)
    else:
        trace = trace_of_product(q.precision, p.covariance)
    return _kl(trace, q._mahalanobis(q.loc - p.loc), p, q._logdet() - p._logdet())


@register_kl(GivensNormal, Independent)
def _kl_givens_independent(p: GivensNormal, q: Independent) -> Tensor:
    base = _normal(q)
    trace = (p.variance / base.variance).sum(-1)
    q_form = ((base.loc - p.loc) ** 2 / base.variance).sum(-1)
    return _kl(trace, q_form, p, base.variance.log().sum(-1) - p._logdet())


@register_kl(Independent, GivensNormal)
def _kl_independent_givens(p: Independent, q: GivensNormal) -> Tensor:
    base = _normal(p)
    trace = (base.variance * q.precision.diagonal()).sum(-1)
    return _kl(trace, q._mahalanobis(q.loc - base.loc), q, q._logdet() - base.variance.log().sum(-1))


@register_kl(GivensNormal, MultivariateNormal)
def _kl_givens_multivariate(p: GivensNormal, q: MultivariateNormal) -> Tensor:
    trace = (q.precision_matrix * p.covariance_matrix).sum((-2, -1))
    delta = (q.loc - p.loc)[..., None]
    q_form = (delta.mT @ q.precision_matrix @ delta)[..., 0, 0]
    return _kl(trace, q_form, p, _triangular_logdet(q) - p._logdet())


@register_kl(MultivariateNormal, GivensNormal)
def _kl_multivariate_givens(p: MultivariateNormal, q: GivensNormal) -> Tensor:
    # tr(Σ_q⁻¹ L Lᵀ): quadratic forms of the columns of L, as rows in front of all batch axes.
    columns = p.scale_tril.movedim(-1, 0)
    trace = q._mahalanobis(columns).sum(0)
    return _kl(trace, q._mahalanobis(q.loc - p.loc), q, q._logdet() - _triangular_logdet(p))


def _kl(trace: Tensor, q_form: Tensor, like: GivensNormal, logdet: Tensor) -> Tensor:
    return 0.5 * (trace + q_form - like.event_shape[0] + logdet)


def _triangular_logdet(p: MultivariateNormal) -> Tensor:
    return 2 * p.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _normal(p: Independent) -> Normal:
    if not isinstance(p.base_dist, Normal) or p.reinterpreted_batch_ndims != 1:
        raise NotImplementedError(
            f"KL with a GivensNormal: expected Independent(Normal(…), 1), got {p}; try a MultivariateNormal"
        )
    return p.base_dist
