"""Counts by hand for n = 4, and those of the paper."""

import numpy as np
import pytest

import swallowtail as st
from swallowtail.experiments.claims import counting


def test_counts_for_n_4_by_hand(four):
    """Four rotations: 4 products each there and 4 back, 4 for D; a gradient three times that; half, and 8, for xᵀHx."""
    assert counting.count_network(four, "product") == 4 * 4 + 4 + 4 * 4
    assert counting.count_network(four, "quadratic_form") == 4 * 4 + 8
    assert counting.count_network(four, "gradient") == 3 * 36
    x = np.array([1.0, -2.0, 0.5, 3.0])
    count, y = counting.count_fast(four, x)
    assert count == 2 * 4 + 4 + 2 * 4 == four.multiply_adds
    np.testing.assert_allclose(y, four.to_dense().numpy() @ x, atol=1e-13)
    count, q = counting.count_fast(four, x, quadratic=True)
    assert count == 2 * 4 + 8
    assert float(q) == pytest.approx(x @ four.to_dense().numpy() @ x)


@pytest.mark.parametrize("n", [4, 16])
def test_count_rows_agree_with_the_paper(n):
    rows = {row["quantity"]: row for row in counting.count_rows(n, 0)}
    for row in rows.values():
        assert row["plain"] == row["paper"] or row["paper"] is None
        assert row["deviation"] < 1e-12
    assert rows["product"]["ours"] == rows["product"]["claimed_by_operator"]
    kept = rows["numbers kept for backward"]
    assert kept["ours"] == st.Butterfly(n).n_rotations + 2 * n < kept["plain"]
