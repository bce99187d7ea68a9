"""The largest entries and bands: what is kept, what it costs."""

import numpy as np
import pytest

from swallowtail import datasets
from swallowtail.fitting.rivals.sparse import band_cost, entries_cost, sparse_rivals
from swallowtail.fitting.timing import time_model

# Seconds that rise with every entry. The shipped table is flat for small matrices, where a wider band costs no more.
MODEL = time_model()._replace(
    series={"sparse": {9: [(1.0, 1e-6), (9.0, 9e-6)], 12: [(1.0, 1e-6), (12.0, 12e-6)]}}
)


def test_the_largest_entries_are_kept():
    A = np.random.default_rng(0).standard_normal((12, 12))
    H = A + A.T
    amounts = {"floats": 20, "bytes": 4 * 13 + 6 * 30, "multiply_adds": 25, "time": 1e-9}
    found = {rival.equal: rival for rival in sparse_rivals(H, amounts, MODEL) if "entries" in rival.name}
    assert set(found) == {"floats", "bytes", "multiply-adds"}
    kept = found["floats"].operator.toarray()
    assert np.count_nonzero(np.triu(kept)) == 20
    assert np.array_equal(kept, kept.T)
    assert np.abs(H[kept == 0]).max() <= np.abs(kept[kept != 0]).min()
    assert np.count_nonzero(np.triu(found["bytes"].operator.toarray())) == 30
    assert found["multiply-adds"].operator.nnz in (24, 25)


def test_a_matrix_that_is_paid_for_whole_is_exact():
    H = np.diag(np.arange(1.0, 13.0))
    H[0, 5] = H[5, 0] = 2.0
    whole = entries_cost(12, 13, 14, MODEL)
    amounts = {"floats": 13, "bytes": whole.bytes - 1, "multiply_adds": 14, "time": 1e-9}
    (rival,) = (rival for rival in sparse_rivals(H, amounts, MODEL) if rival.name == "all 14 entries")
    assert (rival.equal, rival.cost) == ("floats, multiply-adds", whole)
    np.testing.assert_array_equal(rival.operator.toarray(), H)


def test_a_band_is_counted_entry_by_entry():
    H = datasets.grid_kernel((9,), "rbf", 2.0)
    amounts = {
        unit: float(band_cost(9, 2, MODEL).of(unit)) for unit in ("floats", "bytes", "multiply_adds", "time")
    }
    (band,) = (rival for rival in sparse_rivals(H, amounts, MODEL) if "band" in rival.name)
    dense = band.operator.toarray()
    assert band.equal == "floats, bytes, multiply-adds, time"
    assert band.cost.floats == np.count_nonzero(np.triu(dense)) == 9 + 8 + 7
    assert band.cost.multiply_adds == np.count_nonzero(dense)
    np.testing.assert_array_equal(dense, np.where(np.abs(np.subtract.outer(range(9), range(9))) <= 2, H, 0.0))


def test_costs_grow():
    costs = [entries_cost(64, k, 2 * k, MODEL) for k in (10, 100, 1000)]
    for unit in ("floats", "bytes", "multiply_adds", "time"):
        assert sorted(cost.of(unit) for cost in costs) == [cost.of(unit) for cost in costs]


@pytest.mark.parametrize("n", [1, 2])
def test_nothing_is_tried_where_there_is_nothing_to_leave_out(n):
    assert (
        list(
            sparse_rivals(np.eye(n), dict.fromkeys(("floats", "bytes", "multiply_adds", "time"), 1.0), MODEL)
        )
        == []
    )
