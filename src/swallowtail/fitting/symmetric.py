"""fit_symmetric: from a matrix, from products, or from pairs to H ≈ Q D Qᵀ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from swallowtail import checks
from swallowtail.fitting.budget import default_budget
from swallowtail.fitting.checkpoint import Checkpoint
from swallowtail.fitting.inputs import Problem, as_problem, dense_inverse, warn_asymmetry
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.fitting.methods.hybrid import HybridFit, fit_hybrid
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.methods.products import fit_products, fit_samples
from swallowtail.fitting.methods.recovery import recover_symmetric
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.fitting.quality import UNKNOWN, Ask, Candidate, estimated, measured
from swallowtail.fitting.request import check_request, check_wiring
from swallowtail.fitting.result import FitResult
from swallowtail.fitting.watch import Watch
from swallowtail.metrics import error_angle
from swallowtail.operators import HybridOperator, Rotation, SymmetricOperator
from swallowtail.wiring import Butterfly, Wiring

METHODS = ("auto", "pairs", "butterfly", "recovery", "hybrid", "sgd", "products")
TARGETS = ("matrix", "inverse", "likelihood")
MOST_ROUNDS = 16  # of the paper's budget, when a target angle decides how many rotations there will be
TRIES = 6  # fits to reach a target angle; one or two do
EXACT = 1e-6  # relative error below which H lies in the class
LARGEST_BUTTERFLY = 512  # beyond this n, trying a butterfly too takes longer than the pairs, and rarely wins


def fit_symmetric(
    H: Any,
    n: int | None = None,
    *,
    n_rotations: int | None = None,
    wiring: str | Wiring = "auto",
    depth: int = 1,
    method: str = "auto",
    target: str = "matrix",
    max_products: int | None = None,
    max_seconds: float | None = None,
    target_angle: float | None = None,
    symmetrize: bool = False,
    checkpoint: Any = None,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> FitResult:
    """Fit H ≈ Q D Qᵀ with Q a product of ``n_rotations`` Givens rotations.

    Args:
        H: a dense tensor or array; a scipy sparse matrix; anything with ``@`` on columns (a scipy
            LinearOperator, an operator of linear_operator, curvlinops, PyLops, or of this package); a
            function of columns, NumPy (n, k) in float64; or a tuple of pairs (X, Y = HX), each (n, m).
        n: dimension, needed for a plain function.
        n_rotations: the budget K; by default n⌈lg n⌉/2 · depth, the paper's.
        wiring: "auto" fits the forms that make sense at this budget and keeps the best; "butterfly"; "pairs"
            (chosen from the data); or a `Butterfly` to use.
        depth: of the butterfly, and of the default budget.
        method: "auto"; "pairs", "butterfly", "recovery" or "products" to insist on one; "hybrid" for rotations
            and a few rank-one terms of the same work, a `HybridOperator` (``rank=`` says how many); "sgd" for the
            paper's Algorithm 1, which takes further options, see `fitting.sgd.fit_sgd`.
        target: "matrix" makes Q D Qᵀ close to H in Frobenius norm; "inverse" makes its inverse close to H⁻¹;
            "likelihood" makes it the best covariance for Gaussian data with sample covariance H.
        max_products: hard limit on products when H is not given by its entries; by default n up to n = 1024
            (H is then known entirely), 64 beyond.
        max_seconds: stop then and keep the best so far.
        target_angle: stop at this quality, in degrees, with as few rotations as it takes.
        symmetrize: fit (H + Hᵀ)/2 of a matrix that is not symmetric.
        checkpoint: a path; a fit that was killed, interrupted or out of time continues from it, if called again
            with the same arguments, to the answer of an undisturbed run. Pairs and finished forms are kept;
            other fits begin again.
        seed: of everything random.
        progress: show a progress bar.
        options: for the one method asked for, e.g. ``cycles=`` of "pairs" or ``epochs=`` of "sgd".

    Returns:
        A `FitResult`; ``print`` it to see the plain rivals beside the fit.

    >>> result = fit_symmetric(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> result.status, sorted(result.operator.eigenvalues.tolist())
    ('exact', [1.0, 3.0])
    """
    checks.choice("target", target, TARGETS)
    depth = check_request(method, METHODS, wiring, depth, max_products, max_seconds, target_angle, options)
    with Watch(progress, max_seconds) as watch:
        problem = as_problem(H, n, symmetrize, max_products)
        budget = default_budget(problem.n, depth) if n_rotations is None else n_rotations
        if n_rotations is None and target_angle is not None:
            budget *= MOST_ROUNDS  # as few as it takes are kept
        budget = checks.integer("n_rotations", budget, at_least=0)
        check_wiring(method, wiring, depth, problem.n, n_rotations)
        arguments = (budget, wiring, depth, method, target, target_angle, seed, options)
        saved = Checkpoint(checkpoint, problem, arguments)
        ask = Ask(budget, wiring, depth, method, target, target_angle, seed, options, watch, saved)
        if method == "hybrid" and (problem.dense is None or target != "matrix"):
            raise ValueError(
                "method='hybrid': expected the entries of H and target='matrix'; try method='auto'"
            )
        if method == "sgd":
            result = _by_sgd(problem, ask, max_products)
        elif problem.dense is not None:
            result = _by_entries(problem, ask)
        else:
            result = _by_products(problem, ask, max_products)
        if not watch.status:  # otherwise there is something to continue
            saved.remove()
        return result


def _by_entries(problem: Problem, ask: Ask) -> FitResult:
    H = problem.dense
    assert H is not None
    fitted = dense_inverse(H) if ask.target == "inverse" else H
    inner = "likelihood" if ask.target == "likelihood" else "matrix"
    if inner == "likelihood" and float(np.diagonal(H).min(initial=0.0)) < 0:
        raise ValueError("target='likelihood': expected a covariance, got a negative diagonal entry")
    candidates: list[Candidate] = []
    for name in _forms(len(H), ask):
        kept = ask.saved.finished(name)
        candidate = kept or _fit_form(name, fitted, inner, ask, candidates)
        if candidate is None:
            continue
        if kept is None and not ask.watch.status:
            ask.saved.finish(name, candidate)
        candidates.append(candidate)
        if ask.watch.status or (name == "recovery" and candidate.objective < EXACT**2):
            break
    if not candidates:
        raise ValueError(f"method={ask.method!r}: H is not in the butterfly class; try method='auto'")
    best = min(candidates, key=lambda c: c.objective)
    others = {f"{c.method}, as fitted": c.operator for c in candidates if c is not best}
    exact = inner == "matrix" and best.objective < EXACT**2
    return measured(problem, ask, best, others, fitted, "exact" if exact else "converged")


def _forms(n: int, ask: Ask) -> list[str]:
    """The algorithms to run, in order."""
    if ask.method != "auto":
        return [ask.method if ask.method != "products" else "pairs"]
    if isinstance(ask.wiring, Butterfly) or ask.wiring == "butterfly":
        return ["recovery", "butterfly"] if ask.depth == 1 and ask.target != "likelihood" else ["butterfly"]
    if isinstance(ask.wiring, Wiring):
        raise ValueError("wiring: expected a Butterfly to fit on all entries, got a Pairs; try method='sgd'")
    if ask.wiring == "pairs":
        return ["pairs"]
    butterfly = Butterfly(n, ask.depth).n_rotations
    forms = ["pairs"]
    if butterfly <= ask.budget and ask.target_angle is None and n > 1:
        if ask.depth == 1 and ask.target != "likelihood":
            forms.insert(0, "recovery")
        if n <= LARGEST_BUTTERFLY:
            forms.append("butterfly")
    return forms


def _fit_form(name: str, H: np.ndarray, target: str, ask: Ask, before: list[Candidate]) -> Candidate | None:
    callback, options = ask.watch.callback, dict(ask.options)
    depth = ask.wiring.depth if isinstance(ask.wiring, Butterfly) else ask.depth
    if name == "recovery":
        fit = recover_symmetric(H, give_up=0.02 if ask.method == "auto" else 0.5)
        if fit is None:
            return None
    elif name == "hybrid":
        return _hybrid(fit_hybrid(H, ask.budget, seed=ask.seed, callback=callback, **options))
    elif name == "butterfly":
        if before and ask.wiring == "auto":
            # One cheap start shows whether the fixed wiring can come near the chosen pairs.
            scout = fit_butterfly(
                H, depth, target=target, starts=0, kicks=0, seed=ask.seed, callback=callback
            )
            if scout.history[-1][2] > _near(min(c.objective for c in before), target):
                return _candidate("butterfly", scout)
        fit = fit_butterfly(H, depth, target=target, seed=ask.seed, callback=callback, **options)
    else:
        fit = _fit_to_angle(H, target, ask) if ask.target_angle is not None else _fit_pairs(H, target, ask)
    return _candidate(name, fit)


def _fit_pairs(H: np.ndarray, target: str, ask: Ask, error: float | None = None) -> Any:
    return fit_pairs(
        H,
        ask.budget,
        target=target,
        target_error=error,
        seed=ask.seed,
        callback=ask.watch.callback,
        save=ask.saved.saver("pairs") if error is None else None,
        resume=ask.saved.state("pairs") if error is None else None,
        **ask.options,
    )


def _fit_to_angle(H: np.ndarray, target: str, ask: Ask) -> Any:
    """Fit to the relative error that gives the angle asked for: a little below its sine, found by trying."""
    assert ask.target_angle is not None
    error = math.sin(math.radians(ask.target_angle))
    for _ in range(TRIES):
        fit = _fit_pairs(H, target, ask, error)
        angle = error_angle(H, _candidate("pairs", fit).operator, seed=ask.seed + 1)
        missed = angle > ask.target_angle and len(fit.angles) < ask.budget
        if not missed or ask.watch.status or target != "matrix":
            break
        error *= 0.98 * ask.target_angle / angle
    return fit


def _near(objective: float, target: str) -> float:
    return objective * 1.5 if target == "matrix" else objective + 0.05


def _candidate(method: str, fit: Any) -> Candidate:
    rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    operator = SymmetricOperator(rotation, torch.from_numpy(fit.eigenvalues))
    return Candidate(method, operator, fit.history, fit.history[-1][2])


def _hybrid(fit: HybridFit) -> Candidate:
    symmetric = _candidate("pairs", fit.rotations).operator
    if not len(fit.weights):  # rotations alone were best
        return Candidate("pairs", symmetric, fit.history, fit.history[-1][2])
    operator = HybridOperator(symmetric, torch.from_numpy(fit.basis), torch.from_numpy(fit.weights))
    return Candidate("hybrid", operator, fit.history, fit.history[-1][2])


def _by_products(problem: Problem, ask: Ask, max_products: int | None) -> FitResult:
    if ask.target != "matrix":
        raise ValueError(
            f"target={ask.target!r}: expected the entries of H, got products only; try target='matrix'"
        )
    if ask.wiring == "butterfly" or isinstance(ask.wiring, Wiring):
        raise ValueError(
            "wiring: products only are fitted with pairs chosen from them; try method='sgd' or entries"
        )
    callback = ask.watch.callback
    if problem.pairs is not None:
        X, Y = problem.pairs
        fit = fit_samples(X, Y, ask.budget, ask.seed, callback)
        checks, used = problem.pairs, fit.n_products
    else:
        assert problem.product is not None
        total = rival_count = min(problem.n, max_products or 64)
        held_out = total // 16 if total >= 64 else 0  # products kept for the quality estimate
        fit = fit_products(
            problem.product, problem.n, ask.budget, total - held_out, ask.seed, callback, **ask.options
        )
        used = rival_count
        Z = np.random.default_rng(ask.seed + 1).standard_normal((problem.n, held_out))
        checks = (Z, problem.product(Z)) if held_out else (np.zeros((problem.n, 0)), np.zeros((problem.n, 0)))
    warn_asymmetry(fit.asymmetry)
    operator = _candidate("products", fit).operator
    return estimated(problem, ask, operator, fit, checks, used)


def _by_sgd(problem: Problem, ask: Ask, max_products: int | None) -> FitResult:
    """The paper's Algorithm 1."""
    if ask.target != "matrix":
        raise ValueError(f"method='sgd': expected target='matrix', got {ask.target!r}")
    source: Any = problem.pairs
    if source is None:
        source = problem.product if problem.dense is None else problem.dense
    wiring = ask.wiring if isinstance(ask.wiring, Wiring) else Butterfly(problem.n, ask.depth)
    history: list[tuple[str, int, float]] = []

    def callback(epoch: Any) -> None:
        history.append(("epoch", wiring.n_rotations, epoch.loss))
        ask.watch.callback(f"epoch {epoch.epoch}", wiring.n_rotations, epoch.loss)

    fit = fit_sgd(
        source,
        problem.n,
        wiring=wiring,
        max_products=max_products,
        seed=ask.seed,
        callback=callback,
        **ask.options,
    )
    operator = SymmetricOperator(
        Rotation(fit.wiring, torch.from_numpy(fit.angles)), torch.from_numpy(fit.eigenvalues)
    )
    problem.n_products = fit.n_products
    if problem.dense is not None:
        best = Candidate("sgd", operator, history, history[-1][2])
        return measured(problem, ask, best, {}, problem.dense, "converged")
    last = fit.history[-1]
    return FitResult(
        operator=operator.to(problem.device, problem.dtype),
        angle=last.angle,
        angle_interval=UNKNOWN,
        relative_error=last.loss**0.5,
        n_products=fit.n_products,
        seconds=ask.watch.seconds,
        history=history,
        status=ask.watch.status or "converged",
        message="Quality is that of the last epoch, on the pairs trained on.",
        method="sgd",
        target=ask.target,
        estimated=True,
    )
