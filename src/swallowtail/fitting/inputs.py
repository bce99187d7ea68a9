"""What a fit can start from, in one form: a dense matrix, products with columns, or pairs (X, Y = HX)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, issparse

from swallowtail import checks
from swallowtail.metrics import as_product

DENSE_SPARSE = 4096  # a sparse matrix up to this n is fitted from its entries: n² numbers are 128 MiB
ENOUGH_PRODUCTS = 64  # for larger n, when max_products is not given


@dataclass
class Problem:
    """One of ``dense``, ``product`` and ``pairs`` is set; the rest says what the caller's numbers were."""

    n: int
    dense: np.ndarray | None = None  # float64, symmetric
    product: Callable[[np.ndarray], np.ndarray] | None = None  # (n, k) → (n, k), float64
    pairs: tuple[np.ndarray, np.ndarray] | None = None
    sparse: Any = None  # the CSR matrix, if that is what came
    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    n_products: int = 0


def as_problem(H: Any, n: int | None, symmetrize: bool, max_products: int | None) -> Problem:
    """See `fit_symmetric` for what H may be."""
    if isinstance(H, (tuple, list)) and len(H) == 2 and all(hasattr(part, "shape") for part in H):
        X, Y = (_float64(name, part) for name, part in zip(("X", "Y"), H, strict=True))
        if X.ndim != 2 or X.shape != Y.shape or X.size == 0:
            raise ValueError(f"pairs: expected X and Y of one shape (n, m), got {X.shape} and {Y.shape}")
        problem = Problem(len(X), pairs=(X, Y), dtype=_dtype(H[0]), device=_device(H[0]))
    elif issparse(H) or (isinstance(H, torch.Tensor) and H.layout is not torch.strided):
        problem = _sparse(H if issparse(H) else _scipy_sparse(H), symmetrize)
        problem.dtype, problem.device = _dtype(H), _device(H)
    elif isinstance(H, (torch.Tensor, np.ndarray, list, tuple)):
        dense = symmetric_matrix(_float64("H", H), _eps(H), symmetrize)
        problem = Problem(len(dense), dense=dense, dtype=_dtype(H), device=_device(H))
    else:
        return _from_products(H, n, max_products)
    if n is not None and n != problem.n:
        raise ValueError(f"n: expected {problem.n}, the size of H, got {n}; leave it out")
    return problem


def symmetric_matrix(H: np.ndarray, eps: float, symmetrize: bool) -> np.ndarray:
    """H, checked to be a symmetric matrix within the rounding of numbers with precision ``eps``."""
    if H.ndim != 2 or H.shape[0] != H.shape[1] or H.size == 0:
        raise ValueError(f"H: expected a square matrix (n, n) with n ≥ 1, got shape {H.shape}")
    difference, largest = float(np.abs(H - H.T).max()), float(np.abs(H).max())
    if difference > 32 * eps * largest * max(1.0, np.sqrt(len(H)) / 8) and not symmetrize:
        raise ValueError(
            f"H: expected a symmetric matrix, got entries {difference:.3g} apart from their mirror images "
            f"(largest entry {largest:.3g}); try symmetrize=True to fit (H + Hᵀ)/2"
        )
    return np.ascontiguousarray((H + H.T) / 2)


def _sparse(H: Any, symmetrize: bool) -> Problem:
    if np.issubdtype(H.dtype, np.complexfloating):
        raise TypeError("H: expected real numbers, got a complex sparse matrix; try its real part")
    if H.ndim != 2 or H.shape[0] != H.shape[1] or H.shape[0] == 0:
        raise ValueError(f"H: expected a square matrix (n, n) with n ≥ 1, got shape {H.shape}")
    csr = H.tocsr().astype(np.float64)
    if not np.isfinite(csr.data).all():
        raise ValueError("H: expected finite numbers, got NaN or infinity in a sparse matrix")
    if csr.shape[0] <= DENSE_SPARSE:
        dense = symmetric_matrix(csr.toarray(), _eps(H), symmetrize)
        return Problem(len(dense), dense=dense, sparse=csr)
    gap = abs(csr - csr.T).max()
    if gap > 512 * _eps(H) * abs(csr).max() and not symmetrize:
        raise ValueError(
            f"H: expected a symmetric matrix, got entries {gap:.3g} apart from their mirror images; "
            "try symmetrize=True to fit (H + Hᵀ)/2"
        )
    csr = ((csr + csr.T) / 2).tocsr()
    return Problem(csr.shape[0], product=lambda X: csr @ X, sparse=csr)


def _scipy_sparse(H: torch.Tensor) -> Any:
    coo = H.detach().cpu().to_sparse_coo().coalesce()
    return coo_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))


def _from_products(H: Any, n: int | None, max_products: int | None) -> Problem:
    product = as_product("H", H)
    if product.shape is not None and product.shape[0] != product.shape[1]:
        raise ValueError(f"H: expected a square operator, got shape {product.shape}")
    if product.shape is None and n is None:
        raise TypeError("n: expected the dimension, since H is a function of columns, got None; try n=…")
    size = checks.integer("n", n if product.shape is None else product.shape[0], at_least=1)
    if n is not None and n != size:
        raise ValueError(f"n: expected {size}, the operator's own size, got {n}; leave it out")
    problem = Problem(size, product=product.apply, dtype=_dtype(H), device=_device(H))
    budget = (size if size <= 1024 else ENOUGH_PRODUCTS) if max_products is None else max_products
    if budget >= size:  # all of H can be read off: from here on it is dense
        dense = product.apply(np.eye(size))
        if dense.shape != (size, size):
            raise ValueError(
                f"H: expected products of shape {(size, size)} for columns {(size, size)}, got {dense.shape}; "
                "try: lambda X: H @ X"
            )
        largest = float(np.abs(dense).max()) or 1.0  # taken out first: squares neither over- nor underflow
        size_of = lambda A: float(np.linalg.norm(A / largest))
        warn_asymmetry(size_of(dense - dense.T) / (2 * (size_of(dense) or 1.0)), stacklevel=5)
        problem.dense, problem.product, problem.n_products = (dense + dense.T) / 2, None, size
    return problem


def warn_asymmetry(asymmetry: float, stacklevel: int = 4) -> None:
    """A product function is not known to be symmetric; say by how much it fails to be."""
    if asymmetry > 1e-6:
        hint = (
            "; vectors are expected in columns: try X.T and Y.T if yours are in rows"
            if asymmetry > 0.1
            else ""
        )
        warnings.warn(
            f"the products are not those of a symmetric matrix: antisymmetric part {asymmetry:.2g} of the "
            f"whole; the symmetric part is fitted{hint}",
            stacklevel=stacklevel,  # the caller of fit_symmetric
        )


def _float64(name: str, value: Any) -> np.ndarray:
    tensor = checks.as_tensor(name, np.asarray(value) if isinstance(value, (list, tuple)) else value)
    checks.finite(name, tensor)
    return tensor.detach().to("cpu", torch.float64).numpy()


def _dtype(value: Any) -> torch.dtype:
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, torch.dtype):
        return dtype if dtype.is_floating_point else torch.float64
    return torch.float32 if dtype is not None and np.dtype(dtype) == np.float32 else torch.float64


def _device(value: Any) -> torch.device:
    device = getattr(value, "device", None)
    return device if isinstance(device, torch.device) else torch.device("cpu")


def _eps(value: Any) -> float:
    return float(torch.finfo(_dtype(value)).eps)


def dense_inverse(H: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """H⁻¹, for the target "inverse"."""
    values, vectors = np.linalg.eigh(H)
    smallest, largest = np.abs(values).min(), np.abs(values).max()
    if smallest <= len(H) * np.finfo(np.float64).eps * largest:
        raise ValueError(
            f"target='inverse': expected an invertible matrix, got eigenvalues between {smallest:.3g} and "
            f"{largest:.3g} in magnitude; try fitting H + epsilon·I"
        )
    return (vectors / values) @ vectors.T
