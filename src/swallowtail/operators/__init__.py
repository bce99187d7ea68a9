"""Operators with O(n log n) products: `Rotation`, `SignedRotation`, `SymmetricOperator` and `HybridOperator`."""

from swallowtail.operators.hybrid import HybridOperator
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.signed import SignedRotation
from swallowtail.operators.symmetric import SymmetricOperator

__all__ = ["HybridOperator", "Rotation", "SignedRotation", "SymmetricOperator"]
