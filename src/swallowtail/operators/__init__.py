"""Operators with O(n log n) products: `Rotation` and `SymmetricOperator`."""

from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator

__all__ = ["Rotation", "SymmetricOperator"]
