"""Differentiable Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x, above all back ends."""

from swallowtail.ops.functional import quadratic_form, rotate, rotate_transpose, symmetric_matvec

__all__ = ["quadratic_form", "rotate", "rotate_transpose", "symmetric_matvec"]
