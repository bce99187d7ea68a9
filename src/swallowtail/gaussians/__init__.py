"""Gaussians whose covariance, or its inverse, is Q D Qᵀ.

| name | what it is | file |
|---|---|---|
| `GivensCovariance` | scikit-learn estimator of one covariance | covariance.py |
| `GivensMixture` | scikit-learn estimator of a mixture | mixture.py |
| `GivensDiscriminant` | scikit-learn classifier, one Gaussian per class | discriminant.py |
| `GivensNormal` | torch distribution | normal.py |
| `GivensLaplace` | Laplace approximation of a neural network's posterior | laplace.py |
| `RowStatistics` | what a covariance keeps of rows, to merge and send | statistics.py |
| `MixtureStatistics` | the same of a mixture's E-step | mixture_statistics.py |
| `fit_distributed` | a fit over the processes of a torch.distributed group | distributed.py |
| `product`, `marginal`, `conditional`, `linear_regression` | Bayesian inference | bayes.py |
| `conjugate_gradients`, `log_determinant` | what inference solves with | solvers.py |

The other files serve these:

| file | what it holds |
|---|---|
| arguments.py, rows.py | checks of the estimators' arguments, of rows and of their weights |
| dask.py | statistics of dask arrays |
| covariance_attributes.py, mixture_attributes.py | what fitted estimators can be asked |
| merging.py | batches, merging and forgetting of a covariance |
| covariance_fit.py | from moments to a covariance |
| factored.py | a covariance as rotations, variances and rank-one terms: operators, whitening, samples |
| class_gaussians.py | the Gaussians of the classifier |
| regularise/ | how a covariance is regularised on held-out rows |
| em/ | the Gaussians of a mixture, and how EM goes |

The three estimators need scikit-learn. Each name is imported when it is first used, so the others work without it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from swallowtail.errors import absent

if TYPE_CHECKING:
    from swallowtail.gaussians.bayes import (
        Conditional,
        Product,
        Regression,
        conditional,
        linear_regression,
        marginal,
        product,
    )
    from swallowtail.gaussians.covariance import GivensCovariance
    from swallowtail.gaussians.discriminant import GivensDiscriminant
    from swallowtail.gaussians.distributed import fit_distributed
    from swallowtail.gaussians.laplace import GivensLaplace, Predictive
    from swallowtail.gaussians.mixture import GivensMixture
    from swallowtail.gaussians.mixture_statistics import MixtureStatistics
    from swallowtail.gaussians.normal import GivensNormal
    from swallowtail.gaussians.solvers import Solution, conjugate_gradients, log_determinant
    from swallowtail.gaussians.statistics import RowStatistics

__all__ = [
    "Conditional",
    "GivensCovariance",
    "GivensDiscriminant",
    "GivensLaplace",
    "GivensMixture",
    "GivensNormal",
    "MixtureStatistics",
    "Predictive",
    "Product",
    "Regression",
    "RowStatistics",
    "Solution",
    "conditional",
    "conjugate_gradients",
    "fit_distributed",
    "linear_regression",
    "log_determinant",
    "marginal",
    "product",
]
if find_spec("sklearn") is None:  # `import *` and dir() leave out what cannot be imported
    for _estimator in ("GivensCovariance", "GivensDiscriminant", "GivensMixture"):
        __all__.remove(_estimator)

_FILES = {
    "Conditional": "bayes",
    "GivensCovariance": "covariance",
    "GivensDiscriminant": "discriminant",
    "GivensLaplace": "laplace",
    "GivensMixture": "mixture",
    "GivensNormal": "normal",
    "MixtureStatistics": "mixture_statistics",
    "Predictive": "laplace",
    "Product": "bayes",
    "Regression": "bayes",
    "RowStatistics": "statistics",
    "Solution": "solvers",
    "conditional": "bayes",
    "conjugate_gradients": "solvers",
    "fit_distributed": "distributed",
    "linear_regression": "bayes",
    "log_determinant": "solvers",
    "marginal": "bayes",
    "product": "bayes",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sklearn":
            raise
        raise absent(name, "scikit-learn", "sklearn", name=error.name) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
