"""Figure 3: the pictures in the rows are the matrices."""

import numpy as np
import pytest

from swallowtail.experiments import fig3


@pytest.mark.parametrize("name", ["fig3"], indirect=True)
def test_pictures_of_figure_3_are_the_matrices(tiny, rows):
    """Averaged over two by two entries, to within a shade."""
    module, _ = tiny("fig3")
    H = module.datasets.digits_covariance()
    drawn = fig3.picture_of(rows, "true")
    expected = (H[::2, ::2] + H[1::2, ::2] + H[::2, 1::2] + H[1::2, 1::2]) / 4
    limit = np.quantile(np.abs(expected), 0.995)
    np.testing.assert_allclose(drawn, np.clip(expected, -limit, limit), atol=limit / 127)
