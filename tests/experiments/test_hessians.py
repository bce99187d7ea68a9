"""Products are those of the true Hessian, preconditioners are inverses, and CG counts what theory says."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from swallowtail.experiments import curvature as _curvature
from swallowtail.experiments import hessians
from swallowtail.fitting.methods.factor import Factor
from swallowtail.fitting.rivals import low_rank
from swallowtail.fitting.symmetric import fit_symmetric

from .checks import check_comes_from_rows, check_continues

WIDTHS = (16, 2, 10)
TINY = hessians.Config(((WIDTHS, "hessian"), (WIDTHS, "ggn")), (8,), 40, 1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Fits of a moment: the whole budget of cycles is spent elsewhere."""
    monkeypatch.setattr("swallowtail.fitting.methods.pairs.default_cycles", lambda n, K: 1)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(hessians, TINY, tmp_path / "rows.csv")
    check_comes_from_rows(hessians, rows, "angle", "iterations", "ours")
    ours = [r["angle"] for r in rows if r.get("method") == "ours"]
    rival = [r["angle"] for r in rows if r.get("method") == "c·I + low rank"]
    assert len(ours) == len(rival) == 2


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
    curvature = _curvature.Curvature(WIDTHS, kind, 30, 3)
    X, y = _curvature.inputs(16, 230)
    H = exact(curvature.model, X[:30], y[:30], kind == "ggn")
    V = np.random.default_rng(0).standard_normal((curvature.n, 3))
    np.testing.assert_allclose(curvature(V), H @ V, atol=1e-10)


def test_logistic_regression_has_one_matrix():
    V = np.random.default_rng(0).standard_normal((170, 2))
    one, other = (_curvature.Curvature((16, 10), kind, 30, 3)(V) for kind in ("hessian", "ggn"))
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_training_lowers_the_loss_to_a_stationary_point():
    model = _curvature.trained(WIDTHS, 30, 3)
    X, y = _curvature.inputs(16, 230)
    squares = sum(p.square().sum() for p in model.parameters())
    loss = F.cross_entropy(model(X[:30]), y[:30]) + 0.5 * _curvature.DECAY * squares
    largest = max(g.abs().max() for g in torch.autograd.grad(loss, list(model.parameters())))
    assert loss < 1.5
    assert largest < 0.01


def test_preconditioners_are_inverses():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((6, 6))
    H, r = A @ A.T, rng.standard_normal(6)
    cut, fit = low_rank(H, [3])[3], fit_symmetric(H).operator
    factor = Factor(cut.c, cut.V, cut.w)
    for form in (cut, factor, fit, np.diag(np.diagonal(H))):
        dense = form @ np.eye(6) + 0.1 * np.eye(6)
        np.testing.assert_allclose(
            hessians.preconditioner(form, 0.1, "")(r), np.linalg.solve(dense, r), atol=1e-9
        )
    np.testing.assert_array_equal(hessians.preconditioner(H, 0.1, "none")(r), r)


def test_cg_takes_as_many_steps_as_there_are_eigenvalues():
    d = np.array([1.0, 1.0, 3.0, 3.0, 7.0, 7.0])
    H, g = np.diag(d), np.ones(6)
    assert hessians.conjugate_gradients(H, 0.5, g, lambda r: r) == 3
    assert hessians.conjugate_gradients(H, 0.5, g, lambda r: r / (d + 0.5)) == 1
    assert hessians.conjugate_gradients(H, 0.5, g, lambda r: r, limit=2) == 2
