"""Differentiable Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x, above all back ends."""

from swallowtail.ops import library  # noqa: F401 (importing it makes torch.ops.swallowtail)
from swallowtail.ops.cache import PreparedCache
from swallowtail.ops.functional import quadratic_form, rotate, rotate_transpose, symmetric_matvec

__all__ = ["PreparedCache", "quadratic_form", "rotate", "rotate_transpose", "symmetric_matvec"]
