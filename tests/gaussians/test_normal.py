"""GivensNormal against torch's dense multivariate normal."""

import math

import pytest
import torch
from gaussians.small import dense, normal, operator
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from swallowtail import Butterfly, Rotation, SymmetricOperator
from swallowtail.gaussians.normal import GivensNormal, trace_of_product


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
    # Asked for, because torch.compile, in another test, switches it off for the whole process.
    negative = SymmetricOperator(operator().rotation, -torch.ones(8))
    with pytest.raises(ValueError, match="eigenvalues"):
        GivensNormal(torch.zeros(8), negative, validate_args=True)
    checked = GivensNormal(torch.zeros(8, dtype=torch.float64), operator(), validate_args=True)
    with pytest.raises(ValueError, match="support"):
        checked.log_prob(torch.full((8,), math.nan, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="Independent"):
        kl_divergence(normal(), Independent(Normal(torch.zeros(2, 8), 1.0), 2))


# Bayesian inference
