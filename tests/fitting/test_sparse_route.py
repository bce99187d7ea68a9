"""Large sparse matrices are fitted on their entries, and measured beside themselves."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from fitting.methods.test_sparse import grid

import swallowtail as st
from swallowtail.fitting import inputs, sparse_route

H = grid(9)


@pytest.fixture(autouse=True)
def large(monkeypatch):
    monkeypatch.setattr(inputs, "DENSE_SPARSE", 32)


def test_a_fit_knows_its_error_and_what_beats_it():
    fit = st.fit_symmetric(H)
    assert (fit.method, fit.status, fit.n_products, fit.estimated) == ("pairs", "converged", 0, False)
    assert fit.relative_error == pytest.approx(
        np.linalg.norm(np.asarray(fit.operator) - H.toarray()) / sp.linalg.norm(H)
    )
    assert fit.angle == pytest.approx(st.error_angle(H, fit.operator, seed=3), rel=0.05)
    names = [rival.name for rival in fit.rivals]
    assert {"diagonal + rank 0", f"all {H.nnz} entries"} <= set(names)
    assert f"multiply-adds ({fit.multiply_adds}) to all {H.nnz} entries, 0.00°" in fit.message
    assert f"exact with {H.nnz} multiply-adds" in fit.message
    diagonal = fit.rivals[names.index("diagonal + rank 0")]
    assert fit.angle < 0.5 * diagonal.angle == 0.5 * st.fit_symmetric(H, n_rotations=0).angle


def test_a_quality_that_is_asked_for_takes_fewer_rotations():
    fit = st.fit_symmetric(H, target_angle=12.0)
    assert fit.angle <= 12.0
    assert fit.status == "converged"
    assert fit.operator.rotation.n_rotations < st.fit_symmetric(H).operator.rotation.n_rotations


def test_too_many_entries_are_said(monkeypatch):
    monkeypatch.setattr(sparse_route, "fit_sparse", partial(sparse_route.fit_sparse, most=1000))
    assert "Growth ended at " in st.fit_symmetric(H).message


def test_products_are_still_to_be_had():
    assert st.fit_symmetric(H, max_products=20).n_products == 20
    assert st.fit_symmetric(H, target="inverse").method == "products"


def test_a_stopped_fit_is_kept():
    def stop(stage, rotations, objective):
        raise st.Stop

    fit = st.fit_symmetric(H, callback=stop)
    assert fit.status == "stopped"
    assert fit.operator.rotation.n_rotations > 0
    assert not fit.rivals
