"""What a low-rank update does to S: to its inverse, to its root, to a function of it.

S is symmetric, U (n, r) and w (r,) are the update: H = S + U diag(w) Uᵀ.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from swallowtail.errors import ArgumentError
from swallowtail.operators.base import Operator

NEW = 64  # roundings: a direction whose part outside the others is shorter, relatively, is not new


def capacitance(U: torch.Tensor, solved_U: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """1 + W UᵀS⁻¹U, shape (r, r), from U, S⁻¹U and w."""
    return torch.eye(len(w), dtype=U.dtype, device=U.device) + w[:, None] * (U.T @ solved_U)


def woodbury(U: torch.Tensor, solved_U: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Basis (n, r) and weights (r,) of H⁻¹ − S⁻¹, from U, S⁻¹U and w."""
    inner = torch.linalg.solve(capacitance(U, solved_U, w), torch.diag(w))
    weights, turn = torch.linalg.eigh(0.5 * (inner + inner.T))
    return solved_U @ turn, -weights


def root(M: torch.Tensor, w: torch.Tensor, floor: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(1 + M W Mᵀ)^½ = 1 + Y diag(a) Yᵀ: orthonormal Y (n, r) and a (r,).

    Args:
        M: shape (n, r).
        w: W = diag(w).
        floor: take a negative eigenvalue as 0, instead of refusing it.
    """
    Y, R = torch.linalg.qr(M)
    values, turn = torch.linalg.eigh((R * w) @ R.T)
    if not floor and bool((values < -1).any()):
        got = f"{int((values < -1).sum())} negative"
        raise ArgumentError("sample", "eigenvalues of H ≥ 0", got, "try `epsilon=1e-6`")
    return Y @ turn, (1 + values).clamp(min=0).sqrt() - 1


def of_function(
    S: Operator,
    U: torch.Tensor,
    w: torch.Tensor,
    f: Callable[[torch.Tensor], torch.Tensor],
    tolerance: float,
    max_rank: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """f(H) − f(S) ≈ V (f(VᵀHV) − f(VᵀSV)) Vᵀ with V the block Krylov space of S from U, as basis and weights.

    V grows by a block per step until the difference changes by less than ``tolerance``, relatively, or V is
    ``max_rank`` wide. Where V holds all that S does to U, as for S = c·I at once, the difference is exact.
    """
    double, columns = U.double(), lambda X: (S @ X.to(U.dtype)).double()
    least = NEW * torch.finfo(U.dtype).eps
    V = _orthonormal(double, double[:, :0], least)
    SV, last, before = columns(V), V, None
    while True:
        inner, parts = V.T @ SV, V.T @ double
        inner = 0.5 * (inner + inner.T)
        difference = _matrix_function(inner + (parts * w.double()) @ parts.T, f) - _matrix_function(inner, f)
        if before is not None:
            change = difference.clone()
            change[: len(before), : len(before)] -= before
            if float(change.norm()) <= tolerance * float(difference.norm()):
                break
        before = difference
        new = _orthonormal(SV[:, V.shape[1] - last.shape[1] :], V, least)[:, : max_rank - V.shape[1]]
        if not new.shape[1]:
            break
        V, SV, last = torch.cat([V, new], 1), torch.cat([SV, columns(new)], 1), new
    weights, turn = torch.linalg.eigh(difference)
    kept = weights.abs() > least * float(difference.norm())
    return (V @ turn[:, kept]).to(U.dtype), weights[kept].to(U.dtype)


def _matrix_function(A: torch.Tensor, f: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(A)
    return (vectors * f(values)) @ vectors.T


def _orthonormal(columns: torch.Tensor, V: torch.Tensor, least: float) -> torch.Tensor:
    """An orthonormal basis of what the columns add to V, whose columns are orthonormal."""
    new = columns
    for _ in range(2):  # once leaves what rounding put back
        new = new - V @ (V.T @ new)
    Y, sizes, _ = torch.linalg.svd(new, full_matrices=False)
    Y = Y[:, sizes > least * float(columns.norm())]
    return torch.linalg.qr(Y - V @ (V.T @ Y))[0] if Y.shape[1] else Y
