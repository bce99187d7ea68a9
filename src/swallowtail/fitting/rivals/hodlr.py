"""HODLR, the rival for kernels of one or two dimensions: off-diagonal blocks of low rank, halved again and again.

The coordinates are taken in an order that puts together what is alike; the blocks that two halves have in common are
cut to low rank, the halves are halved in turn, and small blocks on the diagonal are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting.budget import Cost
from swallowtail.fitting.rivals.forms import Alternative

SMALLEST, LARGEST = 32, 1024  # n between which it is tried
LEAVES = (8, 16, 32)  # sizes of the blocks that are kept whole; the best is taken


class Block(NamedTuple):
    """U Vᵀ in the rows and columns of two halves."""

    rows: slice
    columns: slice
    U: np.ndarray  # shape: (p, r)
    V: np.ndarray  # shape: (q, r)


class HODLR:
    """Diagonal blocks, and the blocks off the diagonal with their mirror images, in an order of the coordinates."""

    def __init__(
        self, order: np.ndarray, leaves: list[tuple[slice, np.ndarray]], blocks: list[Block]
    ) -> None:
        self.order, self.leaves, self.blocks = order, leaves, blocks
        self.shape = (len(order), len(order))

    @property
    def cost(self) -> Cost:
        """One triangle of the leaves is stored, and the factors of one block of each two; not timed."""
        sizes = [len(leaf) for _, leaf in self.leaves]
        terms = sum(block.U.size + block.V.size for block in self.blocks)
        floats = sum(m * (m + 1) // 2 for m in sizes) + terms
        return Cost(floats, 4 * floats + 2 * len(self.order), sum(m * m for m in sizes) + 2 * terms, None)

    def __matmul__(self, X: np.ndarray) -> np.ndarray:
        Z, Y = X[self.order], np.zeros(X.shape)
        for where, leaf in self.leaves:
            Y[where] += leaf @ Z[where]
        for rows, columns, U, V in self.blocks:
            Y[rows] += U @ (V.T @ Z[columns])
            Y[columns] += V @ (U.T @ Z[rows])
        result = np.empty_like(Y)
        result[self.order] = Y
        return result


def hodlr_rivals(H: np.ndarray, amounts: dict[str, float]) -> list[Alternative]:
    """The best at equal floats and at equal multiply-adds, where n is neither small nor large."""
    n = len(H)
    if not SMALLEST <= n <= LARGEST:
        return []
    order, found = alike_together(H), {}
    factored = _Factored(H[np.ix_(order, order)])
    for unit, name in (("floats", "floats"), ("multiply_adds", "multiply-adds")):
        forms = [_fit(factored, order, leaf, unit, amounts[unit]) for leaf in LEAVES if leaf < n]
        tried = [(error, form) for error, form in filter(None, forms)]
        if tried:
            form = min(tried, key=lambda pair: pair[0])[1]
            found[name] = Alternative(f"HODLR, {form.cost.floats} floats", form, form.cost, name)
    return list(found.values())


def alike_together(H: np.ndarray) -> np.ndarray:
    """An order of the coordinates by the second eigenvector of |H| with rows of equal sum: a line, if there is one."""
    weights = np.abs(H)
    scale = 1.0 / np.sqrt(np.maximum(weights.sum(1), 1e-300))
    vectors = np.linalg.eigh(weights * scale[:, None] * scale)[1]
    return np.argsort(vectors[:, -2] * scale, kind="stable")


class _Factored:
    """A matrix A, and the singular value decompositions of those blocks that were asked for."""

    def __init__(self, A: np.ndarray) -> None:
        self.A, self._known = A, dict[tuple[int, int], Any]()
        self.unit = float(np.abs(A).max(initial=0.0)) or 1.0  # squares of numbers near 1e±200 leave float64

    def svd(self, rows: slice, columns: slice) -> Any:
        key = rows.start, columns.stop
        if key not in self._known:
            self._known[key] = np.linalg.svd(self.A[rows, columns], full_matrices=False)
        return self._known[key]


def _fit(
    factored: _Factored, order: np.ndarray, leaf: int, unit: str, amount: float
) -> tuple[float, HODLR] | None:
    """The best HODLR of a leaf size: singular values are kept by what they take away per float or multiply-add."""
    A = factored.A
    leaves, halves = _divide(len(A), leaf)
    form = HODLR(order, [(where, A[where, where]) for where in leaves], [])
    left = amount - form.cost.of(unit)
    if left < 0:
        return None
    factors = [factored.svd(rows, columns) for rows, columns in halves]
    price = [(2 if unit == "multiply_adds" else 1) * (len(U) + len(Vh[0])) for U, _, Vh in factors]
    block = np.concatenate([np.full(len(s), k) for k, (_, s, _) in enumerate(factors)]).astype(int)
    gains = np.concatenate([(s / factored.unit) ** 2 for _, s, _ in factors])
    by_worth = np.argsort(-gains / np.array(price)[block], kind="stable")
    kept = by_worth[np.cumsum(np.array(price)[block[by_worth]]) <= left]
    ranks = np.bincount(block[kept], minlength=len(factors))
    for (rows, columns), (U, s, Vh), r in zip(halves, factors, ranks, strict=True):
        form.blocks.append(Block(rows, columns, U[:, :r] * s[:r], Vh[:r].T))
    return float(gains.sum() - gains[kept].sum()), form


def _divide(n: int, leaf: int) -> tuple[list[slice], list[tuple[slice, slice]]]:
    """The leaves, and the pairs of halves that meet, from 0 … n halved down to blocks of at most ``leaf``."""
    leaves, halves, todo = list[slice](), list[tuple[slice, slice]](), [(0, n)]
    while todo:
        start, stop = todo.pop()
        if stop - start <= leaf:
            leaves.append(slice(start, stop))
            continue
        middle = (start + stop) // 2
        halves.append((slice(start, middle), slice(middle, stop)))
        todo += [(start, middle), (middle, stop)]
    return leaves, halves
