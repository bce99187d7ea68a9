"""The plain alternatives: c·I + low rank at equal floats, bytes, multiply-adds and time; dense; CSR."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import eigsh

from swallowtail.fitting.result import Rival, count_bytes, count_floats
from swallowtail.metrics import error_angle, relative_error

FULL_EIGH = 1500  # up to this n all eigenvectors are cheaper than choosing which to ask for
PROBES = 1000  # x for an angle; a fifth of it beyond FULL_EIGH, where angles hardly differ from x to x
TIE = 1e-3  # degrees; closer angles are the same


class Alternative(NamedTuple):
    """A rival that is not measured yet: its name, what multiplies, and what it costs."""

    name: str
    operator: Any
    floats: int
    bytes: int
    multiply_adds: int
    equal: str  # as in `Rival`

    @classmethod
    def identity_and_rank(cls, r: int, operator: Any, n: int, equal: str, more: str = "") -> Alternative:
        """c·I + U diag(w) Uᵀ with r columns."""
        floats = r * (n + 1) + 1
        return cls(f"c·I + rank {r}{more}", operator, floats, 4 * floats, (2 * r + 1) * n, equal)

    @classmethod
    def other_form(cls, name: str, operator: Any) -> Alternative:
        """A form that was fitted too."""
        return cls(name, operator, count_floats(operator), count_bytes(operator), operator.multiply_adds, "")

    def measured(self, angle: float, relative_error: float) -> Rival:
        return Rival(
            self.name, angle, relative_error, self.floats, self.bytes, self.multiply_adds, self.equal
        )


class LowRank:
    """c·I + U diag(w) Vᵀ with r columns; U is V unless it is given.

    With U = V it takes r(n + 1) + 1 floats and (2r + 1)n multiply-adds.
    """

    def __init__(self, c: float, w: np.ndarray, V: np.ndarray, U: np.ndarray | None = None) -> None:
        self.c, self.w, self.V, self.U = c, w, V, V if U is None else U
        self.shape = (len(V), len(V))

    def __matmul__(self, X: np.ndarray) -> np.ndarray:
        return self.c * X + self.U @ (self.w[:, None] * (self.V.T @ X))


def low_rank(H: np.ndarray, ranks: list[int]) -> dict[int, LowRank]:
    """The best c·I + rank r in Frobenius norm for each r: it takes away the extreme eigenvalues of H.

    Of the sorted eigenvalues the r taken away are some of the lowest and some of the highest, so that what
    is left has the least variance; c is its mean.
    """
    n, most = len(H), min(max(ranks, default=0), len(H))
    if n <= FULL_EIGH or 4 * most > n:
        values, vectors = np.linalg.eigh(H)
        return {r: _cut(values, vectors, r) for r in ranks}
    # Extremes of H − cI by magnitude; c from the trace, corrected once for what they take away.
    trace, c = float(np.trace(H)), float(np.trace(H)) / n
    for _ in range(2):
        w, V = eigsh(H - c * np.eye(n), k=max(1, most), which="LM", v0=np.ones(n))
        c = (trace - float((w + c).sum())) / (n - len(w))
    order = np.argsort(-np.abs(w))
    result = {}
    for r in ranks:
        top = order[:r]
        kept = w[top] + c
        mean = (trace - float(kept.sum())) / max(1, n - r)
        result[r] = LowRank(mean, kept - mean, V[:, top])
    return result


def _cut(values: np.ndarray, vectors: np.ndarray, r: int) -> LowRank:
    n = len(values)
    r = min(r, n)
    scale = float(np.abs(values).max(initial=0.0)) or 1.0  # squares of entries near 1e±200 leave float64
    values = values / scale
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values**2)])
    low = np.arange(r + 1)  # how many of the lowest are taken away
    high = n - (r - low)
    count = max(1, n - r)
    variance = squares[high] - squares[low] - (sums[high] - sums[low]) ** 2 / count
    first = int(np.argmin(variance))
    last = n - (r - first)
    c = float((sums[last] - sums[first]) / count)
    taken = np.concatenate([np.arange(first), np.arange(last, n)])
    return LowRank(c * scale, (values[taken] - c) * scale, vectors[:, taken])


def dense_rivals(
    H: np.ndarray, operator: Any, seed: int, others: dict[str, Any], sparse: Any = None
) -> list[Rival]:
    """Every rival of ``operator`` as an approximation of the dense matrix H.

    Args:
        H: shape (n, n).
        operator: the fit, a SymmetricOperator.
        seed: of the probes for the angle.
        others: name → SymmetricOperator, the other forms that were fitted.
        sparse: the CSR matrix, if H came as one.
    """
    n = len(H)
    ranks = equal_ranks(operator) | {"time": _rank_of_equal_time(n, operator)}
    # Where the budget pays for all n² numbers, the dense matrix is the rival.
    enough = {"floats": n - 1, "bytes": n - 1, "multiply-adds": n // 2, "time": n // 2}
    dense = [name for name, r in ranks.items() if r > 0 and r >= enough[name]]
    ranks = {name: r for name, r in ranks.items() if name not in dense}
    cuts = low_rank(H, sorted(set(ranks.values())))
    forms = [
        Alternative.identity_and_rank(r, cuts[r], n, _shared(ranks, r)) for r in sorted(set(ranks.values()))
    ]
    forms += [Alternative.other_form(name, other) for name, other in others.items()]
    rivals = [_measured_on_entries(H, form, seed) for form in forms]
    if sparse is not None:
        stored = 8 * sparse.nnz + 4 * (n + 1)  # bytes: values and columns, and where rows begin
        rivals.append(Rival("the sparse matrix itself (CSR)", 0.0, 0.0, sparse.nnz, stored, sparse.nnz, ""))
    rivals.append(Rival("dense", 0.0, 0.0, n * n, 4 * n * n, n * n, ", ".join(dense)))
    return rivals


def low_rank_rotation(R: np.ndarray, ranks: list[int]) -> dict[int, LowRank]:
    """The best c·I + U Vᵀ of rank r in Frobenius norm for each r: 2rn + 1 floats, (2r + 1)n multiply-adds.

    For orthogonal R, (R − cI)ᵀ(R − cI) = (1 + c²)I − c(R + Rᵀ): whatever c, the right singular vectors are
    the eigenvectors of (R + Rᵀ)/2. Keeping those of all but n − r extreme eigenvalues μ, the rest is least for
    c = mean μ over it, where its square is (n − r)(1 − c²).
    """
    n = len(R)
    mu, V = np.linalg.eigh((R + R.T) / 2)
    result = {}
    for r in ranks:
        highest, lowest = (float(part.mean()) if r < n else 0.0 for part in (mu[r:], mu[: n - r]))
        c, kept = (highest, V[:, :r]) if abs(highest) >= abs(lowest) else (lowest, V[:, n - r :])
        result[r] = LowRank(c, np.ones(kept.shape[1]), kept, R @ kept - c * kept)
    return result


def rotation_rivals(R: np.ndarray, operator: Any, seed: int, others: dict[str, Any]) -> list[Rival]:
    """Every rival of ``operator`` as an approximation of R: c·I + low rank, the other forms fitted, dense.

    Args:
        R: shape (n, n).
        operator: the fit, a Rotation or SignedRotation.
        seed: of the probes for the angle.
        others: name → operator, the other forms that were fitted.
    """
    n = len(R)
    ranks = {
        "floats": (count_floats(operator) - 1) // (2 * n),
        "multiply-adds": (operator.multiply_adds - n) // (2 * n),
    }
    ranks = {name: int(np.clip(r, 0, n)) for name, r in ranks.items()}
    forms = []
    for r, form in low_rank_rotation(R, sorted(set(ranks.values()))).items():
        floats = 2 * r * n + 1
        name = f"c·I + rank {r}"
        forms.append(Alternative(name, form, floats, 4 * floats, (2 * r + 1) * n, _shared(ranks, r)))
    forms += [Alternative.other_form(name, other) for name, other in others.items()]
    found = [
        form.measured(
            error_angle(R, form.operator, PROBES, seed), relative_error(R, form.operator @ np.eye(n)).value
        )
        for form in forms
    ]
    return [*found, Rival("dense", 0.0, 0.0, n * n, 4 * n * n, n * n, "")]


def equal_ranks(operator: Any) -> dict[str, int]:
    """The ranks nearest to the operator's floats, bytes and multiply-adds, by name."""
    n = operator.n
    ranks = {
        "floats": (count_floats(operator) - 1) / (n + 1),
        "bytes": (count_bytes(operator) / 4 - 1) / (n + 1),
        "multiply-adds": (operator.multiply_adds - n) / (2 * n),
    }
    return {name: min(n, max(0, round(r))) for name, r in ranks.items()}


def factor_rivals(completion: Any, operator: Any) -> list[Alternative]:
    """The completion of the same products, cut to the ranks of equal floats, bytes and multiply-adds."""
    ranks, factor = equal_ranks(operator), completion.factor
    return [
        Alternative.identity_and_rank(r, factor.cut(r), operator.n, _shared(ranks, r), ", same products")
        for r in sorted(set(ranks.values()))
    ]


def _shared(ranks: dict[str, int], r: int) -> str:
    """The budgets at which r is the rank of equal cost."""
    return ", ".join(name for name, rank in ranks.items() if rank == r)


def verdict(angle: float, rivals: list[Rival]) -> str:
    """One sentence: which plain rival is better at an equal budget, or that none is."""
    plain = [r for r in rivals if r.equal and r.angle < angle - TIE]
    equal = [r for r in rivals if r.equal and abs(r.angle - angle) <= TIE]
    cheaper = [r for r in rivals if r.name.startswith("the sparse") and r.multiply_adds]
    budgets = ", ".join(dict.fromkeys(b for r in rivals for b in r.equal.split(", ") if b))
    text = f"Better, at {angle:.1f}°, than c·I + low rank at equal {budgets}."
    if equal:
        text = f"No better than {equal[0].name}, which reaches {equal[0].angle:.1f}° too at equal {equal[0].equal}."
    if plain:
        best = min(plain, key=lambda r: (round(r.angle, 2), r.multiply_adds))
        everywhere = all(r in plain for r in rivals if r.equal)
        where = "at every equal budget" if everywhere else f"at equal {best.equal}"
        text = (
            f"Something simpler wins {where}: {best.name} reaches {best.angle:.1f}°, this fit {angle:.1f}°."
        )
    if cheaper:
        text += f" The matrix is sparse: its CSR form is exact with {cheaper[0].multiply_adds} multiply-adds."
    return text


def _measured_on_entries(H: np.ndarray, form: Alternative, seed: int) -> Rival:
    n, B = len(H), form.operator
    error = relative_error(H, B @ np.eye(n) if n <= FULL_EIGH else B, n_probes=100, seed=seed).value
    return form.measured(error_angle(H, B, n_probes(n), seed), error)


def n_probes(n: int) -> int:
    """How many x an angle is averaged over."""
    return PROBES if n <= FULL_EIGH else PROBES // 5


def _rank_of_equal_time(n: int, operator: Any, batch: int = 64) -> int:
    """The rank whose product takes as long as ours, by a straight line through two measured ranks."""
    x = torch.randn(batch, n, generator=torch.Generator().manual_seed(0)).to(operator.device, operator.dtype)

    def seconds(run: Callable[[], Any]) -> float:
        run()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            run()
            if x.is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return float(np.median(times))

    few, many = 1, max(2, min(n, 32))
    bases = [torch.randn(n, r, device=x.device, dtype=x.dtype) for r in (few, many)]
    low, high = (seconds(lambda U=U: torch.addmm(x, x @ U, U.mT)) for U in bases)  # type: ignore[misc]
    ours = seconds(lambda: operator(x))
    slope = max((high - low) / (many - few), 1e-12)
    return max(0, min(n, round(few + (ours - low) / slope)))
