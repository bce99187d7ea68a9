"""Big rotations and symmetric matrices as short products of Givens rotations: O(n log n) products."""

import sys
from typing import TYPE_CHECKING, Any

from swallowtail import startup

if startup.is_command():
    startup.quiet_interrupts()


from swallowtail import datasets, gaussians, nn, optim
from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.errors import ArgumentError
from swallowtail.fitting import FitResult, Stop, Tracker, fit_rotation, fit_symmetric
from swallowtail.io import load, save
from swallowtail.kernels import available_backends, select_backend, use_backend
from swallowtail.loss_hessian import hessian
from swallowtail.metrics import Estimate, error_angle
from swallowtail.operators import HybridOperator, LowRank, Rotation, SignedRotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Grouped, Pairs

if TYPE_CHECKING:
    from swallowtail.gaussians.bayes import conditional, linear_regression, marginal, product
    from swallowtail.gaussians.covariance import GivensCovariance
    from swallowtail.gaussians.discriminant import GivensDiscriminant
    from swallowtail.gaussians.laplace import GivensLaplace
    from swallowtail.gaussians.mixture import GivensMixture
    from swallowtail.gaussians.normal import GivensNormal
    from swallowtail.gaussians.solvers import conjugate_gradients, log_determinant

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Butterfly",
    "Estimate",
    "FitResult",
    "GivensCovariance",
    "GivensDiscriminant",
    "GivensLaplace",
    "GivensMixture",
    "GivensNormal",
    "Grouped",
    "HybridOperator",
    "LowRank",
    "Pairs",
    "Rotation",
    "SignedRotation",
    "Stop",
    "SymmetricOperator",
    "Tracker",
    "available_backends",
    "conditional",
    "conjugate_gradients",
    "datasets",
    "error_angle",
    "fit_rotation",
    "fit_symmetric",
    "gaussians",
    "hessian",
    "linear_regression",
    "load",
    "log_determinant",
    "marginal",
    "nn",
    "optim",
    "product",
    "random_orthogonal",
    "random_symmetric",
    "save",
    "select_backend",
    "use_backend",
]
if "GivensMixture" not in gaussians.__all__:  # scikit-learn is absent: `import *` and dir() leave them out
    for _estimator in ("GivensCovariance", "GivensDiscriminant", "GivensMixture"):
        __all__.remove(_estimator)

_GAUSSIANS = [  # imported when first used: three of them need scikit-learn
    "GivensCovariance",
    "GivensDiscriminant",
    "GivensLaplace",
    "GivensMixture",
    "GivensNormal",
    "conditional",
    "conjugate_gradients",
    "linear_regression",
    "log_determinant",
    "marginal",
    "product",
]


def __getattr__(name: str) -> Any:
    """Import a Gaussian when it is first used."""
    if name in _GAUSSIANS:
        return getattr(gaussians, name)
    # With both, Python's traceback says "Did you mean: 'fit_symmetric'?"
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
