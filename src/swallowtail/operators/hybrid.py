"""HybridOperator: rotations and a few rank-one terms, H = Q D Qᵀ + U diag(w) Uᵀ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators import updates
from swallowtail.operators.base import Affine, device_and_dtype, incoming, own, seeded
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator, floored
from swallowtail.ops.route import KERNEL, route
from swallowtail.wiring import Pairs


class HybridOperator(Affine):
    """H = S + U diag(w) Uᵀ with S = Q D Qᵀ a `SymmetricOperator`: for a few strong directions among many weak.

    Q may have no rotations: H is then a diagonal, or a multiple of the identity, and rank-one terms, and no kernel of
    rotations is called. Solves, inverses, determinants and samples are exact, by Woodbury's formula and the
    determinant lemma, and need an invertible D. `function` goes by block Lanczos. One operator, not a batch.

    Args:
        symmetric: S.
        basis: U, shape (n, r); its columns need not be orthonormal.
        weights: w, shape (r,), of either sign. Both are copied, and shared only if they require gradients.

    >>> S = SymmetricOperator(Rotation.identity(2), torch.tensor([1.0, 1.0]))
    >>> HybridOperator(S, torch.tensor([[1.0], [1.0]]), torch.tensor([2.0])).to_dense()
    tensor([[3., 2.],
            [2., 3.]])
    """

    _weighted: torch.Tensor | None = None  # (U diag(w))ᵀ on a GPU: one launch less per product

    def __init__(self, symmetric: SymmetricOperator, basis: Any, weights: Any) -> None:
        checks.instance("symmetric", symmetric, SymmetricOperator)
        checks.single("symmetric", symmetric.batch_shape)
        self.symmetric, self.n = symmetric, symmetric.n
        self._basis = checks.as_tensor("basis", basis, symmetric.eigenvalues)
        self._weights = checks.as_tensor("weights", weights, symmetric.eigenvalues)
        if self._basis.ndim != 2 or self._basis.shape[0] != self.n:
            raise ArgumentError("basis", f"shape ({self.n}, r)", tuple(self._basis.shape))
        if self._weights.shape != self._basis.shape[1:]:
            expected = f"shape ({self._basis.shape[1]},), one weight per column of basis"
            raise ArgumentError("weights", expected, tuple(self._weights.shape))
        checks.same_device(eigenvalues=symmetric.eigenvalues, basis=self._basis, weights=self._weights)
        if not self._basis.requires_grad:  # a copy, column by column in memory: skinny products are faster so
            self._basis = self._basis.T.clone(memory_format=torch.contiguous_format).T
        self._weights = own(self._weights)
        if self._basis.is_cuda and not (self._basis.requires_grad or self._weights.requires_grad):
            self._weighted = self._basis.T * self._weights[:, None]  # these two do not change
        self.batch_shape = torch.Size()

    @staticmethod
    def without_rotations(diagonal: Any, basis: Any, weights: Any) -> HybridOperator:
        """diag(diagonal) + U diag(w) Uᵀ; all of a ``diagonal`` (n,) may be equal, for c·I + U diag(w) Uᵀ."""
        d = checks.as_tensor("diagonal", diagonal, checks.as_tensor("basis", basis))
        if d.ndim != 1 or not len(d):
            raise ArgumentError("diagonal", "shape (n,)", tuple(d.shape))
        rotation = Rotation(Pairs(len(d), []), torch.zeros(0, dtype=d.dtype, device=d.device))
        return HybridOperator(SymmetricOperator(rotation, d), basis, weights)

    @property
    def basis(self) -> torch.Tensor:
        """U, shape (n, r): a copy, or the tensor itself if it requires gradients."""
        return own(self._basis)

    @property
    def weights(self) -> torch.Tensor:
        """w, shape (r,): a copy, or the tensor itself if it requires gradients."""
        return own(self._weights)

    @property
    def rotation(self) -> Rotation:
        """Q."""
        return self.symmetric.rotation

    @property
    def rank(self) -> int:
        """How many rank-one terms there are."""
        return int(self._basis.shape[1])

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The dtype all parts promote to."""
        both = torch.promote_types(self._basis.dtype, self._weights.dtype)
        return torch.promote_types(self.symmetric.dtype, both)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of all parts."""
        return self._basis.device

    @property
    def T(self) -> HybridOperator:
        """H itself."""
        return self

    @property
    def multiply_adds(self) -> int:
        """Those of S x, and 2n per rank-one term."""
        return self.symmetric.multiply_adds + 2 * self.n * self.rank

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> HybridOperator:
        """The same operator on another device or in another dtype."""
        device, dtype = device_and_dtype(device, dtype)
        basis, weights = (t.to(device=device, dtype=dtype) for t in (self._basis, self._weights))
        return HybridOperator(self.symmetric.to(device, dtype), basis, weights)

    def _affine(self, scale: Any, shift: Any) -> HybridOperator:
        return HybridOperator(self.symmetric._affine(scale, shift), self._basis, self._weights * scale)

    def trace(self) -> torch.Tensor:
        """Tr H = Σ d + Σ w ‖u‖²."""
        return self.symmetric.trace() + (self._weights * (self._basis * self._basis).sum(0)).sum()

    def diagonal(self, method: str = "exact", n_probes: int = 100, seed: int = 0) -> torch.Tensor:
        """diag H, shape (n,); the part of S as `SymmetricOperator.diagonal` finds it."""
        own = self.symmetric.diagonal(method, n_probes, seed)
        U, w = self._terms(self.dtype)
        return (own.to(U.dtype) + (U * U) @ w).to(self.dtype)

    def quadratic_form(self, x: Any) -> Any:
        """xᵀ H x for vectors on the last axis."""
        x, back = incoming("x", x, self)
        own = self.symmetric.quadratic_form(x)
        U, w = self._terms(own.dtype)
        return back((own.to(U.dtype) + ((x.to(U.dtype) @ U) ** 2) @ w).to(own.dtype))

    def inverse(self, epsilon: float | None = None) -> HybridOperator:
        """H⁻¹ = S⁻¹ − S⁻¹U (1 + W UᵀS⁻¹U)⁻¹ W UᵀS⁻¹, Woodbury's formula: of the same rank and cost as H.

        Zero eigenvalues of S are a ValueError unless ``epsilon``, their floor, is given.
        """
        inverse = self.symmetric.inverse(epsilon)
        U, w = self._terms(self.dtype)
        basis, weights = updates.woodbury(U, inverse @ U, w)
        return HybridOperator(inverse, basis.to(self.dtype), weights.to(self.dtype))

    def solve(self, B: Any, epsilon: float | None = None) -> Any:
        """H⁻¹ B for B (n,) or (n, k), by Woodbury's formula; zero eigenvalues of S as in `inverse`."""
        self._check_solved(B)
        B, back = incoming("B", B, self)
        inverse = self.symmetric.inverse(epsilon)
        first = inverse @ B
        U, w = self._terms(first.dtype)
        solved_U, columns = inverse @ U, first.to(U.dtype).reshape(self.n, -1)
        inner = torch.linalg.solve(updates.capacitance(U, solved_U, w), w[:, None] * (U.T @ columns))
        return back((columns - solved_U @ inner).reshape(first.shape).to(first.dtype))

    def function(
        self,
        f: Callable[[torch.Tensor], torch.Tensor],
        tolerance: float | None = None,
        max_rank: int | None = None,
    ) -> HybridOperator:
        """f(H), by block Lanczos: f(S) and more rank-one terms, which grow until they change f(H) no more.

        Exact for a multiple of the identity and rank-one terms, whose rank stays. Otherwise the rank grows by that
        of H per step; smooth functions take few steps.

        Args:
            f: acts on a tensor of eigenvalues, e.g. ``torch.sqrt``.
            tolerance: of f(H) − f(S), relative; 1e-8 in float64, 1e-5 otherwise.
            max_rank: where to stop even so; n by default, where f(H) is exact.
        """
        at_most = self.n if max_rank is None else checks.integer("max_rank", max_rank, at_least=self.rank)
        f_of_S = self.symmetric.function(f)
        U, w = self._terms(self.dtype)
        if tolerance is None:
            tolerance = 1e-8 if U.dtype == torch.float64 else 1e-5
        checks.number("tolerance", tolerance, above=0)
        basis, weights = updates.of_function(self.symmetric, U, w, f, tolerance, at_most)
        return HybridOperator(f_of_S, basis.to(self.dtype), weights.to(self.dtype))

    def sample(
        self,
        n_samples: int = 1,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        epsilon: float | None = None,
    ) -> torch.Tensor:
        """Draw from the Gaussian with mean 0 and covariance H, exactly; shape (n_samples, n).

        H = LLᵀ with L = Q D^½ (1 + Y diag(a) Yᵀ), Y orthonormal of the rank of H. A negative eigenvalue of S, or of
        H, is a ValueError unless ``epsilon``, the floor of D, is given; so is a zero of D beside negative weights.
        """
        d, dtype = self.symmetric.eigenvalues, torch.promote_types(self.dtype, torch.float32)
        U, w = (t.to(dtype) for t in (self._basis, self._weights))
        d = floored(d, epsilon).to(dtype)
        count = checks.integer("n_samples", n_samples, at_least=0)
        checks.fits_in_memory("samples", count * self.n * dtype.itemsize)
        generator = seeded(self.device, seed, generator)
        z = torch.randn((count, self.n), generator=generator, dtype=dtype, device=self.device)
        if bool((d < 0).any()):
            got = f"{int((d < 0).sum())} negative, the least {float(d.detach().min()):.3g}"
            raise ArgumentError("sample", "eigenvalues of S ≥ 0", got, "try `epsilon=1e-6`")
        if bool((w >= 0).all()):  # the sum of two draws, though D be singular
            more = torch.randn((count, self.rank), generator=generator, dtype=dtype, device=self.device)
            own = self.rotation((z * d.sqrt()).to(self.dtype)).to(dtype)
            return (own + (more * w.sqrt()) @ U.T).to(self.dtype)
        if bool((d == 0).any()):
            got = f"{int((d == 0).sum())} zero, beside negative weights"
            raise ArgumentError("sample", "eigenvalues of S > 0", got, "try `epsilon=1e-6`")
        Y, a = updates.root(self.rotation.T(U.T).T / d.sqrt()[:, None], w, floor=epsilon is not None)
        return self.rotation(((z + ((z @ Y) * a) @ Y.T) * d.sqrt()).to(self.dtype))

    def to_linear_operator(self) -> Any:
        """As an operator of the ``linear_operator`` package (GPyTorch's): a sum of two."""
        from swallowtail.operators.linear_operator import as_sum

        return as_sum(self.symmetric, self._basis, self._weights)

    def to_sparse_factors(self) -> list[Any]:
        """SciPy CSR matrices whose product is H: [1 U], Q₁, …, diag(D, w), …, Q₁ᵀ, [1 U]ᵀ."""
        from scipy.sparse import block_diag, csr_array, eye_array, hstack

        U, w = (t.detach().cpu().double().numpy() for t in (self._basis, self._weights))
        first = hstack([eye_array(self.n), csr_array(U)]).tocsr()
        factors = self.symmetric.to_sparse_factors()
        middle = len(factors) // 2
        beside = [eye_array(self.rank)] * len(factors)
        beside[middle] = csr_array((w, (range(self.rank), range(self.rank))), shape=(self.rank, self.rank))
        inner = (
            [block_diag(pair).tocsr() for pair in zip(factors, beside, strict=True)] if self.rank else factors
        )
        return [first, *inner, first.T.tocsr()]

    def logdet(self, epsilon: float | None = None) -> torch.Tensor:
        """log det H = log det S + log det(1 + W UᵀS⁻¹U); NaN if det H < 0, an error if S is singular."""
        inverse = self.symmetric.inverse(epsilon)
        U, w = self._terms(self.dtype)
        sign, size = torch.linalg.slogdet(updates.capacitance(U, inverse @ U, w))
        d = inverse.eigenvalues.to(U.dtype)
        size, sign = size - d.abs().log().sum(), sign * d.sign().prod()
        return torch.where(sign < 0, torch.full_like(size, torch.nan), size).to(self.dtype)

    def _terms(self, like: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """U and w in the dtype to compute in: half precision is storage only."""
        half = like in checks.HALF
        dtype = torch.promote_types(torch.float32 if half else like, self.dtype)
        return self._basis.to(dtype), self._weights.to(dtype)

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        d, U, w = self.symmetric._eigenvalues, self._basis, self._weights
        plain = x.ndim == 2 and x.shape[1] == self.n and x.dtype == d.dtype == U.dtype == w.dtype
        if plain and x.dtype not in checks.HALF and route(x, self.rotation._angles, d, U, w) is KERNEL:
            # The usual case, without what the others need: for n = 64 that takes half of the time.
            own = x * d if self.rotation.n_rotations == 0 else self.symmetric._rows(x)
            if self._weighted is not None:
                return own.addmm_(torch.mm(x, U), self._weighted)
            return own.addmm_(torch.mm(U.T, x.T).mul_(w[:, None]).T, U.T)
        return self._any_rows(x)

    def _any_rows(self, x: torch.Tensor) -> torch.Tensor:
        own = self._scaled(x) if self.rotation.n_rotations == 0 else self.symmetric._rows(x)
        U, w = self._terms(own.dtype)
        # Half-precision x keeps its dtype, as everywhere; otherwise all parts promote.
        dtype = own.dtype if x.dtype in checks.HALF else U.dtype
        # As Uᵀ xᵀ: with few columns, x U takes up to six times as long.
        inner = (U.T @ x.to(U.dtype).reshape(-1, self.n).T) * w[:, None]
        own = own.to(U.dtype).reshape(-1, self.n)
        watched = route(x, self.rotation._angles, self.symmetric._eigenvalues, U, w) is not KERNEL
        result = torch.addmm(own, inner.T, U.T) if watched else own.addmm_(inner.T, U.T)
        return result.reshape(x.shape).to(dtype)

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        """D x, a new tensor: what S does without rotations."""
        d = self.symmetric._eigenvalues
        checks.real_dtype("x", x.dtype)
        checks.last_axis("x", x, self.n, "n")
        checks.same_device(x=x, eigenvalues=d)
        return x * d.to(x.dtype) if x.dtype in checks.HALF else x * d

    _transposed_rows = _rows

    def __repr__(self) -> str:
        return f"HybridOperator(n={self.n}, rank {self.rank}, {self.rotation!r})"
