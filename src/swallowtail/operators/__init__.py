"""Operators with O(n log n) products: `Rotation`, `SignedRotation` and `SymmetricOperator`."""

from swallowtail.operators.rotation import Rotation
from swallowtail.operators.signed import SignedRotation
from swallowtail.operators.symmetric import SymmetricOperator

__all__ = ["Rotation", "SignedRotation", "SymmetricOperator"]
