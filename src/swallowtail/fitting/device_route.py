"""The route of a fit whose matrix lies on a GPU: fitted, measured and compared with its rivals there.

K + n numbers of the fit come to the host, and probes for the angle; the entries of H do not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swallowtail.fitting.device.fit import DeviceFit, fit_on_device
from swallowtail.fitting.forms.base import Job
from swallowtail.fitting.forms.symmetric import symmetric_operator
from swallowtail.fitting.quality import EXACT, NOT_MEASURED
from swallowtail.fitting.result import Candidate, Found, Quality, Rival
from swallowtail.fitting.rivals import cost_of, equal_ranks, n_probes, verdict
from swallowtail.fitting.rivals.forms import identity_and_rank, shared
from swallowtail.metrics import Estimate, probe_generator

KRYLOV, SPARE, PASSES = 4, 32, 8  # columns of the rivals' Krylov space per rank, and more; blocks of it
ONLY_LOW_RANK = "On a GPU no rival but c·I + low rank is measured."


def by_device(job: Job) -> Found:
    """Fit on chosen pairs, or in rounds of groups, where H lies."""
    request, H = job.request, job.problem.tensor
    assert H is not None
    grouped = request.method == "grouped"
    named = ("steps", "cycles", "finish", *(("size", "n_rounds") if grouped else ()))
    options = {key: request.options[key] for key in named if key in request.options}
    fit = fit_on_device(
        H,
        job.budget,
        grouped=grouped,
        effort=request.effort,
        seed=request.seed,
        callback=job.watch.callback,
        **options,
    )
    found = fit.found
    operator = symmetric_operator(found.wiring, found.angles, found.eigenvalues)
    best = Candidate("grouped" if grouped else "pairs", operator, found.history, found.history[-1][2])
    status = "exact" if best.objective < EXACT**2 else "converged"
    return Found(best, _quality(job, fit, best), 0, status)


def _quality(job: Job, fit: DeviceFit, best: Candidate) -> Quality:
    """The angle on the probes that a fit on the CPU would be measured with, and c·I + low rank beside it."""
    H, n = fit.objective.H, fit.objective.n
    X = probe_generator(job.request.seed + 1).standard_normal((n_probes(n), n))
    probes = torch.from_numpy(X).to(H.device, H.dtype).T.contiguous()
    image = H @ probes  # H is scaled by a power of two, which changes no angle
    angle = Estimate.of_angles(_angles(image, fit.product(probes)).cpu().numpy())
    error = max(best.objective, 0.0) ** 0.5
    cost, model = cost_of(best.operator, job.prices), job.prices.model
    known = Quality(angle, error, [], [NOT_MEASURED], False, None, cost.time, model.source)
    if job.watch.status:
        return known
    rivals = _rivals(fit, best, probes, image, job.request.seed)
    notes = [verdict(angle.value, cost, rivals, model), ONLY_LOW_RANK]
    return known._replace(rivals=rivals, notes=notes)


def _rivals(fit: DeviceFit, best: Candidate, probes: Tensor, image: Tensor, seed: int) -> list[Rival]:
    """c·I + low rank at equal floats, bytes and multiply-adds."""
    H, n, norm2 = fit.objective.H, fit.objective.n, fit.objective.norm2
    ranks, rivals = equal_ranks(best.operator), []
    theta, V = _largest_eigenvectors(H, min(n, KRYLOV * max(ranks.values()) + SPARE), seed)
    trace = float(H.diagonal().sum(dtype=torch.float64))
    for r in sorted(set(ranks.values())):
        top = theta[:r]
        c = (trace - float(top.sum())) / max(1, n - len(top))
        w, U = top - c, V[:, : len(top)]
        # ‖H − c·I − U diag(w) Uᵀ‖² with U orthonormal and θ = diag(UᵀHU)
        left = max(0.0, norm2 - 2.0 * c * trace + n * c * c - float(w @ w))
        found = c * probes + U @ (w.to(U.dtype)[:, None] * (U.T @ probes))
        named = identity_and_rank(r, None, n, shared(ranks, r))
        rivals.append(named.measured(float(_angles(image, found).mean()), (left / norm2) ** 0.5))
    return rivals


def _largest_eigenvectors(H: Tensor, m: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ritz values (k,), largest magnitude first, and vectors (n, k) of a block Krylov space of m products or so."""
    width = -(-m // PASSES)
    block = torch.randn(len(H), width, generator=torch.Generator().manual_seed(seed)).to(H.device, H.dtype)
    basis, images = H.new_zeros((len(H), 0)), H.new_zeros((len(H), 0))
    for _ in range(PASSES):
        for _ in range(2):
            block = torch.linalg.qr(block - basis @ (basis.T @ block)).Q
        basis, block = torch.cat([basis, block], 1), H @ block
        images = torch.cat([images, block], 1)
        if basis.shape[1] + width > len(H):
            break
    T = (basis.T @ images).double()
    theta, W = torch.linalg.eigh(0.5 * (T + T.T))
    order = theta.abs().argsort(descending=True)
    return theta[order], basis @ W[:, order].to(H.dtype)


def _angles(A: Tensor, B: Tensor) -> Tensor:  # shape: (k,), degrees, float64
    """`metrics.column_angles` on the device."""
    a, b = (torch.nn.functional.normalize(Z.double(), dim=0) for Z in (A, B))
    return torch.rad2deg(2.0 * torch.atan2((a - b).norm(dim=0), (a + b).norm(dim=0)))
