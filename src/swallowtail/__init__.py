"""Big rotations and symmetric matrices as short products of Givens rotations: O(n log n) products."""

from typing import Any

from swallowtail import nn, optim
from swallowtail.datasets import random_rotation, random_symmetric
from swallowtail.fitting import FitResult, Tracker, fit_rotation, fit_symmetric
from swallowtail.io import load, save
from swallowtail.kernels import available_backends, select_backend, use_backend
from swallowtail.metrics import error_angle
from swallowtail.operators import HybridOperator, Rotation, SignedRotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Pairs

__version__ = "0.1.0"

__all__ = [
    "Butterfly",
    "FitResult",
    "GivensCovariance",
    "GivensMixture",
    "GivensNormal",
    "HybridOperator",
    "Pairs",
    "Rotation",
    "SignedRotation",
    "SymmetricOperator",
    "Tracker",
    "available_backends",
    "error_angle",
    "fit_rotation",
    "fit_symmetric",
    "load",
    "nn",
    "optim",
    "random_rotation",
    "random_symmetric",
    "save",
    "select_backend",
    "use_backend",
]

_LAZY = {
    "GivensCovariance": "gaussians.covariance",
    "GivensMixture": "gaussians.mixture",
    "GivensNormal": "gaussians.normal",
}


def __getattr__(name: str) -> Any:
    """The estimators are imported when asked for: two of them need scikit-learn."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"swallowtail.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'swallowtail' has no attribute {name!r}")
