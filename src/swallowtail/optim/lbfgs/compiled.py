"""The arithmetic of one iteration on a CPU, compiled: with 100 variables, calls of PyTorch cost more than the work.

Each function does what its namesake in `memory` or `iteration` does with tensors; tests compare them. Rotations are
given flat: ``pairs`` (K, 2), layer by layer, and their angles.
"""

from __future__ import annotations

import numpy as np

from swallowtail.kernels.cpu.jit import njit

# Sums may be reordered. Nothing is assumed about NaN: a user's function may return anything.
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@compiled
def precondition(x, pairs, angles, d):
    """Q diag(d) Qᵀ x."""
    z = x.copy()
    _precondition(z, pairs, np.cos(angles), np.sin(angles), d)
    return z


@compiled
def _precondition(z, pairs, cosines, sines, d):
    for k in range(len(pairs)):
        i, j, c, s = pairs[k, 0], pairs[k, 1], cosines[k], sines[k]
        a, b = z[i], z[j]
        z[i], z[j] = c * a + s * b, c * b - s * a
    for i in range(len(z)):
        z[i] *= d[i]
    for k in range(len(pairs) - 1, -1, -1):
        i, j, c, s = pairs[k, 0], pairs[k, 1], cosines[k], sines[k]
        a, b = z[i], z[j]
        z[i], z[j] = c * a - s * b, s * a + c * b


@compiled
def dot(a, b):
    """Σ aᵢbᵢ."""
    total = a.dtype.type(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled
def largest(x):
    """The largest |x_i|; NaN if there is one."""
    found = 0.0
    for i in range(len(x)):
        if not np.abs(x[i]) <= found:
            found = np.abs(x[i])
            if np.isnan(found):
                break
    return found


@compiled
def direction(gradient, S, Y, count, learned, pairs, angles, d):
    """H g by the two-loop recursion; ``learned`` says whether H₀ is γ Q D⁻¹ Qᵀ or γI."""
    size = len(S)
    kept = min(count, size)
    q, alphas, products = gradient.copy(), np.empty(kept, S.dtype), np.empty(kept, S.dtype)
    for k in range(kept):  # newest first
        row = (count - 1 - k) % size
        products[k] = dot(S[row], Y[row])
        alphas[k] = dot(S[row], q) / products[k]
        for i in range(len(q)):
            q[i] -= alphas[k] * Y[row, i]
    y = Y[(count - 1) % size]
    z, turned = q, y
    if learned:
        cosines, sines, turned = np.cos(angles), np.sin(angles), y.copy()
        _precondition(z, pairs, cosines, sines, d)
        _precondition(turned, pairs, cosines, sines, d)
    gamma = products[0] / dot(y, turned)
    for i in range(len(z)):
        z[i] *= gamma
    for k in range(kept - 1, -1, -1):
        row = (count - 1 - k) % size
        by = alphas[k] - dot(Y[row], z) / products[k]
        for i in range(len(z)):
            z[i] += by * S[row, i]
    return z


@compiled
def cosines(step, change, learned, pairs, angles, d):
    """cos(y, s) and, if H₀ was learned, cos(QD⁻¹Qᵀy, s), else 0; 0 where a vector is."""
    first, second = dot(step, change), 0.0
    sizes = np.sqrt(dot(step, step)) * np.sqrt(dot(change, change))
    if learned:
        turned = precondition(change, pairs, angles, d)
        both = np.sqrt(dot(step, step)) * np.sqrt(dot(turned, turned))
        second = dot(turned, step) / both if both > 0 else 0.0
    return (first / sizes if sizes > 0 else 0.0), second


@compiled
def refit(S, Y, count, rotated, pairs, angles, d, damping, rounding):
    """New angles (if ``rotated``) and inverse eigenvalues from the first ``count`` samples, in place."""
    n, z = S.shape[1], np.empty((S.shape[1], 2 * count), S.dtype)  # y and s with ‖s‖ = 1, as columns
    scales = np.empty(count, S.dtype)
    for k in range(count):
        scales[k] = 1 / np.sqrt(dot(S[k], S[k]))
    for i in range(n):
        for k in range(count):
            z[i, k], z[i, count + k] = Y[k, i] * scales[k], S[k, i] * scales[k]
    if rotated:
        _closed_form(z, pairs, angles, count, rounding)
    _inverse_eigenvalues(z, d, count, damping)


@compiled
def _closed_form(z, pairs, angles, n_fit, rounding):
    """Angles from the first ``n_fit`` columns of z; z is turned with them. See `optim.closed_form`."""
    noise = z.dtype.type(0)
    for i in range(len(z)):
        for k in range(n_fit):
            noise += z[i, k] * z[i, k]
    noise *= rounding * rounding
    for k in range(len(pairs)):
        i, j = pairs[k, 0], pairs[k, 1]
        uu = vv = uv = z.dtype.type(0)
        for r in range(n_fit):
            uu, vv, uv = uu + z[i, r] * z[i, r], vv + z[j, r] * z[j, r], uv + z[i, r] * z[j, r]
        angles[k] = 0.5 * np.arctan2(2 * uv, uu - vv) if uu + vv > noise else 0.0
        c, s = np.cos(angles[k]), np.sin(angles[k])
        for r in range(z.shape[1]):
            p, q = z[i, r], z[j, r]
            z[i, r], z[j, r] = c * p + s * q, c * q - s * p


@compiled
def _inverse_eigenvalues(z, d, n_fit, damping):
    """√(E s_i² / E y_i²) for rows (y…, s…) of z, both moments damped by a share of their mean."""
    n, moments = len(z), np.zeros((2, len(z)), z.dtype)
    for i in range(n):
        for r in range(n_fit):
            moments[0, i] += z[i, r] * z[i, r]
            moments[1, i] += z[i, n_fit + r] * z[i, n_fit + r]
    means = moments[0].sum() / n, moments[1].sum() / n
    for i in range(n):
        d[i] = np.sqrt((moments[1, i] + damping * means[1]) / (moments[0, i] + damping * means[0]))
