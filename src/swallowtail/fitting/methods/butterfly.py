"""The paper's wiring, fitted on the whole objective: D eliminated, L-BFGS on all angles, several starts.

On a fixed butterfly every good optimiser ends at the same angle; what helps is more depth, more starts,
and the order in which the coordinates are laid out (neighbours in an image should meet early, for instance).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from swallowtail.fitting.core.growth import jacobi_angle
from swallowtail.fitting.core.objectives import Objective, Smooth
from swallowtail.fitting.core.product import MATRIX, Callback, DenseFit, Stop, conjugate, flat_pairs, permuted
from swallowtail.fitting.methods.recovery import recover_symmetric
from swallowtail.wiring import Butterfly, Wiring

STARTS = 8
SCOUT, FINISH = 60, 1000  # L-BFGS iterations for every start and kick, and for the best at the end
SHARE_KICKED, KICK = (
    0.1,
    1.0,
)  # a kick moves this share of the angles by a normal number of this deviation (radians)
HEAT = 0.02  # a kick may end this much worse, relatively, at first; falls linearly to nothing
WORK = 2e10  # multiply-adds spent on kicks by default: a second or two


def fit_butterfly(
    H: np.ndarray,
    depth: int = 1,
    *,
    target: str = "matrix",
    starts: int = STARTS,
    kicks: int | None = None,
    order: np.ndarray | str | None = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> DenseFit:
    """Fit H ≈ Q D Qᵀ with Q a butterfly.

    Args:
        H: symmetric, shape (n, n), any n.
        depth: how often the strides n/2, n/4, …, 1 are repeated.
        target: "matrix" minimises ‖H − QDQᵀ‖_F, "likelihood" minimises Σ log diag(QᵀHQ).
        starts: random starts, beside Jacobi angles layer by layer and, at depth 1, direct recovery.
        kicks: how often the best angles are disturbed and polished again; None spends a second or two, 100
            at most.
        order: coordinate at each position of the butterfly, shape (n,); see `morton_order`,
            `learned_order`; "learn" is the latter; None is the natural order.
        seed: of the random starts.
        callback: called as callback(stage, K, best objective so far); may raise `Stop` or
            KeyboardInterrupt, and the best so far is returned.

    Returns:
        The wiring (a `Butterfly`; a `Pairs` if ``order`` is not the natural one), angles, eigenvalues, and
        the history of the best objective.

    >>> fit_butterfly(np.array([[2.0, 1.0], [1.0, 2.0]])).wiring
    Butterfly(n=2, depth=1): 1 layers, 1 rotations
    """
    objective = Objective(H, target)
    if isinstance(order, str):
        order = learned_order(H)
    wiring = permuted(Butterfly(objective.n, depth), order)
    pairs = flat_pairs(wiring)
    generator = np.random.default_rng(seed)
    begin = _starts(objective, wiring, pairs, depth, order, starts, generator)
    angles, history = search_angles(objective, pairs, begin, kicks, generator, callback)
    return DenseFit(wiring, angles, objective.eigenvalues(pairs, angles), history)


def search_angles(
    objective: Smooth,
    pairs: np.ndarray,
    starts: Iterator[np.ndarray],
    kicks: int | None,
    generator: np.random.Generator,
    callback: Callback | None,
) -> tuple[np.ndarray, list[tuple[str, int, float]]]:
    """The best angles (K,) on fixed pairs (K, 2) and their history: polish each start, kick the best, polish.

    Args:
        objective: what to minimise.
        pairs: who meets whom, Q₁ first.
        starts: angles to start from; no rotation at all is one in any case.
        kicks, callback: as in `fit_butterfly`.
        generator: of the kicks.
    """
    best = (np.zeros(len(pairs)), objective.of_residual(objective.residual(pairs[:0], np.zeros(0))))
    history = [("start", len(pairs), best[1])]

    def keep(stage: str, angles: np.ndarray, value: float) -> None:
        nonlocal best
        if value < best[1]:
            best = (angles, value)
            history.append((stage, len(pairs), value))
        if callback is not None:
            callback(stage, len(pairs), best[1])

    if kicks is None:
        kicks = int(min(100, WORK / (14.0 * objective.n * max(len(pairs), 1) * SCOUT)))
    try:
        for angles in starts:
            keep("scout", *objective.polish(pairs, angles, SCOUT, 1e-6, lambda x, f: keep("scout", x, f)))
        angles, value = best
        for index in range(kicks):
            kicked = generator.random(len(pairs)) < SHARE_KICKED
            start = angles + kicked * KICK * generator.standard_normal(len(pairs))
            new, new_value = objective.polish(pairs, start, SCOUT, 1e-5, lambda x, f: keep("kick", x, f))
            keep("kick", new, new_value)
            if new_value < value + HEAT * (1.0 - index / kicks) * abs(value):
                angles, value = new, new_value
        keep("polish", *objective.polish(pairs, best[0], FINISH, 1e-8, lambda x, f: keep("polish", x, f)))
    except (Stop, KeyboardInterrupt):
        pass
    return best[0], history


def morton_order(height: int, width: int) -> np.ndarray:  # shape: (height * width,)
    """Pixels of a row-major image in Z-order: the butterfly's strides alternate between rows and columns.

    >>> morton_order(2, 4).tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    rows, columns = np.divmod(np.arange(height * width), width)
    key = np.zeros(height * width, dtype=np.int64)
    for bit in range(max(height, width).bit_length()):
        key |= ((columns >> bit) & 1) << (2 * bit) | ((rows >> bit) & 1) << (2 * bit + 1)
    return np.argsort(key, kind="stable")


def learned_order(H: np.ndarray) -> np.ndarray:  # shape: (n,)
    """An order of the coordinates in which those that should meet do: clusters paired level by level.

    The first layer pairs single coordinates with the largest total a_ij², rotates them by their Jacobi
    angles, the next one pairs those pairs, and so on. n that is not a power of two is filled up with empty
    coordinates, which are dropped at the end.
    """
    n = len(H)
    N = 1 << (n - 1).bit_length()
    A = np.zeros((N, N))
    A[:n, :n] = H
    clusters = np.arange(N)[:, None]  # shape: (number of clusters, coordinates in each)
    while len(clusters) > 1:
        weight = np.zeros((len(clusters), len(clusters)))
        for column in clusters.T:
            weight += A[np.ix_(column, column)] ** 2
        first, second = _matching(weight)
        pairs = np.stack([clusters[first].ravel(), clusters[second].ravel()], axis=1)
        A = conjugate(A, pairs, _jacobi_angles(A, pairs))
        clusters = np.concatenate([clusters[first], clusters[second]], axis=1)
    # Merge number l joined places that differ in bit l; the butterfly's first layer is its highest bit.
    bits = N.bit_length() - 1
    place = np.arange(N)
    reversed_place = sum(((place >> bit) & 1) << (bits - 1 - bit) for bit in range(bits)) + 0 * place
    order = np.empty(N, dtype=np.int64)
    order[reversed_place] = clusters[0]
    return order[order < n]


def _starts(
    objective: Objective,
    wiring: Wiring,
    pairs: np.ndarray,
    depth: int,
    order: np.ndarray | None,
    count: int,
    generator: np.random.Generator,
) -> Iterator[np.ndarray]:
    """Angles to start from: recovered, Jacobi layer by layer, then random ones."""
    if objective.target == MATRIX and depth == 1:
        at = np.arange(objective.n) if order is None else np.asarray(order)
        recovered = recover_symmetric(objective.H[np.ix_(at, at)], give_up=np.inf, polish=0)
        if recovered is not None:
            yield recovered.angles
    A, greedy = objective.H, np.zeros(len(pairs))
    for lo, hi in zip(wiring.offsets[:-1], wiring.offsets[1:], strict=True):
        greedy[lo:hi] = _jacobi_angles(A, pairs[lo:hi])
        A = conjugate(A, pairs[lo:hi], greedy[lo:hi])
    yield greedy
    for _ in range(count):
        yield generator.uniform(-np.pi, np.pi, len(pairs))


def _jacobi_angles(A: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    i, j = pairs.T
    return np.array([jacobi_angle(a, b, d) for a, b, d in zip(A[i, i], A[i, j], A[j, j], strict=True)])


def _matching(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A perfect matching of heavy pairs, greedily: (first, second)."""
    m = len(weight)
    i, j = np.triu_indices(m, 1)
    free = np.ones(m, dtype=bool)
    first, second = [], []
    for k in np.argsort(-weight[i, j], kind="stable"):
        if free[i[k]] and free[j[k]]:
            free[i[k]] = free[j[k]] = False
            first.append(i[k])
            second.append(j[k])
    return np.array(first), np.array(second)
