"""Rivals that keep entries: all of them, the largest ones, and a band."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy

from swallowtail.fitting.budget import NAMES, UNITS, Cost, index_bytes, most_affordable
from swallowtail.fitting.rivals.forms import Alternative, shared
from swallowtail.fitting.timing import TimeModel

LARGEST = 2048  # beyond this n choosing among n²/2 entries takes longer than it tells


def sparse_rivals(H: np.ndarray, amounts: dict[str, float], model: TimeModel) -> Iterator[Alternative]:
    """The best of each kind at each amount (unit → amount) that pays for it."""
    n = len(H)
    if n <= 2:
        return
    nnz = int(np.count_nonzero(H))
    whole = entries_cost(n, (nnz + int(np.count_nonzero(np.diagonal(H)))) // 2, nnz, model)
    payable = [NAMES[unit] for unit in UNITS if whole.of(unit) <= amounts[unit]]
    if 0 < nnz < n * n and payable:  # without zeros it is the dense matrix, which others compare
        yield Alternative(f"all {nnz} entries", scipy.sparse.csr_array(H), whole, ", ".join(payable))
    if n > LARGEST:
        return
    bands = {NAMES[unit]: _widest(n, unit, amounts[unit], model) for unit in UNITS}
    for width in sorted({width for width in bands.values() if width > 0}):
        rows, columns = np.indices(H.shape)
        kept = np.abs(rows - columns) <= width
        form = scipy.sparse.csr_array(np.where(kept, H, 0.0))
        yield Alternative(f"band of {2 * width + 1}", form, band_cost(n, width, model), shared(bands, width))
    order = by_size(H)
    counts = {NAMES[unit]: _most_entries(H, order, unit, amounts[unit], model) for unit in UNITS}
    for count in sorted({count for count in counts.values() if count > 0}):
        form = only_entries(H, order[:count])
        cost = entries_cost(n, count, form.nnz, model)
        yield Alternative(f"{form.nnz} largest entries", form, cost, shared(counts, count))


def entries_cost(n: int, kept: int, nnz: int, model: TimeModel) -> Cost:
    """Of ``kept`` entries on and above the diagonal, ``nnz`` in all: CSR, of which one triangle is stored."""
    return Cost(kept, (4 + index_bytes(n)) * kept + 4 * (n + 1), nnz, model.sparse(n, nnz))


def band_cost(n: int, width: int, model: TimeModel) -> Cost:
    """Of ``width`` diagonals on each side of the main one; timed as CSR."""
    half = n * (width + 1) - width * (width + 1) // 2
    nnz = 2 * half - n
    return Cost(half, 4 * half, nnz, model.sparse(n, nnz))


def _widest(n: int, unit: str, amount: float, model: TimeModel) -> int:
    """The widest band that an amount pays for; 0 if none."""
    width = most_affordable(lambda w: w == 0 or band_cost(n, w, model).of(unit) <= amount, n - 1)
    return width if width < n - 1 else 0


def by_size(H: np.ndarray) -> np.ndarray:  # shape: (n(n + 1)/2, 2)
    """The entries on and above the diagonal, first those that take most error away per entry in a product."""
    rows, columns = np.triu_indices(len(H))
    order = np.argsort(-np.abs(H[rows, columns]), kind="stable")
    return np.stack([rows[order], columns[order]], axis=1)


def _most_entries(H: np.ndarray, order: np.ndarray, unit: str, amount: float, model: TimeModel) -> int:
    """How many of the largest entries an amount pays for; 0 if it pays for all."""
    n = len(H)
    totals = np.cumsum(np.where(order[:, 0] == order[:, 1], 1, 2))
    cost = lambda count: entries_cost(n, count, int(totals[count - 1]), model)
    most = most_affordable(lambda count: count == 0 or cost(count).of(unit) <= amount, len(order))
    return most if most < np.count_nonzero(H[order[:, 0], order[:, 1]]) else 0


def only_entries(H: np.ndarray, kept: np.ndarray) -> Any:
    """H with nothing but the entries ``kept``, places (k, 2), and their mirror images: CSR."""
    i, j = kept.T
    off = i != j
    rows, columns = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return scipy.sparse.csr_array((H[rows, columns], (rows, columns)), shape=H.shape)
