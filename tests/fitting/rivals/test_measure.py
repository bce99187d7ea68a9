"""Every form is measured alike, however it multiplies."""

import numpy as np
import pytest
import scipy.sparse as sp

import swallowtail as st
from swallowtail.fitting.budget import Cost
from swallowtail.fitting.rivals import low_rank
from swallowtail.fitting.rivals.forms import Alternative
from swallowtail.fitting.rivals.measure import Measure

H = st.random_symmetric(40, 5, 1)


@pytest.mark.parametrize("unit", [1e-160, 1.0, 1e160])
@pytest.mark.parametrize("kind", ["low rank", "entries", "most entries", "operator"])
def test_angle_and_error_are_those_of_the_dense_matrix(kind, unit):
    few = np.where(np.abs(H) > np.quantile(np.abs(H), 0.95 if kind == "entries" else 0.3), H, 0.0)
    form, dense = {
        "low rank": lambda: (cut := low_rank(unit * H, [3])[3], cut @ np.eye(40)),
        "entries": lambda: (sp.csr_array(unit * few), unit * few),
        "most entries": lambda: (sp.csr_array(unit * few), unit * few),
        "operator": lambda: (a := st.fit_symmetric(unit * H, effort="quick").operator, a.to_dense().numpy()),
    }[kind]()
    rival = Measure(unit * H, seed=4, probes=50)(Alternative(kind, form, Cost(1, 1, 1, None)))
    assert rival.angle == pytest.approx(st.error_angle(unit * H, dense, 50, 4), rel=1e-9)
    assert rival.relative_error == pytest.approx(np.linalg.norm(H - dense / unit) / np.linalg.norm(H))


def test_a_zero_matrix_is_met_by_zero_alone():
    measure = Measure(np.zeros((3, 3)), seed=0)
    assert measure.angles(sp.csr_array((3, 3)))[1] == 0.0
    assert measure.angles(sp.eye_array(3, format="csr"))[1] == np.inf
