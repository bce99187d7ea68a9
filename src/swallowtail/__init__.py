"""Big rotations and symmetric matrices as short products of Givens rotations: O(n log n) products."""

from swallowtail import nn
from swallowtail.datasets import random_rotation, random_symmetric
from swallowtail.fitting import FitResult, Tracker, fit_rotation, fit_symmetric
from swallowtail.io import load, save
from swallowtail.kernels import available_backends, select_backend, use_backend
from swallowtail.metrics import error_angle
from swallowtail.operators import Rotation, SignedRotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Pairs

__version__ = "0.1.0"

__all__ = [
    "Butterfly",
    "FitResult",
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
    "random_rotation",
    "random_symmetric",
    "save",
    "select_backend",
    "use_backend",
]
