"""Operators with O(n log n) products: `Rotation`, `SignedRotation`, `SymmetricOperator` and `HybridOperator`.

`LowRank` is what can be added to the last two.
"""

from swallowtail.operators.hybrid import HybridOperator
from swallowtail.operators.low_rank import LowRank
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.signed import SignedRotation
from swallowtail.operators.symmetric import SymmetricOperator

__all__ = ["HybridOperator", "LowRank", "Rotation", "SignedRotation", "SymmetricOperator"]
