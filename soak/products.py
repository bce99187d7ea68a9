"""Products and gradients of every operator, form and dtype, against extended precision.

The promise: where a dense product in the same dtype is finite, so is ours. Its error is at most four times the dense
product's own, in norm, or (layers + 4) ε; plus n steps between subnormal numbers. Layers whose angles have nothing
to do with each other are held to less: twice their usual error, since roundings cancel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from soak import cases, oracle
from soak.oracle import WIDE
from soak.trial import Outcome, Outcomes, Trial, in_child
from swallowtail import HybridOperator, Rotation, SignedRotation, SymmetricOperator, ops

DTYPES = (torch.float64, torch.float32, torch.float32, torch.float16, torch.bfloat16)
BATCH = 250  # cases per child


def usual(dtype: torch.dtype, n_layers: float) -> float:
    """Relative error, in norm, of so many layers: a random walk of half a rounding each."""
    half = dtype in (torch.float16, torch.bfloat16)
    wide = torch.finfo(torch.float32 if half else dtype).eps * math.sqrt(n_layers + 4)
    return wide + (torch.finfo(dtype).eps if half else 0.0)


def norm(a: np.ndarray) -> np.ndarray:
    return np.sqrt((np.asarray(a, WIDE) ** 2).sum(-1))


def judged(
    what: str,
    actual: Any,
    exact: np.ndarray,
    own: np.ndarray | None,
    scale: np.ndarray,
    n_layers: float,
    dtype: Any,
) -> Outcome:
    """The promise, row by row; ``own`` is the dense product in the same dtype, or None if it was not computed."""
    found = actual.detach().resolve_neg() if isinstance(actual, torch.Tensor) else torch.from_numpy(actual)
    if found.dtype != dtype:
        return f"{what}: {found.dtype} where {dtype} belongs"
    if found.numel() != exact.size:
        return f"{what}: shape {tuple(found.shape)} where {exact.shape} belongs"
    y = found.double().numpy().reshape(exact.shape).astype(WIDE)
    limit, step = WIDE(torch.finfo(dtype).max), torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    with np.errstate(all="ignore"):
        finite = np.abs(exact).max(-1, initial=0) < limit / 4 if own is None else np.isfinite(own).all(-1)
        # A result at the very end of the range may be rounded to either side of it.
        finite &= np.abs(exact).max(-1, initial=0) < limit * (1 - usual(dtype, n_layers))
        if dtype in (torch.float16, torch.bfloat16):  # dense products would be made in float32
            finite &= np.abs(exact).max(-1, initial=0) < limit / 4
        if not np.isfinite(y[finite]).all():
            return f"{what}: not finite where a dense product is"
        error = norm(y - exact)
        # Of sixty thousand random walks some go twice as far as is usual.
        allowed = 2 * usual(dtype, n_layers) * scale
        if own is not None:
            allowed = np.maximum(allowed, 4 * norm(own.astype(WIDE) - exact))
        allowed = allowed + max(1, exact.shape[-1]) * WIDE(step)
        wrong = finite & ~(error <= allowed)
    if wrong.any():
        k = int(np.argmax(wrong))
        return f"{what}: off by {error[k]:.3g} where {allowed[k]:.3g} is allowed, {exact[k, :3]} exact"
    return None


class Case:
    """One drawn rotation with vectors and eigenvalues, all in one dtype; the same from the same seed."""

    def __init__(self, seed: int, mild: bool = False) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.seed, self.dtype = seed, DTYPES[int(rng.integers(len(DTYPES)))]
        self.wiring, self.layers = cases.wiring(rng)
        self.n, self.m = self.wiring.n, int(rng.choice([0, 1, 1, 2, 3, 9, 33]))
        number = cases.NUMPY.get(self.dtype, np.float32)
        half = self.dtype in (torch.float16, torch.bfloat16)
        self.angles = cases.angles(rng, self.wiring.n_rotations).astype(np.float32 if half else number)
        if alike := not rng.integers(8):
            self.angles[:] = cases.common_angle(rng, self.angles.dtype)
        # Near multiples of a right angle every rotation may lose the same: a change too small for its large number.
        near = np.abs(np.sin(2 * self.angles.astype(WIDE))) < 0.01
        self.alike = 1.0 if alike else float(near.mean()) if near.size else 0.0
        self.x, self.d = (
            self._stored(cases.numbers(rng, shape, number, mild or self.n > 33))
            for shape in ((self.m, self.n), self.n)
        )
        self.turns = oracle.turns(self.layers, self.angles)
        self.name = f"seed {seed}: {self.wiring!r}, {self.dtype}"

    def _stored(self, a: np.ndarray) -> np.ndarray:
        """As the dtype stores it; bfloat16 in float32, which NumPy has."""
        return torch.from_numpy(a).bfloat16().float().numpy() if self.dtype == torch.bfloat16 else a

    def given(self, a: np.ndarray) -> tuple[str, Any]:
        """The rows as a user may give them."""
        way, value = cases.laid_out(self.rng, a)
        if self.dtype == torch.bfloat16:
            return "bfloat16", torch.from_numpy(np.asarray(a)).bfloat16()
        return way, value

    def steps(self, walks: int) -> float:
        """Layers of so many walks. k roundings that do not cancel make up to kε, as k² / 4 others are allowed."""
        k = walks * self.wiring.n_layers
        return max(k, (self.alike * k) ** 2 / 4)


def _operators(case: Case) -> Outcomes:
    """Every operator and form."""
    Q = Rotation(case.wiring, torch.from_numpy(case.angles))
    H = SymmetricOperator(Q, torch.from_numpy(case.d.astype(case.angles.dtype)))
    signs = np.where(case.rng.random(case.n) < 0.5, -1.0, 1.0).astype(case.angles.dtype)
    turns, L, twice = case.turns, case.steps(1), case.steps(2)
    way, x = case.given(case.x)
    small = case.n <= 33 and case.dtype in (torch.float64, torch.float32)
    with np.errstate(all="ignore"):
        size, top = norm(case.x), np.abs(case.d.astype(WIDE)).max()
        to, product = oracle.rotate(turns, case.x, True), oracle.symmetric(turns, case.d, case.x)
        form = oracle.quadratic(turns, case.d, case.x)
        forms: dict[str, Any] = {
            "Q(x)": (Q, oracle.rotate(turns, case.x, False), size, L),
            "Q.T(x)": (Q.T, to, size, L),
            "x @ Q": (lambda v: v @ Q, to, size, L),
            "QS(x)": (SignedRotation(Q, signs), oracle.rotate(turns, signs * case.x, False), size, L),
            "H(x)": (H, product, top * size, twice),
            "H @ X": (lambda v: (H @ v.T).T, product, top * size, twice),
            "xᵀHx": (H.quadratic_form, form, 2 * top * size**2, L),
        }
        own = dict.fromkeys(forms)
        if small:
            number = case.x.dtype.type
            q = oracle.dense(turns, case.n, number)
            h = (q * case.d) @ q.T
            by_h = case.x @ h
            own = {
                "Q(x)": case.x @ q.T, "Q.T(x)": case.x @ q, "x @ Q": case.x @ q, "QS(x)": (signs * case.x) @ q.T,
                "H(x)": by_h, "H @ X": by_h, "xᵀHx": (by_h * case.x).sum(-1, keepdims=True),
            }  # fmt: skip
    for name, (act, exact, scale, n_layers) in forms.items():
        try:
            actual = act(x)
        except Exception as error:
            yield f"{case.name}, {name}, {way}: {type(error).__name__}: {error}"
            continue
        yield judged(f"{case.name}, {name}, {way}", actual, exact, own[name], scale, n_layers, case.dtype)


def _hybrid(case: Case) -> Outcome:
    """Q D Qᵀ + U diag(w) Uᵀ, on numbers that do not overflow."""
    H = SymmetricOperator(
        Rotation(case.wiring, torch.from_numpy(case.angles)), case.d.astype(case.angles.dtype)
    )
    U = case.rng.normal(size=(case.n, 2)).astype(case.angles.dtype)
    w = np.array([1.5, -0.5], case.angles.dtype)
    with np.errstate(all="ignore"):
        exact = oracle.symmetric(case.turns, case.d, case.x) + (case.x @ U.astype(WIDE) * w) @ U.T
        scale = (np.abs(case.d.astype(WIDE)).max() + 2 * (U.astype(WIDE) ** 2).sum()) * norm(case.x)
    way, x = case.given(case.x)
    actual = HybridOperator(H, U, w)(x)
    return judged(
        f"{case.name}, hybrid, {way}", actual, exact, None, 2 * scale, case.steps(2) + 4, case.dtype
    )


def _gradients(case: Case) -> Outcomes:
    """Of every form, in every dtype of arithmetic."""
    if case.dtype in (torch.float16, torch.bfloat16):
        return
    theta, d, x, rng = case.angles, case.d, case.x, case.rng
    g = cases.numbers(rng, x.shape, x.dtype.type, mild=True)
    g1 = g[:, :1]
    forms: dict[str, Any] = {
        "Q x": (lambda v, a, e: ops.rotate(v, case.wiring, a), g, oracle.rotate_gradients(case.turns, x, g, False)),
        "Qᵀ x": (
            lambda v, a, e: ops.rotate_transpose(v, case.wiring, a), g,
            oracle.rotate_gradients(case.turns, x, g, True),
        ),
        "H x": (
            lambda v, a, e: ops.symmetric_matvec(v, case.wiring, a, e), g,
            oracle.symmetric_gradients(case.turns, d, x, g),
        ),
        "xᵀHx": (
            lambda v, a, e: ops.quadratic_form(v, case.wiring, a, e)[:, None], g1,
            oracle.quadratic_gradients(case.turns, d, x, g1),
        ),
    }  # fmt: skip
    top, size, push = np.abs(d.astype(WIDE)).max(), norm(x), norm(g)
    for form, (act, gradient, exact) in forms.items():
        factor = {"H x": top, "xᵀHx": 2 * top * size}.get(form, WIDE(1))
        v, a, e = (torch.from_numpy(np.array(z)).requires_grad_() for z in (x, theta, d))
        act(v, a, e).backward(torch.from_numpy(gradient.copy()))
        L, what = case.steps(2), f"{case.name}, gradient of {form}"
        yield judged(f"{what} for x", v.grad, exact.x, None, factor * push, L, case.dtype)
        if len(theta):
            scale = np.array([(factor * push * size).sum() * 2])
            yield judged(
                f"{what} for the angles",
                a.grad,
                exact.angles[None],
                None,
                scale * len(theta) ** 0.5,
                L,
                case.dtype,
            )
        if exact.d is not None and e.grad is not None:
            scale = np.array([(push * (size if form == "H x" else size**2)).sum() * 2])
            yield judged(f"{what} for D", e.grad, exact.d[None], None, scale, L, case.dtype)


def _batch(seeds: range) -> Outcomes:
    torch.set_num_threads(1)
    for seed in seeds:
        if seed % 3 == 2:
            case = Case(seed, mild=True)
            yield _hybrid(case)
            yield from _gradients(case)
        else:
            yield from _operators(Case(seed))


def outcomes(seed: int) -> Outcomes:
    """Children, so that a crash is one failure and not the end."""
    first = seed * 10**6
    while True:
        yield from in_child(lambda seeds=range(first, first + BATCH): _batch(seeds), timeout=600)
        first += BATCH


TRIALS = (Trial("products and gradients", outcomes, 60_000, 0.34),)
