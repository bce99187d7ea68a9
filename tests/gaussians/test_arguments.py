"""Arguments that no estimator takes, and estimators as they were after a fit that failed."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from swallowtail import Butterfly, GivensCovariance, GivensDiscriminant, GivensMixture
from swallowtail.errors import ArgumentError

ROWS = np.random.default_rng(0).standard_normal((60, 4)) + np.repeat([[0.0], [9.0]], 30, axis=0)
Y = np.repeat([0, 1], 30)


@pytest.mark.parametrize(
    "arguments",
    [
        {"shrinkage": "foo"},
        {"n_rotations": "3"},
        {"n_rotations": -5},
        {"wiring": Butterfly(3)},
        {"blend": None},
    ],
)
def test_arguments_that_are_set_between_rows_and_the_fit_are_checked(arguments):
    model = GivensCovariance().partial_fit(ROWS).set_params(**arguments)
    with pytest.raises(ArgumentError, match=rf"^{next(iter(arguments))}: expected"):
        model.score(ROWS)


@pytest.mark.parametrize(
    "priors", [[np.nan, 0.5], ["a", "b"], {0: 0.5, 1: 0.5}, 0.5, [0.0, 1.0], [np.inf, 0.5], [[1], [1, 2]]]
)
def test_priors_are_probabilities(priors):
    with pytest.raises(ArgumentError, match=r"^priors: expected (2 numbers > 0 that add up to 1|shape)"):
        GivensDiscriminant(priors=priors).fit(ROWS, Y)


@pytest.mark.parametrize(
    "arguments",
    [
        {"weights_init": [-1, 2]},
        {"weights_init": [np.nan, 0.5]},
        {"weights_init": [0.5, 0.6]},
        {"weights_init": ["a", "b"]},
        {"weights_init": [1.0]},
        {"means_init": ROWS[:2] * np.nan},
        {"means_init": [["a"] * 4] * 2},
        {"means_init": [[1], [1, 2]]},
        {"means_init": ROWS[:3]},
        {"warm_start": "no"},
    ],
)
def test_where_a_mixture_starts_is_checked(arguments):
    with pytest.raises(ArgumentError, match=rf"^{next(iter(arguments))}: expected"):
        GivensMixture(2, **arguments).fit(ROWS)


@pytest.mark.parametrize("rotations", ["full", "tied"])
@pytest.mark.parametrize("far", [50.0, 1e200])
def test_components_that_start_without_rows_are_no_trouble(far, rotations):
    """The last one at that: the number of components is not that of the labels."""
    means = np.stack([ROWS[0], ROWS[-1], np.full(4, far)])
    model = GivensMixture(3, means_init=means, rotations=rotations, random_state=0).fit(ROWS)
    assert model.means_.shape == (3, 4)
    assert model.score(ROWS) > GivensMixture(1, random_state=0).fit(ROWS).score(ROWS)


def test_a_warm_start_continues_with_as_many_components_and_columns():
    model = GivensMixture(2, warm_start=True, random_state=0).fit(ROWS)
    score = model.score(ROWS)
    with pytest.raises(
        ArgumentError, match=r"^n_components: expected 2 components.*got 3; try `warm_start=False`"
    ):
        model.set_params(n_components=3).fit(ROWS)
    with pytest.raises(ArgumentError, match=r"^X: expected 4 columns.*got 3"):
        model.set_params(n_components=2).fit(ROWS[:, :3])
    assert model.score(ROWS) == score
    with pytest.raises(ConvergenceWarning):  # warnings are errors in tests
        model.set_params(max_iter=1).fit(ROWS[::2] * 5)
    assert model.score(ROWS) == score
    model.set_params(max_iter=100)
    assert model.fit(ROWS).score(ROWS) >= score - 1e-3


FRAME = pd.DataFrame(ROWS, columns=list("abcd"))
OTHER = FRAME.rename(columns={"a": "z"})


@pytest.mark.parametrize(
    "model",
    [
        GivensCovariance().partial_fit(FRAME),
        GivensMixture(2, random_state=0).partial_fit(FRAME),
        GivensDiscriminant().fit(FRAME, Y),
    ],
)
@pytest.mark.parametrize("bad", [OTHER * np.nan, OTHER[["z", "b"]] * np.nan, OTHER[:1], OTHER * 1e200])
def test_a_fit_that_fails_changes_nothing(model, bad):
    before = dict(vars(model))
    with pytest.raises(ValueError, match=r"NaN|minimum of 2|deviations"):
        model.fit(bad, Y[: len(bad)])
    assert all(vars(model)[name] is value for name, value in before.items())
    assert vars(model).keys() == before.keys()


def test_batches_that_fail_leave_the_stream_as_it_was():
    model = GivensCovariance().partial_fit(FRAME)
    with pytest.raises(ArgumentError, match="in batch 1"):
        model.fit_batches([OTHER, OTHER * np.nan])
    assert model.n_samples_seen_ == 60
    assert list(model.feature_names_in_) == list("abcd")
