"""A step on small parameters on a CPU, compiled: calls of PyTorch would cost several times the arithmetic.

Each function does what plain tensors do elsewhere: `propose` is `statistics.observe` and `step.adam_update`, `refit` is
`groups.refit_groups` and `bases.carry_over`. Tests compare them.

Parameters are rows of a table of integers: sizes, places and addresses, by the names below. All tensors are contiguous
and have the dtype of ``work``, scratch as the largest parameter needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from swallowtail.kernels.cpu.jit import njit
from swallowtail.optim.adam import direction
from swallowtail.optim.adam.state import FIRST_ITERATIONS, SHIFT

# Sums may be reordered. Nothing is assumed about NaN: a gradient may hold anything.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"reassoc", "contract"}}
compiled, inner = njit(cache=True, nogil=True, **OPTIONS), njit(inner=True, **OPTIONS)

# Columns of the table; the first four change from step to step. A vector of n entries has 0 rows. The left moments take
# in LEFT_COLUMNS columns of a gradient, LEFT_EVERY apart, from column TIME modulo LEFT_PERIOD on.
NUMBERS, TIME, PARAMETER, GRADIENT, OFFSET, ROWS, COLUMNS = range(7)
LEFT_COLUMNS, LEFT_EVERY, LEFT_PERIOD, RIGHT_COLUMNS, RIGHT_EVERY, RIGHT_PERIOD = range(7, 13)
STEP, FIRST, SECOND, LEFT_GROUPS, RIGHT_GROUPS, LEFT_MOMENTS, RIGHT_MOMENTS, WIDTH = range(13, 21)
# Columns of the numbers: `state.Rates`, then what does not change with the step.
EPS, FACTOR, RATE, KEPT, BOUND, GAIN, BETA1, BETA2, DECAY, SIGN = range(10)

LANES = 16  # reflections begin at a multiple of so many columns


@intrinsic
def _pointer(typingctx: Any, address: Any, like: Any) -> Any:
    """An address as a pointer to what ``like`` holds."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(address, like), emit


@inner
def _entries(row, name, like):  # shape: (numel,)
    return carray(_pointer(row[name], like), (max(1, row[ROWS]) * row[COLUMNS],))


@inner
def _matrix(row, name, m, n, like):  # shape: (m, n)
    return carray(_pointer(row[name], like), (m, n))


@inner
def _square_sum(x):
    """In float64: where it is finite in the dtype of x, squares do not overflow."""
    total = 0.0
    for i in range(len(x)):
        total += np.float64(x[i]) * np.float64(x[i])
    return total


@compiled
def largest_square(table, work):
    """The largest ‖g‖² of the gradients; infinite where one holds NaN."""
    largest = 0.0
    for row in table:
        found = _square_sum(_entries(row, GRADIENT, work))
        if not found <= largest:
            largest = found if found > largest else np.inf
    return largest


@inner
def _adam(z, first, second, update, numbers, bound):
    """Move both moments on by z and write Adam's direction, no entry larger than the bound."""
    kind = z.dtype.type
    eps, factor, limit, sign = kind(numbers[EPS]), kind(numbers[FACTOR]), kind(bound), kind(numbers[SIGN])
    new1, kept2, new2 = kind(1 - numbers[BETA1]), kind(numbers[BETA2]), kind(1 - numbers[BETA2])
    for i in range(len(z)):
        g = sign * z[i]
        m = first[i] + new1 * (g - first[i])
        v = second[i] * kept2 + new2 * g * g
        first[i], second[i] = m, v
        u = m / (np.sqrt(v) + eps) * factor
        u = limit if u > limit else u
        update[i] = -limit if u < -limit else u


further = inner(direction.further)


@inner
def _go_further(update, gain):
    gain, one = update.dtype.type(gain), update.dtype.type(1)
    for i in range(len(update)):
        u = update[i]
        update[i] = further(u, min(u * u, one), gain)


@inner
def _average(moments, seen, decay):
    kind = seen.dtype.type
    kept, new = kind(decay), kind(1 - decay)
    for i in range(len(seen)):
        moments[i] = kept * moments[i] + new * seen[i]


@inner
def _observe(row, G, decay, work):
    """Add GGᵀ and GᵀG of some columns and rows of the gradient to the moments of both sides."""
    m, n = G.shape
    count, every, start = row[LEFT_COLUMNS], row[LEFT_EVERY], row[TIME] % row[LEFT_PERIOD]
    chosen = G
    if count < n:
        chosen = work[m * m : m * m + m * count].reshape(m, count)
        for i in range(m):
            for k in range(count):
                chosen[i, k] = G[i, start + k * every]
    np.dot(chosen, chosen.T, work[: m * m].reshape(m, m))
    _average(_matrix(row, LEFT_MOMENTS, 1, m * m, work)[0], work[: m * m], decay)
    count, every, start = row[RIGHT_COLUMNS], row[RIGHT_EVERY], row[TIME] % row[RIGHT_PERIOD]
    chosen = G
    if count < m:
        chosen = work[n * n : n * n + n * count].reshape(count, n)
        for k in range(count):
            chosen[k] = G[start + k * every]
    np.dot(chosen.T, chosen, work[: n * n].reshape(n, n))
    _average(_matrix(row, RIGHT_MOMENTS, 1, n * n, work)[0], work[: n * n], decay)


@compiled
def propose(table, numbers, work, new):
    """Moments and counters move on; ``new`` becomes what parameters would be. Returns the largest square sum of one."""
    largest, kind = 0.0, new.dtype.type
    for row in table:
        m, n, each = row[ROWS], row[COLUMNS], numbers[row[NUMBERS]]
        size = max(1, m) * n
        update = work[:size]
        gradient = _entries(row, GRADIENT, work)
        first, second = _entries(row, FIRST, work), _entries(row, SECOND, work)
        if m:
            G = gradient.reshape(m, n)
            Q_L, Q_R = _matrix(row, LEFT_GROUPS, m, m, work), _matrix(row, RIGHT_GROUPS, n, n, work)
            _observe(row, G, each[DECAY], work)
            # Z = (Q_Lᵀ G Q_R)ᵀ, and back.
            other = work[size : 2 * size]
            np.dot(G, Q_R, other.reshape(m, n))
            np.dot(other.reshape(m, n).T, Q_L, update.reshape(n, m))
            _adam(update, first, second, update, each, each[BOUND])
            _go_further(update, each[GAIN])
            np.dot(Q_L, update.reshape(n, m).T, other.reshape(m, n))
            np.dot(other.reshape(m, n), Q_R.T, update.reshape(m, n))
        else:
            _adam(gradient, first, second, update, each, np.inf)
        carray(_pointer(row[STEP], np.empty(0, np.float32)), 1)[0] += np.float32(1)
        here, proposed = _entries(row, PARAMETER, work), new[row[OFFSET] : row[OFFSET] + size]
        kept, rate = kind(each[KEPT]), kind(each[RATE])
        for i in range(size):
            proposed[i] = here[i] * kept - rate * update[i]
        found = _square_sum(proposed)
        if not found <= largest:
            largest = found if found > largest else np.inf
    return largest


@compiled
def commit(table, new):
    """Parameters become what was proposed."""
    for row in table:
        here = _entries(row, PARAMETER, new)
        for i in range(len(here)):
            here[i] = new[row[OFFSET] + i]


@compiled
def refit(table, first, work):
    """New bases from the moments of both sides. First moments go over; with the ``first`` basis both begin anew."""
    for k in range(len(table)):
        row = table[k]
        m, n = row[ROWS], row[COLUMNS]
        Q_L, Q_R = _matrix(row, LEFT_GROUPS, m, m, work), _matrix(row, RIGHT_GROUPS, n, n, work)
        old_left, old_right = Q_L.copy(), Q_R.copy()
        _follow(Q_L, _matrix(row, LEFT_MOMENTS, m, m, work), first[k])
        _follow(Q_R, _matrix(row, RIGHT_MOMENTS, n, n, work), first[k])
        if first[k]:
            _entries(row, FIRST, work)[:] = 0
            _entries(row, SECOND, work)[:] = 0
            continue
        one, other = work[: m * n].reshape(m, n), work[m * n : 2 * m * n].reshape(m, n)
        moved = _matrix(row, FIRST, n, m, work)
        np.dot(old_left, moved.T, one)
        np.dot(one, old_right.T, other)
        np.dot(other, Q_R, one)
        np.dot(one.T, Q_L, moved)


@inner
def _follow(Q, moments, first):
    """Orthogonal iteration, as in `groups.refit_groups`."""
    n = len(Q)
    shifted, shift, kind = moments.copy(), 0.0, moments.dtype.type
    for i in range(n):
        shift += SHIFT / n * moments[i, i]
    for i in range(n):
        shifted[i, i] += kind(shift)
    for _ in range(FIRST_ITERATIONS if first else 1):
        turned = np.dot(shifted, Q)
        entries, largest = turned.reshape(n * n), kind(0)
        for i in range(n * n):
            largest = max(largest, abs(entries[i]))
        for i in range(n * n if largest > 0 else 0):
            entries[i] /= largest  # else squares of small ones would be nothing
        if not 0 < _square_sum(entries) < np.inf:
            return  # nothing seen yet, or moments near the largest number: the basis stays
        orthogonal(turned, Q)


@compiled
def orthogonal(A, Q):
    """Q of A = QR by Householder reflections; A is overwritten. LAPACK takes twice as long up to 128 rows."""
    n, kind = len(A), A.dtype.type
    vectors, factors, products = np.zeros_like(A), np.zeros(n, A.dtype), np.empty(n, A.dtype)
    for k in range(n - 1):
        v, rest = vectors[k], kind(0)
        for i in range(k + 1, n):
            v[i] = A[i, k]
            rest += v[i] * v[i]
        if rest > 0:
            corner = A[k, k]
            length = -np.copysign(np.sqrt(corner * corner + rest), corner)
            factors[k] = (length - corner) / length
            v[k + 1 :] /= corner - length
            v[k] = 1
            _reflect(A, v, factors[k], k, products)
    Q[:] = 0
    for i in range(n):
        Q[i, i] = 1
    for k in range(n - 2, -1, -1):
        _reflect(Q, vectors[k], factors[k], k, products)


@inner
def _reflect(A, v, factor, k, products):
    """A ← (I − factor v vᵀ) A, v being 0 before its k-th entry and A before its k-th column where it matters."""
    n, first = len(A), k // LANES * LANES
    products = products[first:]
    products[:] = 0
    for i in range(k, n):
        row, x = A[i, first:], v[i]
        for j in range(len(products)):
            products[j] += x * row[j]
    for i in range(k, n):
        row, x = A[i, first:], factor * v[i]
        for j in range(len(products)):
            row[j] -= x * products[j]
