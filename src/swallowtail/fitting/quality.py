"""How good a fit is: measured on the entries of the matrix, or estimated from products; its rivals beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting import rivals as rival_forms
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.products import ProductFit
from swallowtail.fitting.result import Quality
from swallowtail.fitting.rivals import Care
from swallowtail.fitting.rivals.structure import suggestions
from swallowtail.metrics import (
    Estimate,
    column_angles,
    error_angle_interval,
    probe_generator,
    relative_error,
)
from swallowtail.operators import SignedRotation

UNKNOWN = (0.0, 180.0)  # the interval of an angle that nothing independent was measured for
MADE_UP = 100  # samples for an estimate where no product was kept for it
MADE_UP_NUMBERS = 2**22  # in all of them, at most; the longer the vectors, the less their angles differ
SMALL = 512  # up to this n rivals take 0.2 s at most, and are measured though time is up
LARGE = 2**14  # the same where no matrix is made of them
FEWER = 200  # x for an angle beside a quick fit
HURRIED = 32  # x for an angle where time is up: a product with H takes a few hundredths of a second then
NOT_MEASURED = "Rivals were not measured, as the fit was stopped."
ONLY_LOW_RANK = "With effort='quick', only forms of low rank were compared."
TIME_IS_UP = "Rivals were not measured, as time was up when the fit was done."
SINGULAR = "A Gaussian with this covariance has no density, as H is singular; try H + epsilon·I, or GivensCovariance."
EXACT = 1e-6  # relative error below which the matrix is the product


class Fitted(NamedTuple):
    """What is to be measured."""

    operator: Any
    others: dict[str, Any]  # name → operator, the other forms that were fitted
    seed: int
    stopped: bool  # time is up, or somebody waits: leave out what takes long
    pulse: Callable[[], None] = lambda: None  # raises `Stop` if time is up by now
    quick: bool = False  # a quick fit: measured and compared cheaply too


def of_symmetric(H: np.ndarray, fitted: Fitted, sparse: Any, judged: rival_forms.Judged) -> Quality:
    """Measure a fit on the entries of H (n, n), and its rivals."""
    n, operator, hurried = len(H), fitted.operator, fitted.stopped and len(H) > SMALL
    if hurried:
        X = probe_generator(fitted.seed).standard_normal((HURRIED, n)).T
        angle, error = on_samples(operator, X, H @ X)
    else:
        measure = rival_forms.Measure(H, judged.target, fitted.seed, FEWER if fitted.quick else None)
        angles, error = measure.angles(operator)
        angle = Estimate.of_angles(angles)
    cost, model = rival_forms.cost_of(operator, judged.prices), judged.prices.model
    score, unit = None, "°"
    if judged.target == "likelihood":
        score, unit = rival_forms.likelihood_score(H, operator), " nats"
    known = Quality(angle, error, [], [NOT_MEASURED], False, score, cost.time, model.source)
    if hurried:
        return known
    care = Care.LEAST if fitted.stopped else Care.CHEAP if fitted.quick else Care.ALL
    pulse = fitted.pulse if n > SMALL else lambda: None
    try:
        reached = angle.value if score is None else score
        found = rival_forms.dense_rivals(
            measure, operator, reached, judged, fitted.others, sparse, care, pulse
        )
    except Stop:
        return known._replace(notes=[TIME_IS_UP])
    notes = [rival_forms.verdict(reached, cost, found, model, unit)]
    notes += [SINGULAR] if score == np.inf else []
    notes += [ONLY_LOW_RANK] if care is Care.CHEAP and judged.target == "matrix" else []
    notes += suggestions(H, judged.name) if judged.target == "matrix" and sparse is None else []
    if sparse is not None:
        notes.append(f"The matrix is sparse: its CSR form is exact with {sparse.nnz} multiply-adds.")
    return known._replace(rivals=found, notes=notes)


def of_rotation(R: np.ndarray, fitted: Fitted, samples: Any) -> Quality:
    """Measure a fit on the entries of R (n, n), and its rivals."""
    n, operator = len(R), fitted.operator
    angle = error_angle_interval(R, operator, seed=fitted.seed)
    error = relative_error(R, operator.to_dense().numpy()).value
    measures_rivals = n <= SMALL or not fitted.stopped
    found = rival_forms.rotation_rivals(R, operator, fitted.seed, fitted.others) if measures_rivals else []
    if error < EXACT:
        notes = ["R is this product, within rounding."]
    else:
        cost = rival_forms.cost_of(operator)
        notes = [rival_forms.verdict(angle.value, cost, found) if measures_rivals else NOT_MEASURED]
    if operator.multiply_adds >= n * n:
        notes.append(
            f"The dense matrix costs no more: {n * n} multiply-adds against {operator.multiply_adds}."
        )
    if isinstance(operator, SignedRotation):
        negative = int((operator.signs < 0).sum())
        why = "The determinant is −1" if negative % 2 else "No product of rotations on this wiring is R"
        notes.append(f"{why}: the operator is Q·diag(±1), {negative} of {n} signs negative.")
    if samples is not None:
        X, Y = samples
        misfit = np.linalg.norm(R @ X - Y) / (np.linalg.norm(Y) or 1.0)
        notes.append(f"R is the orthogonal matrix nearest to the samples: relative misfit {misfit:.2g}.")
    return Quality(angle, error, found, notes)


class HeldOut(NamedTuple):
    """Columns Z and their images that the fit has not seen, shape (n, k) each."""

    Z: np.ndarray
    image: np.ndarray  # HZ, or f(H)Z
    source: str  # where they come from, for the message
    n_products: int
    settled: bool = True  # whether f(H)Z is known well enough for an interval


def of_products(
    operator: Any, fit: ProductFit, held_out: HeldOut | None, samples: Any, seed: int, stopped: bool = False
) -> Quality:
    """Estimate from held-out products if there are any, else from the samples, else from the completion.

    Args:
        operator: the fit.
        fit: how it was made.
        held_out: what the fit has not seen, or None.
        samples: the samples that were fitted, or None.
        seed: of what is made up where there are neither.
        stopped: time is up, or somebody waits: leave out what takes long.
    """
    n = operator.n
    if samples is not None:
        (Z, HZ), source = samples, "the samples themselves (optimistic)"
    elif held_out is not None:
        Z, HZ, source = held_out[:3]
    else:
        count = 1 if stopped and n > LARGE else max(1, min(MADE_UP, MADE_UP_NUMBERS // n))
        Z, HZ = _made_up_samples(fit.completion, n, count, seed)
        source = "the completion of the same products and what it seems to miss (rough, often too low)"
    angle, error = on_samples(operator, Z, HZ)
    if samples is not None or held_out is None or not held_out.settled:
        angle = Estimate(angle.value, *UNKNOWN)
    note = f"Quality is an estimate from {source}."
    if stopped and n > LARGE:
        return Quality(angle, error, [], [note, NOT_MEASURED], estimated=True)
    found = []
    for form in rival_forms.factor_rivals(fit.completion, operator):
        other, other_error = on_samples(form.operator, Z, HZ)
        found.append(form.measured(other.value, other_error))
    notes = [note, rival_forms.verdict(angle.value, rival_forms.cost_of(operator), found)]
    return Quality(angle, error, found, notes, estimated=True)


def on_samples(operator: Any, X: np.ndarray, Y: np.ndarray) -> tuple[Estimate, float]:
    """Mean angle with a rough interval, and relative error, on given samples."""
    B = operator @ X
    return Estimate.of_angles(column_angles(B, Y)), relative_error(Y, B).value


def _made_up_samples(completion: Any, n: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random columns Z and Ĥ·Z plus noise as large as the part of H that the completion Ĥ is thought to miss."""
    generator = probe_generator(seed)
    Z, noise = generator.standard_normal((2, n, count))
    missed, factor = min(completion.relative_error, 0.99), completion.factor
    # Squares near 1e±200 leave float64: the unit is taken out first.
    unit = float(np.abs(factor.weights).max(initial=abs(factor.shift))) or 1.0
    norm = unit * factor._replace(shift=factor.shift / unit, weights=factor.weights / unit).norms2()[0] ** 0.5
    scale = norm / n**0.5 * missed / (1.0 - missed * missed) ** 0.5
    return Z, factor @ Z + scale * noise
