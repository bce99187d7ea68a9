"""The rivals of a fit of H from its entries, at equal floats, bytes, multiply-adds and time.

c·I + low rank, a diagonal + low rank, the largest entries, a band, HODLR, the other forms that were fitted, H itself.
For the target "likelihood" they are judged by nats per dimension, and are probabilistic PCA and factor analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting.budget import NAMES, UNITS, Cost, Prices, most_affordable
from swallowtail.fitting.methods import low_rank as plain
from swallowtail.fitting.result import Rival
from swallowtail.fitting.rivals.forms import Alternative, cost_of, other_form, shared
from swallowtail.fitting.rivals.hodlr import hodlr_rivals
from swallowtail.fitting.rivals.measure import Measure
from swallowtail.fitting.rivals.sparse import sparse_rivals

WORK = 1e9  # multiply-adds that a diagonal + low rank may take: a rival should not take longer than the fit
SETTLED = 1e-4  # and its squared error need not be known better: that is 0.005 % of an angle
# Turns of a diagonal + low rank beside a quick fit. On a quarter of 33 matrices five left more than 2 %, at worst twice
# the error; twenty left at most 2 %. So it gets twenty where the verdict could change.
FEW, ENOUGH = 5, 20
CLOSE = 2.5  # times the fit's angle


class Care(IntEnum):
    """How many rivals a fit is compared with."""

    LEAST = 0  # somebody waits: c·I + low rank alone, of what would have to be fitted
    CHEAP = 1  # the two low-rank forms
    ALL = 2


class Judged(NamedTuple):
    """What a fit is judged by."""

    prices: Prices
    target: str = "matrix"  # "matrix", or "likelihood": nats per dimension
    # The unit that the user's budget is in: there no rival may cost more than the fit was allowed.
    strict: str = ""
    amount: float = 0.0  # of that unit
    name: str = "H"  # of the matrix that was fitted: "H", "H⁻¹" or "f(H)"


def dense_rivals(
    measure: Measure,
    operator: Any,
    score: float,
    judged: Judged,
    others: dict[str, Any],
    sparse: Any = None,
    care: Care = Care.ALL,
    pulse: Callable[[], None] = lambda: None,
) -> list[Rival]:
    """Every rival of ``operator`` as an approximation of the dense matrix that ``measure`` has.

    Args:
        measure: the matrix H, and the probes.
        operator: the fit, a SymmetricOperator or HybridOperator.
        score: its angle, or nats.
        judged: by what.
        others: name → operator, the other forms that were fitted.
        sparse: the CSR matrix, if H came as one.
        care: how many of them.
        pulse: called between two rivals; it may raise to end the comparison.
    """
    H, n, prices, model = measure.H, measure.n, judged.prices, judged.prices.model
    own = cost_of(operator, prices)
    amounts = {unit: judged.amount if unit == judged.strict else own.of(unit) for unit in UNITS}
    whole = prices.dense()
    # Where the budget pays for all n² numbers, the dense matrix is the rival.
    dense = [unit for unit in UNITS if whole.of(unit) <= amounts[unit]]
    payable = {unit: amount for unit, amount in amounts.items() if unit not in dense}
    forms = _low_rank_forms(H, payable, judged, care, pulse)
    if judged.target == "matrix" and care is Care.ALL:
        pulse()
        forms += sparse_rivals(H, amounts, model)
        pulse()
        forms += hodlr_rivals(H, amounts)
    forms += [other_form(name, other, prices) for name, other in others.items()]
    rivals = []
    for form in forms:
        pulse()
        rival = measure(form)
        if care is Care.CHEAP and _began_in_turns(form, judged) and rival.score < CLOSE * score:
            rank = len(form.operator.w)
            better = plain.diagonal_low_rank(H, rank, None, WORK, pulse, SETTLED, ENOUGH)
            rival = measure(form._replace(operator=better))
        rivals.append(rival)
    exact = measure.exact_score
    if sparse is not None:
        stored = 8 * sparse.nnz + 4 * (n + 1)  # bytes: values and columns, and where rows begin
        cost = Cost(sparse.nnz, stored, sparse.nnz, model.sparse(n, sparse.nnz))
        equal = ", ".join(NAMES[unit] for unit in UNITS if cost.of(unit) <= amounts[unit])
        rivals.append(
            Alternative("the sparse matrix itself (CSR)", None, cost, equal).measured(0.0, 0.0, exact)
        )
    equal = ", ".join(NAMES[unit] for unit in dense)
    rivals.append(Alternative("dense", None, whole, equal).measured(0.0, 0.0, exact))
    return rivals


def _low_rank_forms(
    H: np.ndarray, amounts: dict[str, float], judged: Judged, care: Care, pulse: Callable[[], None]
) -> list[Alternative]:
    """c·I + low rank and a diagonal + low rank of the ranks nearest to each amount."""
    n, prices = len(H), judged.prices
    beside: dict[str, Callable[[int], Cost]] = {
        "c·I": prices.multiple,
        "diagonal": lambda r: prices.rotations(0, r),
    }
    if care is Care.LEAST:
        del beside["diagonal"]
    ranks = {
        what: {
            NAMES[unit]: _nearest(cost, unit, amount, n, strict=unit == judged.strict)
            for unit, amount in amounts.items()
        }
        for what, cost in beside.items()
    }
    forms = []
    every = sorted({r for by_name in ranks.values() for r in by_name.values() if r >= 0})
    likely = judged.target == "likelihood"
    cuts = plain.probabilistic_pca(H, every) if likely else plain.low_rank(H, every)
    for what, by_name in ranks.items():
        for r in sorted({r for r in by_name.values() if r >= 0}):
            if what == "c·I":
                form = cuts[r]
            else:
                pulse()
                turns = FEW if care is Care.CHEAP else plain.TURNS
                form = (
                    plain.factor_analysis(H, r)
                    if likely
                    else plain.diagonal_low_rank(H, r, cuts[r], WORK, pulse, SETTLED, turns)
                )
            forms.append(Alternative(f"{what} + rank {r}", form, beside[what](r), shared(by_name, r)))
    return forms


def _began_in_turns(form: Alternative, judged: Judged) -> bool:
    """Whether it is a diagonal + low rank that more turns may bring closer."""
    found = form.operator
    return judged.target == "matrix" and isinstance(found, plain.DiagonalLowRank) and np.ndim(found.d) > 0


def _nearest(cost: Callable[[int], Cost], unit: str, amount: float, n: int, strict: bool) -> int:
    """The rank whose cost is nearest to an amount, or with ``strict`` the largest that costs no more; −1 for none."""
    low = most_affordable(lambda r: cost(r).of(unit) <= amount, n)
    above = low < n and cost(low + 1).of(unit) - amount < amount - (cost(low).of(unit) if low >= 0 else 0.0)
    if strict:
        return low
    return low + 1 if above else max(low, 0)
