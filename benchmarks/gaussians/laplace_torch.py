"""laplace-torch's own posteriors, in the shape that benchmarks/gaussians/laplace.py measures.

They are measured where `import laplace` works (`pip install laplace-torch`). Elsewhere their committed rows stay.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from swallowtail.gaussians.laplace import Predictive

STRUCTURES = {"diagonal": "diag", "Kronecker": "kron", "full": "full"}  # our names and theirs


def installed() -> bool:
    """Whether laplace-torch can be imported."""
    return importlib.util.find_spec("laplace") is not None


class LibraryLaplace:
    """``laplace.Laplace`` over all weights: Gauss–Newton curvature, linearised predictive, probit rule."""

    def __init__(
        self, model: torch.nn.Module, likelihood: str, *, prior_precision: float, structure: str
    ) -> None:
        import laplace  # an optional package

        self._posterior = laplace.Laplace(
            model,
            likelihood,
            subset_of_weights="all",
            hessian_structure=structure,
            prior_precision=prior_precision,
        )
        self.prior_precision = prior_precision

    def fit(self, data: Any) -> LibraryLaplace:
        """Take the curvature over one batch (x, y)."""
        ((x, y),) = data
        self._posterior.fit(DataLoader(TensorDataset(x, y), batch_size=len(x)))
        return self

    def log_evidence(self) -> float:
        """Its log marginal likelihood at `prior_precision`."""
        return float(self._posterior.log_marginal_likelihood(torch.tensor(self.prior_precision)).detach())

    def predict(self, x: Tensor) -> Predictive:
        """Class probabilities, and the variances of the outputs."""
        self._posterior.prior_precision = self.prior_precision
        p = self._posterior(x, pred_type="glm", link_approx="probit").detach()
        return Predictive(p, torch.full_like(p, torch.nan))  # the library gives no variances here
