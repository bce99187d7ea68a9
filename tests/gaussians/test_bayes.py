"""Bayesian inference against dense Gaussians and closed forms."""

import math

import numpy as np
import pytest
import torch
from gaussians.small import normal
from torch.distributions import MultivariateNormal

from swallowtail import ArgumentError, SymmetricOperator
from swallowtail.gaussians import bayes
from swallowtail.gaussians.normal import GivensNormal


def test_product_in_one_basis_is_exact():
    p = normal()
    q = GivensNormal(p.loc.flip(0), SymmetricOperator(p.covariance.rotation, 1 + p.eigenvalues))
    check_product(p, q, bayes.product(p, q), 1e-9)
    assert bayes.product(p, q).exact


def test_product_of_two_bases_is_refitted():
    p, q = normal(16), normal(16, seed=1)
    result = bayes.product(p, q, n_rotations=200)
    assert not result.exact
    assert result.angle < 1
    check_product(p, q, result, 0.1)


def check_product(p, q, result, tolerance):
    x = torch.zeros(p.event_shape[0], dtype=torch.float64)
    sigma = p.covariance_matrix + q.covariance_matrix
    log_z = MultivariateNormal(q.loc, sigma).log_prob(p.loc)
    assert result.log_z.value == pytest.approx(log_z.item(), abs=1e-8)
    left = p.log_prob(x) + q.log_prob(x)
    assert (result.distribution.log_prob(x) + log_z).item() == pytest.approx(left.item(), abs=tolerance)


def test_marginal_and_conditional_are_those_of_the_dense_gaussian(monkeypatch):
    p = normal(12)
    S, index, value = p.covariance_matrix, [7, 2, 9], torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
    m = bayes.marginal(p, index)
    torch.testing.assert_close(m.covariance_matrix, S[index][:, index])
    rest = [i for i in range(12) if i not in index]
    mean = p.loc[rest] + S[rest][:, index] @ torch.linalg.solve(S[index][:, index], value - p.loc[index])
    direct = bayes.conditional(p, index, value)
    monkeypatch.setattr(bayes, "DENSE", 0)
    iterated = bayes.conditional(p, index, value)
    assert iterated.error < 1e-8
    assert 0 < iterated.iterations <= 9
    for c in (direct, iterated):
        assert c.rest.tolist() == rest
        torch.testing.assert_close(c.mean, mean)
        inverse = torch.linalg.inv(c.precision(torch.eye(9, dtype=torch.float64)))
        schur = S[rest][:, rest] - S[rest][:, index] @ torch.linalg.solve(
            S[index][:, index], S[index][:, rest]
        )
        torch.testing.assert_close(inverse, schur)


def test_linear_regression_against_closed_form(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    prior, sigma2 = normal(20), 0.3
    Phi = torch.randn(50, 20, generator=rng, dtype=torch.float64)
    y = Phi @ prior.sample() + math.sqrt(sigma2) * torch.randn(50, generator=rng, dtype=torch.float64)
    result = bayes.linear_regression(Phi, y, prior, sigma2, n_rotations=300)
    P0 = prior.precision_matrix
    P = P0 + Phi.T @ Phi / sigma2
    mean = torch.linalg.solve(P, P0 @ prior.loc + Phi.T @ y / sigma2)
    torch.testing.assert_close(result.posterior.loc, mean, rtol=1e-6, atol=1e-8)
    evidence = MultivariateNormal(
        Phi @ prior.loc, Phi @ prior.covariance_matrix @ Phi.T + sigma2 * torch.eye(50)
    )
    assert result.log_evidence.value == pytest.approx(evidence.log_prob(y).item(), abs=1e-6)
    m, v = result.predict(Phi[:5])
    torch.testing.assert_close(m, Phi[:5] @ mean)
    exact = (Phi[:5] @ torch.linalg.inv(P) * Phi[:5]).sum(1) + sigma2
    torch.testing.assert_close(v, exact, rtol=0.05, atol=0)
    monkeypatch.setattr(bayes, "DENSE", 0)
    estimated = bayes.linear_regression(Phi, y, prior, sigma2, n_rotations=300).log_evidence
    assert abs(estimated.value - evidence.log_prob(y).item()) < 4 * estimated.error + 1e-6


def test_bayes_refuses_bad_input():
    with pytest.raises(ValueError, match="single"):
        bayes.marginal(normal(batch=(2,)), [0])
    with pytest.raises(ValueError, match="distinct"):
        bayes.marginal(normal(), [0, 0])
    with pytest.raises(ValueError, match="q: expected n = 8, as p has, got 4"):
        bayes.product(normal(), normal(4))
    with pytest.raises(ValueError, match="noise_variance"):
        bayes.linear_regression(torch.zeros(3, 8), torch.zeros(3), normal(), 0.0)
    with pytest.raises(ValueError, match="expected features"):
        bayes.linear_regression(torch.zeros(3, 8), torch.zeros(4), normal(), 1.0)
    assert np.isfinite(bayes.conjugate_gradients(lambda v: v, torch.zeros(1, 3)).error)


@pytest.mark.parametrize("index", [[0.5], [True, False, True, False, True, False], "x", torch.tensor([1j])])
def test_coordinates_are_whole_numbers(index):
    """A fraction would be cut, and a mask would be taken for the coordinates 0 and 1."""
    p = normal(6)
    with pytest.raises(ArgumentError, match="index: expected distinct coordinates in 0 … 5"):
        bayes.marginal(p, index)
    with pytest.raises(ArgumentError, match=r"value: expected shape \(2,\), as index has"):
        bayes.conditional(p, [0, 1], [1.0])
    with pytest.raises(ArgumentError, match="p: expected a GivensNormal"):
        bayes.marginal(p.covariance, [0])


@pytest.mark.parametrize("kinds", ["fdd", "dfd", "ddf", "ffd", "fff", "hff"])
def test_regression_is_in_the_common_dtype(kinds):
    dtypes = {"h": torch.float16, "f": torch.float32, "d": torch.float64}
    rng = torch.Generator().manual_seed(0)
    Phi, y = (torch.randn(*shape, generator=rng).half().double() for shape in ((50, 8), (50,)))
    wide = normal()
    exact = bayes.linear_regression(Phi, y, wide, 0.3)
    prior = GivensNormal(wide.loc.to(dtypes[kinds[2]]), wide.covariance.to(dtype=dtypes[kinds[2]]))
    found = bayes.linear_regression(Phi.to(dtypes[kinds[0]]), y.to(dtypes[kinds[1]]), prior, 0.3)
    assert found.posterior.loc.dtype == (torch.float64 if "d" in kinds else torch.float32)
    torch.testing.assert_close(found.posterior.loc.double(), exact.posterior.loc, rtol=1e-3, atol=1e-4)
    for features in (Phi.float(), Phi.numpy(), Phi):
        means = found.predict(features)[0].double()
        torch.testing.assert_close(means, exact.predict(Phi)[0], rtol=1e-3, atol=1e-3)
    whole = bayes.linear_regression(Phi, torch.arange(50), wide, 0.3)
    assert whole.posterior.loc.dtype == torch.float64


@pytest.mark.parametrize("name", ["features", "y"])
def test_regression_refuses_what_would_be_nan(name):
    given = {"features": torch.ones(3, 8), "y": torch.ones(3)}
    given[name] = given[name] * torch.nan
    with pytest.raises(ArgumentError, match=rf"^{name}: expected finite numbers"):
        bayes.linear_regression(**given, prior=normal(), noise_variance=1.0)


def test_the_wrong_one_of_two_distributions_is_named():
    Phi, y = torch.ones(3, 8), torch.ones(3)
    with pytest.raises(ArgumentError, match=r"^prior: expected a GivensNormal"):
        bayes.linear_regression(Phi, y, normal().covariance, 1.0)
    with pytest.raises(ArgumentError, match=r"^prior: expected a single distribution"):
        bayes.linear_regression(Phi, y, normal(batch=(2,)), 1.0)
    with pytest.raises(ArgumentError, match=r"^q: expected a GivensNormal"):
        bayes.product(normal(), normal().covariance)
    fitted = bayes.linear_regression(Phi, y, normal(), 1.0)
    with pytest.raises(ArgumentError, match=r"^features: expected the last axis to be the posterior's n = 8"):
        fitted.predict(torch.ones(3, 7))
