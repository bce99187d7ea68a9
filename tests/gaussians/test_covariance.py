"""GivensCovariance: a scikit-learn estimator, and better than others on held-out rows."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.covariance import OAS, LedoitWolf
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.distributions import MultivariateNormal

from swallowtail import Butterfly, HybridOperator, SymmetricOperator, error_angle
from swallowtail.gaussians.covariance import GivensCovariance


@parametrize_with_checks(
    [GivensCovariance(random_state=0)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "of two equal rows one may be held out, of one of weight 2 not"
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    X = load_digits().data
    X = (X + np.random.default_rng(0).random(X.shape)) / 17
    order = np.random.default_rng(1).permutation(len(X))
    return X[order[:1200]], X[order[1200:]]


@pytest.mark.parametrize("scale", [1e-149, 1e-100, 1e-78, 1e78, 1e149])
@pytest.mark.parametrize("arguments", [{}, {"sketch": True, "sketch_size": 4}])
def test_any_unit_is_as_good_as_another(arguments, scale):
    """Squares of variances would leave the range."""
    rows = np.random.default_rng(0).normal(size=(60, 5)).cumsum(1)
    usual, other = (GivensCovariance(random_state=0, **arguments).fit(rows * s) for s in (1.0, scale))
    expected = usual.score(rows) - 5 * np.log(scale)
    assert other.score(rows * scale) == pytest.approx(
        expected, abs=0.1
    )  # rounding may tip the choice between two


def test_a_mean_whose_last_digits_are_too_large_is_refused():
    rows = np.random.default_rng(0).normal(size=(60, 5)) + 1e200
    with pytest.raises(
        ValueError, match=r"X: expected numbers whose last digits are below .* subtract the mean"
    ):
        GivensCovariance().fit(rows)


@pytest.mark.parametrize("n_samples", [40, 200, 1200])
def test_better_held_out_than_ledoit_wolf_and_oas(digits, n_samples):
    train, test = digits[0][:n_samples], digits[1]
    ours = GivensCovariance().fit(train).score(test)
    for rival in (LedoitWolf(), OAS()):
        location = train.mean(0)
        covariance = rival.fit(train).covariance_
        delta = test - location
        q = np.einsum("ri,ij,rj->r", delta, np.linalg.inv(covariance), delta)
        theirs = -0.5 * (q.mean() + np.linalg.slogdet(2 * np.pi * covariance)[1])
        assert ours > theirs


def test_scores_are_those_of_the_dense_gaussian(digits):
    model = GivensCovariance(random_state=0).fit(digits[0])
    normal = MultivariateNormal(torch.from_numpy(model.location_), model.covariance_.to_dense())
    expected = normal.log_prob(torch.from_numpy(digits[1])).numpy()
    np.testing.assert_allclose(model.score_samples(digits[1]), expected, rtol=1e-8)
    assert isinstance(model.precision_, HybridOperator)
    assert model.rank_ > 0
    alone = GivensCovariance(rank_one=False).fit(digits[0])
    assert isinstance(alone.precision_, SymmetricOperator)
    np.testing.assert_allclose(
        alone.score_samples(digits[1]),
        MultivariateNormal(torch.from_numpy(alone.location_), alone.covariance_.to_dense()).log_prob(
            torch.from_numpy(digits[1])
        ),
        rtol=1e-8,
    )
    product = model.precision_.to_dense() @ model.covariance_.to_dense()
    torch.testing.assert_close(product, torch.eye(64, dtype=torch.float64), atol=1e-8, rtol=0)


def test_samples_have_the_covariance(digits):
    model = GivensCovariance(random_state=0).fit(digits[0])
    draws = model.sample(20000, random_state=3)
    assert error_angle(np.cov(draws.T), model.covariance_) < 4
    np.testing.assert_array_equal(draws, model.sample(20000, random_state=3))


def test_a_stream_ends_where_the_batch_does(digits):
    train = digits[0]
    batch = GivensCovariance(random_state=0).fit(train)
    stream = GivensCovariance(random_state=0)
    for part in np.array_split(train, 7):
        stream.partial_fit(part)
    assert stream.n_samples_seen_ == len(train)
    assert error_angle(batch.covariance_, stream.covariance_) < 0.5
    np.testing.assert_allclose(stream.location_, batch.location_)


def test_sketch_holds_no_square_matrix_and_comes_near(digits):
    train, test = digits
    model = GivensCovariance(sketch=True, sketch_size=16, random_state=0)
    for part in np.array_split(train, 5):
        model.partial_fit(part)
    assert all(np.size(value) <= 17 * 64 for value in vars(model.statistics_.moments).values())
    np.testing.assert_allclose(model.statistics_.moments.variances, train.var(0))
    assert np.isfinite(model.score(test))
    assert error_angle(np.cov(train.T), model.covariance_) < 25


def test_constant_and_duplicate_columns_give_finite_densities():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 50))
    X[:, 3] = 7.0
    X[:, 10] = X[:, 11]
    X[:, 20:25] = 0.0
    model = GivensCovariance(random_state=0).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(GivensCovariance().fit(np.ones((5, 4))).score(np.ones((2, 4))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_from_1e_minus_12_to_1e12(dtype):
    rng = np.random.default_rng(0)
    deviations = np.logspace(-6, 6, 25)
    X, Y = (rng.standard_normal((400, 25)) * deviations for _ in range(2))
    model = GivensCovariance(random_state=0).fit(X.astype(dtype))
    exact = -0.5 * ((Y / deviations) ** 2 + np.log(2 * np.pi * deviations**2)).sum(1).mean()
    assert model.score(Y.astype(dtype)) == pytest.approx(exact, abs=0.5)
    assert model.score_samples(Y.astype(dtype)).dtype == dtype


@pytest.mark.parametrize("wiring", ["butterfly", Butterfly(64, depth=2), Butterfly(64, reverse=True)])
def test_a_fixed_butterfly(digits, wiring):
    model = GivensCovariance(wiring=wiring, random_state=0).fit(digits[0])
    assert model.covariance_.rotation.wiring == (Butterfly(64) if wiring == "butterfly" else wiring)
    assert np.isfinite(model.score(digits[1]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"target": "x"},
        {"wiring": "x"},
        {"shrinkage": -1},
        {"shrinkage": "x"},
        {"n_rotations": -1},
        {"wiring": Butterfly(4)},
        {"sketch": "yes"},
    ],
)
def test_arguments_are_checked_in_fit(arguments):
    with pytest.raises(ValueError, match="expected"):
        GivensCovariance(**arguments).fit(np.random.default_rng(0).standard_normal((9, 3)))


def test_neither_seed_nor_order_nor_pieces_change_the_fit(digits):
    train = digits[0]
    first = GivensCovariance(random_state=0).fit(train)
    order = np.random.default_rng(5).permutation(len(train))
    second = GivensCovariance(random_state=1)
    for part in np.array_split(train[order], 11):
        second.partial_fit(part)
    assert error_angle(first.covariance_, second.covariance_) < 1e-3
    assert first.rank_ == second.rank_
    assert first.blend_ == pytest.approx(second.blend_, rel=1e-6)
    assert first.noise_ == pytest.approx(second.noise_, rel=1e-9)  # moments are summed in another order


def test_classes_of_few_rows_with_dark_pixels_are_told_apart():
    """Thirty rows a class, 64 pixels, some of them dark in all of a class: other rows are not judged by those alone."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(len(X)), train_size=300, stratify=y, random_state=7)
    ours, theirs = [], []
    for label in range(10):
        rows = X[train][y[train] == label]
        ours.append(GivensCovariance(rank_one=False).fit(rows).score_samples(X[test]))
        theirs.append(
            MultivariateNormal(
                torch.from_numpy(rows.mean(0)), torch.from_numpy(LedoitWolf().fit(rows).covariance_)
            )
            .log_prob(torch.from_numpy(X[test]))
            .numpy()
        )
    right, rival = ((np.argmax(scores, 0) == y[test]).mean() for scores in (ours, theirs))
    assert right > rival - 0.02
    # What the worst row of the right class costs is of the same order too.
    own = [np.array(scores)[y[test], np.arange(len(test))].min() for scores in (ours, theirs)]
    assert own[0] > own[1] - 2 * abs(own[1])


def test_a_sample_that_supports_nothing_is_not_taken_at_its_word():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1020, 40)) @ rng.standard_normal((40, 40))
    with pytest.warns(UserWarning, match="20 rows of 40 columns"):
        bold = GivensCovariance(shrinkage=0).fit(X[:20]).score(X[20:])
    oas = OAS().fit(X[:20])
    assert GivensCovariance().fit(X[:20]).score(X[20:]) > oas.score(X[20:]) - 0.4 > bold


@pytest.mark.parametrize("n_samples", [2, 3, 4])
def test_rows_too_few_to_hold_any_out_are_described_better_than_by_oas(n_samples):
    rows = load_wine().data
    rows = rows / rows.std(0)
    gains = []
    for seed in range(20):
        X = rows[np.random.default_rng(seed).permutation(len(rows))]
        train, test = X[:n_samples], X[n_samples:]
        gains.append(GivensCovariance().fit(train).score(test) - OAS().fit(train).score(test))
    assert np.mean(gains) / 13 > 0.05


def test_few_rows_of_a_heavy_tailed_column_are_not_taken_at_their_word():
    """The bar on outliers: the lowest score at least Ledoit-Wolf's less twice its absolute value."""
    for seed in range(5):
        rows = np.random.default_rng(seed).normal(size=(6, 13))
        rows[:, 0] *= 0.003
        unseen = np.random.default_rng(seed + 100).normal(size=(20, 13))
        unseen[:, 0] *= 3
        usual = multivariate_normal(rows.mean(0), LedoitWolf().fit(rows).covariance_)
        assert GivensCovariance().fit(rows).score_samples(unseen).min() > 3 * usual.logpdf(unseen).min()


def test_few_rows_keep_the_units_of_their_columns():
    units = 10.0 ** np.linspace(-6, 6, 13)
    rows, unseen = np.random.default_rng(0).normal(size=(2, 6, 13))
    plain, other = (GivensCovariance().fit(rows * unit).score(unseen * unit) for unit in (1.0, units))
    assert other > plain - 13 * 0.5  # OAS: 14 times 13 lower


def test_factors_are_found():
    rng = np.random.default_rng(0)
    W, psi = rng.standard_normal((30, 2)), rng.uniform(0.2, 2, 30)
    X = rng.standard_normal((200, 2)) @ W.T + rng.standard_normal((200, 30)) * np.sqrt(psi)
    model = GivensCovariance().fit(X)
    assert (model.rank_, model.n_rotations_) == (2, 0)
    assert error_angle(W @ W.T + np.diag(psi), model.covariance_) < 12


def test_neighbours_in_time_are_found():
    """A chain of 60 columns from 40 rows: no sample covariance could tell it apart from others."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1040, 60))
    for i in range(1, 60):
        X[:, i] = 0.8 * X[:, i - 1] + 0.6 * X[:, i]
    model, rival = GivensCovariance().fit(X[:40]), OAS().fit(X[:40])
    assert model.blend_["tree"] > max(value for name, value in model.blend_.items() if name != "tree")
    assert model.score(X[40:]) > rival.score(X[40:]) + 60 * 0.1
    lean = GivensCovariance(rank_one=False).fit(X[:40])
    assert lean.rank_ == 0
    assert lean.score(X[40:]) > model.score(X[40:]) - 60 * 0.02


def test_whitening_is_a_step_of_a_pipeline(digits):
    frame = pytest.importorskip("pandas").DataFrame(digits[0][:100, :5], columns=list("abcde"))
    model = GivensCovariance().set_output(transform="pandas")
    table = make_pipeline(model).fit_transform(frame)
    assert table.columns.tolist() == [f"givenscovariance{i}" for i in range(5)]
    np.testing.assert_allclose(table.to_numpy(), model.whiten(frame))


def test_whitened_rows_have_covariance_one(digits):
    model = GivensCovariance().fit(digits[0])
    z = model.whiten(digits[0])
    np.testing.assert_allclose((z * z).sum(1), model.mahalanobis(digits[0]), rtol=1e-8)
    assert error_angle(np.cov(z.T), np.eye(64)) < 20


def test_a_covariance_in_place_of_samples_is_noted():
    with pytest.warns(UserWarning, match="fit_symmetric"):
        GivensCovariance(n_rotations=3).fit(np.cov(np.random.default_rng(0).standard_normal((4, 30))))


def test_a_spectrum_that_falls_evenly_takes_more_factors_than_thirty():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((80, 80)))[0]
    X = rng.standard_normal((820, 80)) * np.sqrt(np.exp(-np.arange(80) / 8) + 1e-4) @ basis.T
    found, rival = GivensCovariance().fit(X[:320]), PCA(50).fit(X[:320])
    assert found.score(X[320:]) > rival.score(X[320:]) - 80 * 0.05
