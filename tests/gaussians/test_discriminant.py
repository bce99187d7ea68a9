"""GivensDiscriminant: a scikit-learn classifier between quadratic and linear discriminant analysis."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from swallowtail import GivensDiscriminant
from swallowtail.gaussians import covariance_fit, discriminant
from swallowtail.gaussians.class_gaussians import Candidate, Classes, class_scores
from swallowtail.progress import Bar

QUICK = {"rotations": "tied", "pooling": 0.5}


@parametrize_with_checks(
    [GivensDiscriminant(rotations="tied", pooling=0.5)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "of two equal rows one may be held out, of one of weight 2 not"
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return train_test_split(X / X.std(0), y, train_size=90, stratify=y, random_state=3)


@pytest.mark.parametrize("rotations", ["auto", "full", "tied"])
def test_wines_are_told_apart_and_probabilities_mean_something(wine, rotations):
    train, test, y, right = wine
    model = GivensDiscriminant(rotations=rotations, random_state=0).fit(train, y)
    assert model.score(test, right) > 0.95
    assert model.rotations_ in ("full", "tied") if rotations == "auto" else model.rotations_ == rotations
    probabilities = model.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(test)), probabilities)
    assert log_loss(right, probabilities) < 0.15
    assert len(model.covariances_) == 3


def test_shared_and_pooled_is_linear_discriminant_analysis():
    X, y = load_breast_cancer(return_X_y=True)
    X = X / X.std(0)
    train, test, y, right = train_test_split(X, y, train_size=100, stratify=y, random_state=0)
    model = GivensDiscriminant(rotations="tied", pooling=1.0).fit(train, y)
    # Scores of a linear rule are those of a plane: halfway between two rows lies the mean of their scores.
    a, b = test[:20], test[20:40]
    middle = model.decision_function(0.5 * (a + b))
    np.testing.assert_allclose(
        middle, 0.5 * (model.decision_function(a) + model.decision_function(b)), rtol=1e-6
    )
    rival = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(train, y)
    assert model.score(test, right) > rival.score(test, right) - 0.02


def test_priors_move_the_border(wine):
    train, test, y, _ = wine
    shares = [
        (GivensDiscriminant(rotations="tied", pooling=0.5, priors=p).fit(train, y).predict(test) == 0).mean()
        for p in ([0.01, 0.495, 0.495], [0.98, 0.01, 0.01])
    ]
    assert shares[0] <= shares[1]
    with pytest.raises(ValueError, match="add up to 1"):
        GivensDiscriminant(priors=[0.5, 0.5, 0.5]).fit(train, y)


@pytest.mark.parametrize("arguments", [{"rotations": "both"}, {"pooling": 2}, {"pooling": "none"}])
def test_arguments_are_checked_in_fit(wine, arguments):
    with pytest.raises(ValueError, match="expected"):
        GivensDiscriminant(**arguments).fit(wine[0], wine[2])
    with pytest.raises(ValueError, match="2 classes or more"):
        GivensDiscriminant().fit(wine[0], np.zeros(len(wine[0])))


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-15), (np.float64, 1e-140), (np.float64, 1e140)])
def test_any_unit_is_as_good_as_another(wine, dtype, scale):
    train, test, y, _ = wine
    usual, other = (
        GivensDiscriminant(**QUICK).fit((train * s).astype(dtype), y).predict_proba((test * s).astype(dtype))
        for s in (1.0, scale)
    )
    # Not the same numbers: which rows are held out depends on their bits.
    assert (other.argmax(1) == usual.argmax(1)).mean() > 0.95
    assert np.abs(other - usual).mean() < 0.05
    for bad in (scale**1.2, scale**2 if dtype == np.float32 else scale**1.1):
        with pytest.raises(ValueError, match=r"^X: expected deviations from .*; try other units"):
            GivensDiscriminant().fit((train * bad).astype(dtype), y)


@pytest.mark.parametrize(
    ("dtype", "size"), [(np.float32, 1e20), (np.float32, 3e38), (np.float64, 1e160), (np.float64, 1e308)]
)
def test_rows_far_away_have_probabilities(wine, dtype, size):
    train, _, y, _ = wine
    model = GivensDiscriminant(**QUICK).fit(train.astype(dtype), y)
    far = np.eye(train.shape[1], dtype=dtype)[:4] * np.array([[1], [-1], [0.3], [1]], dtype)
    found = model.predict_proba(far * dtype(size))
    np.testing.assert_array_equal(found, model.predict_proba(far * dtype(1e9)))  # far as well, and in range
    np.testing.assert_allclose(found.sum(1), 1)


def test_weights_count_rows_more_often(wine):
    train, test, y, _ = wine
    often = np.random.default_rng(0).integers(0, 3, len(y))
    settings = {"rotations": "tied", "pooling": 0.5}
    weighted = GivensDiscriminant(**settings).fit(train, y, sample_weight=often)
    repeated = GivensDiscriminant(**settings).fit(np.repeat(train, often, axis=0), np.repeat(y, often))
    np.testing.assert_allclose(weighted.means_, repeated.means_)
    np.testing.assert_allclose(weighted.priors_, repeated.priors_)
    assert (weighted.predict(test) == repeated.predict(test)).mean() > 0.97
    with pytest.raises(ValueError, match="in every class"):
        GivensDiscriminant().fit(train, y, sample_weight=(y > 0).astype(float))


def test_what_is_written_as_rotations_scores_as_what_was_tried(wine):
    train, test, y, _ = wine
    tried = [Candidate("full", 0.3, 0.1)]
    classes = Classes(train, y, np.ones(len(y)), None, tried)
    np.testing.assert_allclose(
        classes.scores(test, tried[0]),
        class_scores(test, classes.means, classes.covariances(tried[0])),
        rtol=0.02,
        atol=0.1,
    )


def test_a_bar_is_shown_when_asked_for_and_reaches_its_end(wine, capfd, monkeypatch):
    ends = []

    class Watched(Bar):
        def close(self):
            ends.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(discriminant, "Bar", Watched)
    train, _, y, _ = wine
    GivensDiscriminant(**QUICK).fit(train, y)
    assert not capfd.readouterr().err
    GivensDiscriminant(**QUICK, verbose=1).fit(train, y)
    assert "classes: " in capfd.readouterr().err
    done, total = ends[-1]
    assert done == total == 5 * 2 + 1  # in each of five folds a fit and one candidate, and the last fit


def test_classes_of_few_rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((20, 6)), rng.standard_normal((3, 6)) + 5])
    model = GivensDiscriminant().fit(X, [0] * 20 + [1] * 3)
    assert model.rotations_ == "tied"
    assert model.predict(np.full((1, 6), 5.0)) == [1]


def wide(n_samples=36, n=90):
    rng = np.random.default_rng(0)
    y = np.arange(n_samples) % 2
    factors = rng.standard_normal((2, 4, n))
    X = np.einsum("rk,rkn->rn", rng.standard_normal((n_samples, 4)), factors[y])
    return X + rng.standard_normal((n_samples, n)) + 0.1 * y[:, None] * rng.standard_normal(n), y


def test_with_fewer_rows_than_columns_a_covariance_is_cross_validated_once(monkeypatch):
    """Eighteen times before: for the pooled rows and for each class, in every fold. Minutes at 800 columns."""
    calls, choose = [], covariance_fit.choose_blend
    monkeypatch.setattr(covariance_fit, "choose_blend", lambda *args: calls.append(1) or choose(*args))
    X, y = wide(436)
    model = GivensDiscriminant(random_state=0).fit(X[:36], y[:36])
    assert len(calls) == 1
    rival = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X[:36], y[:36])
    assert model.score(X[36:], y[36:]) > rival.score(X[36:], y[36:])


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_in_the_space_of_the_rows_are_those_in_all_columns(weighted):
    X, y = wide()
    often = np.random.default_rng(1).uniform(0.5, 2, 36) if weighted else np.ones(36)
    unseen, tried = np.random.default_rng(2).standard_normal((5, 90)), Candidate("full", 0.3, 0.1)
    classes = Classes(X, y, often, None, [tried])
    for c, found in enumerate(classes.scores(unseen, tried).T):
        parts = []
        for rows, w in ((X[y == d], often[y == d]) for d in range(2)):
            centred = rows - np.average(rows, axis=0, weights=w)
            parts.append((centred.T * w) @ centred)
        S = 0.7 * parts[c] / often[y == c].sum() + 0.3 * sum(parts) / often.sum()
        covariance = 0.9 * S + 0.1 * np.trace(S) / 90 * np.eye(90)
        np.testing.assert_allclose(
            found, multivariate_normal(classes.means[c], covariance).logpdf(unseen), rtol=1e-9
        )
