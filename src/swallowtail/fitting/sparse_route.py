"""The route of a fit to a sparse matrix that is too large to be made dense: grown and measured on its entries."""

from __future__ import annotations

import math
from typing import Any

import scipy.sparse

from swallowtail.fitting.budget import NAMES, UNITS, Cost
from swallowtail.fitting.core.completion import complete, probe
from swallowtail.fitting.forms.base import Job
from swallowtail.fitting.forms.symmetric import symmetric_operator
from swallowtail.fitting.methods.sparse import MOST, fit_sparse
from swallowtail.fitting.quality import EXACT, NOT_MEASURED, on_samples
from swallowtail.fitting.result import Candidate, Found, Quality
from swallowtail.fitting.rivals import Alternative, cost_of, entries_cost, equal_ranks, n_probes, verdict
from swallowtail.fitting.rivals.forms import identity_and_rank, shared
from swallowtail.metrics import probe_generator

MARGIN = 0.98  # of the error that belongs to an angle, as the angle is then measured on random x
PRODUCTS = 64  # that c·I + low rank is made of; beside the default rotations it has 14 terms at most
# In all x for an angle, and such x: the longer they are, the less their angles differ.
NUMBERS, FEWEST = 1 << 24, 8


def is_open(job: Job) -> bool:
    """Whether this is a sparse matrix, of which nothing is asked that growth on its entries does not do."""
    request = job.request
    plain = request.target == "matrix" and request.method in ("auto", "pairs") and not request.options
    return job.problem.sparse is not None and plain and job.family is None and request.max_products is None


def by_entries_of_sparse(job: Job) -> Found:
    """Grow rotations on the entries."""
    angle = job.request.target_angle
    goal = 0.0 if angle is None else MARGIN * math.sin(math.radians(angle))  # D is the diagonal of QᵀHQ
    fit = fit_sparse(job.problem.sparse, job.budget, target_error=goal, callback=job.watch.callback)
    operator = symmetric_operator(fit.wiring, fit.angles, fit.eigenvalues)
    best = Candidate("pairs", operator, fit.history, fit.history[-1][2])
    status = "exact" if best.objective < EXACT**2 else "converged"
    return Found(best, _quality(job, best), 0, status)


def _quality(job: Job, best: Candidate) -> Quality:
    """The angle on random x, the error from the entries; what is simpler beside it."""
    H, n, operator, model = job.problem.sparse, job.problem.n, best.operator, job.prices.model
    count = max(FEWEST, min(n_probes(n), NUMBERS // n))
    X = probe_generator(job.request.seed + 1).standard_normal((count, n)).T
    image, cost = H @ X, cost_of(operator, job.prices)
    angle = on_samples(operator, X, image)[0]
    known = Quality(angle, best.objective**0.5, [], [NOT_MEASURED], False, None, cost.time, model.source)
    if job.watch.status:
        return known
    rivals = []
    for form in _rivals(job, operator, cost):
        other, error = on_samples(form.operator, X, image)
        rivals.append(form.measured(other.value, error))
    notes = [verdict(angle.value, cost, rivals, model)]
    notes.append(f"The matrix is sparse: its CSR form is exact with {H.nnz} multiply-adds.")
    grown = operator.rotation.n_rotations
    if grown < job.budget and best.objective >= EXACT**2 and job.request.target_angle is None:
        notes.append(
            f"Growth ended at {grown} of {job.budget} rotations: QᵀHQ has more than {MOST} entries then."
        )
    return known._replace(rivals=rivals, notes=notes)


def _rivals(job: Job, operator: Any, cost: Cost) -> list[Alternative]:
    """c·I + low rank of about the same cost; of H itself and its diagonal, whether they cost less."""
    H, n, prices = job.problem.sparse, job.problem.n, job.prices
    ranks = equal_ranks(operator)
    factor = complete(probe(lambda X: H @ X, n, PRODUCTS, seed=job.request.seed)).factor
    found = [identity_and_rank(r, factor.cut(r), n, shared(ranks, r)) for r in sorted(set(ranks.values()))]
    diagonal = H.diagonal()
    whole = entries_cost(n, (H.nnz + int((diagonal != 0.0).sum())) // 2, H.nnz, prices.model)
    for name, form, price in (
        ("diagonal + rank 0", scipy.sparse.diags_array(diagonal), prices.rotations(0)),
        (f"all {H.nnz} entries", H, whole),
    ):
        payable = ", ".join(NAMES[unit] for unit in UNITS if price.of(unit) <= cost.of(unit))
        found.append(Alternative(name, form, price, payable))
    return found
