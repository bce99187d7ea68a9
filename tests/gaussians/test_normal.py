import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from swallowtail import Butterfly, Rotation, SymmetricOperator
from swallowtail.gaussians import bayes
from swallowtail.gaussians.normal import GivensNormal, trace_of_product


def operator(n=8, seed=0, batch=(), depth=1):
    g = torch.Generator().manual_seed(seed)
    wiring = Butterfly(n, depth)
    angles = torch.randn(*batch, wiring.n_rotations, generator=g, dtype=torch.float64)
    return SymmetricOperator(
        Rotation(wiring, angles), 0.5 + torch.rand(*batch, n, generator=g, dtype=torch.float64)
    )


def normal(n=8, seed=0, batch=(), **kind):
    loc = torch.randn(*batch, n, generator=torch.Generator().manual_seed(seed + 50), dtype=torch.float64)
    return GivensNormal(loc, **{(kind.get("kind") or "covariance"): operator(n, seed, batch)})


def dense(p):
    return MultivariateNormal(p.loc, p.covariance_matrix)


@pytest.mark.parametrize("kind", ["covariance", "precision"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_agrees_with_multivariate_normal(kind, batch):
    p = normal(batch=batch, kind=kind)
    q = dense(p)
    x = torch.randn(5, *batch, 8, dtype=torch.float64)
    torch.testing.assert_close(p.log_prob(x), q.log_prob(x))
    torch.testing.assert_close(p.entropy(), q.entropy())
    torch.testing.assert_close(p.variance, q.variance)
    torch.testing.assert_close(p.precision_matrix, q.precision_matrix)
    torch.testing.assert_close(p.mean, q.mean)
    torch.testing.assert_close(p.mode, q.mean)
    assert p.batch_shape == q.batch_shape
    assert p.event_shape == q.event_shape
    assert p.rsample((4, 2)).shape == (4, 2, *batch, 8)


@pytest.mark.parametrize("kind", ["covariance", "precision"])
def test_samples_have_mean_and_covariance(kind):
    p = normal(kind=kind)
    draws = p.sample((40000,))
    torch.testing.assert_close(draws.mean(0), p.mean, atol=0.05, rtol=0)
    torch.testing.assert_close(draws.T.cov(), p.covariance_matrix, atol=0.06, rtol=0)


def test_rsample_and_log_prob_are_differentiable():
    angles = torch.randn(12, dtype=torch.float64, requires_grad=True)
    logs = torch.randn(8, dtype=torch.float64, requires_grad=True)
    loc = torch.randn(8, dtype=torch.float64, requires_grad=True)

    def both(angles, logs, loc):
        torch.manual_seed(0)
        p = GivensNormal(loc, SymmetricOperator(Rotation(Butterfly(8), angles), logs.exp()))
        return p.rsample((2,)), p.log_prob(torch.ones(3, 8, dtype=torch.float64)), p.entropy()

    assert torch.autograd.gradcheck(both, (angles, logs, loc))


def test_variational_fit_reaches_the_target():
    target = dense(normal(4, seed=3))
    wiring = Butterfly(4, depth=3)
    parameters = [torch.zeros(k, dtype=torch.float64, requires_grad=True) for k in (wiring.n_rotations, 4, 4)]
    with torch.no_grad():
        parameters[0].add_(0.1 * torch.randn(wiring.n_rotations, dtype=torch.float64))
    optimiser = torch.optim.LBFGS(parameters, max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        angles, logs, loc = parameters
        q = GivensNormal(loc, SymmetricOperator(Rotation(wiring, angles), logs.exp()))
        value = kl_divergence(q, target)
        value.backward()
        return value

    optimiser.step(loss)
    assert loss().item() < 1e-5


def test_expand_follows_the_conventions():
    p = normal(batch=(3,))
    q = p.expand((2, 3))
    assert q.batch_shape == (2, 3)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    torch.testing.assert_close(q.log_prob(x), p.log_prob(x))
    torch.testing.assert_close(q.entropy(), p.entropy().expand(2, 3))
    assert q.rsample((5,)).shape == (5, 2, 3, 8)
    assert normal().expand((4,)).variance.shape == (4, 8)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_kl_is_the_closed_form(batch):
    p, q = normal(batch=batch), normal(seed=1, batch=batch, kind="precision")
    expected = kl_divergence(dense(p), dense(q))
    torch.testing.assert_close(kl_divergence(p, q), expected)
    torch.testing.assert_close(kl_divergence(p, dense(q)), expected)
    torch.testing.assert_close(kl_divergence(dense(p), q), expected)
    r = Independent(Normal(torch.zeros(8, dtype=torch.float64), torch.full((8,), 0.7).double()), 1)
    as_dense = MultivariateNormal(torch.zeros(8).double(), 0.49 * torch.eye(8).double())
    torch.testing.assert_close(kl_divergence(p, r), kl_divergence(dense(p), as_dense), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(kl_divergence(r, p), kl_divergence(as_dense, dense(p)), rtol=1e-6, atol=1e-8)


def test_kl_in_one_basis_needs_no_trace():
    p = normal()
    q = GivensNormal(p.loc + 1, SymmetricOperator(p.covariance.rotation, 2 * p.eigenvalues))
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(dense(p), dense(q)))
    assert kl_divergence(p, p).abs() < 1e-12


def test_trace_estimate_is_near():
    P, S = operator(64), operator(64, seed=1)
    exact = trace_of_product(P, S)
    torch.testing.assert_close(exact, (P.to_dense() * S.to_dense()).sum())
    assert abs(trace_of_product(P, S, n_probes=512) / exact - 1) < 0.02


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match="exactly one"):
        GivensNormal(torch.zeros(8))
    with pytest.raises(ValueError, match="last axis"):
        GivensNormal(torch.zeros(7), operator())
    with pytest.raises(ValueError, match="eigenvalues"):
        GivensNormal(torch.zeros(8), SymmetricOperator(operator().rotation, -torch.ones(8)))
    # Asked for, because torch.compile, in another test, switches it off for the whole process.
    checked = GivensNormal(torch.zeros(8, dtype=torch.float64), operator(), validate_args=True)
    with pytest.raises(ValueError, match="support"):
        checked.log_prob(torch.full((8,), math.nan, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="Independent"):
        kl_divergence(normal(), Independent(Normal(torch.zeros(2, 8), 1.0), 2))


# Bayesian inference


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


def test_log_determinant_by_quadrature():
    H = operator(64)
    near = SymmetricOperator(H.rotation, H.eigenvalues * 1.3)
    estimate = bayes.log_determinant(H, near)
    assert estimate.value == pytest.approx(H.logdet().item(), abs=1e-8)
    other = bayes.log_determinant(H, operator(64, seed=4))
    assert abs(other.value - H.logdet().item()) < 4 * other.error


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
