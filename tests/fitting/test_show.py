"""A fit as people look at it."""

import numpy as np
import pytest

import swallowtail as st

H = st.random_symmetric(8, 2, 0)


@pytest.fixture(scope="module")
def fit():
    return st.fit_symmetric(H, n_rotations=6)


def test_repr_is_one_short_line(fit):
    assert repr(fit).startswith(
        f"FitResult({fit.method}, n = 8, {fit.floats} floats, angle of H {fit.angle:.2f}°"
    )
    assert "\n" not in repr(fit)
    assert len(repr(fit)) < 120


def test_a_notebook_shows_the_rivals_and_the_spectrum(fit):
    page = fit._repr_html_()
    assert page.count("<tr>") == 2 + len(fit.rivals)
    assert "<polyline" in page
    assert "<script" not in page


def test_eigenvalues_are_those_of_the_operator(fit):
    np.testing.assert_allclose(
        fit.eigenvalues, np.linalg.eigvalsh(np.asarray(fit.operator))[::-1], atol=1e-12
    )
    hybrid = st.fit_symmetric(H, n_rotations=8, method="hybrid", rank=1)
    dense = np.linalg.eigvalsh(np.asarray(hybrid.operator))[::-1]
    np.testing.assert_allclose(hybrid.eigenvalues, dense, atol=1e-12)
    rotation = st.fit_rotation(st.random_orthogonal(4, seed=0), n_rotations=6)
    with pytest.raises(AttributeError, match="a rotation has no real eigenvalues"):
        rotation.eigenvalues  # noqa: B018
    assert "<polyline" not in rotation._repr_html_()


def test_plots_with_and_without_the_matrix(fit, tmp_path):
    assert len(fit.plot(tmp_path / "a.png").axes) == 2
    figure = fit.plot(tmp_path / "b.png", H=H)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[:3] == ["history", "spectrum", "what is left, on H's scale"]
    (image,) = figure.axes[2].get_images()
    np.testing.assert_allclose(image.get_array(), H - np.asarray(fit.operator))
    np.testing.assert_allclose(figure.axes[1].get_lines()[0].get_ydata(), np.linalg.eigvalsh(H)[::-1])
    assert (tmp_path / "b.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="the matrix that was fitted"):
        fit.plot(H=np.eye(3))
