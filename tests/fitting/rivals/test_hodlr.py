"""HODLR: exact where it should be, counted as stored."""

import numpy as np
import pytest

from swallowtail.fitting.rivals.hodlr import alike_together, hodlr_rivals

ORDER = np.random.default_rng(0).permutation(96)


def exponential(order):
    """Blocks off the diagonal have rank one."""
    return np.exp(-np.abs(np.subtract.outer(order, order)) / 30)


def test_a_one_dimensional_kernel_is_met_in_any_order():
    H = exponential(ORDER)
    found = hodlr_rivals(H, {"floats": 2000, "multiply_adds": 6000})
    assert [rival.equal for rival in found] == ["floats", "multiply-adds"]
    for rival in found:
        np.testing.assert_allclose(rival.operator @ np.eye(96), H, atol=1e-10)
    line = ORDER[alike_together(H)]
    assert (np.diff(line) > 0).all() or (np.diff(line) < 0).all()


def test_an_amount_that_pays_for_all_entries():
    """A leaf as large as the matrix is no HODLR."""
    H = exponential(np.arange(32))
    for rival in hodlr_rivals(H, {"floats": 2000, "multiply_adds": 2000}):
        np.testing.assert_allclose(rival.operator @ np.eye(32), H, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scale_is_no_matter(scale):
    A = np.random.default_rng(1).standard_normal((64, 64))
    H, amounts = A @ A.T, {"floats": 1200, "multiply_adds": 2500}
    for plain, scaled in zip(hodlr_rivals(H, amounts), hodlr_rivals(scale * H, amounts), strict=True):
        np.testing.assert_allclose(scaled.operator @ np.eye(64), scale * (plain.operator @ np.eye(64)))


def test_the_budget_is_kept_and_counted():
    A = np.random.default_rng(1).standard_normal((64, 64))
    H = A + A.T
    for floats in (1000, 1500):
        rival = hodlr_rivals(H, {"floats": floats, "multiply_adds": 10})[0]
        form = rival.operator
        stored = sum(m * (m + 1) // 2 for m in (len(leaf) for _, leaf in form.leaves))
        stored += sum(block.U.size + block.V.size for block in form.blocks)
        assert rival.cost.floats == stored <= floats
        B = form @ np.eye(64)
        np.testing.assert_allclose(B, B.T, atol=1e-12)


@pytest.mark.parametrize("n", [4, 16])
def test_small_matrices_are_left_alone(n):
    assert hodlr_rivals(np.eye(n), {"floats": 10**6, "multiply_adds": 10**6}) == []
