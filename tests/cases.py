"""Cases as data: wirings, dtypes with their tolerances, operators."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from swallowtail import Butterfly, Grouped, Pairs, Rotation, SymmetricOperator
from swallowtail.wiring import Wiring

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WIDE = (torch.float64, torch.float32)  # the dtypes of arithmetic
HALF = (torch.bfloat16, torch.float16)  # dtypes of storage only


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALF else dtype


def tolerance(dtype: torch.dtype, n_layers: int) -> float:
    """Relative error, in norm, that a product of ``n_layers`` layers may have.

    A layer makes an error of about eps/2 in every coordinate, independent of the others: they grow like a random
    walk. Four is what input, output and the diagonal add; half precision adds one rounding when it is stored.
    """
    error = torch.finfo(arithmetic(dtype)).eps * math.sqrt(n_layers + 4)
    return error + (torch.finfo(dtype).eps if dtype in HALF else 0.0)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Of a whole tensor, in float64; NaN where anything is NaN, so that comparisons fail."""
    actual, expected = actual.detach().double(), expected.detach().double()
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not expected.numel():
        return 0.0
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-300))


def assert_close(actual: torch.Tensor, expected: torch.Tensor, bound: float, what: str = "") -> None:
    error = relative_error(actual, expected)
    assert error <= bound, f"{what}: relative error {error:.3g} > {bound:.3g}"


def random_pairs(n: int, n_layers: int, seed: int = 0, empty: tuple[int, ...] = ()) -> Pairs:
    """Layers of disjoint pairs in random order and of random size; those in ``empty`` have none."""
    rng = np.random.default_rng(seed)
    layers = []
    for index in range(n_layers):
        size = 0 if index in empty else int(rng.integers(min(1, n // 2), n // 2 + 1))
        layers.append(rng.permutation(n)[: 2 * size].reshape(-1, 2))
    return Pairs(n, layers)


def random_grouped(n: int, n_rounds: int, size: int, seed: int = 0, fixed: bool = False) -> Grouped:
    """Random rotations in rounds of random groups, every second round on two thirds of the coordinates; or of the same
    contiguous groups in every round.
    """
    rng = np.random.default_rng(seed)
    rounds = []
    for index in range(n_rounds):
        left = np.arange(n) if fixed else rng.permutation(n)[: n - (index % 2) * (n // 3)]
        groups = []
        for part in np.split(left, range(size, len(left), size)):
            count = int(rng.integers(0, 3 * len(part))) if len(part) > 1 else 0
            groups.append((part, [rng.choice(part, 2, replace=False) for _ in range(count)]))
        rounds.append(groups)
    return Grouped(n, rounds)


SIZES = (1, 2, 3, 5, 17, 64, 65, 100, 784)

WIRINGS: dict[str, Wiring] = {
    **{f"butterfly-{n}": Butterfly(n) for n in SIZES},
    "butterfly-8-deep": Butterfly(8, 5),
    "butterfly-64-deep": Butterfly(64, 3),
    "butterfly-100-deep": Butterfly(100, 2),
    "butterfly-2048": Butterfly(2048),  # more strided layers than one pass takes
    **{f"butterfly-{n}-reverse": Butterfly(n, reverse=True) for n in (3, 64, 65)},
    "butterfly-17-deep-reverse": Butterfly(17, 3, reverse=True),
    "pairs-1": Pairs(1, [[]]),
    "pairs-2": Pairs(2, [[(1, 0)]]),
    "pairs-3": Pairs(3, [[(0, 1)], [(1, 2)], [(2, 0)]]),
    "pairs-5-no-layers": Pairs(5, []),
    "pairs-5-empty-layers": random_pairs(5, 6, seed=1, empty=(0, 3, 5)),
    "pairs-17": random_pairs(17, 7, seed=2),
    "pairs-64": random_pairs(64, 12, seed=3),
    "pairs-100": random_pairs(100, 9, seed=4, empty=(4,)),
    "pairs-784": random_pairs(784, 10, seed=5),
    "grouped-1": Grouped(1, [[([0], [])]]),
    "grouped-5": Grouped(5, [[([4, 0, 2], [(4, 2), (2, 0), (4, 0)])], [], [([1, 2], [(2, 1), (1, 2)])]]),
    "grouped-17": random_grouped(17, 3, 5, seed=6),
    "grouped-64": random_grouped(64, 5, 16, seed=7),
    "grouped-64-butterfly": Grouped.from_wiring(Butterfly(64, reverse=True), size=8),
    "grouped-100": random_grouped(100, 4, 32, seed=8),
    "grouped-256-fixed": random_grouped(256, 2, 128, seed=9, fixed=True),
    "grouped-784": random_grouped(784, 5, 16, seed=10),
}

# A cross-section for tests that take the product with many other things.
FEW = ("butterfly-1", "butterfly-5", "butterfly-64-deep", "butterfly-65", "butterfly-17-deep-reverse",
       "pairs-5-empty-layers", "pairs-17", "pairs-64", "grouped-17", "grouped-64")  # fmt: skip


def random_angles(
    wiring: Wiring, *batch: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(*batch, wiring.n_rotations, generator=generator, dtype=torch.float64)
    return ((2 * draws - 1) * math.pi).to(dtype)


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def dense_layer(n: int, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """One layer as a matrix, entry by entry: the oracle of the dense tests, in float64."""
    G = np.eye(n)
    for (i, j), theta in zip(pairs, angles, strict=True):
        G[i, i] = G[j, j] = np.cos(theta)
        G[i, j], G[j, i] = -np.sin(theta), np.sin(theta)
    return G


def dense_rotation(wiring: Wiring, angles: torch.Tensor) -> torch.Tensor:
    """Q₁Q₂…Q_L of one vector of angles by dense products, in float64."""
    theta = angles.detach().double().numpy()
    Q = np.eye(wiring.n)
    for index in range(wiring.n_layers):
        here = slice(wiring.offsets[index], wiring.offsets[index + 1])
        Q = Q @ dense_layer(wiring.n, wiring.layer(index), theta[here])
    return torch.from_numpy(Q)


@dataclass(frozen=True)
class OperatorCase:
    """An operator's kind, wiring, dtype and batch shape; contract.py builds it."""

    kind: str
    wiring: str
    dtype: torch.dtype
    batch: tuple[int, ...] = ()

    def __str__(self) -> str:
        batch = "x".join(map(str, self.batch))
        return f"{self.wiring}-{str(self.dtype).removeprefix('torch.')}" + (f"-batch{batch}" if batch else "")

    def build(self) -> tuple[Rotation | SymmetricOperator, torch.Tensor]:
        """The operator and its matrix (*batch, n, n) in float64."""
        wiring = WIRINGS[self.wiring]
        angles = random_angles(wiring, *self.batch, dtype=self.dtype)
        dense = torch.zeros(*self.batch, wiring.n, wiring.n, dtype=torch.float64)
        for index in np.ndindex(self.batch):
            dense[index] = dense_rotation(wiring, angles[index])
        Q = Rotation(wiring, angles)
        if self.kind == "Rotation":
            return Q, dense
        d = normal(*self.batch, wiring.n, dtype=self.dtype, seed=2)
        return SymmetricOperator(Q, d), dense @ torch.diag_embed(d.double()) @ dense.mT


def operator_cases(kind: str) -> list[OperatorCase]:
    cases = [OperatorCase(kind, name, torch.float64) for name in WIRINGS if WIRINGS[name].n < 784]
    cases += [OperatorCase(kind, name, dtype) for name in FEW for dtype in DTYPES[1:]]
    cases += [OperatorCase(kind, name, torch.float64, (3,)) for name in FEW]
    cases += [
        OperatorCase(kind, name, torch.float32, (2, 3)) for name in ("butterfly-17-deep-reverse", "pairs-17")
    ]
    cases += [OperatorCase(kind, "butterfly-5", torch.float64, batch) for batch in ((1,), (0,), (2, 1))]
    return cases
