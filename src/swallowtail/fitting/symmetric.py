"""fit_symmetric: from a matrix, from products, or from samples to H ≈ Q D Qᵀ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch

from swallowtail.fitting.core.records import Callback
from swallowtail.fitting.options import SymmetricOptions
from swallowtail.fitting.properties import Symmetric
from swallowtail.fitting.request import Request
from swallowtail.fitting.result import FitResult
from swallowtail.fitting.runner import run
from swallowtail.wiring import Wiring


def fit_symmetric(
    H: Any,
    n: int | None = None,
    *,
    n_rotations: int | None = None,
    budget: Any = None,
    wiring: str | Wiring = "auto",
    depth: int = 1,
    method: str = "auto",
    target: str | Callable[[torch.Tensor], torch.Tensor] = "matrix",
    max_products: int | None = None,
    max_seconds: float | None = None,
    target_angle: float | None = None,
    effort: str = "default",
    symmetrize: bool = False,
    checkpoint: Any = None,
    seed: int = 0,
    progress: bool = False,
    callback: Callback | None = None,
    **options: Unpack[SymmetricOptions],
) -> FitResult:
    """Fit H ≈ Q D Qᵀ with Q a product of ``n_rotations`` Givens rotations.

    Args:
        H: one of

            - a dense tensor, array or DataFrame; a matrix on a GPU is fitted there, on chosen pairs, from n = 512 on,
            - a scipy sparse matrix; beyond n = 4096 it stays sparse, and rotations are grown on its entries,
            - anything with ``@`` on columns: a scipy LinearOperator, an operator of linear_operator, curvlinops or
              PyLops, or one of this package,
            - a function of columns, NumPy (n, k) in float64,
            - a tuple of samples (X, Y = HX), each (n, m).
        n: dimension, needed for a plain function.
        n_rotations: the number of rotations K; by default n⌈lg n⌉/2 · depth, the paper's.
        budget: what the operator may cost: "floats" stored, "bytes", "multiply_adds" of a product, or "time". Alone,
            such a unit means as much as the default n_rotations cost; ("floats", 4704) gives the amount. The fit
            returns the best form at that price, of rotations, a diagonal and rank-one terms; c·I + low rank and a
            diagonal + low rank are among them. "time" is in seconds of a product with 256 vectors on one CPU thread
            (16384 on a GPU), in H's dtype on H's device. It comes from a model: `swallowtail warmup --calibrate`, or
            `fitting.timing.calibrate`, measures this machine; until then a table that comes with the package serves.
            Not with n_rotations or target_angle.
        wiring: "auto" fits the forms that make sense at this budget and keeps the best. "pairs" are chosen from the
            data. "grouped" has the same rotations in rounds of groups (see `Rotation.grouped`). "butterfly", or a
            `Butterfly` of your own, is fixed.
        depth: how many times a butterfly goes through its strides; the default number of rotations grows with it.
        method: "auto" chooses. "pairs", "butterfly" and "recovery" insist on one. "grouped" takes pairs in few rounds
            of groups (``size=``, ``n_rounds=``, ``steps=``). Its angles are mostly within ten per cent of those of
            "pairs", and farther behind with many rotations (MNIST's covariance, four times the usual number: 3.4° and
            2.1°). On a GPU its products are the fastest from n ≈ 800 on. "hybrid" takes rotations and a few rank-one
            terms of the same work (``rank=`` says how many); the result is a `HybridOperator`. "sgd" is the paper's
            Algorithm 1, with the options of `fitting.methods.sgd.fit_sgd`. "products" fits pairs from few products;
            where all entries are known it is "pairs".
        target: what to approximate. "matrix": H, in Frobenius norm. "inverse": H⁻¹; the result's operator
            approximates H, and its inverse is close to H⁻¹. "likelihood": the best covariance for Gaussian data with
            sample covariance H; of a positive definite H mostly a better preconditioner than "inverse". A function f of
            the tensor of eigenvalues, ``lambda d: torch.exp(-d)``: f(H). The result's operator is then f(H), and
            ``result.of_H`` has H's own eigenvalues in the same basis. Angles are measured on H, H⁻¹ or f(H). A small
            angle on H is not a small angle on f(H): on a sensor graph 2.1° on its Laplacian L became 7.3° on exp(−L).

            From products, H is completed first, and its inverse or function is that of the completion. That costs
            no further products. Some of them are kept to measure the fit, by Lanczos, or by conjugate gradients for
            "inverse", which then needs a positive definite H. A sparse H is factorised if its band is narrow.
        max_products: hard limit on products when H is not given by its entries; by default n up to n = 1024
            (H is then known entirely), 64 beyond, and 128 for "inverse" and functions.
        max_seconds: stop then and keep the best so far. It holds to a few tenths of a second where the work comes in
            steps; one product of your function, one inverse, or one gradient of a very large fit is not cut in two.
        target_angle: stop at this quality, in degrees, with as few rotations as it takes.
        effort: "quick" takes a tenth of the default's time at n = 200 and a third at n = 784. Its angle is about 10 %
            larger on average, and up to 40 % larger on kernels in one dimension. It is measured on fewer vectors, and
            compared with forms of low rank only. "best" takes about eight times as long as the default. Only pairs,
            groups and butterflies follow it.
        symmetrize: fit (H + Hᵀ)/2 of a matrix that is not symmetric.
        checkpoint: a path; a fit that was killed, interrupted or out of time continues from it, if called again
            with the same arguments, to the answer of an undisturbed run. Pairs and finished forms are kept;
            other fits begin again.
        seed: for everything random.
        progress: show a progress bar.
        callback: called as callback(stage, rotations, objective) after every step. Raise `Stop` in it to end the
            fit and get the best so far.
        options: for the one method asked for, e.g. ``cycles=`` of "pairs" or ``epochs=`` of "sgd".

    Returns:
        A `FitResult`; ``print`` it to see the plain rivals beside the fit. Its operator has H's dtype (float64 for
        lists, functions and whole numbers) and device; the arithmetic of the fit is float64, on a GPU H's own.

    Raises:
        ArgumentError: an argument of the wrong kind or out of its range, numbers that are not finite, a matrix that is
            not symmetric, or a checkpoint that is damaged or of another fit.

    >>> result = fit_symmetric([[2.0, 1.0], [1.0, 2.0]])
    >>> result.status, sorted(result.operator.eigenvalues.tolist())
    ('exact', [1.0, 3.0])
    """
    request = Request(
        target=target,
        method=method,
        n_rotations=n_rotations,
        budget=budget,
        wiring=wiring,
        depth=depth,
        max_products=max_products,
        max_seconds=max_seconds,
        target_angle=target_angle,
        effort=effort,
        checkpoint=checkpoint,
        seed=seed,
        progress=progress,
        callback=callback,
        options={**options},
    )
    return run(H, n, Symmetric(symmetrize), request)
