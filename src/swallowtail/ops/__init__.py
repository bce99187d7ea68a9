"""Differentiable Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x, above all back ends."""

from swallowtail.ops import library as _registered  # noqa: F401 (torch.ops.swallowtail exists from here on)
from swallowtail.ops.cache import PreparedCache
from swallowtail.ops.functional import quadratic_form, rotate, rotate_transpose, symmetric_matvec

__all__ = ["PreparedCache", "quadratic_form", "rotate", "rotate_transpose", "symmetric_matvec"]
