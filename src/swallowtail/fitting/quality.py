"""How good a fit is: measured on the entries of H, or estimated from products; and its rivals beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.fitting import rivals as rival_forms
from swallowtail.fitting.core.product import FLOOR
from swallowtail.fitting.inputs import Problem
from swallowtail.fitting.result import FitResult, Rival
from swallowtail.fitting.watch import Watch
from swallowtail.metrics import column_angles, error_angle_interval, relative_error
from swallowtail.operators import SymmetricOperator
from swallowtail.wiring import Wiring

UNKNOWN = (0.0, 180.0)  # the interval of an angle that nothing independent was measured for
MADE_UP = 100  # pairs for an estimate where no product was kept for it


class Candidate(NamedTuple):
    """One fitted form."""

    method: str
    operator: Any  # a SymmetricOperator, or a Rotation or SignedRotation; float64, on the CPU
    history: list[tuple[str, int, float]]
    objective: float


class Ask(NamedTuple):
    """What was asked for."""

    budget: int
    wiring: str | Wiring
    depth: int
    method: str
    target: str
    target_angle: float | None
    seed: int
    options: dict[str, Any]
    watch: Watch
    saved: Any  # a Checkpoint


def measured(
    problem: Problem,
    ask: Ask,
    best: Candidate,
    others: dict[str, SymmetricOperator],
    fitted: np.ndarray,
    status: str,
) -> FitResult:
    """Measure the best candidate against the matrix it was fitted to, and its rivals."""
    operator = best.operator
    angle = error_angle_interval(fitted, operator, rival_forms.n_probes(len(fitted)), seed=ask.seed + 1)
    found = rival_forms.dense_rivals(fitted, operator, ask.seed + 1, others, problem.sparse)
    message = rival_forms.verdict(angle.mean, found)
    if ask.target == "inverse":
        d = operator.eigenvalues
        floor = FLOOR * float(d.abs().max())
        operator = SymmetricOperator(operator.rotation, 1 / torch.where(d.abs() < floor, floor, d))
        message += " Angle, error and rivals are those of the inverse."
    if ask.target_angle is not None:
        reached = angle.mean <= ask.target_angle
        status = status if reached else "budget"
        message += "" if reached else f" {ask.target_angle}° was not reached; try a larger n_rotations."
    return FitResult(
        operator=operator.to(problem.device, problem.dtype),
        angle=angle.mean,
        angle_interval=(angle.low, angle.high),
        relative_error=relative_error(fitted, best.operator, seed=ask.seed + 1).mean
        if len(fitted) > rival_forms.FULL_EIGH
        else relative_error(fitted, best.operator.to_dense().numpy()).mean,
        n_products=problem.n_products,
        seconds=ask.watch.seconds,
        history=best.history,
        status=ask.watch.status or status,
        message=message,
        method=best.method,
        target=ask.target,
        rivals=found,
    )


def estimated(
    problem: Problem, ask: Ask, operator: SymmetricOperator, fit: Any, checks: Any, used: int
) -> FitResult:
    """Quality from held-out products if there are any, otherwise on pairs made up from the completion."""
    Z, HZ = checks
    source, known = "the pairs themselves (optimistic)", False
    if problem.pairs is None:
        source, known = f"{Z.shape[1]} products kept for it", True
    if Z.shape[1] == 0:
        Z, HZ = _made_up_pairs(fit.completion, problem.n, ask.seed + 1)
        source, known = (
            "the completion of the same products and what it seems to miss (rough, often too low)",
            False,
        )
    angle, error = _on_pairs(operator, Z, HZ)
    found = []
    for name, cut, r, equal in rival_forms.factor_rivals(fit.completion, operator):
        mean, size = _on_pairs(cut, Z, HZ)
        count = r * (problem.n + 1) + 1
        found.append(Rival(name, mean[0], size, count, 4 * count, (2 * r + 1) * problem.n, equal))
    message = f"Quality is an estimate from {source}. " + rival_forms.verdict(angle[0], found)
    return FitResult(
        operator=operator.to(problem.device, problem.dtype),
        angle=angle[0],
        angle_interval=(angle[1], angle[2]) if known else UNKNOWN,
        relative_error=error,
        n_products=used,
        seconds=ask.watch.seconds,
        history=fit.history,
        status=ask.watch.status or "converged",
        message=message,
        method="products",
        target=ask.target,
        estimated=True,
        rivals=found,
    )


def _made_up_pairs(completion: Any, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random columns Z and Ĥ·Z plus noise as large as the part of H that the completion Ĥ is thought to miss."""
    generator = np.random.default_rng(seed)
    Z, noise = generator.standard_normal((2, n, MADE_UP))
    missed, factor = min(completion.relative_error, 0.99), completion.factor
    unit = (
        float(np.abs(factor.weights).max(initial=abs(factor.shift))) or 1.0
    )  # squares near 1e±200 leave float64
    norm = unit * factor._replace(shift=factor.shift / unit, weights=factor.weights / unit).norms2()[0] ** 0.5
    scale = norm / n**0.5 * missed / (1.0 - missed * missed) ** 0.5
    return Z, factor @ Z + scale * noise


def _on_pairs(operator: Any, X: np.ndarray, Y: np.ndarray) -> tuple[tuple[float, float, float], float]:
    """Mean angle with a rough interval, and relative error, on given pairs."""
    B = operator @ X
    angles = column_angles(B, Y)
    half = float(1.96 * angles.std(ddof=1) / len(angles) ** 0.5) if len(angles) > 1 else 90.0
    mean = float(angles.mean())
    error = relative_error(Y, B).mean
    return (mean, max(0.0, mean - half), min(180.0, mean + half)), error
