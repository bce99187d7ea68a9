"""A rival before it is measured: what multiplies, and what it costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from swallowtail.fitting.budget import Cost, Prices, cost_of_multiple
from swallowtail.fitting.core.product import rotate_rows
from swallowtail.fitting.result import Rival, count_bytes, count_floats
from swallowtail.operators import HybridOperator, SymmetricOperator
from swallowtail.wiring import Butterfly


class Alternative(NamedTuple):
    """A rival that is not measured yet: its name, what multiplies, and what it costs."""

    name: str
    operator: Any
    cost: Cost
    equal: str = ""  # as in `Rival`

    def measured(self, angle: float, relative_error: float, score: float | None = None) -> Rival:
        """The rival, with what it reaches; ``score`` is the angle unless it is given."""
        floats, n_bytes, work, seconds = self.cost
        score = angle if score is None else score
        return Rival(self.name, angle, relative_error, floats, n_bytes, work, self.equal, seconds, score)


def identity_and_rank(r: int, operator: Any, n: int, equal: str, more: str = "") -> Alternative:
    """c·I + U diag(w) Uᵀ with r columns, not timed."""
    return Alternative(f"c·I + rank {r}{more}", operator, cost_of_multiple(n, r), equal)


def other_form(name: str, operator: Any, prices: Prices | None = None) -> Alternative:
    """A form that was fitted too."""
    wiring = getattr(operator, "rotation", operator).wiring
    if prices is not None and isinstance(operator, SymmetricOperator) and isinstance(wiring, Butterfly):
        return Alternative(name, operator, prices.butterfly(wiring.depth))  # needs no kernel, as `entries`
    return Alternative(name, operator, cost_of(operator, prices))


def cost_of(operator: Any, prices: Prices | None = None) -> Cost:
    """What a fitted operator costs; its time is known if ``prices`` has a model."""
    rotation = getattr(operator, "rotation", operator)
    seconds = None
    if prices is not None:
        kind, rank = type(rotation.wiring).__name__.lower(), getattr(operator, "rank", 0)
        seconds = prices.model.seconds(operator.n, kind, rotation.n_rotations, rank)
    return Cost(count_floats(operator), count_bytes(operator), operator.multiply_adds, seconds)


def equal_ranks(operator: Any) -> dict[str, int]:
    """The ranks beside c·I nearest to the operator's floats, bytes and multiply-adds, by name."""
    n = operator.n
    ranks = {
        "floats": (count_floats(operator) - 1) / (n + 1),
        "bytes": (count_bytes(operator) / 4 - 1) / (n + 1),
        "multiply-adds": (operator.multiply_adds - n) / (2 * n),
    }
    return {name: min(n, max(0, round(r))) for name, r in ranks.items()}


def factor_rivals(completion: Any, operator: Any) -> list[Alternative]:
    """The completion of the same products, cut to the ranks of equal floats, bytes and multiply-adds."""
    ranks, factor = equal_ranks(operator), completion.factor
    return [
        identity_and_rank(r, factor.cut(r), operator.n, shared(ranks, r), ", same products")
        for r in sorted(set(ranks.values()))
    ]


def entries(form: Any) -> np.ndarray:  # shape: (n, n)
    """The matrix that an operator or another form is.

    By the code that fitted it, which has been compiled: the first fit on a machine need not wait for kernels.
    """
    if issparse(form):
        return np.asarray(form.toarray())
    symmetric = form.symmetric if isinstance(form, HybridOperator) else form
    if not isinstance(symmetric, SymmetricOperator):
        return np.asarray(form @ np.eye(form.shape[0]))
    pairs, angles = symmetric.rotation.wiring.flat_pairs(), symmetric.rotation.angles.numpy()
    M = np.diag(symmetric.eigenvalues.numpy())
    for _ in range(2):  # Q D, and Q (Q D)ᵀ
        rotate_rows(M, pairs, np.cos(angles), np.sin(angles), False)
        M = M.T.copy()
    if isinstance(form, HybridOperator):
        M += (form.basis * form.weights).numpy() @ form.basis.T.numpy()
    return M


def shared(parameters: dict[str, Any], value: Any) -> str:
    """The budgets at which a parameter has this value."""
    return ", ".join(name for name, own in parameters.items() if own == value)
