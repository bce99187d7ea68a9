import tracemalloc

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import OAS
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from swallowtail.errors import ArgumentError
from swallowtail.gaussians.em.distances import Distances
from swallowtail.gaussians.mixture import GivensMixture
from swallowtail.gaussians.regularise.rotations import rotation_of


def not_expected(estimator):
    """With two components, the start is by k-means, which scikit-learn itself excuses from this check."""
    reason = "a row of weight 2 is drawn less often than two equal rows when k-means starts"
    return {"check_sample_weight_equivalence_on_dense_data": reason} if estimator.n_components > 1 else {}


@parametrize_with_checks(
    [GivensMixture(random_state=0), GivensMixture(2, rotations="tied", random_state=0)],
    expected_failed_checks=not_expected,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def blobs(n_samples=600, n=12, k=3, seed=0, distance=6.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n_samples)
    centres = distance * rng.standard_normal((k, n))
    factors = rng.standard_normal((k, n, n)) / np.sqrt(n) + 0.3 * np.eye(n)
    X = centres[labels] + np.einsum("rij,rj->ri", factors[labels], rng.standard_normal((n_samples, n)))
    return X, labels, centres


def dense_log_densities(model, X):  # shape: (rows, components)
    logs = [
        torch.distributions.MultivariateNormal(torch.from_numpy(mean), precision_matrix=precision.to_dense())
        .log_prob(torch.from_numpy(X))
        .numpy()
        for mean, precision in zip(model.means_, model.precisions_, strict=True)
    ]
    return np.stack(logs, axis=1) + np.log(model.weights_)


def test_log_densities_are_those_of_dense_gaussians():
    X, _, _ = blobs()
    model = GivensMixture(3, random_state=0).fit(X)
    logs = dense_log_densities(model, X)
    spread = X.var(0) + 0.1 * X.var(0).mean()
    broad = np.log(1 / 601) - 0.5 * ((X - X.mean(0)) ** 2 / spread + np.log(2 * np.pi * spread)).sum(1)
    np.testing.assert_allclose(
        model.score_samples(X), np.logaddexp(np.log(600 / 601) + logsumexp(logs, axis=1), broad), rtol=1e-7
    )
    model = GivensMixture(3, shrinkage=0.01, random_state=0).fit(X)  # a number: no background
    logs = dense_log_densities(model, X)
    np.testing.assert_allclose(model.score_samples(X), logsumexp(logs, axis=1), rtol=1e-7)
    np.testing.assert_array_equal(model.predict(X), logs.argmax(1))
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)


@pytest.mark.parametrize("rotations", ["full", "tied"])
def test_finds_separated_clusters(rotations):
    X, labels, centres = blobs()
    model = GivensMixture(3, rotations=rotations, random_state=0).fit(X)
    found = model.predict(X)
    assert len({(a, b) for a, b in zip(found, labels, strict=True)}) == 3
    distances = np.linalg.norm(model.means_[:, None] - centres[None], axis=-1)
    assert distances.min(1).max() < 1.0
    np.testing.assert_array_equal(GivensMixture(3, rotations=rotations, random_state=0).fit_predict(X), found)
    assert model.converged_


def test_likelihood_rises_without_noise():
    X, _, _ = blobs(distance=1.0)
    model = GivensMixture(3, shrinkage=0.0, tol=1e-5, max_iter=200, random_state=0).fit(X)
    assert (np.diff(model.lower_bounds_) > -1e-7).all()
    assert model.lower_bounds_[-1] > model.lower_bounds_[0]


def test_near_the_full_mixture_where_data_is_plenty():
    X, _, _ = blobs(6000, distance=2.0)
    ours = GivensMixture(3, n_rotations=66, random_state=0).fit(X[:5000]).score(X[5000:])
    full = GaussianMixture(3, random_state=0).fit(X[:5000]).score(X[5000:])
    assert ours > full - 0.3


def test_float32_agrees_with_float64():
    X, _, _ = blobs()
    models = [GivensMixture(3, random_state=0).fit(X.astype(t)) for t in (np.float32, np.float64)]
    assert models[0].score(X.astype(np.float32)) == pytest.approx(models[1].score(X), abs=1e-2)
    assert models[0].precisions_[0].dtype == torch.float32
    assert models[0].score_samples(X.astype(np.float32)).dtype == np.float32


def test_float32_with_far_apart_scales_does_not_collapse():
    X, _, _ = blobs(n=12)
    X = (X * np.logspace(-6, 6, 12)).astype(np.float32)
    model = GivensMixture(3, random_state=0).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert (model.weights_ > 0.05).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_from_1e_minus_12_to_1e12(dtype):
    rng = np.random.default_rng(0)
    deviations, labels = np.logspace(-6, 6, 25), rng.integers(0, 2, 1000)
    X = (rng.standard_normal((1000, 25)) + 8 * labels[:, None]) * deviations
    model = GivensMixture(2, random_state=0).fit(X[:500].astype(dtype))
    z = X[500:] / deviations
    logs = [-0.5 * ((z - mean) ** 2 + np.log(2 * np.pi * deviations**2)).sum(1) for mean in (0.0, 8.0)]
    exact = logsumexp(logs, axis=0).mean() - np.log(2)
    assert model.score(X[500:].astype(dtype)) == pytest.approx(exact, abs=1.0)


def test_online_em_follows_the_data():
    X, _, _ = blobs(4000)
    model = GivensMixture(3, random_state=0)
    for part in np.array_split(X, 20):
        model.partial_fit(part)
    assert model.score(X) > GivensMixture(3, random_state=0).fit(X).score(X) - 0.5
    assert model.weights_.sum() == pytest.approx(1.0)


def test_warm_start_continues():
    X, _, _ = blobs(distance=1.0)
    model = GivensMixture(3, max_iter=2, warm_start=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        first = model.fit(X).lower_bound_
    with pytest.warns(ConvergenceWarning):
        assert model.fit(X).lower_bound_ > first


def test_weights_count_rows_more_often():
    X, _, _ = blobs(distance=3.0)
    often = np.random.default_rng(1).integers(0, 3, len(X))
    start = {"means_init": X[[0, 1, 2]], "shrinkage": 0.01, "tol": 1e-6, "max_iter": 300}
    weighted = GivensMixture(3, **start).fit(X, sample_weight=often)
    repeated = GivensMixture(3, **start).fit(np.repeat(X, often, axis=0))
    np.testing.assert_allclose(weighted.means_, repeated.means_, atol=1e-3)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, atol=1e-4)
    assert weighted.score(X, sample_weight=often) == pytest.approx(
        repeated.score(np.repeat(X, often, axis=0)), abs=1e-3
    )
    streamed = GivensMixture(3, random_state=0).partial_fit(X, sample_weight=often)
    streamed.partial_fit(X, sample_weight=often)
    assert np.isfinite(streamed.score(X))
    with pytest.raises(ValueError, match="at least one non-zero"):
        GivensMixture(3).fit(X, sample_weight=np.zeros(len(X)))


def test_a_row_like_no_other_costs_little_more_than_under_one_gaussian():
    """Pixels that were dark in all rows, with a little noise, and one row in which they are bright."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 30)) * np.where(np.arange(30) < 15, 1.0, 1e-3)
    model, odd = GivensMixture(2, random_state=0).fit(X), np.ones((2, 30))
    covariance = OAS().fit(X)
    assert model.score(odd) > covariance.score(odd) - 2 * abs(covariance.score(odd))
    assert GivensMixture(2, shrinkage=1e-6, random_state=0).fit(X).score(odd) < 100 * covariance.score(odd)
    np.testing.assert_allclose(model.predict_proba(odd).sum(1), 1.0)


def test_criteria_and_samples():
    X, _, _ = blobs()
    model = GivensMixture(3, random_state=0).fit(X)
    worse = GivensMixture(1, random_state=0).fit(X)
    assert model.bic(X) < worse.bic(X)
    assert model.aic(X) < worse.aic(X)
    draws, labels = model.sample(5000, random_state=0)
    assert draws.shape == (5000, 12)
    assert np.bincount(labels) / 5000 == pytest.approx(model.weights_, abs=0.05)
    assert model.score(draws) == pytest.approx(model.score(X), abs=1.5)


@pytest.mark.parametrize("rotations", ["full", "tied"])
def test_few_rows_choose_their_noise(rotations):
    """Ten to twenty rows of a component, columns in different units: as good as diagonal Gaussians or better."""
    cases = [(load_breast_cancer().data, 1, 20), (load_wine().data, 1, 20), (blobs(300)[0], 3, 36)]
    for X, k, count in cases:
        gains = []
        for seed in range(3):
            rows = X[np.random.default_rng(seed).permutation(len(X))]
            ours = GivensMixture(k, rotations=rotations, random_state=0).fit(rows[:count])
            diagonal = GaussianMixture(k, covariance_type="diag", random_state=0).fit(rows[:count])
            gains.append(ours.score(rows[count:]) - diagonal.score(rows[count:]))
        assert np.mean(gains) > -0.5


def test_columns_that_mostly_repeat_one_value_cost_no_density():
    X = load_digits().data
    X = X[np.random.default_rng(0).permutation(len(X))]
    model, fixed = (GivensMixture(8, shrinkage=b, random_state=0).fit(X[:898]) for b in ("auto", 0.003))
    assert model.score(X[898:]) > fixed.score(X[898:])
    assert model.score_samples(X[898:]).min() > fixed.score_samples(X[898:]).min()


@pytest.mark.parametrize(("n_samples", "k"), [(2, 1), (3, 2), (5, 3), (9, 1)])
def test_hardly_any_rows(n_samples, k):
    X = np.random.default_rng(0).standard_normal((n_samples + 50, 6))
    model = GivensMixture(k, random_state=0).fit(X[:n_samples])
    assert model.score(X[n_samples:]) > 10 * multivariate_normal(np.zeros(6)).logpdf(X[n_samples:]).mean()


@pytest.mark.filterwarnings("ignore:the weights of")
@pytest.mark.parametrize("n_seen", [1, 2, 7])
def test_rows_of_weight_0_choose_nothing(n_seen):
    X = np.random.default_rng(0).standard_normal((40, 6))
    weights = (np.arange(40) < n_seen).astype(float)
    assert np.isfinite(GivensMixture(random_state=0).fit(X, sample_weight=weights).score(X))


def test_singular_data_and_too_many_components():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((40, 3)), np.ones((40, 2))], axis=1)
    assert np.isfinite(GivensMixture(2, random_state=0).fit(X).score(X))
    with pytest.raises(ValueError, match="2 distinct rows"):
        GivensMixture(3).fit(np.repeat([[0.0, 1.0], [2.0, 3.0]], 10, axis=0))


def test_starts_can_be_given():
    X, _, centres = blobs()
    model = GivensMixture(3, means_init=centres, weights_init=[0.2, 0.3, 0.5], random_state=0).fit(X)
    assert np.linalg.norm(model.means_ - centres, axis=1).max() < 1.0
    with pytest.raises(ValueError, match="means_init: expected shape"):
        GivensMixture(3, means_init=centres[:2]).fit(X)
    assert GivensMixture(3, n_init=2, init_params="random", max_iter=300, random_state=0).fit(X).n_iter_ > 1


@pytest.mark.parametrize("n", [1, 3, 16, 37])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_for_all_shapes(n, dtype):
    rng = np.random.default_rng(n)
    rotations = []
    for _ in range(2):
        pairs = np.array([rng.permutation(n)[:2] for _ in range(5)]) if n > 1 else np.zeros((0, 2), np.int64)
        rotations.append(rotation_of(n, pairs.astype(np.int64), rng.standard_normal(len(pairs))))
    X, means, weights = rng.standard_normal((71, n)), rng.standard_normal((2, n)), rng.random((2, n))
    got = Distances(rotations, dtype)(X, np.full(n, 0.5), means, weights)
    for k, rotation in enumerate(rotations):
        z = rotation.T(torch.from_numpy(X - 0.5)).numpy()
        np.testing.assert_allclose(got[:, k], ((z - means[k]) ** 2 * weights[k]).sum(1), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_second_moments_along_the_axes(dtype):
    rng = np.random.default_rng(0)
    n, m = 37, 5000  # more tiles than are added up in one go
    pairs = np.array([rng.permutation(n)[:2] for _ in range(60)])
    rotation = rotation_of(n, pairs, rng.standard_normal(60))
    X, r, mean = rng.standard_normal((m, n)), rng.random(m), rng.standard_normal(n)
    X[:, 0] *= 1e6
    distances = Distances([rotation, rotation], dtype)
    got = distances.second_moments(1, X.astype(dtype), r, mean, rng.random(n) + 0.5)
    z = rotation.T(torch.from_numpy(X.astype(dtype).astype(np.float64) - mean)).numpy()
    np.testing.assert_allclose(got, r @ (z * z), rtol=1e-4 if dtype == np.float32 else 1e-10)


def test_scoring_many_rows_takes_no_more_memory():
    X, _, _ = blobs(n=64)
    model = GivensMixture(3, random_state=0).fit(X.astype(np.float32))
    peaks = []
    for count in (50_000, 200_000):
        rows = np.zeros((count, 64), np.float64)  # another dtype than the model's: cast block by block
        model.score_samples(rows[:100])
        tracemalloc.start()
        logs = model.score_samples(rows)
        peaks.append(
            tracemalloc.get_traced_memory()[1] - 3 * logs.nbytes
        )  # what is returned, in parts and whole
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2**20


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1e16), (np.float32, 1e-16), (np.float64, 1e149), (np.float64, 1e-149)]
)
def test_any_unit_is_as_good_as_another(dtype, scale):
    rows = np.random.default_rng(0).normal(size=(200, 4)) + np.repeat([0, 6], 100)[:, None]
    usual, other = (
        GivensMixture(2, random_state=0, max_iter=5).fit((rows * s).astype(dtype)) for s in (1.0, scale)
    )
    expected = usual.score(rows.astype(dtype)) - 4 * np.log(scale)
    assert other.score((rows * scale).astype(dtype)) == pytest.approx(expected, rel=1e-3)
    far = np.full((1, 4), 1e30, dtype)
    assert usual.predict_proba(far).sum() == pytest.approx(1)
    assert np.isfinite(usual.score_samples(far)).all()
    for bad in (scale**1.2, scale**2 if dtype == np.float32 else scale**1.1):
        with pytest.raises(ArgumentError, match=r"^X: expected deviations from .*; try other units"):
            GivensMixture(2).fit((rows * bad).astype(dtype))
