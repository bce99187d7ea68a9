"""The one runner of both fits: parse, fit the forms that make sense, keep the best, measure it.

Five routes: from the entries, by every form of `forms`; where the entries lie on a GPU; on the entries of a large
sparse matrix; from products or samples, by completing the matrix (symmetric only); or by the paper's Algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from swallowtail.errors import ArgumentError
from swallowtail.fitting.budget import Budget, Prices
from swallowtail.fitting.checkpoint import Checkpoint
from swallowtail.fitting.core.product import FLOOR
from swallowtail.fitting.core.records import History, Stop
from swallowtail.fitting.device_route import by_device
from swallowtail.fitting.forms.base import Family, Forms, Job, in_groups
from swallowtail.fitting.forms.orthogonal import OrthogonalForms, determinant_signs, orthogonal_operator
from swallowtail.fitting.forms.symmetric import SymmetricForms, symmetric_operator
from swallowtail.fitting.functions import in_the_basis_of
from swallowtail.fitting.inputs import Problem, as_problem
from swallowtail.fitting.methods.sgd import Epoch, SGDFit, fit_sgd
from swallowtail.fitting.product_route import by_products
from swallowtail.fitting.properties import Property
from swallowtail.fitting.quality import UNKNOWN, on_samples
from swallowtail.fitting.request import Request
from swallowtail.fitting.result import Candidate, FitResult, Found, Quality, build_result
from swallowtail.fitting.sparse_route import by_entries_of_sparse, is_open
from swallowtail.fitting.timing import time_model
from swallowtail.fitting.watch import Watch
from swallowtail.metrics import Estimate, probe_generator
from swallowtail.operators import HybridOperator, SymmetricOperator
from swallowtail.wiring import Butterfly, Wiring

DEEPEST = 8  # a butterfly within a budget
HELD_OUT = 64  # products kept for the quality estimate of a rotation when their number is not limited


def run(source: Any, n: int | None, kind: Property, request: Request) -> FitResult:
    """Fit ``source``, which has the property ``kind``, as ``request`` asks."""
    with Watch(request.progress, request.max_seconds, callback=request.callback) as watch:
        problem = as_problem(source, n, kind, request.max_products, request.fits_on_a_device)
        method = _method(problem, kind, request)
        request.check_wiring(problem.n, method)
        budget = request.most_rotations(problem.n)
        prices = Prices(problem.n, time_model(problem.device, problem.dtype))
        family = None
        if request.budget is not None:
            family = _family(request, prices, budget)
            budget, request = family.plan.rotations[0], replace(request, depth=max(family.butterfly, 1))
        saved = Checkpoint(request.checkpoint, problem, budget, _fingerprint(request, problem, budget))
        job = Job(request, problem, budget, watch, saved, prices, family)
        if method == "sgd":
            found = _by_sgd(job)
        elif problem.tensor is not None:
            found = by_device(job)
        elif problem.dense is None:
            found = by_entries_of_sparse(job) if is_open(job) else by_products(job)
        else:
            found = _by_entries(job)
        result = _result(job, found)
        if not watch.status:  # otherwise there is something to continue
            saved.remove()
        return result


def _family(request: Request, prices: Prices, n_rotations: int) -> Family:
    """What the user's own budget buys; ``n_rotations`` are those whose cost is the default amount."""
    wanted = Budget.parse(request.budget)
    amount, plan = wanted.plan(prices, n_rotations)
    depth = 0
    while depth < DEEPEST and prices.n > 1 and prices.butterfly(depth + 1).of(wanted.unit) <= amount:
        depth += 1
    return Family(wanted.unit, amount, plan, depth)


def _method(problem: Problem, kind: Property, request: Request) -> str:
    """The method, once it is known what there is to work with."""
    entries, target = problem.dense is not None or problem.tensor is not None, request.target
    if request.method == "hybrid" and request.budget is None and not (entries and target == "matrix"):
        expected = "the entries of H and target='matrix' for method='hybrid'"
        raise ArgumentError(
            "H", expected, f"{_what_came(problem)} and target={request.target_name!r}", "try `method='auto'`"
        )
    if request.method == "sgd" and target not in ("matrix", "rotation"):
        raise ArgumentError(
            "target", "'matrix' for method='sgd'", repr(request.target_name), "try `method='auto'`"
        )
    fixed = isinstance(request.wiring, Wiring)
    if request.method == "sgd":
        return "sgd"
    if entries:
        if target != "rotation" and fixed and not isinstance(request.wiring, Butterfly):
            expected = "a Butterfly to fit on all entries"
            raise ArgumentError("wiring", expected, repr(request.wiring), "try `method='sgd'`")
        return request.method
    if target == "likelihood" or (callable(target) and problem.samples is not None):
        expected = f"the entries of H{' or products' * callable(target)} for this target"
        raise ArgumentError("H", expected, _what_came(problem), "try `target='matrix'`")
    if kind.without_entries == "products" and (fixed or request.wiring == "butterfly"):
        expected = "none, as pairs are chosen where H is not given by its entries"
        raise ArgumentError(
            "wiring", expected, repr(request.wiring), "try `method='sgd'`, or the entries of H"
        )
    if kind.without_entries == "sgd" and request.method != "auto":
        expected = f"the entries of R for method={request.method!r}"
        hint = f"try `method='sgd'` on a butterfly, or {problem.n} products"
        raise ArgumentError("R", expected, _what_came(problem), hint)
    return kind.without_entries if kind.without_entries == "sgd" else request.method


def _what_came(problem: Problem) -> str:
    if problem.dense is not None:
        return "entries"
    return "samples only" if problem.samples is not None else "products only"


def _fingerprint(request: Request, problem: Problem, budget: int) -> tuple[Any, ...]:
    """All of a request that its answer depends on."""
    pairs = request.wiring.flat_pairs() if isinstance(request.wiring, Wiring) else None
    target: Any = request.target
    if request.function is not None and callable(target) and problem.dense is not None:
        target = request.function(np.diagonal(problem.dense))  # between H's eigenvalues: f is defined there
    rest = (request.budget, request.depth, request.method, target, request.target_angle)
    return (budget, request.wiring, pairs, *rest, request.effort, request.seed, request.options)


def _forms(job: Job) -> Forms:
    return OrthogonalForms(job) if job.request.target == "rotation" else SymmetricForms(job)


def _by_entries(job: Job) -> Found:
    """Every form that makes sense; the best is kept."""
    forms, candidates = _forms(job), list[Candidate]()
    for name in forms.order():
        kept = job.saved.finished(name)
        candidate = kept or forms.fit(name, candidates)
        if candidate is None:
            continue
        if kept is None and not job.watch.status:
            job.saved.finish(name, candidate)
        candidates.append(candidate)
        if job.watch.status or forms.is_enough(name, candidate):
            break
    if not candidates:
        letter = "R" if job.request.target == "rotation" else "H"
        expected = f"one that can fit {letter}"
        got = f"{job.request.method!r}, though {letter} is not in the butterfly class"
        raise ArgumentError("method", expected, got, "try `method='auto'`")
    best = forms.best(candidates)
    others = {f"{c.method}, as fitted": c.operator for c in candidates if c is not best}
    quality, status = forms.quality(best, others)
    return Found(best, quality, job.problem.n_products, status)


def _by_sgd(job: Job) -> Found:
    """The paper's Algorithm 1. The determinant of R is known, and mended, only where R is."""
    request, problem = job.request, job.problem
    rotation, matrix = request.target == "rotation", problem.dense
    signs = determinant_signs(matrix) if rotation and matrix is not None else np.ones(problem.n)
    kept = 0  # products held out
    if rotation and problem.product is not None:
        kept = HELD_OUT if request.max_products is None else request.max_products // 16
    source: Any = problem.samples or problem.product
    if problem.samples is None and matrix is not None:
        source = matrix * signs
    history: History = []
    fit = fit_sgd(
        source,
        problem.n,
        loss="rotation" if rotation else "symmetric",
        wiring=request.fixed_wiring(problem.n),
        max_products=None if request.max_products is None else request.max_products - kept,
        seed=request.seed,
        callback=_epoch_callback(job, history),
        pulse=job.watch.pulse,
        **request.options,
    )
    operator: Any = (
        orthogonal_operator(fit.wiring, fit.angles, signs)
        if fit.eigenvalues is None
        else symmetric_operator(fit.wiring, fit.angles, fit.eigenvalues)
    )
    best = Candidate("sgd", operator, history, history[-1][2])
    if matrix is not None:
        quality, status = _forms(job).quality(best, {})
        if rotation:
            return Found(best, quality, problem.n_products, status)
        return Found(best, quality, fit.n_products)
    quality = _sgd_quality(job, operator, fit, kept)
    if rotation:
        quality.notes.append("The determinant of R is taken to be +1.")
    return Found(best, quality, fit.n_products + kept)


def _epoch_callback(job: Job, history: History) -> Any:
    n_rotations, target_angle = job.request.fixed_wiring(job.problem.n).n_rotations, job.request.target_angle

    def callback(epoch: Epoch) -> None:
        history.append(("epoch", n_rotations, epoch.loss))
        job.watch.callback(f"epoch {epoch.epoch}", n_rotations, epoch.loss)
        if target_angle is not None and epoch.angle <= target_angle:
            raise Stop

    return callback


def _sgd_quality(job: Job, operator: Any, fit: SGDFit, kept: int) -> Quality:
    """From ``kept`` products held out, or what the last epoch said."""
    if job.problem.product is not None and kept:
        Z = probe_generator(job.request.seed + 1).standard_normal((job.problem.n, kept))
        angle, error = on_samples(operator, Z, job.problem.product(Z))
        note = f"Quality is an estimate from {kept} products kept for it."
    else:
        last = fit.history[-1]
        angle, error = Estimate(last.angle, *UNKNOWN), last.loss**0.5
        note = "Quality is an estimate from the last epoch, on the samples trained on (optimistic)."
    return Quality(angle, error, [], [note], estimated=True)


def _result(job: Job, found: Found) -> FitResult:
    """The record, with an operator as the caller wants it."""
    operator, request, problem = found.best.operator, job.request, job.problem
    if request.target == "inverse":  # what was fitted is H⁻¹
        operator = _inverse(operator)
    H = problem.dense if found.source is None else found.source
    operators = (
        [operator, in_the_basis_of(operator, H)] if callable(request.target) and H is not None else [operator]
    )
    if request.wiring == "grouped":
        operators = [in_groups(each) for each in operators]
    operators = [each.to(problem.device, problem.dtype) for each in operators]
    return build_result(
        found,
        operator=operators[0],
        of_H=operators[-1],
        seconds=job.watch.seconds,
        target=request.target_name,
        target_angle=request.target_angle,
        stopped=job.watch.status,
    )


def _inverse(operator: Any) -> Any:
    """The inverse, with eigenvalues of D that are nearly zero taken away from it."""
    symmetric = getattr(operator, "symmetric", operator)
    d = symmetric.eigenvalues
    floor = FLOOR * float(d.abs().max())
    safe = SymmetricOperator(symmetric.rotation, torch.where(d.abs() < floor, floor, d))
    if isinstance(operator, HybridOperator):
        return HybridOperator(safe, operator.basis, operator.weights).inverse()
    return safe.inverse()
