"""GivensLaplace: a Gaussian over a network's weights, its precision Q (D + δ) Qᵀ from curvature at the optimum."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vjp, vmap

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.symmetric import fit_symmetric
from swallowtail.gaussians.normal import GivensNormal
from swallowtail.operators import Rotation, SymmetricOperator

DENSE = 2048  # up to so many weights all entries of the curvature are computed; beyond, products with it
CHUNK = 256  # rows whose Jacobians are held at a time
DECADES = (-6.0, 8.0)  # log₁₀ of the prior precisions tried
# Layers whose outputs in training are random, or depend on the other rows of a batch.
UNSETTLED = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.Dropout, nn.Dropout1d, nn.Dropout2d,
    nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip


class Predictive(NamedTuple):
    """What the linearised network says of new rows."""

    mean: Tensor  # regression: f(x); classification: class probabilities. FactoredCovariance: (m, C)
    variance: Tensor  # of the outputs f, from the weights alone; shape: (m, C)


class GivensLaplace:
    """Laplace's approximation w ~ N(w*, P⁻¹), P = H + δ·I ≈ Q (D + δ) Qᵀ.

    H is the curvature of the negative log-likelihood at the trained weights w*, δ the precision of the prior
    N(0, δ⁻¹ I). Q is chosen to minimise Σ log diag(QᵀPQ), that is KL(N(w*, Q D⁻¹ Qᵀ) ‖ N(w*, P⁻¹)). Without
    rotations this is diagonal Laplace, and every rotation brings it nearer to full Laplace.

    Args:
        model: a trained module, called with a batch; (m, C) outputs. With batch norm or dropout, in evaluation mode.
        likelihood: "classification" (outputs are logits, targets class numbers) or "regression" (targets (m, C)).
        prior_precision: δ.
        noise_variance: σ² of regression.
        curvature: "ggn" (the generalised Gauss–Newton matrix, never negative) or "hessian" (negative
            eigenvalues count as 0).
        n_rotations: the budget K; by default P⌈lg P⌉/2 for P weights.
        max_products: products asked for when there are more than 2048 weights.
        seed: of the fit.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: str,
        *,
        prior_precision: float = 1.0,
        noise_variance: float = 1.0,
        curvature: str = "ggn",
        n_rotations: int | None = None,
        max_products: int = 128,
        seed: int = 0,
    ) -> None:
        self.likelihood = checks.choice("likelihood", likelihood, ("classification", "regression"))
        self.curvature = checks.choice("curvature", curvature, ("ggn", "hessian"))
        checks.instance("model", model, nn.Module)
        self.model, self.prior_precision = model, prior_precision
        self.noise_variance = checks.number("noise_variance", noise_variance, above=0)
        self.n_rotations = (
            None if n_rotations is None else checks.integer("n_rotations", n_rotations, at_least=0)
        )
        self.max_products = checks.integer("max_products", max_products, at_least=1)
        self.seed = checks.seed("seed", seed)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise ArgumentError("model", "parameters that require a gradient", "none")
        self._shapes = {name: p.shape for name, p in named}
        self.mean = torch.cat([p.detach().reshape(-1) for _, p in named])  # w*, shape: (P,)

    @property
    def prior_precision(self) -> float:
        """δ; it can be set without a new fit."""
        return self._prior_precision

    @prior_precision.setter
    def prior_precision(self, value: float) -> None:
        self._prior_precision = checks.number("prior_precision", value, above=0)

    def fit(self, data: Iterable[tuple[Tensor, Tensor]], y: Any = None) -> GivensLaplace:
        """Take the curvature over batches (x, y), which may be a DataLoader, and fit Q and D.

        There is no ``y``: it is here to tell those who call fit(X, y) what to write.
        """
        if y is not None or not isinstance(data, Iterable) or isinstance(data, (Tensor, np.ndarray)):
            got = "X and y" if y is not None else type(data).__name__
            raise ArgumentError("data", "batches (x, y), as of a DataLoader", got, "try `fit([(X, y)])`")
        self._check_mode()
        batches = []
        for batch in data:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                got = f"a batch that is a {type(batch).__name__}"
                raise ArgumentError("data", "batches (x, y), as of a DataLoader", got, "try `fit([(X, y)])`")
            batches.append((batch[0], batch[1]))
        if not batches:
            raise ArgumentError("data", "batches (x, y)", "none")
        n = len(self.mean)
        with torch.no_grad():
            self.log_likelihood = float(sum(self._log_likelihood(self.mean, x, y) for x, y in batches))
        if not math.isfinite(self.log_likelihood):
            raise ArgumentError(
                "data", "a finite log-likelihood", self.log_likelihood, "look for NaN in x, y and the weights"
            )
        if n <= DENSE:
            H = self._dense(batches)
            H = 0.5 * (H + H.T)
            H[np.diag_indices(n)] += self.prior_precision
            budget = default_budget(n) if self.n_rotations is None else self.n_rotations
            # As in a covariance fit, D = diag(QᵀPQ) is what minimises the divergence for this Q.
            fit = fit_pairs(H, budget, target="likelihood", seed=self.seed)
            rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
            operator = SymmetricOperator(rotation, torch.from_numpy(fit.eigenvalues))
            shift = self.prior_precision
        else:
            operator = fit_symmetric(
                lambda X: self._products(batches, X),
                n,
                n_rotations=self.n_rotations,
                max_products=self.max_products,
                seed=self.seed,
            ).operator
            shift = 0.0
        operator = operator.to(self.mean.device, self.mean.dtype)
        self.curvature_operator = operator.function(lambda d: (d - shift).clamp_min(0.0))  # Q D Qᵀ
        return self

    @property
    def precision(self) -> SymmetricOperator:
        """P = Q (D + δ) Qᵀ."""
        return self._fitted().function(lambda d: d + self.prior_precision)

    @property
    def posterior(self) -> GivensNormal:
        """N(w*, P⁻¹) over the flat vector of weights."""
        return GivensNormal(self.mean, precision=self.precision)

    def log_evidence(self, prior_precision: float | None = None) -> float:
        """Log p(data) ≈ log p(data | w*) − ½ δ‖w*‖² + ½ Σ log δ/(d + δ), at any δ without a new fit."""
        delta = self.prior_precision if prior_precision is None else prior_precision
        delta = checks.number("prior_precision", delta, above=0)
        d = self._fitted().eigenvalues.double()
        penalty = 0.5 * delta * float(self.mean.double() @ self.mean.double())
        return self.log_likelihood - penalty - 0.5 * float(torch.log1p(d / delta).sum())

    def optimise_prior(self) -> float:
        """Set δ to what maximises the evidence, and return it."""
        found = minimize_scalar(
            lambda power: -self.log_evidence(10.0**power), bounds=DECADES, method="bounded"
        )
        self.prior_precision = float(10.0**found.x)
        return self.prior_precision

    def predict(self, x: Tensor) -> Predictive:
        """The linearised predictive: f ~ N(f(x; w*), J P⁻¹ Jᵀ), through the probit rule for classes.

        Class probabilities are softmax(f / √(1 + π v/8)) with v the variance of each output.
        """
        covariance = self.precision.inverse()
        self._check_mode()
        means, variances = [], []
        with torch.no_grad():
            for rows in x.split(CHUNK):
                means.append(self._outputs(self.mean, rows))
                variances.append(covariance.quadratic_form(self._jacobians(rows)))
        f, v = torch.cat(means), torch.cat(variances)
        if self.likelihood == "regression":
            return Predictive(f, v)
        return Predictive(torch.softmax(f / torch.sqrt(1 + math.pi / 8 * v), dim=-1), v)

    def sample(self, n_samples: int = 1, seed: int | None = None) -> Tensor:
        """Draw vectors of weights, shape (n_samples, P); `weights` gives them names."""
        return self.mean + self.precision.inverse().sample(n_samples, seed=seed)

    def weights(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector (P,) as the model's named parameters, for `torch.func.functional_call`."""
        parts = vector.split([shape.numel() for shape in self._shapes.values()])
        return {
            name: part.reshape(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def _fitted(self) -> SymmetricOperator:
        if not hasattr(self, "curvature_operator"):
            raise RuntimeError("GivensLaplace: expected fit(data) first; try laplace.fit([(x, y)])")
        return self.curvature_operator

    def _check_mode(self) -> None:
        """In training mode there is no function of the weights and of one row to be linearised."""
        for name, layer in self.model.named_modules():
            if layer.training and isinstance(layer, UNSETTLED) and getattr(layer, "p", 1):
                got = f"{name or 'it'} ({type(layer).__name__}) in training mode"
                raise ArgumentError("model", "a model in evaluation mode", got, "try `model.eval()`")

    def _outputs(self, w: Tensor, x: Tensor) -> Tensor:
        return functional_call(self.model, self.weights(w), (x,))

    def _jacobians(self, x: Tensor) -> Tensor:  # shape: (m, C, P)
        one = lambda w, row: self._outputs(w, row[None])[0]
        return vmap(jacrev(one), (None, 0))(self.mean, x).detach()

    def _log_likelihood(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        f = self._outputs(w, x)
        if self.likelihood == "classification":
            return -torch.nn.functional.cross_entropy(f, y, reduction="sum")
        if f.shape != y.shape:
            raise ArgumentError("y", f"the outputs' shape {tuple(f.shape)}", tuple(y.shape))
        constant = math.log(2 * math.pi * self.noise_variance)
        return -0.5 * (((f - y) ** 2) / self.noise_variance + constant).sum()

    def _output_curvature(self, f: Tensor) -> Tensor:  # shape: (m, C, C)
        """Second derivative of −log p(y | f) by f; it does not depend on y."""
        if self.likelihood == "classification":
            p = torch.softmax(f, dim=-1)
            return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        return (
            torch.eye(f.shape[-1], dtype=f.dtype, device=f.device).expand(len(f), -1, -1)
            / self.noise_variance
        )

    def _dense(self, batches: list[tuple[Tensor, Tensor]]) -> np.ndarray:  # shape: (P, P)
        n = len(self.mean)
        if self.curvature == "hessian":
            values, vectors = np.linalg.eigh(self._products(batches, np.eye(n)))
            return (vectors * np.maximum(values, 0.0)) @ vectors.T
        H = torch.zeros(n, n, dtype=torch.float64, device=self.mean.device)
        for x in (rows for batch, _ in batches for rows in batch.split(CHUNK)):
            J, curvature = self._jacobians(x), self._output_curvature(self._outputs(self.mean, x).detach())
            H += (J.flatten(0, 1).mT @ (curvature @ J).flatten(0, 1)).double()  # one product of (m·C, P)
        return H.cpu().numpy()

    def _products(self, batches: list[tuple[Tensor, Tensor]], X: np.ndarray) -> np.ndarray:
        """H X for columns X (P, k), column by column."""
        columns = torch.from_numpy(np.ascontiguousarray(X.T)).to(self.mean)
        out = torch.zeros_like(columns, dtype=torch.float64)
        for x, y in batches:
            for index, v in enumerate(columns):
                out[index] += self._product(x, y, v).double()
        return out.cpu().numpy().T

    def _product(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """H v by reverse mode alone: forward mode in PyTorch compiles through the deprecated torch.jit."""
        if self.curvature == "hessian":
            gradient = grad(lambda w: -self._log_likelihood(w, x, y))
            return vjp(gradient, self.mean)[1](v)[0].detach()  # H is symmetric
        f, transposed = vjp(lambda w: self._outputs(w, x), self.mean)[:2]
        # u ↦ Jᵀu is linear, so its own transpose, at any u, is v ↦ J v.
        Jv = vjp(lambda u: transposed(u)[0], torch.zeros_like(f))[1](v)[0]
        curved = (self._output_curvature(f) @ Jv[..., None])[..., 0]
        return transposed(curved)[0].detach()
