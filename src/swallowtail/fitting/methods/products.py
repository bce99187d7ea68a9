"""Fitting H ≈ Q D Qᵀ, or f(H) ≈ Q D Qᵀ, from products with H alone.

`core.completion` asks for the products and completes H from them to Ĥ, c·I plus rank ≤ 2m, a `Factor`. f(Ĥ) is one too.
Its rotations are chosen by `methods.factor` and, where n² numbers are cheap, by `methods.pairs` too. The better fit is
kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swallowtail import checks
from swallowtail.fitting.core.completion import (
    Completion,
    Probes,
    Product,
    complete,
    orthonormal_samples,
    probe,
)
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.core.lanczos import Values, function_of_completion
from swallowtail.fitting.core.product import power_of_two
from swallowtail.fitting.core.records import Callback, DenseFit, History, Listener
from swallowtail.fitting.methods.factor import fit_factor
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.wiring import Wiring

DENSE = 1024  # up to this n the dense algorithms are tried as well: a few seconds, and they prune and regrow


class ProductFit(NamedTuple):
    """H, or f(H), ≈ Q diag(eigenvalues) Qᵀ, from products."""

    wiring: Wiring
    angles: np.ndarray  # shape: (K,)
    eigenvalues: np.ndarray  # shape: (n,)
    history: History  # (stage, K, squared relative error against the completion)
    n_products: int
    asymmetry: float  # of the products, see `Probes`
    completion: Completion  # what was fitted: Ĥ, or f(Ĥ)
    source: Completion  # Ĥ


def fit_products(
    product: Product,
    n: int,
    n_rotations: int,
    n_products: int,
    seed: int = 0,
    callback: Callback | None = None,
    passes: int | None = None,
    function: Values | None = None,
) -> ProductFit:
    """Fit H ≈ Q D Qᵀ, or f(H), from at most ``n_products`` products with H.

    Args:
        product: X ↦ HX, called with columns, (n, k) float64.
        n: dimension of H.
        n_rotations: the budget K.
        n_products: how many columns ``product`` may see in all; more than n are not used.
        seed: of the probes and of the fit.
        callback: called as callback(stage, done, objective): "probe" with products done and NaN; then "grow",
            "polish", "cycle" with rotations and the squared relative error against the completion. It may
            raise `Stop` or KeyboardInterrupt: the best fit so far is returned, from the
            products there are.
        passes: Krylov steps, each of n_products / passes columns; None chooses.
        function: f; None fits H itself.

    Raises:
        ValueError: a budget below its least, or what ``product`` returned is not (n, k) finite real numbers.

    >>> H = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> fit_products(lambda X: H @ X, 2, n_rotations=1, n_products=2).eigenvalues.round(12).tolist()
    [3.0, 1.0]
    """
    n_rotations = checks.integer("n_rotations", n_rotations, at_least=0)
    probes = probe(product, n, n_products, passes, seed, callback)
    return _fit(probes, n_rotations, seed, callback, function)


def fit_samples(
    X: np.ndarray, Y: np.ndarray, n_rotations: int, seed: int = 0, callback: Callback | None = None
) -> ProductFit:
    """Fit H ≈ Q D Qᵀ from m samples the user has, X and Y ≈ HX (n, m), in least squares; see `fit_products`."""
    n_rotations = checks.integer("n_rotations", n_rotations, at_least=0)
    fit = _fit(orthonormal_samples(X, Y), n_rotations, seed, callback)
    return fit._replace(n_products=np.shape(X)[1])


def _fit(
    probes: Probes, n_rotations: int, seed: int, callback: Callback | None, function: Values | None = None
) -> ProductFit:
    """The best of the factor route and, where it is cheap, the dense one: same matrix, same objective."""
    source, n = complete(probes), len(probes.X)
    completion = source if function is None else function_of_completion(probes, source, function)
    factor = completion.factor
    scale = power_of_two(np.append(factor.weights, factor.shift))
    factor = Factor(factor.shift / scale, factor.basis, factor.weights / scale)
    fits, listener = list[DenseFit](), Listener(callback)
    if n > DENSE or 2 * len(factor.weights) <= n:
        fits.append(fit_factor(factor, n_rotations, seed=seed, callback=listener))
    if n <= DENSE and not listener.stopped:
        fits.append(fit_pairs(factor.dense(), n_rotations, seed=seed, callback=listener))
    best = min(fits, key=lambda fit: fit.history[-1][2])
    about = (best.history, probes.X.shape[1], probes.asymmetry, completion, source)
    return ProductFit(best.wiring, best.angles, best.eigenvalues * scale, *about)
