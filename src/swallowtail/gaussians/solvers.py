"""Matrix-free linear algebra for Gaussians: conjugate gradients, and log-determinants by Lanczos quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.metrics import Estimate
from swallowtail.operators import SymmetricOperator

N_PROBES, N_STEPS = 32, 30  # of Lanczos quadrature

Matvec = Callable[[Tensor], Tensor]  # rows (m, n) → rows (m, n)


class Solution(NamedTuple):
    """What conjugate gradients reached for A x = b."""

    x: Tensor
    error: float  # largest ‖b − A x‖ / ‖b‖ over the right-hand sides
    iterations: int
    converged: bool


def conjugate_gradients(
    matvec: Matvec,
    b: Tensor,
    preconditioner: Matvec | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 1000,
) -> Solution:
    """Solve A x = b for rows b (m, n) and positive definite A, all rows at once.

    Args:
        matvec: A on rows.
        b: shape (m, n).
        preconditioner: an approximate A⁻¹ on rows.
        tolerance: stop when ‖b − A x‖ ≤ tolerance · ‖b‖ in every row.
        max_iterations: stop after so many.

    Raises:
        ArgumentError: A is seen to have a negative eigenvalue.
    """
    b = checks.as_tensor("b", b)
    _of_rows("matvec", matvec)
    if preconditioner is not None:
        _of_rows("preconditioner", preconditioner)
    checks.number("tolerance", tolerance, at_least=0)
    checks.integer("max_iterations", max_iterations, at_least=0)
    x, r = torch.zeros_like(b), b.clone()
    size = b.norm(dim=-1).clamp_min(torch.finfo(b.dtype).tiny)
    precondition = preconditioner or (lambda v: v)
    z = precondition(r)
    p, rz = z.clone(), (r * z).sum(-1, keepdim=True)
    count, error = 0, float((r.norm(dim=-1) / size).max()) if len(b) else 0.0
    while error > tolerance and count < max_iterations:
        Ap = matvec(p)
        curvature = (p * Ap).sum(-1, keepdim=True)
        rounding = b.shape[-1] * torch.finfo(b.dtype).eps * p.norm(dim=-1) * Ap.norm(dim=-1)
        if bool((curvature[:, 0] < -rounding).any()):
            got = f"pᵀA p = {float(curvature.min()):.3g}"
            raise ArgumentError("matvec", "a positive definite matrix", got, "try adding epsilon·I to it")
        # A row that is solved has p = 0: its step must be 0, not 0/0.
        alpha = rz / curvature.clamp_min(torch.finfo(b.dtype).tiny)
        x, r = x + alpha * p, r - alpha * Ap
        z = precondition(r)
        new = (r * z).sum(-1, keepdim=True)
        p, rz = z + new / rz.clamp_min(torch.finfo(b.dtype).tiny) * p, new
        count += 1
        error = float((r.norm(dim=-1) / size).max())
    return Solution(x, error, count, error <= tolerance)


def log_determinant(matvec: Matvec, like: SymmetricOperator, seed: int = 0) -> Estimate:
    """Log det A for positive definite A close to ``like`` = Q D Qᵀ.

    log det A = Σ log d + tr log(D^−½ Qᵀ A Q D^−½): the trace is estimated by Lanczos quadrature over random signs.
    The closer the operator, the smaller the trace and its error.

    Raises:
        ArgumentError: ``like`` has an eigenvalue that is not positive, or A is seen to have one.
    """
    _of_rows("matvec", matvec)
    checks.instance("like", like, SymmetricOperator)
    d = like.eigenvalues
    if not bool((d > 0).all()):
        hint = "try like.function(lambda d: d.clamp(min=epsilon))"
        raise ArgumentError("like", "positive eigenvalues", f"{int((~(d > 0)).sum())} others", hint)
    n, root = like.n, d.rsqrt()
    inner: Matvec = lambda v: like.rotation.T(matvec(like.rotation(v * root))) * root
    generator = torch.Generator().manual_seed(checks.seed("seed", seed))
    z = (torch.randint(0, 2, (N_PROBES, n), generator=generator) * 2 - 1).to(like.device, like.dtype)
    values = _quadrature(inner, z, min(N_STEPS, n)) * n
    error = float(values.std() / math.sqrt(N_PROBES)) if n > 1 else 0.0
    return Estimate.around(float(like.logdet() + values.mean()), error)


def _of_rows(name: str, value: Any) -> None:
    """Check that a function came; fits take matrices as well, so somebody will give one here."""
    checks.function(name, value, "rows (m, n)", "try lambda X: X @ A" if hasattr(value, "shape") else "")


def _quadrature(matvec: Matvec, z: Tensor, steps: int) -> Tensor:
    """uᵀ log(A) u for u = z/‖z‖, each row of z (m, n): Lanczos with full reorthogonalisation, then Gauss's rule."""
    basis = [z / z.norm(dim=-1, keepdim=True)]
    T = torch.zeros(len(z), steps, steps, dtype=z.dtype)
    for k in range(steps):
        w = matvec(basis[k])
        T[:, k, k] = (w * basis[k]).sum(-1).cpu()
        for _ in range(2):
            for u in basis:
                w = w - (w * u).sum(-1, keepdim=True) * u
        length = w.norm(dim=-1, keepdim=True)
        if k + 1 < steps:
            # Once the Krylov space is exhausted only rounding is left: a zero ends the recurrence.
            alive = length > 1e-10 * T[:, 0, 0].abs().max().to(w)
            T[:, k, k + 1] = T[:, k + 1, k] = (length * alive)[:, 0].cpu()
            basis.append(
                torch.where(alive, w / length.clamp_min(torch.finfo(z.dtype).tiny), torch.zeros_like(w))
            )
    values, vectors = torch.linalg.eigh(T)
    weights = vectors[:, 0, :] ** 2
    least = float(torch.where(weights > 1e-14, values, torch.inf).min())
    if not least > 0:  # its logarithm would be one of rounding
        got = f"an eigenvalue of {least:.3g}, relative to like"
        raise ArgumentError("matvec", "a positive definite matrix", got, "try adding epsilon·I to it")
    logs = torch.where(
        weights > 1e-14, values.clamp_min(torch.finfo(z.dtype).tiny).log(), torch.zeros_like(values)
    )
    return (weights * logs).sum(-1)
