"""A step on small parameters on a CPU, compiled: calls of PyTorch would cost several times the arithmetic.

Each function does what plain tensors do elsewhere: `propose` is `statistics.observe` and `step.adam_update`, and
`compiled_fit.refit` is `groups.refit_groups` and `bases.carry_over`. Tests compare them.

Parameters are rows of a table of integers: sizes, places and addresses, by the names below. All tensors are contiguous
and have the dtype of ``work``, scratch as the largest parameter needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from swallowtail.kernels.cpu.codegen.dense import multiply, transpose
from swallowtail.kernels.cpu.jit import njit
from swallowtail.optim.adam import direction

# Sums may be reordered. Nothing is assumed about NaN: a gradient may hold anything.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"reassoc", "contract"}}
compiled, inner = njit(cache=True, nogil=True, **OPTIONS), njit(inner=True, **OPTIONS)

# Columns of the table; the first four change from step to step. A vector of n entries has 0 rows. Sides are cut into
# groups of LEFT_SIZE and RIGHT_SIZE. The left moments take in LEFT_COLUMNS columns of a gradient, LEFT_EVERY apart,
# from column TIME modulo LEFT_PERIOD on.
NUMBERS, TIME, PARAMETER, GRADIENT, OFFSET, ROWS, COLUMNS, LEFT_SIZE, RIGHT_SIZE = range(9)
LEFT_COLUMNS, LEFT_EVERY, LEFT_PERIOD, RIGHT_COLUMNS, RIGHT_EVERY, RIGHT_PERIOD = range(9, 15)
STEP, FIRST, SECOND, LEFT_GROUPS, RIGHT_GROUPS, LEFT_MOMENTS, RIGHT_MOMENTS, WIDTH = range(15, 23)
# Columns of the numbers: `state.Rates`, then what does not change with the step.
EPS, FACTOR, RATE, KEPT, BOUND, GAIN, BETA1, BETA2, DECAY, SIGN = range(10)


@intrinsic
def pointer(typingctx: Any, address: Any, like: Any) -> Any:
    """An address as a pointer to what ``like`` holds."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(address, like), emit


@inner
def entries_of(row, name, like):  # shape: (numel,)
    return carray(pointer(row[name], like), (max(1, row[ROWS]) * row[COLUMNS],))


@inner
def matrix_of(row, name, m, n, like):  # shape: (m, n)
    return carray(pointer(row[name], like), (m, n))


@inner
def groups_of(row, name, n, s, like):  # shape: (n / s, s, s)
    return carray(pointer(row[name], like), (n // s, s, s))


@inner
def square_sum(x):
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
        found = square_sum(entries_of(row, GRADIENT, work))
        if not found <= largest:
            largest = found if found > largest else np.inf
    return largest


@inner
def _adam(z, first, second, numbers, bound, gain):
    """Move both moments on by z, which becomes Adam's direction: no entry larger than the bound, then further."""
    kind = z.dtype.type
    eps, factor, limit, sign = kind(numbers[EPS]), kind(numbers[FACTOR]), kind(bound), kind(numbers[SIGN])
    new1, kept2, new2 = kind(1 - numbers[BETA1]), kind(numbers[BETA2]), kind(1 - numbers[BETA2])
    gain, one = kind(gain), kind(1)
    for i in range(len(z)):
        g = sign * z[i]
        m = first[i] + new1 * (g - first[i])
        v = second[i] * kept2 + new2 * g * g
        first[i], second[i] = m, v
        u = m / (np.sqrt(v) + eps) * factor
        u = limit if u > limit else u
        u = -limit if u < -limit else u
        z[i] = further(u, min(u * u, one), gain)


further = inner(direction.further)


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
    s = row[LEFT_SIZE]
    count, every, start = row[LEFT_COLUMNS], row[LEFT_EVERY], row[TIME] % row[LEFT_PERIOD]
    chosen, turned = G[:, start::every][:, :count], work[: count * m].reshape(count, m)
    seen = work[count * m : count * m + s * s].reshape(s, s)
    if every == 1:
        transpose(chosen, turned)
    else:
        for i in range(m):
            for k in range(count):
                turned[k, i] = chosen[i, k]
    moments = groups_of(row, LEFT_MOMENTS, m, s, work)
    for k in range(len(moments)):
        own = slice(k * s, (k + 1) * s)
        multiply(chosen[own], turned[:, own], seen)
        _average(moments[k].reshape(s * s), seen.reshape(s * s), decay)
    s = row[RIGHT_SIZE]
    count, every, start = row[RIGHT_COLUMNS], row[RIGHT_EVERY], row[TIME] % row[RIGHT_PERIOD]
    chosen, seen = G[start::every][:count], work[: s * s].reshape(s, s)
    moments = groups_of(row, RIGHT_MOMENTS, n, s, work)
    for k in range(len(moments)):
        own = slice(k * s, (k + 1) * s)
        multiply(chosen[:, own].T, chosen[:, own], seen)
        _average(moments[k].reshape(s * s), seen.reshape(s * s), decay)


@inner
def _to_basis(row, G, half, Z, work):
    """Z ← (Q_Lᵀ G Q_R)ᵀ, shape (n, m), by way of G Q_R."""
    (m, n), left, right = G.shape, row[LEFT_SIZE], row[RIGHT_SIZE]
    Q = groups_of(row, RIGHT_GROUPS, n, right, work)
    for k in range(len(Q)):
        own = slice(k * right, (k + 1) * right)
        multiply(G[:, own], Q[k], half[:, own])
    Q = groups_of(row, LEFT_GROUPS, m, left, work)
    for k in range(len(Q)):
        own = slice(k * left, (k + 1) * left)
        multiply(half[own].T, Q[k], Z[:, own])


@inner
def _from_basis(row, Z, half, G, work):
    """G ← Q_L Zᵀ Q_Rᵀ, shape (m, n), by way of Zᵀ Q_Rᵀ."""
    (m, n), left, right = G.shape, row[LEFT_SIZE], row[RIGHT_SIZE]
    Q, turned = groups_of(row, RIGHT_GROUPS, n, right, work), work[: right * right].reshape(right, right)
    for k in range(len(Q)):
        own = slice(k * right, (k + 1) * right)
        transpose(Q[k], turned)
        multiply(Z[own].T, turned, half[:, own])
    Q = groups_of(row, LEFT_GROUPS, m, left, work)
    for k in range(len(Q)):
        own = slice(k * left, (k + 1) * left)
        multiply(Q[k], half[own], G[own])


@inner
def _move(here, update, kept, rate, proposed):
    """What a parameter becomes; returns its square sum."""
    for i in range(len(proposed)):
        proposed[i] = here[i] * kept - rate * update[i]
    return square_sum(proposed)


@compiled
def propose(table, numbers, work, new):
    """Moments and counters move on; ``new`` becomes what parameters would be. Returns the largest square sum of one."""
    largest, kind = 0.0, new.dtype.type
    for row in table:
        m, n, each = row[ROWS], row[COLUMNS], numbers[row[NUMBERS]]
        size = max(1, m) * n
        update, half, rest = work[:size], work[size : 2 * size], work[2 * size :]
        gradient = entries_of(row, GRADIENT, work)
        first, second = entries_of(row, FIRST, work), entries_of(row, SECOND, work)
        if m:
            G, half = gradient.reshape(m, n), half.reshape(m, n)
            _observe(row, G, each[DECAY], rest)
            _to_basis(row, G, half, update.reshape(n, m), rest)
            _adam(update, first, second, each, each[BOUND], each[GAIN])
            direction, update = update.reshape(n, m), rest[:size]
            _from_basis(row, direction, half, update.reshape(m, n), rest[size:])
        else:
            for i in range(size):
                update[i] = gradient[i]
            _adam(update, first, second, each, np.inf, 0.0)
        carray(pointer(row[STEP], np.empty(0, np.float32)), 1)[0] += np.float32(1)
        here, proposed = entries_of(row, PARAMETER, work), new[row[OFFSET] : row[OFFSET] + size]
        found = _move(here, update, kind(each[KEPT]), kind(each[RATE]), proposed)
        if not found <= largest:
            largest = found if found > largest else np.inf
    return largest


@compiled
def commit(table, new):
    """Parameters become what was proposed."""
    for row in table:
        here = entries_of(row, PARAMETER, new)
        for i in range(len(here)):
            here[i] = new[row[OFFSET] + i]
