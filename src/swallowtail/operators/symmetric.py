"""SymmetricOperator: H = Q D Qᵀ, with everything an eigendecomposition makes cheap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from swallowtail import checks, ops
from swallowtail.errors import ArgumentError
from swallowtail.operators.base import Affine, device_and_dtype, incoming, own, seeded
from swallowtail.operators.rotation import Rotation, count_multiply_adds
from swallowtail.wiring import Butterfly

BLOCK_NUMBERS = 2**22  # of the identity that `diagonal` holds at a time: 16 MiB in float32


class SymmetricOperator(Affine):
    """H = Q D Qᵀ with Q a `Rotation` and D = diag(eigenvalues).

    Eigenvalues may be negative or zero: products, traces and functions take them as they are. `solve`,
    `inverse`, `logdet` and `sample` need what an inverse, a logarithm or a square root needs; each says
    what it does otherwise, and each takes the paper's ``epsilon``: eigenvalues below it count as epsilon.

    Args:
        rotation: Q.
        eigenvalues: shape (n,), or (*batch, n). As with a rotation's angles, they are copied, and shared only if they
            require gradients. Any real numbers, of any size.

    >>> H = SymmetricOperator(Rotation.identity(2), torch.tensor([2.0, 4.0]))
    >>> H.solve(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 0.2500])
    """

    def __init__(self, rotation: Rotation, eigenvalues: Any) -> None:
        checks.instance("rotation", rotation, Rotation, "try Rotation(wiring, angles)")
        self.rotation = rotation
        angles = rotation._angles
        eigenvalues = checks.as_tensor("eigenvalues", eigenvalues, angles)
        checks.last_axis("eigenvalues", eigenvalues, rotation.n, "n")
        checks.same_device(angles=angles, eigenvalues=eigenvalues)
        checks.same_batch(angles=angles, eigenvalues=eigenvalues)
        self.n = rotation.n
        self._eigenvalues = own(eigenvalues)
        self._cache = ops.PreparedCache(owned=rotation._cache.owned and not eigenvalues.requires_grad)

    @property
    def eigenvalues(self) -> torch.Tensor:
        """The diagonal of D, shape (n,) or (*batch, n): a copy, or the tensor itself if it requires gradients."""
        return own(self._eigenvalues)

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        """Leading axes of angles and eigenvalues, broadcast together."""
        return torch.broadcast_shapes(self.rotation.batch_shape, self._eigenvalues.shape[:-1])

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The dtype angles and eigenvalues promote to."""
        return torch.promote_types(self.rotation.dtype, self._eigenvalues.dtype)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the eigenvalues."""
        return self._eigenvalues.device

    @property
    def T(self) -> SymmetricOperator:
        """H itself."""
        return self

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of H x for one x, as the kernel that runs on this device counts them."""
        return count_multiply_adds(self.rotation, "symmetric", self._eigenvalues)

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> SymmetricOperator:
        """The same operator on another device or in another dtype."""
        device, dtype = device_and_dtype(device, dtype)
        return SymmetricOperator(
            self.rotation.to(device, dtype), self._eigenvalues.to(device=device, dtype=dtype)
        )

    def function(self, f: Callable[[torch.Tensor], torch.Tensor]) -> SymmetricOperator:
        """f(H) = Q f(D) Qᵀ; ``f`` acts on the tensor of eigenvalues, e.g. ``torch.sqrt``.

        Where f is not defined, as the root of a negative eigenvalue, it is NaN, and then so are all products.
        """
        eigenvalues = checks.function("f", f, "a tensor of eigenvalues")(self.eigenvalues)
        if not isinstance(eigenvalues, torch.Tensor) or eigenvalues.shape[-1:] != (self.n,):
            got = f"one to {getattr(eigenvalues, 'shape', type(eigenvalues).__name__)}"
            raise ArgumentError("f", "a function from (…, n) eigenvalues to as many", got)
        return SymmetricOperator(self.rotation, eigenvalues)

    def _affine(self, scale: Any, shift: Any) -> SymmetricOperator:
        return self.function(lambda d: d * scale + shift)

    def inverse(self, epsilon: float | None = None) -> SymmetricOperator:
        """H⁻¹ = Q D⁻¹ Qᵀ. A zero eigenvalue is a ValueError unless ``epsilon`` is given."""
        return self.function(lambda d: 1 / self._invertible(d, epsilon))

    def solve(self, B: Any, epsilon: float | None = None) -> Any:
        """H⁻¹ B for B (n,) or (*batch, n, k); zero eigenvalues as in `inverse`."""
        self._check_solved(B)
        return self.inverse(epsilon) @ B

    def logdet(self, epsilon: float | None = None) -> torch.Tensor:
        """log det H = Σ log d; as torch.logdet, −inf for a zero eigenvalue, NaN if det H < 0."""
        d = floored(self._eigenvalues, epsilon)
        d = d.expand(*self.batch_shape, self.n)
        total = d.abs().log().sum(-1)
        negative = (d < 0).sum(-1) % 2 == 1
        return torch.where(negative & (total > -torch.inf), torch.full_like(total, torch.nan), total)

    def trace(self) -> torch.Tensor:
        """Tr H = Σ d."""
        return self._eigenvalues.expand(*self.batch_shape, self.n).sum(-1)

    def quadratic_form(self, x: Any) -> Any:
        """xᵀ H x for vectors on the last axis; stops halfway through the product."""
        x, back = incoming("x", x, self)
        return back(
            ops.quadratic_form(
                x, self.rotation.wiring, self.rotation._angles, self._eigenvalues, cache=self._cache
            )
        )

    def diagonal(self, method: str = "exact", n_probes: int = 100, seed: int = 0) -> torch.Tensor:
        """diag H, shape (*batch, n).

        Args:
            method: "exact" costs O(n lg n) for a depth-1 butterfly, where each entry of Q is one path and
                Q∘Q the butterfly of c² and s²; n quadratic forms, in blocks, for other wirings.
                "estimate" is unbiased: Σ z∘Hz / Σ z∘z over ``n_probes`` random signs z.
            n_probes, seed: for the estimate.
        """
        checks.choice("method", method, ("exact", "estimate"))
        if method == "estimate":
            generator = torch.Generator().manual_seed(checks.seed("seed", seed))
            count = checks.integer("n_probes", n_probes, at_least=1)
            signs = torch.randint(0, 2, (self.n, count), generator=generator) * 2 - 1
            z = signs.to(self.device, self.dtype)
            return (z * (self @ z.expand(*self.batch_shape, self.n, count))).mean(-1)
        wiring = self.rotation.wiring
        if isinstance(wiring, Butterfly) and wiring.depth == 1:
            return self._diagonal_by_paths()
        return self._diagonal_by_blocks()

    def sample(
        self,
        n_samples: int = 1,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        epsilon: float | None = None,
    ) -> torch.Tensor:
        """Draw from the Gaussian with mean 0 and covariance H; shape (n_samples, *batch, n).

        A negative eigenvalue is a ValueError unless ``epsilon`` is given; zero means no spread.
        """
        d = floored(self._eigenvalues, epsilon)
        if bool((d < 0).any()):
            got = f"{int((d < 0).sum())} negative, the least {float(d.detach().min()):.3g}"
            raise ArgumentError("sample", "eigenvalues ≥ 0", got, "try `epsilon=0`")
        generator = seeded(self.device, seed, generator)
        shape = (checks.integer("n_samples", n_samples, at_least=0), *self.batch_shape, self.n)
        checks.fits_in_memory("samples", math.prod(shape) * self.dtype.itemsize)
        arithmetic = torch.float32 if self.dtype in checks.HALF else self.dtype
        z = torch.randn(shape, generator=generator, dtype=arithmetic, device=self.device)
        return self.rotation((z * d.sqrt()).to(self.dtype))

    def to_linear_operator(self) -> Any:
        """As an operator of the ``linear_operator`` package (GPyTorch's)."""
        from swallowtail.operators.linear_operator import as_linear_operator

        return as_linear_operator(self)

    def to_sparse_factors(self) -> list[Any]:
        """The paper's sparse-BLAS form, SciPy CSR: Q₁, …, Q_L, D, Q_Lᵀ, …, Q₁ᵀ; their product is H."""
        from scipy.sparse import diags_array

        factors = self.rotation.to_sparse_factors()
        D = diags_array(self._eigenvalues.detach().cpu().double().numpy()).tocsr()
        return [*factors, D, *[factor.T.tocsr() for factor in reversed(factors)]]

    def _invertible(self, d: torch.Tensor, epsilon: float | None) -> torch.Tensor:
        if epsilon is not None:
            return floored(d, checks.number("epsilon", epsilon, above=0))
        if bool((d == 0).any()):
            hint = "try `epsilon=1e-6`, the floor the paper puts on D when it inverts"
            got = f"{int((d == 0).sum())} of {d.numel()} zero"
            raise ArgumentError("eigenvalues", "none of them zero", got, hint)
        return d

    def _diagonal_by_paths(self) -> torch.Tensor:
        wiring = self.rotation.wiring
        arithmetic = torch.float64 if self.dtype == torch.float64 else torch.float32  # half is storage only
        angles = self.rotation._angles.to(arithmetic)
        d = self._eigenvalues.expand(*self.batch_shape, self.n).to(arithmetic)
        for index in reversed(range(wiring.n_layers)):
            i, j = torch.from_numpy(wiring.layer(index)).to(d.device).unbind(-1)
            theta = angles[..., wiring.offsets[index] : wiring.offsets[index + 1]]
            c2, s2, a, b = theta.cos() ** 2, theta.sin() ** 2, d[..., i], d[..., j]
            d = d.index_copy(-1, i, c2 * a + s2 * b).index_copy(-1, j, s2 * a + c2 * b)
        return d.to(self.dtype)

    def _diagonal_by_blocks(self) -> torch.Tensor:
        block = max(1, BLOCK_NUMBERS // self.n)  # rows of the identity at a time
        parts = []
        axes = (slice(None),) + (None,) * len(self.batch_shape)
        for start in range(0, self.n, block):
            rows = torch.arange(start, min(start + block, self.n), device=self.device)
            units = torch.nn.functional.one_hot(rows, self.n).to(self.dtype)
            parts.append(self.quadratic_form(units[axes]))
        return torch.cat(parts).movedim(0, -1)

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return ops.symmetric_matvec(
            x, self.rotation.wiring, self.rotation._angles, self._eigenvalues, cache=self._cache
        )

    _transposed_rows = _rows

    def _on_columns(self, X: torch.Tensor, transposed: bool = False) -> torch.Tensor:
        angles, d = self.rotation._angles, self._eigenvalues
        if self.batch_shape:
            angles, d = (t.expand(*self.batch_shape, t.shape[-1])[..., None, :] for t in (angles, d))
        return ops.symmetric_matvec(X.mT, self.rotation.wiring, angles, d, cache=self._cache).mT

    def __repr__(self) -> str:
        return f"SymmetricOperator(n={self.n}, {self.rotation!r})"


def floored(d: torch.Tensor, epsilon: float | None) -> torch.Tensor:
    """Eigenvalues of at least ``epsilon``, if it is given."""
    return d if epsilon is None else d.clamp(min=checks.number("epsilon", epsilon))
