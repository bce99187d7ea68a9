"""Rotation: an orthogonal matrix with determinant +1 as a short product of Givens rotations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from swallowtail import checks, kernels, ops
from swallowtail.errors import ArgumentError
from swallowtail.kernels.cpu.schedule import schedule
from swallowtail.operators.base import Operator, device_and_dtype, own, seeded
from swallowtail.ops.torch_private import active_transformation, constant_result
from swallowtail.wiring import Butterfly, Wiring


class Rotation(Operator):
    """Q = Q₁Q₂…Q_L, each Q_i a layer of disjoint Givens rotations [[c, −s], [s, c]].

    Args:
        wiring: who meets whom.
        angles: shape (K,), layer by layer, Q₁ first; leading axes make a batch of rotations on one wiring. They are
            copied: later changes of the argument, or of what `angles` returns, do not reach the rotation. Only angles
            that require gradients are shared, so that they can be trained. float64, float32, bfloat16 or float16;
            finite, of any size.

    Products keep the dtype of half-precision vectors; otherwise dtypes promote. Wherever a dense product in the same
    dtype is finite, so are these (docs/reliability.md says how near).

    >>> Q = Rotation(Butterfly(2), torch.tensor([math.pi / 2]))
    >>> Q @ torch.tensor([1.0, 0.0])
    tensor([-4.3711e-08,  1.0000e+00])
    """

    def __init__(self, wiring: Wiring, angles: Any) -> None:
        checks.instance("wiring", wiring, Wiring, "try Butterfly(n)")
        self.wiring, self.n = wiring, wiring.n
        angles = checks.as_tensor("angles", angles)
        checks.last_axis("angles", angles, wiring.n_rotations, "the wiring's number of rotations")
        if active_transformation() is None:  # torch.func.vmap does not let anybody look at numbers
            checks.finite("angles", angles)
        self._set_angles(own(angles))

    def _set_angles(self, angles: torch.Tensor) -> None:
        """Take angles that nobody else can reach, or that require gradients."""
        self._angles = angles
        self._cache = ops.PreparedCache(owned=not angles.requires_grad)
        self._transposed: Rotation | None = None

    @classmethod
    def identity(
        cls, n: int, depth: int = 1, *, dtype: torch.dtype | None = None, device: Any = None
    ) -> Rotation:
        """All angles zero."""
        wiring = Butterfly(n, depth)
        device, dtype = device_and_dtype(device, dtype)
        return cls(wiring, torch.zeros(wiring.n_rotations, dtype=dtype, device=device))

    @classmethod
    def random(
        cls,
        n: int,
        depth: int = 1,
        *,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> Rotation:
        """Angles uniform in (−π, π). Far from Haar at depth 1: n lg n / 2 angles stand for n(n − 1)/2."""
        wiring = Butterfly(n, depth)
        draws = _uniform(wiring.n_rotations, seed, generator)
        device, dtype = device_and_dtype(device, dtype)
        return cls(wiring, ((2 * draws - 1) * math.pi).to(device, dtype or torch.get_default_dtype()))

    @classmethod
    def hadamard(cls, n: int, *, dtype: torch.dtype | None = None, device: Any = None) -> Rotation:
        """All angles π/4, n = 2^k: entries ±1/√n.

        It is Sylvester's matrix over √n with column j times (−1)^(number of ones in j's binary form).
        """
        if checks.integer("n", n, at_least=1) & (n - 1):
            raise ArgumentError("n", "a power of two for a Hadamard rotation", n, "try Rotation.random")
        wiring = Butterfly(n)
        device, dtype = device_and_dtype(device, dtype)
        return cls(wiring, torch.full((wiring.n_rotations,), math.pi / 4, dtype=dtype, device=device))

    @property
    def n_rotations(self) -> int:
        """K."""
        return self.wiring.n_rotations

    @property
    def angles(self) -> torch.Tensor:
        """The angles, shape (*batch, K): a copy, or the tensor itself if it requires gradients."""
        return own(self._angles)

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        """Leading axes of the angles."""
        return self._angles.shape[:-1]

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The dtype of the angles."""
        return self._angles.dtype

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the angles."""
        return self._angles.device

    @property
    def T(self) -> Rotation:
        """Qᵀ, which is Q⁻¹."""
        if self._transposed is not None:
            return self._transposed
        wiring, order = self._transposed_layout()
        result = Rotation.__new__(Rotation)
        result.wiring, result.n = wiring, self.n
        result._set_angles(-self._angles[..., order])
        result._transposed = self
        # Shared angles can change. What a compiled call makes may lie in a CUDA graph's memory, which is reused.
        if self._cache.owned and not torch.compiler.is_compiling():
            self._transposed = result
        return result

    @constant_result  # compilers cannot follow how a wiring is made
    def _transposed_layout(self) -> tuple[Wiring, torch.Tensor]:
        """The wiring of Qᵀ, and where each of its angles stands among Q's."""
        return self.wiring.T, torch.from_numpy(self.wiring.transpose_order).to(self.device)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of Q x for one x, as the kernel that runs on this device counts them."""
        return count_multiply_adds(self, "rotate")

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> Rotation:
        """The same rotation on another device or in another dtype."""
        device, dtype = device_and_dtype(device, dtype)
        return Rotation(self.wiring, self._angles.to(device=device, dtype=dtype))

    def grouped(self, size: int = 16) -> Rotation:
        """The same rotation in rounds of groups of at most ``size`` coordinates, a `Grouped` wiring.

        Only rotations that share no coordinate change places, so Q stays what it is, and the angles are the same
        ones in another order.
        """
        wiring, order = schedule(self.wiring, size)
        return Rotation(wiring, self._angles[..., torch.from_numpy(order).to(self.device)])

    def to_sparse_factors(self) -> list[Any]:
        """The paper's sparse-BLAS form: one SciPy CSR matrix per layer, Q₁ first; their product is Q."""
        from scipy.sparse import csr_array

        checks.single("to_sparse_factors", self.batch_shape)
        angles = self._angles.detach().cpu().double().numpy()
        factors = []
        for index, pairs in enumerate(self.wiring.layers()):
            theta = angles[self.wiring.offsets[index] : self.wiring.offsets[index + 1]]
            c, s, (i, j) = np.cos(theta), np.sin(theta), pairs.T
            alone = np.setdiff1d(np.arange(self.n), pairs)
            values = np.concatenate([c, -s, s, c, np.ones(len(alone))])
            rows, columns = np.concatenate([i, i, j, j, alone]), np.concatenate([i, j, i, j, alone])
            factors.append(csr_array((values, (rows, columns)), shape=(self.n, self.n)))
        return factors

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return ops.rotate(x, self.wiring, self._angles, cache=self._cache)

    def _transposed_rows(self, x: torch.Tensor) -> torch.Tensor:
        return ops.rotate_transpose(x, self.wiring, self._angles, cache=self._cache)

    def _on_columns(self, X: torch.Tensor, transposed: bool = False) -> torch.Tensor:
        act = ops.rotate_transpose if transposed else ops.rotate
        angles = self._angles[..., None, :] if self.batch_shape else self._angles
        return act(X.mT, self.wiring, angles, cache=self._cache).mT

    def __repr__(self) -> str:
        batch = f"batch {tuple(self.batch_shape)}, " if self.batch_shape else ""
        return f"Rotation({self.wiring!r}; {batch}{self.dtype}, {self.device})"


def count_multiply_adds(rotation: Rotation, form: str, eigenvalues: torch.Tensor | None = None) -> int:
    """Ask the back end that would run; ``form`` is "rotate", "symmetric" or "quadratic"."""
    wiring = rotation.wiring
    if not rotation.batch_shape.numel():
        return 0
    backend = kernels.backend_for(rotation._angles)
    angles = rotation._angles.detach()[(0,) * len(rotation.batch_shape)][None]  # the first of a batch
    angles = angles if angles.dtype == torch.float64 else angles.float()
    d = None if eigenvalues is None else eigenvalues.detach().reshape(-1, wiring.n)[:1].to(angles.dtype)
    return int(backend.multiply_adds(wiring, backend.prepare(wiring, angles, d), form))


def _uniform(count: int, seed: int | None, generator: torch.Generator | None) -> torch.Tensor:
    """float64 draws on the CPU, so that a seed means the same rotation on every device and in every dtype."""
    generator = seeded("cpu", seed, generator)
    return torch.rand(count, dtype=torch.float64, generator=generator, device=generator.device).cpu()
