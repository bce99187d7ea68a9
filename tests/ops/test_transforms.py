"""torch.func and forward mode: vmap, grad, jvp, jacfwd, jacrev, hessian, and one inside the other."""

import pytest
import torch
from cases import normal, random_angles
from ops.common import EACH, OLD_JIT, ON_SMALL, SMALL, functions, trainable
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp

from swallowtail import use_backend

pytestmark = OLD_JIT


@EACH
@pytest.mark.parametrize("wiring", [SMALL["butterfly-5"], SMALL["pairs-5"]], ids=["butterfly", "pairs"])
def test_vmap(name, wiring):
    function, (x, angles, *d) = functions(wiring)[name]
    many_x = normal(4, 3, wiring.n, seed=11)
    many_angles = random_angles(wiring, 4, seed=12)
    over_x = torch.func.vmap(lambda x: function(x, angles, *d))(many_x)
    torch.testing.assert_close(over_x, torch.stack([function(z, angles, *d) for z in many_x]))
    over_angles = torch.func.vmap(lambda a: function(x, a, *d))(many_angles)
    torch.testing.assert_close(over_angles, torch.stack([function(x, a, *d) for a in many_angles]))
    over_both = torch.func.vmap(lambda z, a: function(z, a, *d), in_dims=(1, 0), out_dims=1)(
        many_x.movedim(0, 1), many_angles
    )
    expected = torch.stack([function(z, a, *d) for z, a in zip(many_x, many_angles, strict=True)], dim=1)
    torch.testing.assert_close(over_both, expected)
    nested = torch.func.vmap(lambda a: torch.func.vmap(lambda z: function(z, a, *d))(many_x))(many_angles)
    expected = torch.stack([torch.stack([function(z, a, *d) for z in many_x]) for a in many_angles])
    torch.testing.assert_close(nested, expected)


@EACH
def test_functional_gradients(name):
    function, values = functions(SMALL["pairs-5"])[name]
    numbers = tuple(range(len(values)))

    def loss(*values):
        return function(*values).pow(2).sum()

    recorded = trainable(values)
    expected = torch.autograd.grad(loss(*recorded), recorded)
    for actual, of in zip(torch.func.grad(loss, argnums=numbers)(*values), expected, strict=True):
        torch.testing.assert_close(actual, of)

    # per-sample gradients: vmap of grad
    x, *rest = values
    per_sample = torch.func.vmap(torch.func.grad(lambda a, x: loss(x, a, *rest[1:])), in_dims=(None, 0))(
        rest[0], x
    )
    one_by_one = [torch.func.grad(lambda a, z=z: loss(z, a, *rest[1:]))(rest[0]) for z in x]
    torch.testing.assert_close(per_sample, torch.stack(one_by_one))

    # grad of grad, and jacrev
    hessian = torch.func.jacrev(torch.func.grad(lambda a: loss(x, a, *rest[1:])))(rest[0])
    expected = torch.autograd.functional.hessian(lambda a: loss(x, a, *rest[1:]), rest[0])
    torch.testing.assert_close(hessian, expected)


def along(jacobians, tangents, ndim):
    """Σ J·t over the arguments: what a jvp of a function with an ndim-dimensional result must be."""
    return sum((J * t).sum(tuple(range(ndim, J.ndim))) for J, t in zip(jacobians, tangents, strict=True))


@EACH
@ON_SMALL
def test_forward_mode_agrees_with_reverse_mode(name, wiring):
    function, values = functions(wiring)[name]
    numbers = tuple(range(len(values)))
    tangents = tuple(normal(*v.shape, seed=20 + k) for k, v in enumerate(values))
    jacobians = jacrev(function, argnums=numbers)(*values)
    for forward, reverse in zip(jacfwd(function, argnums=numbers)(*values), jacobians, strict=True):
        torch.testing.assert_close(forward, reverse)
    result, tangent = jvp(function, values, tangents)
    torch.testing.assert_close(result, function(*values))
    torch.testing.assert_close(tangent, along(jacobians, tangents, result.ndim))
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(v, t) for v, t in zip(values, tangents, strict=True))
        dual = forward_ad.unpack_dual(function(*duals))
        torch.testing.assert_close(dual.tangent, along(jacobians, tangents, result.ndim))
        only_x = forward_ad.unpack_dual(function(forward_ad.make_dual(values[0], tangents[0]), *values[1:]))
        torch.testing.assert_close(only_x.tangent, along(jacobians[:1], tangents[:1], result.ndim))


@EACH
@pytest.mark.parametrize("which", ["butterfly-4-deep", "butterfly-6-reverse", "pairs-5"])
def test_second_derivatives_in_every_order(name, which):
    function, values = functions(SMALL[which])[name]
    numbers = tuple(range(len(values)))

    def loss(*values):
        return function(*values).pow(3).sum()

    expected = jacrev(jacrev(loss, argnums=numbers), argnums=numbers)(*values)
    ways = {
        "hessian": hessian(loss, argnums=numbers),
        "reverse over forward": jacrev(jacfwd(loss, argnums=numbers), argnums=numbers),
        "forward over forward": jacfwd(jacfwd(loss, argnums=numbers), argnums=numbers),
    }
    for way, second in ways.items():
        for row, reference in zip(second(*values), expected, strict=True):
            for block, of in zip(row, reference, strict=True):
                torch.testing.assert_close(block, of, msg=way)
    tangents = tuple(normal(*v.shape, seed=30 + k) for k, v in enumerate(values))
    for product, row in zip(jvp(grad(loss, argnums=numbers), values, tangents)[1], expected, strict=True):
        torch.testing.assert_close(product, along(row, tangents, product.ndim))


@EACH
def test_third_derivatives_in_forward_mode(name):
    function, (x, angles, *rest) = functions(SMALL["pairs-5"])[name]

    def loss(a):
        return function(x, a, *rest).pow(3).sum()

    expected = jacrev(jacrev(jacrev(loss)))(angles)
    torch.testing.assert_close(jacfwd(hessian(loss))(angles), expected)
    torch.testing.assert_close(jacfwd(jacfwd(jacfwd(loss)))(angles), expected)


@EACH
def test_reverse_over_forward_in_eager_mode(name):
    function, values = functions(SMALL["butterfly-6-reverse"])[name]
    tangents = tuple(normal(*v.shape, seed=40 + k) for k, v in enumerate(values))
    numbers = tuple(range(len(values)))
    expected = grad(lambda *v: jvp(function, v, tangents)[1].pow(2).sum(), argnums=numbers)(*values)
    recorded = trainable(values)
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(v, t) for v, t in zip(recorded, tangents, strict=True))
        tangent = forward_ad.unpack_dual(function(*duals)).tangent
        actual = torch.autograd.grad(tangent.pow(2).sum(), recorded)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_forward_mode_of_vectors_alone_uses_the_kernel(monkeypatch):
    """Q x is linear in x: its tangent needs no walk through the layers."""
    from swallowtail.kernels import reference

    function, (x, angles) = functions(SMALL["butterfly-5"])["rotate"]
    monkeypatch.delattr(reference, "rotate_jvp")
    with use_backend("cpu"):
        _, tangent = jvp(lambda x: function(x, angles), (x,), (2 * x,))
        torch.testing.assert_close(tangent, 2 * function(x, angles))
