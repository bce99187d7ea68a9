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


@pytest.mark.parametrize(("angles", "drawn"), [([44.0, 41.0, 38.0], 1), ([40.0], 0), ([44.0, 38.0], 1)])
def test_the_median_start_is_drawn(angles, drawn):
    H = np.arange(16.0).reshape(4, 4)
    rows = [
        {"part": "angle", "matrix": "MNIST", "method": m, "angle": 9.0} for m in (fig3.BUTTERFLY, fig3.PAIRS)
    ]
    for method in ("true", fig3.BUTTERFLY, fig3.PAIRS):
        rows += fig3._picture(method, H, H)
    for start, angle in enumerate(angles):
        rows.append({"part": "angle", "matrix": "MNIST", "method": fig3.ALGORITHM_1, "angle": angle})
        rows += fig3._picture(fig3.ALGORITHM_1, H * (start == drawn), H, start)
    top = fig3.plot(rows).subfigs[0]
    panel = next(axes for axes in top.axes if axes.get_title().startswith("Algorithm 1"))
    assert panel.get_title().startswith(f"Algorithm 1, {angles[drawn]:.1f}°")
    assert np.asarray(panel.images[0].get_array()).any()
