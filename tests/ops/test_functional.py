"""Values, shapes and dtypes of the differentiable functions."""

import math

import numpy as np
import pytest
import torch
from cases import DTYPES, FEW, HALF, WIRINGS, assert_close, dense_rotation, normal, random_angles, tolerance
from ops.common import trainable

from swallowtail import Butterfly, Rotation, SymmetricOperator, ops
from swallowtail.nn import Rotate
from swallowtail.ops import PreparedCache


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(
    ("x_batch", "angle_batch", "d_batch"),
    [
        ((), (), ()), ((4,), (), ()), ((4,), (4,), ()), ((4,), (1,), (4,)), ((), (3,), ()), ((), (), (3,)),
        ((2, 1, 4), (3, 1), ()), ((4,), (3, 1), (2, 1, 1)), ((2, 3), (2, 1), (2, 1)), ((1,), (1,), ()), ((), (1,), ()),
        ((0,), (), ()), ((3,), (0, 1), ()), ((5, 2), (5, 1), (1, 2)), ((), (1, 1), (1,)),
    ],
)  # fmt: skip
def test_batches_broadcast(name, x_batch, angle_batch, d_batch):
    wiring = WIRINGS[name]
    x, angles = normal(*x_batch, wiring.n), random_angles(wiring, *angle_batch)
    d = normal(*d_batch, wiring.n, seed=2)
    Q = torch.zeros(*angle_batch, wiring.n, wiring.n, dtype=torch.float64)
    for index in np.ndindex(angle_batch):
        Q[index] = dense_rotation(wiring, angles[index])
    H = Q @ torch.diag_embed(d) @ Q.mT

    def times(A, x):
        return (A @ x[..., None])[..., 0]

    for cache in (None, PreparedCache()):
        for actual, expected in [
            (ops.rotate(x, wiring, angles, cache=cache), times(Q, x)),
            (ops.rotate_transpose(x, wiring, angles, cache=cache), times(Q.mT, x)),
            (ops.symmetric_matvec(x, wiring, angles, d, cache=cache), times(H, x)),
            (ops.quadratic_form(x, wiring, angles, d, cache=cache), (x * times(H, x)).sum(-1)),
        ]:
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("x_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("parameter_dtype", DTYPES, ids=str)
def test_dtypes(x_dtype, parameter_dtype):
    """Half-precision x keeps its dtype; otherwise dtypes promote. Gradients have the dtype of what they belong to."""
    wiring = Butterfly(8)
    x, angles = normal(3, 8, dtype=x_dtype), random_angles(wiring, dtype=parameter_dtype)
    d = normal(8, dtype=parameter_dtype, seed=2)
    expected = x_dtype if x_dtype in HALF else torch.promote_types(x_dtype, parameter_dtype)
    for cache in (None, PreparedCache()):
        assert ops.rotate(x, wiring, angles, cache=cache).dtype == expected
        assert ops.symmetric_matvec(x, wiring, angles, d, cache=cache).dtype == expected
        assert ops.quadratic_form(x, wiring, angles, d, cache=cache).dtype == expected
    x, angles, d = trainable((x, angles, d))
    y = ops.symmetric_matvec(x, wiring, angles, d)
    assert y.dtype == expected
    (y.float().sum() + ops.quadratic_form(x, wiring, angles, d).float().sum()).backward()
    assert [t.grad.dtype for t in (x, angles, d)] == [x_dtype, parameter_dtype, parameter_dtype]


def test_a_right_angle_is_exact():
    y = ops.rotate(torch.tensor([3.0, 5.0]), Butterfly(2), torch.tensor([math.pi / 2]))
    torch.testing.assert_close(y, torch.tensor([-5.0, 3.0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["butterfly-64-deep", "pairs-17"])
def test_lazily_negated_views_are_what_they_say(name):
    """PyTorch gives the imaginary part of a conjugate as a view with a negative bit; the memory has the other sign."""
    wiring = WIRINGS[name]
    x, d, w = (normal(wiring.n, seed=seed) for seed in (1, 2, 3))
    angles = random_angles(wiring)
    Q, H = Rotation(wiring, angles), SymmetricOperator(Rotation(wiring, angles), d)
    view = torch.complex(x, -x).conj().imag
    for negated in (torch._neg_view(-x), view, view.reshape(1, -1).expand(3, -1)):
        assert negated.is_neg()
        plain = negated.clone().resolve_neg()
        for act in (Q, Q.T, H, H.quadratic_form):
            assert torch.equal(act(negated), act(plain))
    assert torch.equal(Rotation(wiring, torch._neg_view(-angles))(x), Q(x))
    assert torch.equal(SymmetricOperator(Q, torch._neg_view(-d))(x), H(x))
    found = []
    for gradient in (torch._neg_view(-w), w):
        for leaf in (torch._neg_view(-x).requires_grad_(), x.clone().requires_grad_()):
            theta, e = angles.clone().requires_grad_(), d.clone().requires_grad_()
            ops.rotate(leaf, wiring, theta).backward(gradient)
            ops.symmetric_matvec(leaf, wiring, theta, e).backward(gradient)
            found.append(torch.cat([leaf.grad, theta.grad, e.grad]))
    for other in found[1:]:
        assert torch.equal(other, found[0])


def test_large_float64_angles_of_half_precision_vectors():
    """float32 has no digits left behind the point at 1e8, and float64 has eight."""
    wiring = WIRINGS["butterfly-64-deep"]
    angles, x = 1e8 * random_angles(wiring), normal(5, 64).half()
    exact = ops.rotate(x.double(), wiring, angles)
    assert_close(ops.rotate(x, wiring, angles), exact, tolerance(torch.float16, wiring.n_layers))


def products_and_gradients(device, dtype):
    """Calls of a layer and of operators, with the tensors that may change between them."""
    layer = Rotate(64, init="random", seed=0, device=device)
    H = SymmetricOperator(
        Rotation.random(64, seed=1, device=device), torch.linspace(0.5, 2, 64, device=device)
    )
    x = normal(16, 64, dtype=dtype).to(device).requires_grad_()
    calls = [lambda: layer(x.detach()), lambda: H.rotation(x.detach()), lambda: H(x.detach())]
    calls += [lambda: H.quadratic_form(x.detach())]
    calls += [lambda: torch.autograd.grad(layer(x), (x, layer.angles), torch.ones_like(x))[1]]
    return calls, (layer.angles.data, x.data)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("warm", [3, 0], ids=["warm", "cold"])
def test_cuda_graphs_follow_what_they_read(dtype, warm):
    for number in range(5):
        calls, changed = products_and_gradients("cuda", dtype)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(warm):
                calls[number]()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = calls[number]()
        for tensor in changed:
            tensor.mul_(-0.7)
        graph.replay()
        torch.testing.assert_close(result, calls[number](), rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_compiled_calls_follow_what_they_read(mode):
    for number in range(5):
        torch.compiler.reset()
        calls, changed = products_and_gradients("cuda", torch.bfloat16)
        compiled = torch.compile(calls[number], fullgraph=number < 4, mode=mode)
        for _ in range(4):
            actual = compiled().clone()
            torch.testing.assert_close(actual, calls[number](), rtol=2e-2, atol=2e-2)
            for tensor in changed:
                tensor.mul_(-0.7)


@pytest.mark.gpu
def test_a_layer_never_waits_for_the_device():
    layer, x = Rotate(256, device="cuda"), torch.ones(8, 256, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    with torch.no_grad():
        layer(x)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(x).sum().backward()
        with torch.no_grad():
            layer.angles.add_(1)
            layer(x)
    finally:
        torch.cuda.set_sync_debug_mode(before)
