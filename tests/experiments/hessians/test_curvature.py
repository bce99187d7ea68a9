"""Products are those of the true Hessian, at a point where training stopped."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from swallowtail.experiments.hessians.curvature import DECAY, Curvature, inputs, trained

WIDTHS = (16, 2, 10)


def exact(model, X, y, ggn):
    """∇² of the mean loss by torch's own Hessian; the GGN is that of the loss with the outputs linearised."""
    params = [p.detach() for p in model.parameters()]
    sizes = [p.numel() for p in params]

    def outputs(w):
        parts = [part.view(p.shape) for part, p in zip(w.split(sizes), params, strict=True)]
        out = X
        for k in range(0, len(parts), 2):
            out = F.linear(out if k == 0 else out.tanh(), parts[k], parts[k + 1])
        return out

    w = torch.cat([p.reshape(-1) for p in params])
    J = torch.autograd.functional.jacobian(outputs, w)
    at = outputs(w)
    linear = lambda v: F.cross_entropy(at + torch.einsum("mcp,p->mc", J, v - w), y)
    whole = lambda v: F.cross_entropy(outputs(v), y)
    return torch.autograd.functional.hessian(linear if ggn else whole, w).numpy()


@pytest.mark.parametrize("kind", ["hessian", "ggn"])
def test_products_are_those_of_the_exact_matrix(kind):
    curvature = Curvature(WIDTHS, kind, 30, 3)
    X, y = inputs(16, 230)
    H = exact(curvature.model, X[:30], y[:30], kind == "ggn")
    V = np.random.default_rng(0).standard_normal((curvature.n, 3))
    np.testing.assert_allclose(curvature(V), H @ V, atol=1e-10)


def test_logistic_regression_has_one_matrix():
    V = np.random.default_rng(0).standard_normal((170, 2))
    one, other = (Curvature((16, 10), kind, 30, 3)(V) for kind in ("hessian", "ggn"))
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_training_lowers_the_loss_to_a_stationary_point():
    model = trained(WIDTHS, 30, 3)
    X, y = inputs(16, 230)
    squares = sum(p.square().sum() for p in model.parameters())
    loss = F.cross_entropy(model(X[:30]), y[:30]) + 0.5 * DECAY * squares
    largest = max(g.abs().max() for g in torch.autograd.grad(loss, list(model.parameters())))
    assert loss < 1.5
    assert largest < 0.01
