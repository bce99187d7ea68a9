"""Where the samples (x, y) of a stochastic fit come from: products with the paper's inputs, or the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.records import Stop
from swallowtail.products import as_float64, as_product

SAMPLES_PER_DIMENSION = 32  # m = 32 n samples: half as many cost up to half a degree at n = 64
_BLOCK = 1 << 21  # numbers in one call of the product function

Inputs = Callable[[int, np.random.Generator], np.ndarray]  # (m, generator) ↦ x as rows (m, n)


def as_rows(name: str, value: Any) -> np.ndarray:  # shape: (m, n), float64
    """Columns (n, m), or one vector (n,), as contiguous rows of finite numbers."""
    if type(value) is not np.ndarray or value.dtype != np.float64:
        value = as_float64(name, value)
    if value.ndim not in (1, 2):
        raise ArgumentError(name, "columns (n, m) or one vector (n,)", f"shape {value.shape}")
    rows = np.ascontiguousarray(value.T if value.ndim == 2 else value[None])
    if not np.isfinite(rows).all():
        checks.finite(name, torch.from_numpy(rows))
    return rows


class Supply:
    """Samples as rows (m, n), from a product function and inputs, or as given; counts products."""

    def __init__(
        self,
        source: Any,
        n: int | None,
        inputs: Any,
        n_samples: int | None,
        limit: int | None,
        rng: np.random.Generator,
    ) -> None:
        self.n_products, self._rng, self._given, self._limit = 0, rng, None, None
        if isinstance(source, tuple):
            self._given = _given_samples(source)
            self.n = self._given[0].shape[1]
            if n is not None and n != self.n:
                raise ArgumentError("n", f"{self.n}, the length of the samples' columns", n, "leave it out")
            return
        product = as_product("source", source)
        if n is None:
            if product.shape is None:
                raise ArgumentError("n", "the dimension, since source is a function", "None", "try n=64")
            n = product.shape[0]
        self.n = checks.integer("n", n, at_least=1)
        if product.shape not in (None, (self.n, self.n)):
            raise ArgumentError("source", f"shape (n, n) with n = {self.n}", product.shape)
        self._apply = product.apply
        n_samples = SAMPLES_PER_DIMENSION * self.n if n_samples is None else n_samples
        self._m = checks.integer("n_samples", n_samples, at_least=1)
        self._limit = None if limit is None else checks.integer("max_products", limit, at_least=1)
        self._inputs, self._by_block = _input_function(inputs, self.n), isinstance(inputs, str)

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit on products is reached."""
        return self._limit is not None and self.n_products >= self._limit

    def draw(self, pulse: Callable[[], None] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The given samples, or as many new ones as asked for and still allowed.

        ``pulse`` is called between blocks of products; if it raises `Stop` there are fewer samples, but some.
        """
        if self._given is not None:
            return self._given
        m = self._m if self._limit is None else min(self._m, self._limit - self.n_products)
        checks.fits_in_memory(f"{m} samples of length {self.n}", 32 * m * self.n, "try a smaller `n_samples`")
        X, Y = np.empty((m, self.n)), np.empty((m, self.n))
        block = max(1, _BLOCK // self.n)
        if not self._by_block:  # the user's function is asked once
            X = np.ascontiguousarray(self._inputs(m, self._rng))
        for start in range(0, m, block):
            if self._by_block:  # in time, and the same numbers as all at once
                X[start : start + block] = self._inputs(min(block, m - start), self._rng)
            y = self._apply(X[start : start + block].T)
            if y.shape[0] != self.n:
                raise ArgumentError("source", f"products of length n = {self.n}", y.shape[0])
            Y[start : start + block] = y.T
            try:
                if pulse is not None:
                    pulse()
            except Stop:
                m = min(m, start + block)
                break
        self.n_products += m
        return X[:m], Y[:m]


def _given_samples(source: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    if len(source) != 2:
        raise ArgumentError("source", "a tuple (X, Y) of columns", f"a tuple of {len(source)}")
    X, Y = (as_rows(name, value) for name, value in zip("XY", source, strict=True))
    if X.shape != Y.shape or X.size == 0:
        raise ArgumentError("source", "X and Y of one shape (n, m)", f"{X.T.shape} and {Y.T.shape}")
    return X, Y


def _input_function(inputs: Any, n: int) -> Inputs:
    """(m, generator) ↦ x as rows (m, n)."""
    if isinstance(inputs, str):
        return {"sphere": _sphere, "cube": _cube}[checks.choice("inputs", inputs, ("sphere", "cube"))](n)
    if callable(inputs):
        return lambda m, rng: _checked_inputs(inputs(m, rng), n, m)
    samples = _checked_inputs(inputs, n, None)
    return lambda m, rng: samples[rng.integers(len(samples), size=m)]


def _sphere(n: int) -> Inputs:
    def draw(m: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((m, n))
        return X / np.linalg.norm(X, axis=1, keepdims=True)

    return draw


def _cube(n: int) -> Inputs:
    return lambda m, rng: rng.uniform(-1.0, 1.0, (m, n))


def _checked_inputs(value: Any, n: int, m: int | None) -> np.ndarray:
    X = as_rows("inputs", value)
    if X.shape[1] != n or (len(X) != m if m is not None else not len(X)):
        wanted = "k ≥ 1" if m is None else m
        raise ArgumentError("inputs", f"columns ({n}, {wanted})", f"shape {X.T.shape}")
    return X
