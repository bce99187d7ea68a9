"""The rivals of a rotation: c·I + low rank at equal floats and multiply-adds, the other forms fitted, dense."""

from __future__ import annotations

from typing import Any

import numpy as np

from swallowtail.fitting.budget import Cost
from swallowtail.fitting.methods.low_rank import DiagonalLowRank
from swallowtail.fitting.result import Rival, count_floats
from swallowtail.fitting.rivals.forms import Alternative, other_form, shared
from swallowtail.metrics import error_angle, relative_error

PROBES = 1000  # x for an angle


def low_rank_rotation(R: np.ndarray, ranks: list[int]) -> dict[int, DiagonalLowRank]:
    """The best c·I + U Vᵀ of rank r in Frobenius norm for each r: 2rn + 1 floats, (2r + 1)n multiply-adds.

    For orthogonal R, (R − cI)ᵀ(R − cI) = (1 + c²)I − c(R + Rᵀ): whatever c, the right singular vectors are
    the eigenvectors of (R + Rᵀ)/2. Keeping those of all but n − r extreme eigenvalues μ, the rest is least for
    c = mean μ over it, where its square is (n − r)(1 − c²).
    """
    n = len(R)
    mu, V = np.linalg.eigh((R + R.T) / 2)
    result = {}
    for r in ranks:
        highest, lowest = (float(part.mean()) if r < n else 0.0 for part in (mu[r:], mu[: n - r]))
        c, kept = (highest, V[:, :r]) if abs(highest) >= abs(lowest) else (lowest, V[:, n - r :])
        result[r] = DiagonalLowRank(c, np.ones(kept.shape[1]), kept, R @ kept - c * kept)
    return result


def rotation_rivals(R: np.ndarray, operator: Any, seed: int, others: dict[str, Any]) -> list[Rival]:
    """Every rival of ``operator`` as an approximation of R: c·I + low rank, the other forms fitted, dense.

    Args:
        R: shape (n, n).
        operator: the fit, a Rotation or SignedRotation.
        seed: of the probes for the angle.
        others: name → operator, the other forms that were fitted.
    """
    n = len(R)
    ranks = {
        "floats": (count_floats(operator) - 1) // (2 * n),
        "multiply-adds": (operator.multiply_adds - n) // (2 * n),
    }
    ranks = {name: int(np.clip(r, 0, n)) for name, r in ranks.items()}
    forms = []
    for r, form in low_rank_rotation(R, sorted(set(ranks.values()))).items():
        floats = 2 * r * n + 1
        name = f"c·I + rank {r}"
        cost = Cost(floats, 4 * floats, (2 * r + 1) * n, None)
        forms.append(Alternative(name, form, cost, shared(ranks, r)))
    forms += [other_form(name, other) for name, other in others.items()]
    found = [
        form.measured(
            error_angle(R, form.operator, PROBES, seed), relative_error(R, form.operator @ np.eye(n)).value
        )
        for form in forms
    ]
    return [*found, Rival("dense", 0.0, 0.0, n * n, 4 * n * n, n * n, "")]
