"""Butterflies on the CPU: passes of vector codelets over one or two vectors at a time, in place.

With Qᵀ = S·M, where M is the product of the unscaled (fast Givens) steps and S a diagonal,

    Qᵀx = S (M x)      Q x = Mᵀ (S x)      Q D Qᵀx = Mᵀ (S D S) M x

so one set of coefficients serves all three. "Down" applies M, "up" applies Mᵀ.
"""

from __future__ import annotations

import numpy as np

from swallowtail.kernels._numba import njit
from swallowtail.kernels.cpu_plan import ONE, OTHER
from swallowtail.kernels.simd import as_row, butterfly_pass


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
    before = np.empty_like(S)
    for i in range(len(plain)):
        first, last = pass_layers[i], pass_layers[i + 1]
        before[:] = S
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
            S[:] = before
            at = start
            for layer in range(first, last):
                at = _pack_plain(cos, sin, strides[layer], at, n, T[layer], P[layer], S, W)
        start = at
    stored[:] = S
    return True


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True)
def _pack_plain(cos, sin, p, start, n, T, P, S, W):
    """The same, taking the scales into the coefficients."""
    T[:] = 0.0
    P[:] = S
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
def collect(accumulator, strides, n, sign, W, out):
    """Read the wedge products of first coordinates, layer by layer, into the flat gradient of the angles."""
    k = 0
    for layer in range(len(strides)):
        p = strides[layer]
        for block in range(0, n, 2 * p):
            for a in range(block, min(block + p, n - p)):
                out[k] += sign * accumulator[layer, a] * W[k]
                k += 1


def _driver(family):
    """A kernel for one family of codelets. Numba keys its disk cache by the name held in the closure."""

    @njit(nogil=True, cache=True)
    def run(x, y, count, n, single, double, T, P, S, scratch):
        size, padded = scratch.itemsize, scratch.shape[1]
        for v in range(0, count, 2):
            two = v + 1 < count
            program = double if two else single
            s0, d0 = x + v * n * size, y + v * n * size
            s1, d1 = s0 + n * size, d0 + n * size
            t0, t1 = d0, d1
            if n != padded:
                s0, s1 = t0, t1 = _load(s0, s1, two, n, scratch)
            for i in range(program.shape[0]):
                which = program[i, 1]
                a, b = (s1, t1) if which == OTHER else (s0, t0)
                butterfly_pass(
                    family, scratch, program[i, 0], (a, s1, a, s1), (b, t1, b, t1), program[i, 2], padded,
                    T.ctypes.data, P.ctypes.data, S.ctypes.data, program[i, 3], n,
                )  # fmt: skip
                s0 = s0 if which == OTHER else t0
                s1 = s1 if which == ONE else t1
            if n != padded:
                _store(d0, d1, two, n, scratch)

    return run


def _wedge_driver(family):
    """Walk (y, grad) back through the rotation; ``accumulator`` (layers, padded) gains the wedge products.

    S, the diagonal of Qᵀ = S·M, is what fast passes end with.
    """

    @njit(nogil=True, cache=True)
    def run(y, grad, grad_x, count, n, program, T, P, S, accumulator, scratch):
        size, padded = scratch.itemsize, scratch.shape[1]
        for v in range(0, count, 2):
            two = v + 1 < count
            y0, g0, d0 = y + v * n * size, grad + v * n * size, grad_x + v * n * size
            y1, g1, d1 = y0 + n * size, g0 + n * size, d0 + n * size
            r0, r1 = scratch.ctypes.data, scratch.ctypes.data + padded * size  # y, rebuilt layer by layer
            t0, t1 = d0, d1
            if not two:  # zeros keep the last row company
                y1 = g1 = d1 = t1 = r1
                scratch[1, :] = 0
                scratch[3, :] = 0
            if n != padded:
                y0, y1 = _load(y0, y1, two, n, scratch[:2])
                g0, g1 = t0, t1 = _load(g0, g1, two, n, scratch[2:])
            for i in range(program.shape[0]):
                own = (
                    S.ctypes.data if program[i, 1] else P.ctypes.data
                )  # what the vectors' own numbers are times
                butterfly_pass(
                    family, scratch, program[i, 0], (y0, g0, y1, g1), (r0, t0, r1, t1), program[i, 2], padded,
                    T.ctypes.data, own, accumulator.ctypes.data, program[i, 3], n,
                )  # fmt: skip
                y0, y1, g0, g1 = r0, r1, t0, t1
            if n != padded:
                _store(d0, d1, two, n, scratch[2:])

    return run


down = _driver("down")  # Y = Qᵀ X: ``count`` rows of n numbers at addresses x, y
up = _driver("up")  # Y = Q X
symmetric = _driver("symmetric")  # Y = Q D Qᵀ X, with S D S in place of S
down_wedge = _wedge_driver("down wedge")
up_wedge = _wedge_driver("up wedge")


@njit(nogil=True, cache=True)
def weighted_squares(z, weights, out):
    """out[v] = Σᵢ weights[i]·z[v, i]²."""
    for v in range(z.shape[0]):
        out[v] = _weighted_squares(z[v], weights)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _weighted_squares(z, weights):
    """Σ weights·z²; lanes may be summed in any order."""
    total = z[0] * 0
    for i in range(len(z)):
        total += weights[i] * z[i] * z[i]
    return total


@njit(nogil=True, cache=True)
def _load(s0, s1, two, n, scratch):
    """Copy one or two rows into zero-padded scratch; returns where they lie."""
    scratch[0, :n] = as_row(s0, n, scratch)
    scratch[0, n:] = 0
    if two:
        scratch[1, :n] = as_row(s1, n, scratch)
        scratch[1, n:] = 0
    first = scratch.ctypes.data
    return first, first + scratch.shape[1] * scratch.itemsize


@njit(nogil=True, cache=True)
def _store(d0, d1, two, n, scratch):
    as_row(d0, n, scratch)[:] = scratch[0, :n]
    if two:
        as_row(d1, n, scratch)[:] = scratch[1, :n]
