"""What all operators share: matrix algebra with NumPy arrays and PyTorch tensors, from two hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError


class Operator:
    """A square operator given by what it does to rows. Abstract; its subclasses are final.

    A subclass gives ``n``, ``batch_shape``, ``dtype``, ``device`` and two hooks that act on the last axis,
    ``_rows(x)`` and ``_transposed_rows(x)``. One that may be a batch also overrides ``_on_columns``, where the axes of
    the batch come before the columns'. A NumPy array gives a NumPy array, a tensor a tensor on the same device.
    """

    __array_ufunc__ = None  # lets `array @ operator` come here instead of being tried element by element

    n: int
    batch_shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _transposed_rows(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @property
    def shape(self) -> torch.Size:
        """(*batch, n, n)."""
        return torch.Size((*self.batch_shape, self.n, self.n))

    @property
    def ndim(self) -> int:
        """2, and one for every axis of the batch."""
        return 2 + len(self.batch_shape)

    def __call__(self, x: Any) -> Any:
        """Act on vectors that lie on the last axis: x (*batch, n)."""
        if type(x) is torch.Tensor:  # the hooks check it
            return self._rows(x)
        tensor, back = incoming("x", x, self)
        return back(self._rows(tensor))

    def __matmul__(self, X: Any) -> Any:
        """Matrix algebra: X (n,) or (*batch, n, k)."""
        tensor, back = incoming("X", X, self)
        if tensor.ndim <= 1:
            return back(self._rows(tensor))
        self._check_columns("X", tensor.shape, "@", "the call form, operator(X)")
        return back(self._on_columns(tensor))

    def __rmatmul__(self, X: Any) -> Any:
        """X @ operator: X (n,) or (*batch, k, n)."""
        tensor, back = incoming("X", X, self)
        if self.batch_shape and tensor.ndim > 1:
            return back(self._on_columns(tensor.mT, transposed=True).mT)
        return back(self._transposed_rows(tensor))

    def to_dense(self) -> torch.Tensor:
        """The matrix itself, shape (*batch, n, n)."""
        size = self.batch_shape.numel() * self.n**2 * self.dtype.itemsize
        checks.fits_in_memory(f"a dense {'×'.join(map(str, self.shape))} matrix", size)
        eye = torch.eye(self.n, dtype=self.dtype, device=self.device)
        return self._on_columns(eye.expand(self.shape))

    def to_numpy(self) -> np.ndarray:
        """The matrix itself as a NumPy array; half precision becomes float32."""
        dense = self.to_dense().detach().cpu()
        return (dense.float() if dense.dtype in checks.HALF else dense).numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """For `numpy.asarray(operator)`: always a new array."""
        if copy is False:
            raise ArgumentError("copy", "None or True, as an operator has no array to share", "False")
        dense = self.to_numpy()
        return dense if dtype is None else dense.astype(dtype)

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Entries, as NumPy counts them: ``A[i, j]``, ``A[:, :3]``, ``A[[0, 1], [2, 3]]``. A column costs a product."""
        checks.single("operator[i, j]", self.batch_shape)
        if not isinstance(index, tuple) or len(index) != 2:
            hint = "try A[i, j], A[i, :] or A[:, j]"
            got = repr(index) if isinstance(index, tuple) else f"one, {index!r}"
            raise ArgumentError("index", "two indices, of a row and of a column", got, hint)
        positions = torch.arange(self.n, device=self.device)
        try:
            rows, columns = (positions[checks.readable(part)] for part in index)
            pointwise = all(not isinstance(part, (int, slice)) for part in index)
            if pointwise:
                rows, columns = torch.broadcast_tensors(rows, columns)
        except (IndexError, TypeError, RuntimeError, ValueError) as error:
            raise ArgumentError(
                "index", f"rows and columns below {self.n}", repr(index), str(error)
            ) from error
        units = torch.nn.functional.one_hot(columns.reshape(-1), self.n).to(self.dtype)
        block = self._on_columns(units.mT)  # shape: (n, k)
        if pointwise:
            return block[rows.reshape(-1), torch.arange(rows.numel(), device=self.device)].reshape(rows.shape)
        return block.reshape(self.n, *columns.shape)[rows]

    def to_scipy(self) -> Any:
        """As a ``scipy.sparse.linalg.LinearOperator`` (NumPy arrays, CPU)."""
        from scipy.sparse.linalg import LinearOperator

        checks.single("to_scipy", self.batch_shape)
        dtype = torch.float64 if self.dtype == torch.float64 else torch.float32

        def columns(X: np.ndarray, transposed: bool = False) -> np.ndarray:
            tensor = checks.as_tensor("X", X.reshape(self.n, -1)).to(self.device, dtype)
            return self._on_columns(tensor, transposed).detach().cpu().numpy()

        def transposed(X: np.ndarray) -> np.ndarray:
            return columns(X, True)

        shape = (self.n, self.n)
        return LinearOperator(
            shape,
            matvec=columns,
            rmatvec=transposed,
            matmat=columns,
            rmatmat=transposed,
            dtype=str(dtype).removeprefix("torch."),
        )

    def _check_columns(self, name: str, shape: Sequence[int], method: str, on_rows: str) -> None:
        """Whether a matrix has columns of length n; ``on_rows`` is what to write where its rows have it."""
        if len(shape) > 1 and shape[-2] != self.n:
            hint = f"its rows have length n: try {on_rows}" if shape[-1] == self.n else f"try {self.n} rows"
            expected = f"shape ({self.n},) or (…, {self.n}, k) for {method}"
            raise ArgumentError(name, expected, tuple(shape), hint)

    def _check_solved(self, B: Any) -> None:
        """The same, before a solve; lists and vectors are checked in the product."""
        self._check_columns("B", getattr(B, "shape", ()), "solve", "solve(B.mT).mT")

    def _on_columns(self, X: torch.Tensor, transposed: bool = False) -> torch.Tensor:
        """Act on the columns of X (*batch, n, k)."""
        act = self._transposed_rows if transposed else self._rows
        return act(X.mT).mT


# What can be added to an operator or multiply it, and what to do otherwise.
SUM = (
    "a number, for that multiple of the identity, or LowRank(U, w)",
    "fit the sum, or add matrices: to_dense()",
)
PRODUCT = "a number", "for a product try @"


class Affine(Operator):
    """A symmetric operator H that has multiples and shifts: scale·H + shift·I by a hook, ``_affine(scale, shift)``.

    A number added to an operator counts as that multiple of the identity.
    """

    def _affine(self, scale: Any, shift: Any) -> Any:
        raise NotImplementedError

    def __add__(self, c: Any) -> Any:
        """H + c·I."""
        return self._affine(1, c) if is_number(c) else _refuse(c, SUM)

    def __mul__(self, c: Any) -> Any:
        """c·H."""
        return self._affine(c, 0) if is_number(c) else _refuse(c, PRODUCT)

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, c: Any) -> Any:
        """H − c·I."""
        return self._affine(1, -c) if is_number(c) else _refuse(c, SUM)

    def __rsub__(self, c: Any) -> Any:
        """c·I − H."""
        return self._affine(-1, c) if is_number(c) else _refuse(c, SUM)

    def __truediv__(self, c: Any) -> Any:
        """H/c."""
        return self._affine(1 / c, 0) if is_number(c) else _refuse(c, PRODUCT)

    def __neg__(self) -> Any:
        return self._affine(-1, 0)


def own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that only the caller can reach. A tensor that requires gradients is shared: a copy would not follow it."""
    return tensor if tensor.requires_grad else tensor.clone()


def device_and_dtype(device: Any, dtype: torch.dtype | None) -> tuple[Any, torch.dtype | None]:
    """The arguments of ``to``, checked; a dtype may come first, as with tensors."""
    if isinstance(device, torch.dtype):
        device, dtype = None, device
    if dtype is not None:  # whole numbers would cut angles off
        checks.real_dtype("dtype", dtype)
    return None if device is None else checks.device("device", device), dtype


def seeded(device: Any, seed: int | None, generator: torch.Generator | None) -> torch.Generator:
    """The generator given, or a new one of this seed; without one, of a random seed."""
    if generator is not None and seed is not None:
        raise ArgumentError("seed, generator", "one of the two", "both")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ArgumentError("generator", "a torch.Generator", repr(generator), "try `seed=0`")
    if generator is None:
        generator = torch.Generator(device)
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(checks.seed("seed", seed))
    return generator


def _as_it_is(result: torch.Tensor) -> torch.Tensor:
    return result


def _as_array(result: torch.Tensor) -> np.ndarray:
    """A result for a caller who gave an array; NumPy has no bfloat16."""
    result = result.detach().cpu()
    return (result.float() if result.dtype == torch.bfloat16 else result).numpy()


def incoming(name: str, value: Any, operator: Operator) -> tuple[torch.Tensor, Any]:
    """The argument as a tensor, and the function that turns the result into the caller's kind."""
    if isinstance(value, torch.Tensor):
        return value, _as_it_is
    like = torch.empty(0, dtype=operator.dtype, device=operator.device)
    return checks.as_tensor(name, value, like), _as_array


def _refuse(other: Any, rule: tuple[str, str]) -> Any:
    """An error where nobody else will say what is wrong; others may know what to do with us."""
    if isinstance(other, (np.ndarray, torch.Tensor, Operator)):
        shape = f"{type(other).__name__} of shape {tuple(other.shape)}"
        raise ArgumentError("", rule[0], shape, rule[1])
    return NotImplemented


def is_number(c: Any) -> bool:
    """A real number; a tensor of one number counts, so that gradients reach it."""
    if isinstance(c, torch.Tensor):
        return c.ndim == 0 and not c.is_complex()
    if isinstance(c, int) and not isinstance(c, bool) and abs(c) >= 2**1023:
        raise ArgumentError("", "a number that a float holds", checks.short(c))
    return isinstance(c, (int, float, np.integer, np.floating)) and not isinstance(c, bool)
