"""The parser of problems: a matrix, a sparse matrix, an operator, a product function or samples, in one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.properties import Property, Symmetric, square
from swallowtail.products import as_float64, as_product

DENSE_SPARSE = 4096  # a sparse matrix up to this n is fitted from its entries: n² numbers are 128 MiB
# From this n on a matrix on a GPU is fitted there; below, a CPU is as fast and tries more forms.
ON_A_GPU = 512
NARROW = {np.dtype(np.float32): torch.float32, np.dtype(np.float16): torch.float16}
READ_OFF = 1024  # up to this n a matrix is read off entirely, with n products, unless max_products forbids


@dataclass
class Problem:
    """What is to be fitted: one of ``dense``, ``product``, ``samples``, ``tensor``; the rest describes the numbers."""

    n: int
    dense: np.ndarray | None = None  # float64
    product: Callable[[np.ndarray], np.ndarray] | None = None  # (n, k) → (n, k), float64
    samples: tuple[np.ndarray, np.ndarray] | None = None  # X and Y, shape: (n, m)
    sparse: Any = None  # the CSR matrix, if that is what came
    tensor: torch.Tensor | None = None  # the entries, where they are fitted on the device they lie on
    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    n_products: int = 0


def as_problem(
    source: Any, n: int | None, kind: Property, max_products: int | None, stay: bool = False
) -> Problem:
    """See `fit_symmetric` and `fit_rotation` for what ``source`` may be; with ``stay`` entries on a GPU stay there."""
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        source = _of_frame(kind.letter, source)
    if isinstance(source, (tuple, list)) and len(source) == 2 and all(hasattr(p, "shape") for p in source):
        problem, like = _samples(source, kind), source[0]
    elif scipy.sparse.issparse(source) or (
        isinstance(source, torch.Tensor) and source.layout is not torch.strided
    ):
        problem, like = _sparse(source, kind), source
    elif stay and isinstance(source, torch.Tensor) and on_a_gpu(source) and isinstance(kind, Symmetric):
        problem, like = Problem(len(source), tensor=kind.on_device(source.detach())), source
    elif isinstance(source, (torch.Tensor, np.ndarray, list, tuple)):
        dense = kind.matrix(_float64(kind.letter, source), _eps(source))
        problem, like = Problem(len(dense), dense=dense), source
    else:
        return _from_products(source, n, kind, max_products)
    if n is not None and checks.integer("n", n, at_least=1) != problem.n:
        hint = "leave it out; a number of rotations is `n_rotations`"
        raise ArgumentError("n", f"{problem.n}, the size of {kind.letter}", n, hint)
    problem.dtype, problem.device = _dtype(like), _device(like)
    return problem


def _of_frame(letter: str, frame: Any) -> np.ndarray:
    """The numbers of a pandas or polars DataFrame; its names do not matter."""
    others = [str(name) for name in frame.columns if np.asarray(frame[name]).dtype.kind not in "fiub"]
    if others:
        got = f"something else in {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}"
        raise ArgumentError(
            letter, "numbers in every column of the DataFrame", got, "leave those columns out"
        )
    entries = np.asarray(frame.to_numpy())
    if entries.dtype.kind == "f":
        return entries
    return entries.astype(np.float64)  # whole numbers and booleans mixed


def on_a_gpu(H: torch.Tensor) -> bool:
    """Whether it lies on one, and is a matrix large enough for it."""
    return H.is_cuda and H.ndim == 2 and H.shape[0] >= ON_A_GPU


def _samples(source: Any, kind: Property) -> Problem:
    X, Y = (_float64(name, part) for name, part in zip(("X", "Y"), source, strict=True))
    if X.ndim != 2 or X.shape != Y.shape or X.size == 0:
        raise ArgumentError("samples", "X and Y of one shape (n, m)", f"{X.shape} and {Y.shape}")
    return Problem(len(X), dense=kind.solve(X, Y), samples=(X, Y))


def _sparse(source: Any, kind: Property) -> Problem:
    matrix = source if scipy.sparse.issparse(source) else _scipy_sparse(source)
    if np.issubdtype(matrix.dtype, np.complexfloating):
        raise ArgumentError(kind.letter, "real numbers", "a complex sparse matrix", "try its real part")
    square(kind.letter, matrix.shape)
    csr = matrix.tocsr().astype(np.float64)
    if not np.isfinite(csr.data).all():
        raise ArgumentError(kind.letter, "finite numbers", "NaN or infinity in a sparse matrix")
    if csr.shape[0] <= DENSE_SPARSE:
        dense = kind.matrix(csr.toarray(), _eps(source))
        return Problem(len(dense), dense=dense, sparse=csr)
    if isinstance(kind, Symmetric):
        gap = abs(csr - csr.T).max()
        if gap > 512 * _eps(source) * abs(csr).max() and not kind.symmetrize:
            kind.refuse(gap)
        csr = ((csr + csr.T) / 2).tocsr()
    product = kind.product(lambda X: csr @ X, csr.shape[0], _eps(source))
    return Problem(csr.shape[0], product=product, sparse=csr)


def _scipy_sparse(H: torch.Tensor) -> Any:
    coo = H.detach().cpu().to_sparse_coo().coalesce()
    return scipy.sparse.coo_array(
        (coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape)
    )


def _from_products(source: Any, n: int | None, kind: Property, max_products: int | None) -> Problem:
    letter = kind.letter
    product = as_product(letter, source)
    if product.shape is not None and product.shape[0] != product.shape[1]:
        raise ArgumentError(letter, "a square operator", f"shape {product.shape}")
    if product.shape is None and n is None:
        raise ArgumentError("n", f"the dimension, since {letter} is a function of columns", None, "try n=…")
    size = checks.integer("n", n if product.shape is None else product.shape[0], at_least=1)
    if n is not None and checks.integer("n", n, at_least=1) != size:
        raise ArgumentError("n", f"{size}, the operator's own size", n, "leave it out")
    problem = Problem(size, dtype=_dtype(source), device=_device(source))
    if size <= (READ_OFF if max_products is None else max_products):
        dense = product.apply(np.eye(size))  # from here on it is known entirely
        problem.dense, problem.n_products = kind.read_off(dense, _eps(source)), size
    else:
        problem.product = kind.product(product.apply, size, _eps(source))
    return problem


def _float64(name: str, value: Any) -> np.ndarray:
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)  # whole numbers and Python's floats become float64
        except ValueError as error:
            raise ArgumentError(name, "a matrix", "rows of unequal length", "try equal ones") from error
    return as_float64(name, value)


def _dtype(value: Any) -> torch.dtype:
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, torch.dtype):
        return dtype if dtype.is_floating_point else torch.float64
    return NARROW.get(np.dtype(dtype), torch.float64) if dtype is not None else torch.float64


def _device(value: Any) -> torch.device:
    device = getattr(value, "device", None)
    return device if isinstance(device, torch.device) else torch.device("cpu")


def _eps(value: Any) -> float:
    return float(torch.finfo(_dtype(value)).eps)
