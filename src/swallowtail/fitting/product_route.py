"""The route of a fit without entries: complete H from its products or samples, and fit the completion.

f(H), for a target that is a function, is f of the completion. What it has missed is measured on columns f(H)z, by
Lanczos on products that are kept for it. A sparse H whose band is narrow is factorised for the target "inverse": then
products with H⁻¹ are as cheap as those with H.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.core.lanczos import function_columns
from swallowtail.fitting.forms.base import Job
from swallowtail.fitting.forms.symmetric import symmetric_operator
from swallowtail.fitting.functions import SpectralFunction, sparse_solver
from swallowtail.fitting.methods.products import ProductFit, fit_products, fit_samples
from swallowtail.fitting.properties import ApplyColumns, warn_asymmetry
from swallowtail.fitting.quality import HeldOut, of_products
from swallowtail.fitting.result import Candidate, Found
from swallowtail.fitting.watch import in_time
from swallowtail.metrics import column_angles, probe_generator
from swallowtail.operators import HybridOperator

ENOUGH_PRODUCTS = 64  # where n is too large to read H off and their number is not limited
ENOUGH_FOR_FUNCTIONS = 128  # the same for f(H): one column of it takes 5 to 90
FEWEST_MEASURED = 64  # products in all from which on some are kept for the quality estimate
# Relative change of f(H)z in the last steps, below which it is known well enough to measure with.
SETTLED = 0.02
COMPARED = 200  # x for an angle to the completion


def by_products(job: Job) -> Found:
    """Complete H from its products or samples, and fit the completion or f of it."""
    request, problem, watch = job.request, job.problem, job.watch
    f, held_out, samples = request.function, None, problem.samples
    if samples is not None:
        if request.target == "inverse":
            samples = samples[1], samples[0]  # Y = HX are samples X = H⁻¹Y
        fit = fit_samples(*samples, job.budget, request.seed, watch.callback)
    else:
        product = problem.product
        assert product is not None
        if request.target == "inverse" and problem.sparse is not None:
            solve = sparse_solver(problem.sparse)
            product, f = (product, f) if solve is None else (solve, None)
        fit, held_out = _from_products(job, product, f)
    warn_asymmetry(fit.asymmetry)
    operator: Any = symmetric_operator(fit.wiring, fit.angles, fit.eigenvalues)
    if job.family is not None:
        operator = _closer_to_completion(
            operator, fit.completion.factor, job.family.plan.multiple, request.seed + 2
        )
    quality = of_products(operator, fit, held_out, samples, request.seed + 1, bool(watch.status))
    used = fit.n_products + (0 if held_out is None else held_out.n_products)
    best = Candidate("products", operator, fit.history, fit.history[-1][2])
    return Found(best, quality, used, source=fit.source.factor)


def _from_products(
    job: Job, product: ApplyColumns, f: SpectralFunction | None
) -> tuple[ProductFit, HeldOut | None]:
    """The fit, and what was kept to measure it."""
    request, n = job.request, job.problem.n
    enough = ENOUGH_PRODUCTS if f is None else ENOUGH_FOR_FUNCTIONS
    total = min(n, request.max_products or enough)
    kept = total // (16 if f is None else 4) if total >= FEWEST_MEASURED else 0
    timed, callback = in_time(product, job.watch)
    arguments = (n, job.budget, total - kept, request.seed, callback)
    fit = fit_products(timed, *arguments, function=f, **request.options)
    if not kept or job.watch.status:
        return fit, None
    generator = probe_generator(request.seed + 1)
    if f is None:
        Z = generator.standard_normal((n, kept))
        return fit, HeldOut(Z, product(Z), f"{kept} products kept for it", kept)
    return fit, _function_held_out(product, f, n, kept, generator)


def _function_held_out(
    product: ApplyColumns, f: SpectralFunction, n: int, kept: int, generator: np.random.Generator
) -> HeldOut:
    """f(H)z for as many z as ``kept`` products pay for: where f(H) has one large eigenvalue, angles differ much."""
    Z: list[np.ndarray] = []
    images: list[np.ndarray] = []
    used, steps, settled = 0, 1, True
    while settled and used + steps <= kept:
        z = generator.standard_normal((n, 1))
        found = function_columns(product, f, z, kept - used, SETTLED)
        settled, steps, used = found.change <= SETTLED, found.n_products, used + found.n_products
        if settled or not Z:
            Z.append(z)
            images.append(found.Y)
    source = f"{f.name}z for {len(Z)} z, by {used} Lanczos steps"
    if not settled and len(Z) == 1:
        source += f", which still change it by {100 * found.change:.0f} % (try a larger `max_products`)"
    known = settled or len(Z) > 1
    return HeldOut(np.concatenate(Z, 1), np.concatenate(images, 1), source, used, known)


def _closer_to_completion(operator: Any, factor: Factor, rank: int, seed: int) -> Any:
    """The rotations, or c·I + low rank cut from the completion itself, whichever has the smaller angle to it."""
    cut = factor.cut(rank)
    numbers = (np.full(operator.n, cut.shift), cut.basis, cut.weights)
    plain = HybridOperator.without_rotations(*map(torch.from_numpy, numbers))
    Z = probe_generator(seed).standard_normal((operator.n, COMPARED))
    angles = [column_angles(factor @ Z, form @ Z).mean() for form in (operator, plain)]
    return plain if angles[1] < angles[0] else operator
