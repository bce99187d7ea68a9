"""New bases for small parameters on a CPU, compiled: the fits that belong to the steps of `compiled`."""

from __future__ import annotations

import numpy as np

from swallowtail.kernels.cpu.codegen.dense import add_outer, multiply
from swallowtail.optim.adam.compiled import (
    COLUMNS,
    FIRST,
    LEFT_GROUPS,
    LEFT_MOMENTS,
    LEFT_SIZE,
    RIGHT_GROUPS,
    RIGHT_MOMENTS,
    RIGHT_SIZE,
    ROWS,
    SECOND,
    compiled,
    entries_of,
    groups_of,
    inner,
    matrix_of,
    square_sum,
)
from swallowtail.optim.adam.state import FIRST_ITERATIONS, SHIFT

PANEL = 16  # columns whose reflections are applied together


@compiled
def refit(table, first, work):
    """New bases from the moments of both sides. First moments go over; with the ``first`` basis both begin anew."""
    for k in range(len(table)):
        row = table[k]
        m, n, left, right = row[ROWS], row[COLUMNS], row[LEFT_SIZE], row[RIGHT_SIZE]
        size = m * n
        Z, half = matrix_of(row, FIRST, n, m, work), work[:size].reshape(n, m)
        if first[k]:
            Z[:] = 0
            entries_of(row, SECOND, work)[:] = 0
        Q, moments = (
            groups_of(row, RIGHT_GROUPS, n, right, work),
            groups_of(row, RIGHT_MOMENTS, n, right, work),
        )
        change = work[size : size + right * right].reshape(right, right)
        for j in range(len(Q)):
            own = slice(j * right, (j + 1) * right)
            _follow(Q[j], moments[j], change, first[k])
            multiply(change.T, Z[own], half[own])
        Q, moments = groups_of(row, LEFT_GROUPS, m, left, work), groups_of(row, LEFT_MOMENTS, m, left, work)
        change = work[size : size + left * left].reshape(left, left)
        for j in range(len(Q)):
            own = slice(j * left, (j + 1) * left)
            _follow(Q[j], moments[j], change, first[k])
            multiply(half[:, own], change, Z[:, own])


@inner
def _follow(Q, moments, change, first):
    """Orthogonal iteration, as in `groups.refit_groups`; ``change`` becomes Q_oldᵀ Q_new."""
    n = len(Q)
    old, shifted, turned = Q.copy(), moments.copy(), np.empty_like(moments)
    shift, kind = 0.0, moments.dtype.type
    for i in range(n):
        shift += SHIFT / n * moments[i, i]
    for i in range(n):
        shifted[i, i] += kind(shift)
    for _ in range(FIRST_ITERATIONS if first else 1):
        multiply(shifted, Q, turned)
        total = _scaled(turned.reshape(n * n))
        if not 0 < total < np.inf:
            break  # nothing seen yet, or moments near the largest number: the basis stays
        orthogonal(turned, Q)
    multiply(old.T, Q, change)


@inner
def _scaled(entries):
    """Divide by the largest entry where squares could leave the range. Returns the square sum."""
    total = square_sum(entries)
    if not 1e-20 < total < 1e20:
        largest = entries.dtype.type(0)
        for i in range(len(entries)):
            largest = max(largest, abs(entries[i]))
        for i in range(len(entries) if largest > 0 else 0):
            entries[i] /= largest
        total = square_sum(entries)
    return total


@compiled
def orthogonal(A, Q):
    """Q of A = QR by Householder reflections; A is overwritten. LAPACK takes three times as long at 128 rows.

    PANEL columns at a time: their reflections together are I − V T Vᵀ, so the rest is products.
    """
    n, panels = len(A), -(-len(A) // PANEL)
    V, T, room = (
        np.zeros_like(A),
        np.zeros((panels, PANEL, PANEL), A.dtype),
        np.empty((n + 2 * PANEL) * n, A.dtype),
    )
    for k in range(panels):
        first, last = k * PANEL, min(n, (k + 1) * PANEL)
        _reflections(A[first:, first:last], V[first:, first:last], T[k], room)
        _reflect(A[first:, last:], V[first:, first:last], T[k, : last - first, : last - first].T, room)
    Q[:] = 0
    for i in range(n):
        Q[i, i] = 1
    for k in range(panels - 1, -1, -1):
        first, last = k * PANEL, min(n, (k + 1) * PANEL)
        _reflect(Q[first:, first:], V[first:, first:last], T[k, : last - first, : last - first], room)


@inner
def _reflections(A, V, T, room):
    """V and T of the reflections that make A (m, width) upper triangular."""
    (m, width), kind = A.shape, V.dtype.type
    P, products = room[: m * PANEL].reshape(m, PANEL), room[m * PANEL : (m + 1) * PANEL].reshape(1, PANEL)
    for i in range(m):
        for j in range(PANEL):
            P[i, j] = A[i, j] if j < width else kind(0)
    for k in range(min(width, m - 1)):
        below = P[k + 1 :, k]
        multiply(P[k + 1 :, k : k + 1].T, P[k + 1 :], products)
        rest, corner = products[0, k], P[k, k]
        if rest > 0:
            length = -np.copysign(np.sqrt(corner * corner + rest), corner)
            factor, scale = (length - corner) / length, 1 / (corner - length)
            for i in range(len(below)):
                below[i] *= scale
            for j in range(PANEL):
                products[0, j] = -factor * (P[k, j] + scale * products[0, j]) if j > k else kind(0)
                P[k, j] += products[0, j]
            add_outer(P[k + 1 :], below, products[0])
            T[k, k] = factor
    for i in range(m):
        for j in range(min(i + 1, width)):
            V[i, j] = P[i, j] if i > j else kind(1)
    seen = room[: width * width].reshape(width, width)
    multiply(V.T, V, seen)
    for j in range(width):
        for i in range(j):
            total = kind(0)
            for k in range(i, j):
                total += T[i, k] * seen[k, j]
            T[i, j] = -T[j, j] * total


@inner
def _reflect(A, V, T, room):
    """A ← (I − V T Vᵀ) A."""
    (m, n), width = A.shape, V.shape[1]
    one, other = room[: width * n].reshape(width, n), room[width * n : 2 * width * n].reshape(width, n)
    turned = room[2 * width * n : (2 * width + m) * n].reshape(m, n)
    multiply(V.T, A, one)
    multiply(T, one, other)
    multiply(V, other, turned)
    for i in range(m):
        for j in range(n):
            A[i, j] -= turned[i, j]
