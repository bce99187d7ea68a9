"""fit_rotation: from an orthogonal matrix, from products, or from samples to R ≈ Q, or to Q·diag(±1)."""

from __future__ import annotations

from typing import Any, Unpack

from swallowtail.fitting.core.records import Callback
from swallowtail.fitting.options import SharedOptions
from swallowtail.fitting.properties import Orthogonal
from swallowtail.fitting.request import Request
from swallowtail.fitting.result import FitResult
from swallowtail.fitting.runner import run
from swallowtail.wiring import Wiring


def fit_rotation(
    R: Any,
    n: int | None = None,
    *,
    n_rotations: int | None = None,
    wiring: str | Wiring = "auto",
    depth: int = 1,
    method: str = "auto",
    max_products: int | None = None,
    max_seconds: float | None = None,
    target_angle: float | None = None,
    effort: str = "default",
    checkpoint: Any = None,
    seed: int = 0,
    progress: bool = False,
    callback: Callback | None = None,
    **options: Unpack[SharedOptions],
) -> FitResult:
    """Fit R ≈ Q with Q a product of ``n_rotations`` Givens rotations.

    An R with determinant −1 is no product of rotations: it is fitted by Q·diag(±1), a `SignedRotation`, and
    the message says so.

    Args:
        R: an orthogonal tensor, array or scipy sparse matrix; anything with ``@`` on columns; a function of
            columns (n, k); or a tuple of samples (X, Y = RX), each (n, m).
        n: dimension, needed for a plain function.
        n_rotations: the budget K; by default n⌈lg n⌉/2 · depth, the paper's.
        wiring: "auto" fits the forms that make sense at this budget and keeps the best. "pairs" are chosen from R.
            "grouped" has the same rotations in rounds of groups (see `Rotation.grouped`). "butterfly", or a wiring
            of your own, is fixed.
        depth: how many times a butterfly goes through its strides; the default number of rotations grows with it.
        method: "auto" chooses. "recovery" (R exactly a butterfly), "butterfly" and "pairs" insist on one. "sgd"
            lowers the paper's L′, with the options of `fitting.methods.sgd.fit_sgd`.
        max_products: hard limit on products when R is not given by its entries. If it is n or more, or absent
            and n ≤ 1024, R is read off entirely; otherwise it is learned by "sgd".
        max_seconds: stop then and keep the best so far. It holds to a few tenths of a second where the work comes in
            steps; one product of your function, one inverse, or one gradient of a very large fit is not cut in two.
        target_angle: stop at this quality, in degrees, with as few rotations as it takes.
        effort: "quick" takes about a quarter of the default's time. On the matrices it was tried on, its angle is 9 %
            larger on average and 17 % at most. "best" takes about eight times as long. Only pairs, groups and
            butterflies follow it.
        checkpoint: a path; a fit that was killed, interrupted or out of time continues from it, if called again
            with the same arguments, to the answer of an undisturbed run. "sgd" starts again.
        seed: for everything random.
        progress: show a progress bar.
        callback: called as callback(stage, rotations, objective) after every step. Raise `Stop` in it to end the
            fit and get the best so far.
        options: for the one method asked for, e.g. ``cycles=`` of "pairs" or ``epochs=`` of "sgd".

    Returns:
        A `FitResult`; ``print`` it to see the plain rivals beside the fit.

    >>> result = fit_rotation([[0.6, 0.8], [0.8, -0.6]])
    >>> result.status, type(result.operator).__name__
    ('exact', 'SignedRotation')
    """
    request = Request(
        target="rotation",
        method=method,
        n_rotations=n_rotations,
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
    return run(R, n, Orthogonal(solve_samples=method != "sgd"), request)
