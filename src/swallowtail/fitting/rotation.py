"""fit_rotation: from an orthogonal matrix, from products, or from pairs to R ≈ Q, or to Q·diag(±1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from swallowtail import checks
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.checkpoint import Checkpoint
from swallowtail.fitting.core.product import flat_pairs
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.inputs import Problem
from swallowtail.fitting.methods.butterfly import align_butterfly
from swallowtail.fitting.methods.pairs import align_pairs
from swallowtail.fitting.methods.recovery import recover_rotation
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.fitting.orthogonal import EXACT, as_orthogonal, measured_rotation
from swallowtail.fitting.quality import Ask, Candidate, _on_pairs
from swallowtail.fitting.request import check_request, check_wiring
from swallowtail.fitting.result import FitResult
from swallowtail.fitting.symmetric import LARGEST_BUTTERFLY, MOST_ROUNDS
from swallowtail.fitting.watch import Watch
from swallowtail.operators import Rotation, SignedRotation
from swallowtail.wiring import Butterfly, Wiring

METHODS = ("auto", "recovery", "butterfly", "pairs", "sgd")
WORTH_IT = 1.1  # a scout this many times as far off, squared, as the best form is not looked into further
HELD_OUT = 64  # products kept for the quality estimate when their number is not limited


def fit_rotation(
    R: Any,
    n: int | None = None,
    *,
    n_rotations: int | None = None,
    wiring: str | Wiring = "auto",
    depth: int = 1,
    method: str = "auto",
    max_products: int | None = None,
    max_seconds: float | None = None,
    target_angle: float | None = None,
    checkpoint: Any = None,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> FitResult:
    """Fit R ≈ Q with Q a product of ``n_rotations`` Givens rotations.

    An R with determinant −1 is no product of rotations: it is fitted by Q·diag(±1), a `SignedRotation`, and
    the message says so.

    Args:
        R: an orthogonal tensor, array or scipy sparse matrix; anything with ``@`` on columns; a function of
            columns (n, k); or a tuple of pairs (X, Y = RX), each (n, m).
        n: dimension, needed for a plain function.
        n_rotations: the budget K; by default n⌈lg n⌉/2 · depth, the paper's.
        wiring: "auto" fits the forms that make sense at this budget and keeps the best; "butterfly"; "pairs"
            (chosen from R); or a wiring to use.
        depth: of the butterfly, and of the default budget.
        method: "auto"; "recovery" (R exactly a butterfly), "butterfly" or "pairs" to insist on one; "sgd" for
            the paper's L′, which takes further options, see `fitting.sgd.fit_sgd`.
        max_products: hard limit on products when R is not given by its entries. If it is n or more, or absent
            and n ≤ 1024, R is read off entirely; otherwise it is learned by "sgd".
        max_seconds: stop then and keep the best so far.
        target_angle: stop at this quality, in degrees, with as few rotations as it takes.
        checkpoint: a path; a fit that was killed, interrupted or out of time continues from it, if called again
            with the same arguments, to the answer of an undisturbed run. "sgd" starts again.
        seed: of everything random.
        progress: show a progress bar.
        options: for the one method asked for, e.g. ``cycles=`` of "pairs" or ``epochs=`` of "sgd".

    Returns:
        A `FitResult`; ``print`` it to see the plain rivals beside the fit.

    >>> result = fit_rotation(np.array([[0.6, 0.8], [0.8, -0.6]]))
    >>> result.status, type(result.operator).__name__
    ('exact', 'SignedRotation')
    """
    depth = check_request(method, METHODS, wiring, depth, max_products, max_seconds, target_angle, options)
    with Watch(progress, max_seconds) as watch:
        problem = as_orthogonal(R, n, max_products, solve_pairs=method != "sgd")
        # From products alone there is Algorithm 1 only.
        check_wiring("sgd" if problem.dense is None else method, wiring, depth, problem.n, n_rotations)
        budget = default_budget(problem.n, depth) if n_rotations is None else n_rotations
        budget = checks.integer("n_rotations", budget, at_least=0)
        if n_rotations is None and target_angle is not None:  # as few as it takes are kept
            budget = min(MOST_ROUNDS * budget, problem.n * (problem.n - 1) // 2)
        who = flat_pairs(wiring) if isinstance(wiring, Wiring) else None
        arguments = ("rotation", budget, wiring, who, depth, method, target_angle, seed, options)
        saved = Checkpoint(checkpoint, problem, arguments)
        ask = Ask(budget, wiring, depth, method, "rotation", target_angle, seed, options, watch, saved)
        if method == "sgd" or problem.dense is None:
            return _by_sgd(problem, ask, max_products)
        result = _by_entries(problem, ask)
        if not watch.status:  # otherwise there is something to continue
            saved.remove()
        return result


def _by_entries(problem: Problem, ask: Ask) -> FitResult:
    R = problem.dense
    assert R is not None
    signs = _signs(R)
    candidates: list[Candidate] = []
    for name in _forms(len(R), ask):
        kept = ask.saved.finished(name)
        candidate = kept or _fit_form(name, R, signs, ask, candidates)
        if candidate is None:
            continue
        if kept is None and not ask.watch.status:
            ask.saved.finish(name, candidate)
        candidates.append(candidate)
        if ask.watch.status or candidate.objective < EXACT**2:
            break
    if not candidates:
        raise ValueError(f"method={ask.method!r}: R is not in the butterfly class; try method='auto'")
    best = min(candidates, key=lambda c: c.objective)
    others = {f"{c.method}, as fitted": c.operator for c in candidates if c is not best}
    return measured_rotation(problem, R, ask, best, others)


def _signs(R: np.ndarray) -> np.ndarray:  # shape: (n,)
    """Signs of columns that make the determinant +1: where it is −1, of the one most turned round."""
    signs = np.ones(len(R))
    if np.linalg.slogdet(R)[0] < 0:
        signs[np.argmin(np.diagonal(R))] = -1.0
    return signs


def _forms(n: int, ask: Ask) -> list[str]:
    """The algorithms to run, in order."""
    if ask.method != "auto":
        return [ask.method]
    if ask.wiring == "pairs":
        return ["pairs"]
    if ask.wiring != "auto":
        wiring = _wiring(n, ask)
        recoverable = isinstance(wiring, Butterfly) and wiring.depth == 1
        return ["recovery", "butterfly"] if recoverable else ["butterfly"]
    forms = ["pairs"]
    if Butterfly(n).n_rotations <= ask.budget:
        forms.insert(0, "recovery")
    if (
        Butterfly(n, ask.depth).n_rotations <= ask.budget
        and ask.target_angle is None
        and n <= LARGEST_BUTTERFLY
    ):
        forms.append("butterfly")
    return forms


def _wiring(n: int, ask: Ask) -> Wiring:
    return ask.wiring if isinstance(ask.wiring, Wiring) else Butterfly(n, ask.depth)


def _fit_form(
    name: str, R: np.ndarray, signs: np.ndarray, ask: Ask, before: list[Candidate]
) -> Candidate | None:
    callback, options = ask.watch.callback, dict(ask.options)
    if name == "recovery":
        return _recovered(R, ask)
    if name == "butterfly":
        wiring = _wiring(len(R), ask)
        if before and ask.wiring == "auto":
            # One cheap start shows whether the fixed wiring can come near the chosen pairs.
            options = {"starts": 0, "kicks": 0}
        fit = align_butterfly(R * signs, wiring, seed=ask.seed, callback=callback, **options)
        if "kicks" in options and before and fit.history[-1][2] < WORTH_IT * before[-1].objective:
            fit = align_butterfly(R * signs, wiring, seed=ask.seed, callback=callback)
    else:
        # cos ∠ is tr(QᵀR)/n on the average over x, so ‖R − Q‖/√n = 2 sin(∠/2).
        error = None if ask.target_angle is None else 2 * math.sin(math.radians(ask.target_angle) / 2)
        fit = align_pairs(
            R * signs,
            ask.budget,
            target_error=error,
            seed=ask.seed,
            callback=callback,
            save=ask.saved.saver(name),
            resume=ask.saved.state(name),
            **options,
        )
    return Candidate(name, _operator(fit.wiring, fit.angles, signs), fit.history, fit.history[-1][2])


def _recovered(R: np.ndarray, ask: Ask) -> Candidate | None:
    """R read off as a butterfly or, if no wiring forbids it, as a transposed one; None if it is neither."""
    given = ask.wiring if isinstance(ask.wiring, Butterfly) else None
    best = None
    for reverse in (False, True) if given is None else (given.reverse,):
        if ask.method == "auto" and not _may_be_butterfly(R.T if reverse else R):
            continue
        fit = recover_rotation(R.T if reverse else R)
        operator = _operator(fit.wiring, fit.angles, fit.signs)
        history = [("recover", fit.wiring.n_rotations, fit.relative_error**2)]
        if best is None or history[0][2] < best.objective:
            best = Candidate("recovery", operator.T if reverse else operator, history, history[0][2])
        if fit.relative_error < EXACT:
            break
    limit = EXACT if ask.method == "auto" else 0.5
    return best if best is not None and best.objective < limit**2 else None


def _may_be_butterfly(R: np.ndarray) -> bool:
    """Whether rows r and r + p are parallel left of column p, as the first layer of a butterfly makes them."""
    p = Butterfly(len(R)).strides[0] if len(R) > 1 else 1
    top, bottom = R[: len(R) - p, :p], R[p:, :p]
    gram = (top * top).sum(1) * (bottom * bottom).sum(1) - (top * bottom).sum(1) ** 2
    return bool(gram.max(initial=0.0) < 1e-6)  # the square of 1e-3: far above rounding


def _operator(wiring: Wiring, angles: np.ndarray, signs: np.ndarray) -> Rotation | SignedRotation:
    rotation = Rotation(wiring, torch.from_numpy(angles))
    return rotation if (signs > 0).all() else SignedRotation(rotation, torch.from_numpy(signs))


def _by_sgd(problem: Problem, ask: Ask, max_products: int | None) -> FitResult:
    """The paper's L′ = ‖Q x − y‖²; the determinant is known, and mended, only where R is."""
    if ask.method not in ("auto", "sgd") or ask.wiring == "pairs":
        raise ValueError(
            f"method={ask.method!r}, wiring={ask.wiring!r}: expected the entries of R, got products or pairs "
            f"only; try method='sgd' on a butterfly, or {problem.n} products"
        )
    wiring, R = _wiring(problem.n, ask), problem.dense
    signs = np.ones(problem.n) if R is None else _signs(R)
    source: Any = problem.product if R is None else R * signs
    held_out = 0
    if problem.pairs is not None:
        source = problem.pairs
    elif R is None:
        held_out = HELD_OUT if max_products is None else max_products // 16
    history: list[tuple[str, int, float]] = []

    def callback(epoch: Any) -> None:
        history.append(("epoch", wiring.n_rotations, epoch.loss))
        ask.watch.callback(f"epoch {epoch.epoch}", wiring.n_rotations, epoch.loss)
        if ask.target_angle is not None and epoch.angle <= ask.target_angle:
            raise Stop

    limit = None if max_products is None else max_products - held_out
    fit = fit_sgd(
        source,
        problem.n,
        loss="rotation",
        wiring=wiring,
        max_products=limit,
        seed=ask.seed,
        callback=callback,
        **ask.options,
    )
    operator = _operator(fit.wiring, fit.angles, signs)
    if R is not None:
        return measured_rotation(problem, R, ask, Candidate("sgd", operator, history, history[-1][2]), {})
    if problem.product is not None and held_out:
        Z = np.random.default_rng(ask.seed + 1).standard_normal((problem.n, held_out))
        (angle, low, high), error = _on_pairs(operator, Z, problem.product(Z))
        source_of_quality = f"{held_out} products kept for it"
    else:
        last = fit.history[-1]
        angle, low, high, error = last.angle, 0.0, 180.0, last.loss**0.5
        source_of_quality = "the last epoch, on the pairs trained on (optimistic)"
    reached = ask.target_angle is None or angle <= ask.target_angle
    return FitResult(
        operator=operator.to(problem.device, problem.dtype),
        angle=angle,
        angle_interval=(low, high),
        relative_error=error,
        n_products=fit.n_products + held_out,
        seconds=ask.watch.seconds,
        history=history,
        status=ask.watch.status or ("converged" if reached else "budget"),
        message=f"Quality is an estimate from {source_of_quality}. The determinant of R is taken to be +1.",
        method="sgd",
        target="rotation",
        estimated=True,
    )
