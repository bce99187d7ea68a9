"""The Hessian of a loss: against torch.autograd.functional, as something to fit, and bad input."""

import pytest
import torch

import swallowtail as st


def model_and_loss(dtype=torch.float64):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(dtype)
    x, y = torch.randn(20, 3, dtype=dtype), torch.randn(20, 2, dtype=dtype)
    return model, lambda: ((model(x) - y) ** 2).mean(), x, y


def dense_hessian(model, x, y):
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def loss(flat):
        parts = dict(
            zip(
                shapes,
                (
                    v.reshape(s)
                    for v, s in zip(
                        flat.split([s.numel() for s in shapes.values()]), shapes.values(), strict=True
                    )
                ),
                strict=True,
            )
        )
        return ((torch.func.functional_call(model, parts, x) - y) ** 2).mean()

    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return torch.autograd.functional.hessian(loss, flat)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_are_those_of_the_hessian(dtype):
    model, loss, x, y = model_and_loss(dtype)
    H = st.hessian(loss, model.parameters())
    dense = dense_hessian(model, x, y)
    assert H.shape == dense.shape
    assert H.dtype == dtype
    torch.testing.assert_close(H.to_dense(), dense)
    X = torch.randn(H.n, 3, dtype=dtype)
    torch.testing.assert_close(H @ X, dense @ X)
    with torch.no_grad():  # products need gradients of the loss, wherever they are asked for
        torch.testing.assert_close(H.T(X[:, 0]), dense @ X[:, 0])
    assert all(p.grad is None for p in model.parameters())
    assert H(torch.zeros(0, H.n, dtype=dtype)).shape == (0, H.n)


def test_it_can_be_fitted():
    model, loss, x, y = model_and_loss()
    fit = st.fit_symmetric(st.hessian(loss, model.parameters()), n_rotations=400)
    assert st.error_angle(dense_hessian(model, x, y), fit.operator) < 1.0


def test_linear_parts_have_no_curvature():
    u, v = (torch.ones(2, requires_grad=True) for _ in range(2))
    assert torch.equal(
        st.hessian(lambda: u.sum() + (v**2).sum(), [u, v]).to_dense().diagonal(), torch.tensor([0.0, 0, 2, 2])
    )
    assert torch.equal(st.hessian(lambda: u.sum(), u) @ torch.ones(2), torch.zeros(2))


def test_bad_input():
    w = torch.ones(3, requires_grad=True)
    for loss, params, match in [
        ((w**2).sum(), [w], "loss: expected a function"),
        (lambda: w**2, [w], "expected one number"),
        (lambda: 3.0, [w], "expected one number"),
        (lambda: torch.ones(()), [w], "depends on params"),
        (lambda: (w**2).sum(), [], "at least one tensor"),
        (lambda: (w**2).sum(), [w, torch.ones(2)], "require a gradient"),
    ]:
        with pytest.raises(ValueError, match=match):
            st.hessian(loss, params) @ torch.ones(3)
    with pytest.raises(ValueError, match="number of parameters = 3"):
        st.hessian(lambda: (w**2).sum(), [w])(torch.ones(2))
