"""Big rotations and symmetric matrices as short products of Givens rotations: O(n log n) products."""

from swallowtail import nn
from swallowtail.io import load, save
from swallowtail.kernels import available_backends, select_backend, use_backend
from swallowtail.operators import Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Pairs

__version__ = "0.1.0"

__all__ = [
    "Butterfly",
    "Pairs",
    "Rotation",
    "SymmetricOperator",
    "available_backends",
    "load",
    "nn",
    "save",
    "select_backend",
    "use_backend",
]
