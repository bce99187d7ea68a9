"""What products say of a symmetric H: probes, and the completion of H from them.

1. Probe. Block Krylov: a random orthonormal block, then H times the last block, made orthonormal to all
   before. Gives X (n, m) orthonormal and Y = HX with m products, not one more.
2. Complete. With T = XᵀY, P = XXᵀ and R = Y − XT, the products fix all of H but (I − P)H(I − P):

       Ĥ = YXᵀ + XYᵀ − XTXᵀ + R g(T) Rᵀ + c(I − P)

   Where H is c·I plus low rank, the unseen block is R(T − cI)⁻¹Rᵀ + c(I − P) (Nyström's formula after a shift).
   So g is that inverse on the part of T which stands out from c, and 0 elsewhere; c makes up the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.core.product import power_of_two
from swallowtail.fitting.core.records import Callback, Stop

MOST_PASSES = 16  # 4 → 8 lowers the completion's angle by 0.7° on kernels and MNIST, 16 by 0.3° more on some
PIECE_NUMBERS = 2**23  # a pass of more numbers is asked for in pieces, and may be stopped between them
CONVERGED = 0.05  # a Ritz vector with a residual below this fraction of its value counts as an eigenvector
NOISE = 1e-8  # directions of given samples are dropped below this fraction of the largest singular value
BREAKDOWN = 1e-10  # a new direction shorter than this fraction of what it came from is rounding
ROUNDING = 1e-12  # so is a singular value or weight below this fraction of the largest

Product = Callable[[np.ndarray], Any]


class Probes(NamedTuple):
    """What was asked of H: Y = HX."""

    X: np.ndarray  # orthonormal, shape: (n, m)
    Y: np.ndarray  # shape: (n, m)
    asymmetry: float  # ‖T − Tᵀ‖_F / 2‖T‖_F for T = XᵀY: 0 if H is symmetric, 1 if antisymmetric
    trace: float  # an estimate of tr H
    norm: float  # an estimate of ‖H‖_F
    n_random: int  # the first columns of X, which are random


class Completion(NamedTuple):
    """Ĥ, and what is known about it from the same products."""

    factor: Factor  # Ĥ = c·I + Z diag(w) Zᵀ, Z orthonormal
    relative_error: float  # an estimate of ‖H − Ĥ‖_F / ‖H‖_F


def probe(
    product: Product,
    n: int,
    n_products: int,
    passes: int | None = None,
    seed: int = 0,
    report: Callback | None = None,
) -> Probes:
    """Block Krylov probes: X orthonormal (n, m) and Y = HX, with m = min(n_products, n) products in all.

    If ``report`` raises `Stop` or KeyboardInterrupt there are fewer, but one or two at least.
    """
    n = checks.integer("n", n, at_least=1)
    m = min(checks.integer("n_products", n_products, at_least=1), n)
    if passes is None:
        passes = min(MOST_PASSES, max(1, m // 2))  # a block of two at least: the trace is read off the first
    passes = min(checks.integer("passes", passes, at_least=1), m)
    # X, Y, the residual and its singular vectors, the completion's basis: five arrays of this size live at once.
    checks.fits_in_memory(f"{m} products of length {n}", 5 * 8 * n * m, "try a smaller `max_products`")
    generator = np.random.default_rng(seed)
    # Large ones by columns: those that are never asked for then take no memory.
    X, Y = (np.empty((n, m), order="F" if n * m > PIECE_NUMBERS else "C") for _ in range(2))
    sizes = [m // passes + (k < m % passes) for k in range(passes)]
    most = max(2, PIECE_NUMBERS // n)
    previous, start = 0, 0  # where the last pass began, and where this one does
    for size in sizes:
        for at in range(0, size, most):
            width = min(most, size - at)
            done = start + at + width
            new = slice(start + at, done)
            last = (
                Y[:, previous + at : previous + at + width]
                if start
                else generator.standard_normal((n, width))
            )
            X[:, new] = _orthonormal(last, X[:, : new.start], generator)
            Y[:, new] = _asked(product, X[:, new].copy())
            if report is not None:
                try:
                    report("probe", done, float("nan"))
                except (Stop, KeyboardInterrupt):  # H is completed from the products there are
                    return _probes(X[:, :done], Y[:, :done], min(done, sizes[0]))
        previous, start = start, start + size
    return _probes(X, Y, sizes[0])


def orthonormal_samples(X: np.ndarray, Y: np.ndarray) -> Probes:
    """Samples with X orthonormal that say of a symmetric H what the given ones say, in least squares.

    min ‖HX − Y‖_F over H = Hᵀ (Higham's symmetric Procrustes problem): with X = U diag(σ) Vᵀ, C = YV and
    b = UᵀC diag(σ), UᵀHU has the entries (b_ij + b_ji)/(σ_i² + σ_j²), and (1 − UUᵀ)HU = (1 − UUᵀ) C diag(1/σ).

    Args:
        X: shape (n, m); columns may be dependent, m may exceed n.
        Y: shape (n, m).
    """
    X, Y = _real("X", X), _real("Y", Y)
    if X.ndim != 2 or 0 in X.shape or X.shape != Y.shape:
        raise ArgumentError("X, Y", "one shape (n, m), vectors in columns", f"{X.shape} and {Y.shape}")
    U, sigma, Vt = np.linalg.svd(X, full_matrices=False)
    kept = sigma > NOISE * sigma[0]
    if not kept.any():
        raise ArgumentError("X", "a vector that is not zero", f"{X.shape[1]} zero columns")
    U, sigma, C = U[:, kept], sigma[kept], Y @ Vt[kept].T
    scale = power_of_two(C)
    b = (U.T @ (C / scale)) * sigma
    T = (b + b.T) / (sigma[:, None] ** 2 + sigma**2) * scale
    fitted = U @ T + (C - U @ (U.T @ C)) / sigma
    return _probes(U, fitted, U.shape[1])._replace(asymmetry=_asymmetry(b / sigma**2))


def complete(probes: Probes) -> Completion:
    """The completion Ĥ of the module's docstring, as c·I + Z diag(w) Zᵀ; ĤX = Y if XᵀY is symmetric."""
    X, m = probes.X, probes.X.shape[1]
    unseen = len(X) - m
    scale = power_of_two(probes.Y)  # squares of entries near 1e±200 leave float64
    Y = probes.Y / scale
    T = X.T @ Y
    R = Y - X @ T
    T = 0.5 * (T + T.T)
    theta, V = np.linalg.eigh(T)
    if unseen == 0:
        return Completion(Factor(0.0, X @ V, theta * scale), 0.0)
    # In a Krylov space only the last block leaves it: R = U·S has few columns that are more than rounding.
    U, s, S = np.linalg.svd(R, full_matrices=False)
    rank = min(unseen, int((s > ROUNDING * np.abs(Y).max()).sum()))
    U, S = U[:, :rank], s[:rank, None] * S[:rank]
    # What is antisymmetric in T is error, and what is symmetric has as much of it.
    noise = max(BREAKDOWN * np.abs(theta).max(), probes.asymmetry * float(np.linalg.norm(T)))
    c, G = _unseen_block(theta, S @ V, probes.trace / scale - theta.sum(), unseen, noise)
    w, W = np.linalg.eigh(np.block([[T - c * np.eye(m), S.T], [S, G]]))
    kept = np.abs(w) > ROUNDING * max(np.abs(w).max(), abs(c))
    Z = X @ W[:m, kept] + U @ W[m:, kept]
    known = 2.0 * float(np.vdot(S, S)) + float(np.vdot(T, T))
    guessed = float(np.vdot(G, G)) + 2.0 * c * float(np.trace(G)) + c * c * unseen
    norm2 = max((probes.norm / scale) ** 2, known + guessed)
    error = float(np.sqrt(1.0 - (known + guessed) / norm2)) if norm2 > 0.0 else 0.0
    return Completion(Factor(c * scale, np.ascontiguousarray(Z), w[kept] * scale), error)


def _unseen_block(
    theta: np.ndarray, S: np.ndarray, rest: float, unseen: int, noise: float
) -> tuple[float, np.ndarray]:
    """c and G with (I − P)H(I − P) ≈ G + c(I − P), G in the basis of R; S (k, m) is R on the Ritz vectors.

    G = S (θ − c)⁻¹ Sᵀ over the Ritz values θ (m,) that stand out, tr G + c·unseen = ``rest``: each needs the
    other, so iterate. Differences below ``noise`` say nothing.
    """
    residual = np.sqrt((S * S).sum(0))
    positive = theta[0] > -noise  # no sign of a negative eigenvalue: then G never exceeds H − c
    c, G = max(theta[0], 0.0) if positive else rest / unseen, np.zeros((len(S), len(S)))
    for _ in range(30):
        gap = theta - c
        # Else a value must stand out by more than its residual: then R/(θ − c) is a small turn of its vector.
        outstanding = (gap > c if positive else np.abs(gap) > residual) & (np.abs(gap) > noise)
        inverse = np.zeros(len(theta))
        inverse[outstanding] = 1.0 / gap[outstanding]
        G = (S * inverse) @ S.T
        c = (rest - float(np.trace(G))) / unseen
        c = max(c, 0.0) if positive else c
    return c, G


def _probes(X: np.ndarray, Y: np.ndarray, n_random: int) -> Probes:
    scale = power_of_two(Y)
    T = X.T @ (Y / scale)
    trace, norm2 = _moments(X, Y / scale, 0.5 * (T + T.T), n_random)
    return Probes(X, Y, _asymmetry(T), trace * scale, float(np.sqrt(norm2)) * scale, n_random)


def _moments(X: np.ndarray, Y: np.ndarray, T: np.ndarray, n_random: int) -> tuple[float, float]:
    """Estimates of tr H and ‖H‖²_F: eigenvalues that have been found, plus n times the mean over the rest.

    The mean is what the random columns of X say (Hutchinson) without their part along the found Ritz vectors:
    those, largest first as long as their residual is small, need no estimate and would only add variance.
    """
    n, m = X.shape
    theta, V = np.linalg.eigh(T)
    order = np.argsort(-np.abs(theta), kind="stable")
    theta, V = theta[order], V[:, order]
    HV = Y @ V
    residual = np.sqrt(((HV - X @ (V * theta)) ** 2).sum(0))
    found = int(np.cumprod(residual < CONVERGED * np.abs(theta)).sum())
    found = min(found, m - max(1, m // 4)) if m < n else n  # some must be left to speak for the rest
    trace, norm2 = float(theta[:found].sum()), float((HV[:, :found] ** 2).sum())
    B = V[:n_random, found:].T  # the random columns, in terms of the other Ritz vectors
    weight = float((B * B).sum())
    if found < m and weight > 0.0:
        trace += (n - found) * float(theta[found:] @ (B * B).sum(1)) / weight
        norm2 += (n - found) * float(((HV[:, found:] @ B) ** 2).sum()) / weight
    return trace, norm2


def _asymmetry(T: np.ndarray) -> float:
    return float(np.linalg.norm(T - T.T) / max(2.0 * float(np.linalg.norm(T)), 1e-300))


def _orthonormal(block: np.ndarray, X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """An orthonormal basis of ``block`` orthogonal to X; random directions where it has none left to give."""
    Z = block / power_of_two(block)
    for attempt in range(3):
        before = np.sqrt((Z * Z).sum(0)).max(initial=0.0)
        Z = Z - X @ (X.T @ Z)
        Z, triangle = np.linalg.qr(Z)
        lost = np.abs(np.diagonal(triangle)) <= BREAKDOWN * before
        if not lost.any() and (attempt or not X.shape[1]):  # one more removes the first one's rounding
            break
        if attempt < 2:
            Z[:, lost] = generator.standard_normal((len(Z), int(lost.sum())))
    return Z


def _asked(product: Product, X: np.ndarray) -> np.ndarray:
    """HX, checked."""
    Y = _real("product", product(X))
    if Y.shape != X.shape:
        raise ArgumentError("product", f"shape {X.shape}, like X", Y.shape, "try: lambda X: H @ X")
    return Y


def _real(name: str, value: Any) -> np.ndarray:
    """``value`` as float64, finite."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ArgumentError(name, "real numbers", array.dtype)
    array = array.astype(np.float64)
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise ArgumentError(name, "finite numbers", f"{bad} of {array.size} NaN or infinite")
    return array
