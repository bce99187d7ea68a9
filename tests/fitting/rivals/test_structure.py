"""What is named, and what is not."""

import numpy as np

from swallowtail import datasets
from swallowtail.fitting.rivals.structure import suggestions


def test_structure_is_named():
    assert "H is Toeplitz" in suggestions(datasets.grid_kernel((20,), "rbf", 2.0))[0]
    assert "blocks of 6" in suggestions(datasets.grid_kernel((5, 6), "rbf", 2.0))[0]
    assert "sparse" in suggestions(datasets.sensor_laplacian(128, seed=0))[0]


def test_nothing_is_said_of_others():
    A = np.random.default_rng(0).standard_normal((20, 20))
    for H in (
        A + A.T,
        np.eye(20),
        np.zeros((20, 20)),
        np.ones((2, 2)),
        datasets.grid_kernel((5, 6), "rbf", 2.0, scramble=1),
    ):
        assert suggestions(H) == []
