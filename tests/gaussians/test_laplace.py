import numpy as np
import pytest
import torch
from torch import nn

from swallowtail.errors import ArgumentError
from swallowtail.gaussians import laplace
from swallowtail.gaussians.laplace import GivensLaplace


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    x = torch.randn(120, 4)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    return trained(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), x, y, nn.CrossEntropyLoss())


def trained(model, x, y, loss):
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
    for _ in range(400):
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()
    return model.double(), x.double(), y if y.dtype == torch.int64 else y.double()


def dense_hessian(model, x, y):
    fitted = GivensLaplace(model, "classification")
    loss = lambda w: -fitted._log_likelihood(w, x, y)
    return torch.autograd.functional.hessian(loss, fitted.mean)


def test_linear_regression_is_exact():
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(40, 1)
    model, x, y = trained(nn.Linear(3, 1), x, y, nn.MSELoss())
    fitted = GivensLaplace(model, "regression", noise_variance=0.5, prior_precision=2.0, n_rotations=60)
    fitted.fit(zip(x.split(16), y.split(16), strict=True))
    Phi = torch.cat([x, torch.ones(40, 1, dtype=torch.float64)], dim=1)
    P = Phi.T @ Phi / 0.5 + 2.0 * torch.eye(4)
    torch.testing.assert_close(fitted.precision.to_dense(), P, rtol=1e-4, atol=1e-4)
    mean, variance = fitted.predict(x[:5])
    torch.testing.assert_close(mean, model(x[:5]))
    exact = (Phi[:5] @ torch.linalg.inv(P) * Phi[:5]).sum(1, keepdim=True)
    torch.testing.assert_close(variance, exact, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("curvature", ["ggn", "hessian"])
def test_products_and_entries_agree(classifier, curvature):
    model, x, y = classifier
    fitted = GivensLaplace(model, "classification", curvature=curvature)
    X = np.random.default_rng(0).standard_normal((len(fitted.mean), 3))
    batches = list(zip(x.split(50), y.split(50), strict=True))
    H = dense_hessian(model, x, y).numpy() if curvature == "hessian" else fitted._dense(batches)
    np.testing.assert_allclose(fitted._products(batches, X), H @ X, rtol=1e-6, atol=1e-8)


def test_many_rotations_give_the_full_laplace(classifier):
    model, x, y = classifier
    fitted = GivensLaplace(model, "classification", n_rotations=3000).fit([(x, y)])
    H = torch.from_numpy(fitted._dense([(x, y)]))
    P = H + torch.eye(len(H))
    exact = fitted.log_likelihood - 0.5 * float(fitted.mean @ fitted.mean) - 0.5 * float(torch.logdet(P))
    assert fitted.log_evidence() == pytest.approx(exact, abs=0.1)
    J = fitted._jacobians(x[:10])
    v = torch.einsum("mcp,pq,mcq->mc", J, torch.linalg.inv(P), J)
    torch.testing.assert_close(fitted.predict(x[:10]).variance, v, rtol=0.05, atol=1e-6)


def test_rotations_come_nearer_than_the_diagonal(classifier):
    model, x, y = classifier
    diagonal, rotated = (
        GivensLaplace(model, "classification", n_rotations=k).fit([(x, y)]) for k in (0, 400)
    )
    # By Hadamard's inequality Σ log diag(QᵀPQ) ≥ log det P: the evidence is a lower bound that rises with K.
    assert rotated.log_evidence() > diagonal.log_evidence() + 1


def test_evidence_chooses_the_prior(classifier):
    model, x, y = classifier
    fitted = GivensLaplace(model, "classification").fit([(x, y)])
    before = fitted.log_evidence()
    delta = fitted.optimise_prior()
    assert fitted.log_evidence() >= before
    assert all(fitted.log_evidence(delta * factor) <= fitted.log_evidence() for factor in (0.5, 2.0))
    p = fitted.predict(x)
    torch.testing.assert_close(p.mean.sum(-1), torch.ones(len(x), dtype=torch.float64))
    assert (p.variance > 0).all()


def test_weights_from_products_alone(classifier, monkeypatch):
    model, x, y = classifier
    monkeypatch.setattr(laplace, "DENSE", 10)
    fitted = GivensLaplace(model, "classification", max_products=51).fit([(x, y)])
    assert (fitted.precision.eigenvalues > 0).all()
    assert np.isfinite(fitted.log_evidence())


def test_samples_and_names(classifier):
    model, x, y = classifier
    fitted = GivensLaplace(model, "classification").fit([(x, y)])
    draws = fitted.sample(3, seed=0)
    assert draws.shape == (3, len(fitted.mean))
    named = fitted.weights(fitted.mean)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(named[name], parameter.detach())
    assert fitted.posterior.log_prob(draws).shape == (3,)


def test_bad_input_is_refused(classifier):
    model, x, y = classifier
    with pytest.raises(ValueError, match="likelihood"):
        GivensLaplace(model, "poisson")
    with pytest.raises(ValueError, match="prior_precision"):
        GivensLaplace(model, "regression", prior_precision=0.0)
    with pytest.raises(RuntimeError, match="fit"):
        _ = GivensLaplace(model, "classification").precision
    with pytest.raises(ValueError, match="batches"):
        GivensLaplace(model, "classification").fit([])
    with pytest.raises(ValueError, match="require a gradient"):
        GivensLaplace(nn.ReLU(), "regression")
    with pytest.raises(ValueError, match="outputs' shape"):
        GivensLaplace(model, "regression").fit([(x, y)])
    with pytest.raises(ValueError, match=r"finite log-likelihood.*look for NaN"):
        GivensLaplace(model, "classification").fit([(x * torch.nan, y)])


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.ones(3, 2), torch.ones(3)),
        (torch.ones(3, 2),),
        ((torch.ones(3, 2), torch.ones(3)),),
        ([torch.ones(2, 2)],),
        (3,),
    ],
)
def test_fit_says_what_it_wants(arguments):
    with pytest.raises(ValueError, match=r"batches \(x, y\).*try `fit\(\[\(X, y\)\]\)`"):
        GivensLaplace(nn.Linear(2, 1), "regression").fit(*arguments)


@pytest.mark.parametrize(
    "arguments", [{"n_rotations": 2.5}, {"n_rotations": -1}, {"max_products": 0}, {"seed": "a"}, {"seed": -1}]
)
def test_numbers_of_the_fit_are_checked(arguments):
    with pytest.raises(ArgumentError, match=rf"^{next(iter(arguments))}: expected"):
        GivensLaplace(nn.Linear(2, 1), "regression", **arguments)
    with pytest.raises(ArgumentError, match=r"^model: expected a Module, got function"):
        GivensLaplace(lambda x: x, "regression")


def test_priors_are_positive_whenever_they_are_given(classifier):
    model, x, y = classifier
    fitted = GivensLaplace(model, "classification").fit([(x, y)])
    for bad in (-1.0, 0.0, float("nan"), "a"):
        with pytest.raises(ArgumentError, match=r"^prior_precision: expected a number > 0"):
            fitted.log_evidence(bad)
        with pytest.raises(ArgumentError, match=r"^prior_precision: expected a number > 0"):
            fitted.prior_precision = bad
    assert fitted.prior_precision == 1.0


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.2)])
def test_models_in_training_mode_are_refused_where_that_matters(layer):
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    model = nn.Sequential(nn.Linear(3, 3), layer, nn.Linear(3, 1))
    message = (
        r"^model: expected a model in evaluation mode, got 1 \(.*\) in training mode; try `model.eval\(\)`"
    )
    with pytest.raises(ArgumentError, match=message):
        GivensLaplace(model, "regression").fit([(x, y)])
    fitted = GivensLaplace(model.eval(), "regression").fit([(x, y)])
    assert (fitted.predict(x).variance > 0).all()
    model.train()
    with pytest.raises(ArgumentError, match=message):
        fitted.predict(x)
