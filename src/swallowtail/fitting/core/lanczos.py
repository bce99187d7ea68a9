"""Functions of a symmetric H that is known by products: f(H)x by Lanczos, and f of a completion.

Columns f(H)x cost 5 to 90 products each. A block Krylov space of as many products says far more about f(H): on ten
matrices (grids, graphs, kernels; inverse, exp, root, logarithm) f of the completion was closer to f(H) than the
completion of columns f(H)x at every number of products, 7° against 75° for one inverse. So the first is fitted, and
the second measures it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from swallowtail.fitting.core.completion import CONVERGED, Completion, Probes, Product
from swallowtail.fitting.core.factor import Factor

Values = Callable[[np.ndarray], np.ndarray]  # f: eigenvalues (k,) to as many numbers
BETWEEN = 4  # steps between two looks at whether columns still change
BREAKDOWN = 1e-12  # a new direction shorter than this fraction of H's scale: the space is invariant


class Columns(NamedTuple):
    """f(H)X, and what is known about it."""

    Y: np.ndarray  # shape: (n, k)
    n_products: int
    change: float  # relative change of Y over the last few steps: about its error


def function_columns(
    product: Product, f: Values, X: np.ndarray, max_products: int, tolerance: float = 1e-6
) -> Columns:
    """f(H)X from products with H, by Lanczos: for f(d) = 1/d it is the method of conjugate gradients.

    f is asked at Ritz values only, which lie between the smallest and the largest eigenvalue of H.

    Args:
        product: X ↦ HX, called with columns, (n, k) float64.
        f: the function.
        X: shape (n, k).
        max_products: columns that ``product`` may see in all, at least k.
        tolerance: stop when the columns change relatively by less.
    """
    n, k = X.shape
    steps = min(max_products // k, n)
    length = np.linalg.norm(X, axis=0)
    V = np.zeros((steps, n, k))  # the basis of every column
    a, b = np.zeros((steps, k)), np.zeros((steps, k))
    V[0] = X / np.where(length > 0.0, length, 1.0)
    size = np.full(k, steps)  # of the basis of each column
    before, change, scale = np.zeros((steps, k)), np.inf, 0.0
    for j in range(steps):
        W = np.array(product(V[j].copy()), dtype=np.float64)
        a[j] = np.einsum("nk,nk->k", V[j], W)
        for _ in range(2):  # twice is enough: without it, columns need more products
            W -= np.einsum("jnk,jk->nk", V[: j + 1], np.einsum("jnk,nk->jk", V[: j + 1], W))
        b[j] = np.linalg.norm(W, axis=0)
        scale = max(scale, float(np.abs(a[j]).max()), float(b[j].max()))
        size = np.where((b[j] <= BREAKDOWN * scale) & (size == steps), j + 1, size)
        last = j + 1 == steps or bool((size <= j + 1).all())
        if last or (j + 1) % BETWEEN == 0:
            now = _coordinates(f, a, b, np.minimum(size, j + 1))
            change = float(np.linalg.norm((now - before) * length) / (np.linalg.norm(now * length) or 1.0))
            before = now
            if last or change <= tolerance:
                break
        V[j + 1] = np.where(size > j + 1, W / np.where(b[j] > 0.0, b[j], 1.0), 0.0)
    done = j + 1
    exact = bool((size <= done).all()) and done < steps
    Y = np.einsum("jnk,jk->nk", V[:done], before[:done]) * length
    return Columns(Y, done * k, 0.0 if exact else change)


def _coordinates(
    f: Values, a: np.ndarray, b: np.ndarray, size: np.ndarray
) -> np.ndarray:  # shape: (steps, k)
    """f(T)e₁ of every column's tridiagonal T, in the column's own basis; f is asked once."""
    pairs = [scipy.linalg.eigh_tridiagonal(a[:s, q], b[: s - 1, q]) for q, s in enumerate(size)]
    values = np.split(f(np.concatenate([ritz for ritz, _ in pairs])), np.cumsum(size)[:-1])
    found = np.zeros(a.shape)
    for q, ((_, U), value) in enumerate(zip(pairs, values, strict=True)):
        found[: size[q], q] = U @ (value * U[0])
    return found


def function_of_completion(probes: Probes, completion: Completion, f: Values) -> Completion:
    """f(Ĥ) for Ĥ = c·I + Z diag(w) Zᵀ, Z orthonormal: Z diag(f(c + w)) Zᵀ, and a multiple of the rest of I.

    f(c) would be that multiple if all other eigenvalues were c. They are not, and c is their mean, so the mean of f is
    taken instead: what `_trace` says of tr f(H), without the part on Z. It is worth 5° on the heat kernel of a graph.

    The completion guesses c and some of w; f may not be defined there, or be steep. So its eigenvalues are kept between
    the least and the largest Ritz value, which are between those of H.
    """
    T = probes.X.T @ probes.Y
    theta, V = np.linalg.eigh(0.5 * (T + T.T))
    c, Z, w = completion.factor
    values = f(np.concatenate([np.clip(c + w, theta[0], theta[-1]), theta]))
    on_Z, on_ritz = values[: len(w)], values[len(w) :]
    mean, unseen = 0.0, len(Z) - len(w)
    if unseen:
        mean = (_trace(probes, c, theta, V, on_ritz) - float(on_Z.sum())) / unseen
        mean = min(max(mean, float(on_ritz.min())), float(on_ritz.max()))
    return Completion(Factor(mean, Z, on_Z - mean), completion.relative_error)


def _trace(probes: Probes, c: float, theta: np.ndarray, V: np.ndarray, values: np.ndarray) -> float:
    """An estimate of tr f(H): stochastic Lanczos quadrature, on all but the eigenvectors that have been found.

    Args:
        probes: the products.
        c: the mean of the eigenvalues that have not been seen.
        theta, V, values: Ritz values (m,), Ritz vectors in terms of the probes (m, m), and f of the values (m,).
    """
    n, m = probes.X.shape
    residual = np.linalg.norm(probes.Y @ V - probes.X @ (V * theta), axis=0)
    found = residual < CONVERGED * np.abs(theta)
    found[np.argsort(np.abs(theta - c))[: max(1, m // 4)]] = False  # these are left to speak for the rest
    weights = (V[: probes.n_random, ~found] ** 2).sum(0)
    rest = float(weights @ values[~found]) / max(float(weights.sum()), 1e-300)
    return float(values[found].sum()) + (n - int(found.sum())) * rest
