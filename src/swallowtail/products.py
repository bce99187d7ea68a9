"""Whatever multiplies columns, seen as one thing: matrices, operators, functions of arrays or tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators.base import Operator

# What whole numbers become: float32 holds them up to 2^24 only.
_FLOAT64 = torch.empty(0, dtype=torch.float64)


class Product(NamedTuple):
    """Something that multiplies columns: ``apply`` maps (n, k) to (m, k), float64 NumPy arrays both."""

    apply: Callable[[np.ndarray], np.ndarray]
    shape: tuple[int, int] | None  # None: a plain function does not say
    dense: np.ndarray | None


def as_product(name: str, A: Any) -> Product:
    """See ``A`` as a function of columns, whatever it is; see `metrics.error_angle` for what it may be."""
    listing = isinstance(A, (list, tuple)) and not hasattr(A, "__matmul__")  # a record may be an operator
    if isinstance(A, (torch.Tensor, np.ndarray)) or listing:
        dense = as_float64(name, _array_of(name, A) if isinstance(A, (list, tuple)) else A)
        if dense.ndim != 2:
            raise ArgumentError(name, "a matrix", f"shape {dense.shape}")
        return Product(lambda X: dense @ X, dense.shape, dense)
    if hasattr(A, "__matmul__"):
        shape = getattr(A, "shape", None)
        if shape is not None and len(shape) != 2:
            raise ArgumentError(name, "one matrix", f"shape {tuple(shape)}", "take one of the batch")
        shape = None if shape is None else (int(shape[0]), int(shape[1]))
        return Product(_checked(name, _multiply(A)), shape, None)
    if callable(A):
        return Product(_checked(name, _Function(A)), None, None)
    expected = "a matrix, something with @ or a function of columns (n, k)"
    hint = "try numpy.load on it" if isinstance(A, (str, Path)) else checks.operator_in(A)
    raise ArgumentError(name, expected, type(A).__name__, hint)


def _array_of(name: str, rows: Any) -> np.ndarray:
    try:
        return np.asarray(rows, float)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(
            name, "rows of numbers, of equal length", error, "try numpy.asarray on it"
        ) from error


def _multiply(A: Any) -> Callable[[np.ndarray], Any]:
    """X ↦ A @ X; foreign operators with a torch dtype are given tensors of that dtype, on their device."""
    dtype = getattr(A, "dtype", None)
    if isinstance(A, Operator) or not isinstance(dtype, torch.dtype):
        return lambda X: A @ X
    checks.real_dtype("operator", dtype)
    return lambda X: A @ torch.from_numpy(np.ascontiguousarray(X)).to(getattr(A, "device", "cpu"), dtype)


class _Function:
    """A user's function of columns, written for arrays or for tensors; or of one vector, as products with a Hessian
    often are. The first call shows which.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._way: Callable[[np.ndarray], Any] | None = None

    def __call__(self, X: np.ndarray) -> Any:
        if self._way is not None:
            return self._way(X)
        refusals = []
        for way in (self._on_arrays, self._on_tensors, self._on_one_tensor, self._on_one_array):
            try:
                with (
                    warnings.catch_warnings()
                ):  # a tensor of the function's own met an array: not for the user to mend
                    warnings.filterwarnings("error", "__array_wrap__ must accept", DeprecationWarning)
                    Y = way(X)
            except (
                TypeError,
                AttributeError,
                RuntimeError,
                ValueError,
                IndexError,
                DeprecationWarning,
            ) as error:
                refusals.append(error)
            else:
                self._way = way
                return Y
        raise refusals[0] from None  # it was written for arrays, and has a fault of its own

    def _on_arrays(self, X: np.ndarray) -> Any:
        return self._function(X.copy())  # a copy: it may write into what it is given

    def _on_tensors(self, X: np.ndarray) -> Any:
        columns = torch.from_numpy(np.array(X))
        try:
            return self._function(columns)
        except RuntimeError as error:  # most often, float64 columns met a float32 model
            if "dtype" not in str(error) and "Float" not in str(error):
                raise
            return self._function(columns.to(torch.get_default_dtype()))

    def _on_one_tensor(self, X: np.ndarray) -> Any:
        return torch.stack([self._on_tensors(x).detach() for x in X.T], 1)

    def _on_one_array(self, X: np.ndarray) -> Any:
        return np.stack([self._on_arrays(x) for x in X.T], 1)


def _checked(name: str, function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Check what a product function returns: real numbers, a matrix with as many columns as it was given."""

    def apply(X: np.ndarray) -> np.ndarray:
        Y = as_float64(f"{name}'s product", function(X))
        if Y.ndim != 2 or Y.shape[1] != X.shape[1]:
            expected = f"a product of shape (n, {X.shape[1]}) for columns {X.shape}"
            raise ArgumentError(name, expected, Y.shape)
        return Y

    return apply


def as_float64(name: str, value: Any) -> np.ndarray:
    """A tensor or array of finite real numbers as a float64 array."""
    tensor = checks.as_tensor(name, value, _FLOAT64)
    checks.finite(name, tensor)
    return tensor.detach().to("cpu", torch.float64).numpy()
