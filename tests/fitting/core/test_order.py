"""Orders of the coordinates of a butterfly."""

import numpy as np
import pytest
from fitting.common import relative_error, synthetic

from swallowtail.fitting.core.order import learned_order
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.wiring import Pairs


def morton_order(height: int, width: int) -> np.ndarray:  # shape: (height * width,)
    """Pixels of a row-major image in Z-order: the strides of a butterfly alternate between rows and columns."""
    rows, columns = np.divmod(np.arange(height * width), width)
    key = np.zeros(height * width, dtype=np.int64)
    for bit in range(max(height, width).bit_length()):
        key |= ((columns >> bit) & 1) << (2 * bit) | ((rows >> bit) & 1) << (2 * bit + 1)
    return np.argsort(key, kind="stable")


def grid_kernel(height, width, length):
    """A squared-exponential kernel on a grid, row by row."""
    y, x = np.divmod(np.arange(height * width), width)
    return np.exp(-((y[:, None] - y) ** 2 + (x[:, None] - x) ** 2) / (2 * length**2))


def test_morton_order_is_a_permutation_for_any_shape():
    for shape in [(1, 1), (4, 4), (3, 5), (28, 28)]:
        assert sorted(morton_order(*shape)) == list(range(shape[0] * shape[1]))
    assert morton_order(4, 4)[:4].tolist() == [0, 1, 4, 5]


@pytest.mark.parametrize("n", [1, 2, 3, 12, 32])
def test_learned_order_is_a_permutation(n):
    assert sorted(learned_order(synthetic(n, n // 2, 0))) == list(range(n))


def test_order_helps_where_it_should():
    H = grid_kernel(16, 16, 2.0)
    scrambled = np.random.default_rng(0).permutation(256)
    G = H[np.ix_(scrambled, scrambled)]
    options = {"starts": 0, "kicks": 0}
    plain, learned = fit_butterfly(G, **options), fit_butterfly(G, order="learn", **options)
    assert isinstance(learned.wiring, Pairs)
    assert relative_error(G, learned) < 0.9 * relative_error(G, plain)
    # Undoing the scramble and then laying the image out in Z-order is the same matrix as Z-order on H.
    order = np.argsort(scrambled)[morton_order(16, 16)]
    z = fit_butterfly(G, order=order, **options)
    assert relative_error(G, z) == pytest.approx(
        relative_error(H, fit_butterfly(H, order=morton_order(16, 16), **options)), rel=1e-3
    )
