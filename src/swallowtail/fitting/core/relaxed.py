"""The paper's relaxation: gradients for every non-zero of every layer, and the way back to rotations.

For one step, each Givens becomes a free block [[a, b], [c, d]] on its pair (i, j): the extended parameters ω̃.
Between steps the blocks are rotations again, so nothing needs to be stored on the way forward: running a
rotation the other way gives each layer's input back. Rotations are given flat, as `Wiring` numbers them:
``pairs`` (K, 2) and cosines and sines (K,), Q₁ first; those of one layer are disjoint, so taking them one
after another is taking them layer by layer. Vectors are the columns of (n, b) arrays. Pairs are unsigned
(`unsigned_pairs`): Numba then need not ask of each index whether it counts from the end, which is 5× faster.
"""

from __future__ import annotations

import math

import numpy as np

from swallowtail.kernels.cpu.jit import njit
from swallowtail.wiring import Wiring

# Sums may be reordered; NaN and infinity keep their meaning, so that a diverging fit is noticed.
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


def unsigned_pairs(wiring: Wiring) -> np.ndarray:  # shape: (K, 2), uint64
    """The pairs of all layers, Q₁ first, as the functions below take them."""
    return wiring.flat_pairs().astype(np.uint64)


@compiled
def _to_basis(pairs: np.ndarray, cosines: np.ndarray, sines: np.ndarray, x: np.ndarray) -> None:
    """x ← Qᵀ x in place: Q₁ᵀ first."""
    for k in range(len(pairs)):
        i, j, c, s = pairs[k, 0], pairs[k, 1], cosines[k], sines[k]
        for r in range(x.shape[1]):
            p, q = x[i, r], x[j, r]
            x[i, r] = c * p + s * q
            x[j, r] = c * q - s * p


@compiled
def _from_basis(pairs: np.ndarray, cosines: np.ndarray, sines: np.ndarray, x: np.ndarray) -> None:
    """x ← Q x in place: Q_L first."""
    for k in range(len(pairs) - 1, -1, -1):
        i, j, c, s = pairs[k, 0], pairs[k, 1], cosines[k], sines[k]
        for r in range(x.shape[1]):
            p, q = x[i, r], x[j, r]
            x[i, r] = c * p - s * q
            x[j, r] = s * p + c * q


@compiled
def _residual(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """z ← (z − y)·2/b, the loss's gradient. Returns the means of ‖z − y‖² and of the angle from z to y."""
    n, b = z.shape
    loss, angle = 0.0, 0.0
    for r in range(b):
        zz, yy, rr = 0.0, 0.0, 0.0
        for i in range(n):
            zz += z[i, r] * z[i, r]
            yy += y[i, r] * y[i, r]
            rr += (z[i, r] - y[i, r]) ** 2
        loss += rr / b
        # ‖z − y‖² = ‖z‖² + ‖y‖² − 2⟨z, y⟩; one zero vector counts as a right angle, two as none.
        scale = math.sqrt(zz * yy)
        if scale > 0.0:
            angle += math.acos(max(-1.0, min(1.0, 0.5 * (zz + yy - rr) / scale))) / b
        elif zz > 0.0 or yy > 0.0:
            angle += 0.5 * math.pi / b
    for i in range(n):
        for r in range(b):
            z[i, r] = (z[i, r] - y[i, r]) * (2.0 / b)
    return loss, angle


@compiled
def extended_gradient(
    pairs: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    d: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    rotation: bool,
    gradient: np.ndarray,
    gradient_d: np.ndarray,
    z: np.ndarray,
    u: np.ndarray,
) -> tuple[float, float]:
    """Gradient of the loss with respect to the blocks (a, b, c, d) and to D, by backpropagation.

    The loss is the mean over the b columns of L = ‖Q D Qᵀx − y‖², or of L′ = ‖Q x − y‖² if ``rotation``.
    With z the vector that enters a block of the left half Q, and u the loss's gradient where it leaves, the
    block's gradient is u zᵀ; the right half Qᵀ holds the same block transposed: x enters it, the gradient
    where it leaves is v, and it adds x vᵀ.

    Args:
        pairs, cosines, sines, d: Q and D; d is not read if ``rotation``.
        x, y: shape (n, b); x is used as work space and restored up to rounding.
        rotation: False for L, True for L′.
        gradient: output, shape (K, 4): with respect to a, b, c, d.
        gradient_d: output, shape (n,); not written if ``rotation``.
        z, u: work space, shape (n, b).

    Returns:
        The loss, and the mean angle between prediction and y in radians.
    """
    n, b = x.shape
    if rotation:
        z[:] = x
    else:
        _to_basis(pairs, cosines, sines, x)
        for i in range(n):
            for r in range(b):
                z[i, r] = d[i] * x[i, r]
    _from_basis(pairs, cosines, sines, z)
    u[:] = z
    loss, angle = _residual(u, y)

    for k in range(len(pairs)):  # u and z from the outside in
        i, j, c, s = pairs[k, 0], pairs[k, 1], cosines[k], sines[k]
        ga, gb, gc, gd = 0.0, 0.0, 0.0, 0.0
        for r in range(b):
            p, q, ui, uj = z[i, r], z[j, r], u[i, r], u[j, r]
            zi, zj = c * p + s * q, c * q - s * p
            ga += ui * zi
            gb += ui * zj
            gc += uj * zi
            gd += uj * zj
            z[i, r], z[j, r] = zi, zj
            u[i, r], u[j, r] = c * ui + s * uj, c * uj - s * ui
        gradient[k, 0], gradient[k, 1], gradient[k, 2], gradient[k, 3] = ga, gb, gc, gd
    if rotation:
        return loss, angle

    for i in range(n):
        total = 0.0
        for r in range(b):
            total += u[i, r] * x[i, r]
            u[i, r] *= d[i]  # from here on u is v
        gradient_d[i] = total
    for k in range(len(pairs) - 1, -1, -1):  # x and v from the inside out
        i, j, c, s = pairs[k, 0], pairs[k, 1], cosines[k], sines[k]
        ga, gb, gc, gd = 0.0, 0.0, 0.0, 0.0
        for r in range(b):
            p, q, vi, vj = x[i, r], x[j, r], u[i, r], u[j, r]
            xi, xj = c * p - s * q, s * p + c * q
            ga += xi * vi
            gb += xi * vj
            gc += xj * vi
            gd += xj * vj
            x[i, r], x[j, r] = xi, xj
            u[i, r], u[j, r] = c * vi - s * vj, s * vi + c * vj
        gradient[k, 0] += ga
        gradient[k, 1] += gb
        gradient[k, 2] += gc
        gradient[k, 3] += gd
    return loss, angle


@compiled
def project(blocks: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> None:
    """Equation 5: the rotation nearest to each block [[a, b], [c, d]], into ``cosines`` and ``sines``.

    (cos, sin) = (a + d, c − b)/η with η = √((a + d)² + (b − c)²). At η = 0, a reflection up to scale, every
    rotation is equally near: the old one stays. It stays, too, where a diverging step overflows.
    """
    for k in range(len(blocks)):
        p, q = blocks[k, 0] + blocks[k, 3], blocks[k, 2] - blocks[k, 1]
        size = math.sqrt(p * p + q * q)
        if 0.0 < size < math.inf:
            cosines[k], sines[k] = p / size, q / size


@compiled
def relax_and_project(
    pairs: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    d: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray,
    order: np.ndarray,
    batch_size: int,
    rates: np.ndarray,
    rates_d: np.ndarray,
    floor: float,
    rotation: bool,
    normalized: float,
) -> tuple[float, float]:
    """Algorithm 1: for each minibatch, ω̃ ← ω̃ − α ∂L/∂ω̃, then project every Givens; Q and D in place.

    Args:
        pairs, cosines, sines, d: Q and D, changed in place; d stays as it is if ``rotation``.
        X, Y: samples as rows, shape (m, n).
        order: which rows to take one after another; its length is ``batch_size`` times the number of steps.
        batch_size: b.
        rates, rates_d: α for Q and for D, one number per step each.
        floor: ε, what negative elements of D become at the projection; NaN leaves them alone.
        rotation: minimise L′ instead of L.
        normalized: κ; if positive, both rates are multiplied by the number that makes the step lower the
            linearised loss by κ L, so that only their ratio counts.

    Returns:
        Loss and angle (radians), each the mean over the steps, before the step is taken.
    """
    n, b, K = X.shape[1], batch_size, len(pairs)
    x, y, z, u = np.empty((n, b)), np.empty((n, b)), np.empty((n, b)), np.empty((n, b))
    gradient, gradient_d, blocks = np.empty((K, 4)), np.zeros(n), np.empty((K, 4))
    n_steps = len(order) // b
    total_loss, total_angle = 0.0, 0.0
    for t in range(n_steps):
        for r in range(b):
            row = order[t * b + r]
            for i in range(n):
                x[i, r], y[i, r] = X[row, i], Y[row, i]
        loss, angle = extended_gradient(pairs, cosines, sines, d, x, y, rotation, gradient, gradient_d, z, u)
        total_loss += loss / n_steps
        total_angle += angle / n_steps
        alpha, alpha_d = rates[t], rates_d[t]
        if normalized > 0.0:
            size = alpha * np.sum(gradient * gradient) + alpha_d * np.sum(gradient_d * gradient_d)
            factor = normalized * loss / size if size > 0.0 else 0.0
            alpha, alpha_d = alpha * factor, alpha_d * factor
        for k in range(K):
            c, s = cosines[k], sines[k]
            blocks[k, 0] = c - alpha * gradient[k, 0]
            blocks[k, 1] = -s - alpha * gradient[k, 1]
            blocks[k, 2] = s - alpha * gradient[k, 2]
            blocks[k, 3] = c - alpha * gradient[k, 3]
        project(blocks, cosines, sines)
        if not rotation:
            for i in range(n):
                d[i] -= alpha_d * gradient_d[i]
                if d[i] < 0.0 and floor == floor:
                    d[i] = floor
    return total_loss, total_angle
