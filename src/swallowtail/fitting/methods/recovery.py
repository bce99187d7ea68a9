"""Direct recovery of a butterfly when the matrix is one: no search, no starting point, O(n²) per level.

Write H = Q₁ (X ⊕ Y) Q₁ᵀ for the first layer, stride p, with angles θ_r on (r, r + p), and cut H into
[[A, B], [Bᵀ, C]] at p. Undoing Q₁ must leave a zero off-diagonal block N, and the sum and difference of
its entries N_rs and N_sr depend on θ_r + θ_s and θ_r − θ_s alone:

    N_rs + N_sr = |Z_rs| sin(arg Z_rs − θ_r − θ_s),    Z = (A − C) + i(B + Bᵀ)
    N_rs − N_sr = |W_rs| sin(θ_r − θ_s − arg W_rs),    W = (A + C) − i(B − Bᵀ)

so ‖N‖²_F = const − ⅛ Σ Re(Z²_rs ū_r ū_s + W²_rs ū_r u_s) with u = exp(2iθ): a quadratic form in
(Re u, Im u), a problem of synchronising phases. Scaled by its row sums its leading eigenvalue is 1 exactly
when a zero block can be reached, and Perron's theorem makes the leading eigenvector the answer, whatever
the eigenvalues of H: repeated ones are no special case. Rows that no entry connects are solved apart:
between them the choice is free. Then X and Y.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.objectives import EXACT, Objective
from swallowtail.fitting.core.records import DenseFit, Stop
from swallowtail.wiring import Butterfly

CONNECTED = 1e-12  # entries below this, relative to the largest of H, are rounding and connect nothing
DENSE = 128  # the dense eigensolver up to this size, Lanczos beyond


class RotationFit(NamedTuple):
    """R ≈ Q diag(signs)."""

    wiring: Butterfly
    angles: np.ndarray  # shape: (K,)
    signs: np.ndarray  # shape: (n,), ±1; all +1 when R is in the class
    relative_error: float  # ‖R − Q diag(signs)‖_F / ‖R‖_F


def recover_symmetric(
    H: np.ndarray,
    *,
    reverse: bool = False,
    give_up: float = 0.2,
    polish: int = 200,
    pulse: Callable[[], None] | None = None,
) -> DenseFit | None:
    """Find Q and D with H = Q D Qᵀ, Q a butterfly of depth 1, if there are any.

    Args:
        H: symmetric, shape (n, n), any n; exact or with a little noise.
        reverse: look for the wiring of Qᵀ, strides 1, 2, …, n/2 (n a power of two). The paper's H = RᵀΛR
            is that.
        give_up: return None as soon as the first level leaves more than this relative error: the cheap
            test of whether it fits.
        polish: L-BFGS iterations at the end, when the result is not exact.
        pulse: called between the steps; if it raises `Stop`, the angles not yet found stay 0.

    Returns:
        The fit, its history ending with the squared relative error; or None.

    >>> fit = recover_symmetric(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> sorted(fit.eigenvalues.round(12).tolist())
    [1.0, 3.0]
    """
    objective = Objective(H)
    n = objective.n
    wiring = Butterfly(n, reverse=reverse)
    order = _bit_reversal(n) if reverse else np.arange(n)
    A = objective.H[np.ix_(order, order)]
    theta = np.zeros((wiring.n_layers, n))  # by layer and first coordinate of the pair
    try:
        blocks = [(0, n)]
        for level, p in enumerate(Butterfly(n).strides):
            blocks = [part for block in blocks for part in _split(A, theta[level], *block, p, pulse)]
            if level == 0 and _outside(A, p) > give_up**2 * objective.norm2:
                return None
    except Stop:
        polish = 0
    if reverse:
        theta = theta[:, order]
    pairs = wiring.flat_pairs()
    layer_of = np.repeat(np.arange(wiring.n_layers), np.diff(wiring.offsets))
    angles = theta[layer_of, pairs[:, 0]]
    value, _ = objective(pairs, angles)
    history = [("recover", len(angles), value)]
    if value > EXACT and polish:

        def report(at: np.ndarray, value: float) -> None:
            nonlocal angles
            if value < history[-1][2]:
                angles = at.copy()
                history.append(("polish", len(at), value))
            if pulse is not None:
                pulse()

        with contextlib.suppress(Stop):
            report(*objective.polish(pairs, angles, polish, 1e-9, report))
    return DenseFit(wiring, angles, objective.eigenvalues(pairs, angles), history)


def recover_rotation(R: np.ndarray) -> RotationFit:
    """Read the angles off an orthogonal matrix R = Q diag(±1), Q a butterfly of depth 1.

    Left of column p, rows r and r + p of R are (cos θ_r, sin θ_r) times one row; right of it, (−sin θ_r,
    cos θ_r) times another. So 2θ_r is the argument of Σ_left (R_r + iR_{r+p})² − Σ_right (…)², least
    squares under noise. θ_r and θ_r + 180° differ by the sign of a row in both halves; only blocks of
    determinant +1 lead on.

    Args:
        R: orthogonal, shape (n, n), any n.

    Returns:
        wiring, angles, signs, and the relative error, which says whether R was in the class.

    >>> recover_rotation(np.array([[0.6, -0.8], [0.8, 0.6]])).angles.round(6).tolist()
    [0.927295]
    """
    R = np.array(R, dtype=np.float64)
    n, norm = len(R), np.linalg.norm(R)
    wiring = Butterfly(n)
    theta, blocks, M = np.zeros((wiring.n_layers, n)), [(0, n)], R
    for level, p in enumerate(wiring.strides):
        blocks = [part for start, size in blocks for part in _split_rotation(M, theta[level], start, size, p)]
    signs = np.where(np.diagonal(M) < 0, -1.0, 1.0)
    layer_of = np.repeat(np.arange(wiring.n_layers), np.diff(wiring.offsets))
    # What is left of QᵀR, beside its signs, is the error: rotations preserve the norm.
    error = float(np.linalg.norm(M - np.diag(signs)) / norm)
    return RotationFit(wiring, theta[layer_of, wiring.flat_pairs()[:, 0]], signs, error)


def _bit_reversal(n: int) -> np.ndarray:
    if n & (n - 1):
        raise ArgumentError("reverse", "n to be a power of two", n, "try reverse=False")
    bits = (n - 1).bit_length()
    return np.array([int(format(i, f"0{bits}b")[::-1], 2) if bits else 0 for i in range(n)], dtype=np.int64)


def _outside(A: np.ndarray, p: int) -> float:
    """Squares outside the two diagonal blocks that meet at p."""
    return 2.0 * float(np.sum(A[:p, p:] ** 2))


def _split(
    A: np.ndarray, theta: np.ndarray, start: int, size: int, p: int, pulse: Callable[[], None] | None
) -> list[tuple[int, int]]:
    """Choose the angles of one block at stride p, rotate that block of A in place, return its two halves."""
    if pulse is not None:
        pulse()
    q = size - p  # pairs; coordinates q … p − 1 of the upper half have no partner
    if q <= 0:
        return [(start, size)]
    block = A[start : start + size, start : start + size]
    angles = _synchronise(block, p, q)
    theta[start : start + q] = angles
    c, s = np.cos(angles), np.sin(angles)
    top, bottom = block[:q].copy(), block[p:].copy()
    block[:q], block[p:] = c[:, None] * top + s[:, None] * bottom, c[:, None] * bottom - s[:, None] * top
    top, bottom = block[:, :q].copy(), block[:, p:].copy()
    block[:, :q], block[:, p:] = c * top + s * bottom, c * bottom - s * top
    return [(start, p), (start + p, q)]


def _synchronise(block: np.ndarray, p: int, q: int) -> np.ndarray:  # shape: (q,)
    """The θ that minimise the off-diagonal block after rotating (r, r + p), r < q."""
    A, B, C = block[:q, :q], block[:q, p:], block[p:, p:]
    Z2 = ((A - C) + 1j * (B + B.T)) ** 2
    W2 = ((A + C) - 1j * (B - B.T)) ** 2
    np.fill_diagonal(W2, 0.0)  # |u_r|² = 1: constant
    # A coordinate without a partner lies in the upper half for certain: a field that holds θ_s.
    alone = (block[q:p, :q] + 1j * block[q:p, p:]) ** 2
    field, strength = 2.0 * alone.sum(0), 2.0 * np.abs(alone).sum(0)
    weight = np.abs(Z2) + np.abs(W2)
    linked = weight > CONNECTED**2
    held = strength > CONNECTED**2
    # A row that nothing else holds has the Jacobi angle of its own 2×2 block.
    own = np.sqrt(np.diagonal(Z2))
    u = np.where(np.abs(own) > CONNECTED, own, 1.0)
    for rows in _components(linked, held):
        inside = np.ix_(rows, rows)
        h, degree = (
            np.where(held, field, 0.0)[rows],
            (weight * linked)[inside].sum(1) + (strength * held)[rows],
        )
        u[rows] = _leading_phases(Z2[inside], W2[inside], h, degree)
    return 0.5 * np.angle(u)


def _components(linked: np.ndarray, held: np.ndarray) -> list[np.ndarray]:
    """Sets of rows that hang together, ``held`` ones in one set; without rows that stand alone."""
    q = len(held)
    if q == 1 and not held[0]:
        return []
    if linked.all():  # the usual case, and much faster than looking for parts
        return [np.arange(q)]
    graph = np.zeros((q + 1, q + 1), dtype=bool)  # the last node stands for all coordinates without a partner
    graph[:q, :q], graph[:q, q] = linked, held
    count, label = scipy.sparse.csgraph.connected_components(scipy.sparse.coo_array(graph), directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(label, minlength=count))[:-1])
    return [part[part < q] for part in parts if len(part) > 1]


def _leading_phases(Z2: np.ndarray, W2: np.ndarray, h: np.ndarray, degree: np.ndarray) -> np.ndarray:
    """Phases u_r of the leading eigenvector of Re(Z²ūū + W²ūu) + Re(h̄u), scaled by its row sums."""
    m = len(h)
    ab = Z2.imag - W2.imag
    S = np.zeros((2 * m + 1, 2 * m + 1))
    S[:m, :m], S[m:-1, m:-1], S[:m, m:-1], S[m:-1, :m] = Z2.real + W2.real, W2.real - Z2.real, ab, ab.T
    S[-1, :m] = S[:m, -1] = h.real
    S[-1, m:-1] = S[m:-1, -1] = h.imag
    scale = 1.0 / np.sqrt(np.concatenate([degree, degree, [np.abs(h).sum() or 1.0]]))
    vector = _leading_eigenvector(S * scale[:, None] * scale)
    if vector[-1] < 0:
        vector = -vector
    u = vector[:m] + 1j * vector[m:-1]
    u = np.where(np.abs(u) > 0, u, 1.0)
    return u / np.abs(u)


def _leading_eigenvector(S: np.ndarray) -> np.ndarray:
    if len(S) > DENSE:
        arpack = scipy.sparse.linalg
        try:
            return arpack.eigsh(S, k=1, which="LA", v0=np.ones(len(S)), tol=0, maxiter=20)[1][:, 0]
        except arpack.ArpackError:  # no convergence: fall through to the solver that always answers
            pass
    return np.linalg.eigh(S)[1][:, -1]


def _split_rotation(M: np.ndarray, theta: np.ndarray, start: int, size: int, p: int) -> list[tuple[int, int]]:
    """As `_split`, for the rows of M alone, the columns being in their places."""
    q = size - p
    if q <= 0:
        return [(start, size)]
    block = M[start : start + size, start : start + size]
    squares = (block[:q] + 1j * block[p:]) ** 2
    angles = 0.5 * np.angle(squares[:, :p].sum(1) - squares[:, p:].sum(1))
    rows_c, rows_s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    wide = M[start : start + size]
    top, bottom = wide[:q].copy(), wide[p:].copy()
    wide[:q], wide[p:] = rows_c * top + rows_s * bottom, rows_c * bottom - rows_s * top
    for r in _rows_to_turn(block, p, q):
        angles[r] += np.pi
        wide[[r, r + p]] *= -1.0
    theta[start : start + q] = np.where(angles > np.pi, angles - 2 * np.pi, angles)
    return [(start, p), (start + p, q)]


def _rows_to_turn(block: np.ndarray, p: int, q: int) -> list[int]:
    """Rows r to turn, with r + p, so that every connected part of X and of Y has determinant +1.

    Turning r changes the sign of two parts, the one of X and the one of Y that row r is in. With the parts
    as nodes and the rows as edges, going up a spanning tree from its leaves mends all nodes but, when det
    R = −1, the root.
    """
    label_x, odd_x = _parts(block[:p, :p])
    label_y, odd_y = _parts(block[p:, p:])
    odd = np.concatenate([odd_x, odd_y])
    if not odd.any():
        return []
    ends = np.stack([label_x[:q], len(odd_x) + label_y], axis=1)
    row_of = {(int(a), int(b)): r for r, (a, b) in enumerate(ends)}
    graph = scipy.sparse.coo_array((np.ones(q), ends.T), shape=(len(odd), len(odd))).tocsr()
    count, component = scipy.sparse.csgraph.connected_components(graph, directed=False)
    turned = []
    for root in (int(np.argmax(component == c)) for c in range(count)):
        nodes, parent = scipy.sparse.csgraph.breadth_first_order(graph, root, directed=False)
        for node in nodes[:0:-1]:
            if odd[node]:
                up = parent[node]
                odd[up] = not odd[up]
                turned.append(row_of[(int(min(node, up)), int(max(node, up)))])
    return turned


def _parts(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The connected part each row of an orthogonal matrix is in, and whether its determinant is −1."""
    m, connects = len(X), np.abs(X) > CONNECTED
    if connects.all():  # the usual case, and 4× faster than looking for parts
        return np.zeros(m, np.int64), np.array([np.linalg.slogdet(X)[0] < 0])
    i, j = np.nonzero(connects)
    count, label = scipy.sparse.csgraph.connected_components(
        scipy.sparse.coo_array((np.ones(len(i)), (i, m + j)), shape=(2 * m, 2 * m)), directed=False
    )
    order = np.argsort(label, kind="stable")
    odd = []
    for part in np.split(order, np.cumsum(np.bincount(label, minlength=count))[:-1]):
        rows, columns = part[part < m], part[part >= m] - m
        odd.append(len(rows) == len(columns) and bool(np.linalg.slogdet(X[np.ix_(rows, columns)])[0] < 0))
    return label[:m], np.array(odd)
