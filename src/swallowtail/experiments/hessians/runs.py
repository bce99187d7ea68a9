"""The runs behind `hessians`: who competes on a matrix, and what is measured."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from swallowtail.experiments.common.fits import as_operator
from swallowtail.experiments.common.rows import Row
from swallowtail.experiments.hessians.curvature import Curvature
from swallowtail.experiments.hessians.solving import conjugate_gradients, preconditioner
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.methods.products import fit_products
from swallowtail.fitting.rivals import equal_ranks, low_rank
from swallowtail.fitting.symmetric import fit_symmetric
from swallowtail.metrics import error_angle

DAMPING = 1e-3  # λ over the largest eigenvalue
ALL_DIRECTIONS = "c·I + low rank, all directions"  # as many as there were products
SPECTRUM = 40  # eigenvalues in the rows
SHORT = {"hessian": "Hessian", "ggn": "GGN"}  # what the matrices are called in the report


def name(widths: tuple[int, ...]) -> str:
    """Of a network."""
    return "logistic regression" if len(widths) == 2 else f"network {'-'.join(map(str, widths))}"


@lru_cache(maxsize=2)
def _dense(widths: tuple[int, ...], kind: str, rows: int, seed: int) -> tuple[Curvature, np.ndarray]:
    curvature = Curvature(widths, kind, rows, seed)
    H = curvature(np.eye(curvature.n))
    return curvature, 0.5 * (H + H.T)


def case_rows(
    widths: tuple[int, ...], kind: str, rows: int, products: tuple[int, ...], cycles: int, seed: int
) -> list[Row]:
    """Every contender on one matrix: its angle and its iterations; and the spectra.

    Args:
        widths: of the network.
        kind: "hessian" or "ggn".
        rows: digits trained on.
        products: how many a fit may ask for, one fit for each.
        cycles: of the fits to all entries.
        seed: of the network and of the fits.
    """
    curvature, H = _dense(widths, kind, rows, seed)
    n, K = len(H), default_budget(len(H))
    values = np.linalg.eigvalsh(H)
    shift = DAMPING * float(values[-1])
    common: Row = {"problem": name(widths), "curvature": kind, "n": n, "seed": seed}
    options: dict[str, Any] = {"n_rotations": K, "method": "pairs", "cycles": cycles, "seed": seed}
    whole = fit_symmetric(H, **options).operator
    rank = equal_ranks(whole)["floats"]
    inverse = fit_symmetric(H + shift * np.eye(n), target="inverse", **options)
    contenders: list[tuple[str, int, Any, int]] = [  # name, products, the matrix, floats
        ("none", 0, Factor(0.0, np.zeros((n, 0)), np.zeros(0)), 0),
        ("diagonal", n, np.diag(np.diagonal(H)), n),
        ("ours, all entries", n, whole, K + n),
        ("c·I + low rank, all entries", n, low_rank(H, [rank])[rank], rank * (n + 1) + 1),
    ]
    for m in products:
        fit = fit_products(curvature, n, K, m, seed)
        factor = fit.completion.factor
        contenders += [
            ("ours", m, as_operator(fit), K + n),
            ("c·I + low rank", m, factor.cut(rank), rank * (n + 1) + 1),
            (ALL_DIRECTIONS, m, factor.cut(m), m * (n + 1) + 1),
        ]
    result: list[Row] = [
        {
            "part": "fit", **common, "method": label, "products": m, "floats": floats,
            "angle": error_angle(H, A, 1000, seed + 1) if label != "none" else None,
            "iterations": conjugate_gradients(H, shift, curvature.gradient, preconditioner(A, shift, label)),
        }
        for label, m, A, floats in contenders
    ]  # fmt: skip
    aimed = inverse.operator.inverse()
    count = conjugate_gradients(H, shift, curvature.gradient, lambda r: aimed @ r)
    label = "ours, all entries, fitted to the inverse"
    result.append(
        {"part": "fit", **common, "method": label, "products": n, "floats": K + n, "iterations": count}
    )
    ours = next(np.sort(A.eigenvalues.numpy()) for label, _, A, _ in reversed(contenders) if label == "ours")
    for index in np.unique(np.geomspace(1, n, SPECTRUM).astype(int)):
        pair = {"true": float(values[-index]), "ours": float(ours[-index])}
        result.append({"part": "spectrum", **common, "index": int(index), **pair})
    return result
