"""c·I + Z diag(w) Zᵀ as a record, and the compiled work on the rows of Z: gradient and visits of blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.product import MATRIX, compiled, cosines, rows_to_basis

THRESHOLD = 0.05  # of a block's largest weight, inside one layer


class Factor(NamedTuple):
    """The symmetric matrix A = c·I + Z diag(w) Zᵀ."""

    shift: float  # c
    basis: np.ndarray  # Z, shape: (n, r)
    weights: np.ndarray  # w, shape: (r,)

    def __matmul__(self, X: np.ndarray) -> np.ndarray:  # shape: (n, k)
        return self.shift * X + (self.basis * self.weights) @ (self.basis.T @ X)

    def dense(self) -> np.ndarray:  # shape: (n, n)
        """A itself."""
        A = (self.basis * self.weights) @ self.basis.T
        A = 0.5 * (A + A.T)
        A[np.diag_indices(len(A))] += self.shift
        return A

    def cut(self, rank: int) -> Factor:
        """c·I plus the ``rank`` largest |w|, for orthonormal Z; the others go into c as their mean."""
        order = np.argsort(-np.abs(self.weights), kind="stable")
        kept, dropped = order[:rank], order[rank:]
        more = float(self.weights[dropped].sum()) / max(1, len(self.basis) - len(kept))
        return Factor(self.shift + more, np.ascontiguousarray(self.basis[:, kept]), self.weights[kept] - more)

    def near_one(self) -> tuple[Factor, int]:
        """A·2^−e and e, for Z with columns near length one: its squares are in range, whatever A is measured in."""
        e = int(np.frexp(max(abs(self.shift), np.abs(self.weights).max(initial=0.0)))[1])
        return Factor(float(np.ldexp(self.shift, -e)), self.basis, np.ldexp(self.weights, -e)), e

    def norms2(self) -> tuple[float, float]:
        """‖A‖²_F and ‖Z diag(w) Zᵀ‖²_F, in O(nr²)."""
        gram, w, c = self.basis.T @ self.basis, self.weights, self.shift
        low = float(np.vdot(gram * gram, np.outer(w, w)))
        return len(self.basis) * c * c + 2.0 * c * float(w @ np.diagonal(gram)) + low, low


@compiled
def value_and_gradient(
    basis: np.ndarray, weights: np.ndarray, pairs: np.ndarray, angles: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Σ eᵢ² with eᵢ = Σ_q w_q (QᵀZ)²_iq, its gradient (K,), and e (n,); O(rK).

    Forward Z ← QᵀZ; then V = ∂/∂Z = 4 eᵢ w_q z_iq beside it, and both walk back through the rotations: behind
    one on (i, j) the derivative by its angle is Σ_q v_iq z_jq − v_jq z_iq. Nothing is stored on the way.
    """
    n, r = basis.shape
    K = len(pairs)
    c, s = cosines(angles)
    ZV = np.empty((n, 2 * r))  # [Z | V]: the two rows a rotation needs lie together
    for i in range(n):
        for q in range(r):
            ZV[i, q] = basis[i, q]
    for k in range(K):
        i, j, ck, sk = pairs[k, 0], pairs[k, 1], c[k], s[k]
        for q in range(r):
            a, b = ZV[i, q], ZV[j, q]
            ZV[i, q] = ck * a + sk * b
            ZV[j, q] = ck * b - sk * a
    e, total, gradient = np.empty(n), 0.0, np.empty(K)
    for i in range(n):
        t = 0.0
        for q in range(r):
            t += weights[q] * ZV[i, q] * ZV[i, q]
        e[i] = t
        total += t * t
        for q in range(r):
            ZV[i, r + q] = 4.0 * t * weights[q] * ZV[i, q]
    for k in range(K - 1, -1, -1):
        i, j, ck, sk = pairs[k, 0], pairs[k, 1], c[k], s[k]
        wedge = 0.0
        for q in range(r):
            wedge += ZV[i, r + q] * ZV[j, q] - ZV[j, r + q] * ZV[i, q]
        gradient[k] = wedge
        for q in range(2 * r):
            a, b = ZV[i, q], ZV[j, q]
            ZV[i, q] = ck * a - sk * b
            ZV[j, q] = sk * a + ck * b
    return total, gradient, e


@compiled
def visit_blocks(
    Z: np.ndarray,
    w: np.ndarray,
    hubs: np.ndarray,
    rows: np.ndarray,
    offsets: np.ndarray,
    limits: np.ndarray,
    least: float,
    pairs: np.ndarray,
    angles: np.ndarray,
    used: int,
) -> int:
    """Truncated Jacobi in one block after another, Z ← QᵀZ in place; return how many rotations there are now.

    Args:
        Z, w, hubs: the factor, and the rows that join every block.
        rows, offsets: the clusters, one after another, and where each begins.
        limits: rotations allowed in each block.
        least: stop in a block when no pair weighs more.
        pairs, angles, used: where the rotations are written, and how many there are already.
    """
    for t in range(len(offsets) - 1):
        limit = min(limits[t], len(angles) - used)
        if limit <= 0:
            continue
        block = np.concatenate((hubs, rows[offsets[t] : offsets[t + 1]]))
        Zb = Z[block]
        A = np.dot(Zb * w, Zb.T)  # Jacobi angles see differences of the diagonal only: no shift needed
        p, a = parallel_jacobi(A, limit, THRESHOLD, MATRIX, 0.0, least, 0)
        c, s = cosines(a)
        rows_to_basis(Zb, p, c, s)
        for i in range(len(block)):
            Z[block[i]] = Zb[i]
        for k in range(len(a)):
            pairs[used, 0], pairs[used, 1], angles[used] = block[p[k, 0]], block[p[k, 1]], a[k]
            used += 1
    return used
