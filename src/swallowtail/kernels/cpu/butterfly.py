"""Butterflies on the CPU: passes of vector codelets over some rows, one or two at a time, in place.

With Qᵀ = S·M, where M is the product of the unscaled (fast Givens) steps and S a diagonal,

    Qᵀx = S (M x)      Q x = Mᵀ (S x)      Q D Qᵀx = Mᵀ (S D S) M x

so one set of coefficients serves all three: going to the basis applies M, going from the basis Mᵀ.
"""

from __future__ import annotations

import numpy as np

from swallowtail.kernels.cpu.codegen.butterfly import butterfly_pass
from swallowtail.kernels.cpu.codegen.flags import clear_flags, raised_flags
from swallowtail.kernels.cpu.codegen.shapes import REGISTER_BYTES, as_row, record_reader
from swallowtail.kernels.cpu.jit import njit
from swallowtail.kernels.cpu.plan import OTHER, STEP

as_steps = record_reader(STEP)
inner = njit(inner=True, nogil=True)  # called from compiled code only
inlined = njit(inner=True, inline="always", nogil=True)  # and compiled as a part of it

ROWS_PER_PASS = 32  # short rows that a pass goes through before the next pass: they then stay in the L1 cache
BYTES_PER_PASS = 2**18  # the same for longer rows, which then stay in the L2 cache
LOCAL_BYTES = 2**12  # passes that stay within so much of a row go through all rows there before the next part
ALIASING_BYTES = 2**12  # 4K aliasing: a load waits for a recent store whose address has the same low 12 bits
ROWS_PER_WEDGE = 4  # as ROWS_PER_PASS; going backward y, its gradient and the sums share the cache


@inner
def _copy(source, to):
    """A loop, as the compiler takes seconds over the errors that ``to[:] = source`` could raise."""
    for k in range(len(source)):
        to[k] = source[k]


@njit(nogil=True, cache=True)
def pack(cos, sin, strides, pass_layers, n, fast, tiny_cos, tiny_scale, T, P, S, stored, W, plain):
    """Fill the coefficients of Qᵀ = S·M. Returns False if a plain pass is needed and P has no room.

    A pass is plain when a cosine in it is below ``tiny_cos`` or a running scale would fall below
    ``tiny_scale``: range, not accuracy, is what large angles cost the fast form. A plain pass takes the
    scales into its coefficients and sets them back to 1. ``stored`` receives S in the kernel's dtype. W, unless empty,
    receives for each rotation the product of the scales its two coordinates come with: that is what a wedge product
    of scaled vectors is short of.
    """
    S[:] = 1.0
    start = 0
    before = np.empty(len(S))
    for i in range(len(plain)):
        first, last = pass_layers[i], pass_layers[i + 1]
        _copy(S, before)
        at, holds = start, fast
        for layer in range(first, last):
            if holds:
                at, holds = _pack_fast(cos, sin, strides[layer], at, n, tiny_cos, tiny_scale, T[layer], S, W)
                if P.shape[0]:
                    P[layer, :] = 1.0  # a backward pass may span plain layers and this one
        plain[i] = not holds
        if plain[i]:
            if P.shape[0] == 0:
                return False
            _copy(before, S)
            at = start
            for layer in range(first, last):
                at = _pack_plain(cos, sin, strides[layer], at, n, T[layer], P[layer], S, W)
        start = at
    _copy(S, stored)
    return True


@njit(inner=True, inline="always", nogil=True, error_model="numpy")
def _pack_fast(cos, sin, p, start, n, tiny_cos, tiny_scale, T, S, W):
    """One layer of Gᵀ = [[c, s], [−s, c]] on coordinates that carry scales S; False if those leave their range."""
    T[:] = 0.0
    smallest_cos, smallest = np.inf, np.inf
    for block in range(0, n, 2 * p):
        for a in range(block, min(block + p, n - p)):
            b = a + p
            c, s_a, s_b = cos[start], S[a], S[b]
            tangent, ratio = sin[start] / c, s_b / s_a
            T[a] = tangent * ratio
            T[b] = -tangent / ratio
            S[a], S[b] = s_a * c, s_b * c
            if W.shape[0]:
                W[start] = s_a * s_b
            smallest_cos = min(smallest_cos, abs(c))
            smallest = min(smallest, min(abs(S[a]), abs(S[b])))
            start += 1
    return start, smallest_cos >= tiny_cos and smallest >= tiny_scale


@inlined
def _pack_plain(cos, sin, p, start, n, T, P, S, W):
    """The same, taking the scales into the coefficients."""
    T[:] = 0.0
    _copy(S, P)
    for block in range(0, n, 2 * p):
        for a in range(block, min(block + p, n - p)):
            b = a + p
            c, s = cos[start], sin[start]
            P[a], P[b] = c * S[a], c * S[b]
            T[a], T[b] = s * S[b], -s * S[a]
            if W.shape[0]:
                W[start] = S[a] * S[b]
            start += 1
    S[:] = 1.0
    return start


@njit(nogil=True, cache=True)
def turn(T, strides, lanes, out):
    """T as kernels that only go from the basis read it: inside a register, at the partner's position."""
    for layer in range(len(strides)):
        h = strides[layer] if strides[layer] < lanes else 0
        for f in range(T.shape[1]):
            out[layer, f] = T[layer, f ^ h]


@inlined
def _collect(accumulator, strides, n, sign, W, out):
    """Read the wedge products of first coordinates, layer by layer, into the flat gradient of the angles."""
    k = 0
    for layer in range(len(strides)):
        p = strides[layer]
        for block in range(0, n, 2 * p):
            for a in range(block, min(block + p, n - p)):
                out[k] += sign * accumulator[layer, a] * W[k]
                k += 1


@inner
def _mirror(ahead, p, span, features, size):
    """What a pass XORs the numbers of its blocks with, to take them in falling order; 0 for growing order.

    A pass stores a block and loads the coefficients of the next blocks. A load whose address has the same low 12 bits
    as a recent store waits for it. Where the data lie up to half a period ``ahead`` of the coefficients, in bytes, the
    next loads would meet the last stores (4K aliasing). Falling order avoids that.
    """
    register = REGISTER_BYTES // size
    period = ALIASING_BYTES if p <= register else min(ALIASING_BYTES, p * size)
    if 0 < ahead % period < period // 2:
        return (features - span) | (p - register)
    return 0


def _driver(family):
    """A kernel for one family of codelets, which returns the flags it raised. Numba's disk cache tells kernels apart by
    the string in their closure.

    Each pass goes through some rows before the next one does: its coefficients then stay in the nearest cache, where
    those of all passes would not fit beside the data. In long rows those of one pass would not either, so passes
    with small strides take one part of the rows after another.
    """

    @njit(nogil=True, cache=True)
    def run(x, y, count, n, single, n_single, double, n_double, T, P, S, scratch):
        clear_flags()
        size, padded, room = scratch.itemsize, scratch.shape[1], scratch.ctypes.data
        row, whole = n * size, n == padded
        step = row if whole else padded * size
        local = LOCAL_BYTES // size if whole else 0
        rows = ROWS_PER_PASS if row < LOCAL_BYTES else BYTES_PER_PASS // row // 2 * 2
        block = max(2, rows) if whole else 2
        one, two = as_steps(single, n_single), as_steps(double, n_double)
        for first in range(0, count, block):
            stop = min(first + block, count)
            for last in range((stop - first) % 2 + 1):  # rows two by two, then a row that is left over
                program = one if last else two
                begin, end = (stop - 1, stop) if last else (first, stop - (stop - first) % 2)
                if not whole and begin < end:
                    _load(x + begin * row, x + (begin + 1) * row, not last, n, scratch)
                i = 0
                while i < len(program):
                    following, part = i + 1, n
                    # With this pass those after it that stay within the same part.
                    if program[i].span <= local:
                        part = min(n, local)
                        while following < len(program) and program[following].span <= local:
                            following += 1
                    for at in range(0, n, part):
                        shift = at * size
                        for k in range(i, following):
                            pass_ = program[k]
                            to = (y + begin * row if whole else room) + shift
                            source = x + begin * row + shift if whole and pass_.first else to
                            a, b = (source + step, to + step) if pass_.which == OTHER else (source, to)
                            mirror = 0
                            if whole and not pass_.first:
                                ahead = to - shift - T - pass_.start * size
                                mirror = _mirror(ahead, pass_.stride, pass_.span, part, size)
                            butterfly_pass(
                                family, scratch, pass_.code, (a, source + step, a, a), (b, to + step, b, b),
                                pass_.stride, padded, T + shift, P + shift, S + shift, pass_.start, part, mirror,
                                (end - begin + 1) // 2, 2 * step,
                            )  # fmt: skip
                    i = following
                if not whole and begin < end:
                    _store(y + begin * row, y + (begin + 1) * row, not last, n, scratch)
        return raised_flags()

    return run


def _wedge_driver(family):
    """Walk (y, grad) back through the rotation; ``out`` gains the gradient of the angles, its ``sign`` given. Returns
    the flags raised.

    S, the diagonal of Qᵀ = S·M, is what fast passes end with; W is what the wedge products are short of. The
    accumulator (layers, padded) is room for them, scratch (ROWS_PER_WEDGE, padded) for y as it is rebuilt.
    """

    @njit(nogil=True, cache=True)
    def run(y, grad, grad_x, count, n, steps, n_steps, T, P, S, W, strides, sign, accumulator, scratch, out):
        clear_flags()
        program = as_steps(steps, n_steps)
        padded, row, room = scratch.shape[1], n * scratch.itemsize, scratch.ctypes.data
        wide = padded * scratch.itemsize
        whole = n == padded
        block = ROWS_PER_WEDGE if whole else 2
        accumulator[:] = 0
        for first in range(0, count, block):
            stop = min(first + block, count)
            for last in range((stop - first) % 2 + 1):  # rows two by two, then a row that is left over
                begin, end = (stop - 1, stop) if last else (first, stop - (stop - first) % 2)
                if last:  # zeros take the place of the second row
                    scratch[1, :] = 0
                    scratch[3, :] = 0
                if not whole and begin < end:
                    _load(y + begin * row, y + (begin + 1) * row, not last, n, scratch[:2])
                    _load(grad + begin * row, grad + (begin + 1) * row, not last, n, scratch[2:])
                for i in range(len(program)):
                    pass_ = program[i]
                    # What multiplies the own coordinate.
                    own = S.ctypes.data if pass_.scaled else P.ctypes.data
                    r0, r1 = room, room + wide  # y, rebuilt
                    t0 = grad_x + begin * row if whole else room + 2 * wide
                    t1 = (room + wide if last else t0 + row) if whole else t0 + wide
                    y0, y1, g0, g1 = r0, r1, t0, t1
                    if whole and pass_.first:
                        y0, g0 = y + begin * row, grad + begin * row
                        if not last:
                            y1, g1 = y0 + row, g0 + row
                    butterfly_pass(
                        family, scratch, pass_.code, (y0, g0, y1, g1), (r0, t0, r1, t1), pass_.stride, padded,
                        T.ctypes.data, own, accumulator.ctypes.data, pass_.start, n, 0, (end - begin + 1) // 2,
                        2 * wide,
                    )  # fmt: skip
                if not whole and begin < end:
                    _store(grad_x + begin * row, grad_x + (begin + 1) * row, not last, n, scratch[2:])
        _collect(accumulator, strides, n, sign, W, out)
        return raised_flags()

    return run


to_basis = _driver("to_basis")  # Y = Qᵀ X: ``count`` rows of n numbers at addresses x, y
from_basis = _driver("from_basis")  # Y = Q X
symmetric = _driver("symmetric")  # Y = Q D Qᵀ X, with S D S in place of S
to_basis_wedge = _wedge_driver("to_basis wedge")
from_basis_wedge = _wedge_driver("from_basis wedge")


@inner
def _load(s0, s1, two, n, scratch):
    """Copy one or two rows into zero-padded scratch."""
    for row in range(1 + two):
        _copy(as_row(s1 if row else s0, n, scratch), scratch[row])
        for i in range(n, scratch.shape[1]):
            scratch[row, i] = 0


@inner
def _store(d0, d1, two, n, scratch):
    for row in range(1 + two):
        _copy(scratch[row, :n], as_row(d1 if row else d0, n, scratch))
