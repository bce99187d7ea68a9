"""Reverse-mode derivatives of every order, on every back end; the memory they take."""

import tracemalloc

import pytest
import torch
from cases import HALF, assert_close, normal, random_angles, tolerance
from hypothesis import given, settings
from hypothesis import strategies as some
from ops.common import EACH, ON_BACKENDS, ON_SMALL, SMALL, functions, trainable
from torch.autograd import gradcheck, gradgradcheck

from swallowtail import Butterfly, ops, use_backend


@EACH
@ON_SMALL
@ON_BACKENDS
def test_gradients(name, wiring, backend):
    function, values = functions(wiring)[name]
    with use_backend(backend):
        assert gradcheck(function, trainable(values))


@EACH
@ON_SMALL
def test_second_derivatives(name, wiring):
    function, values = functions(wiring)[name]
    assert gradgradcheck(function, trainable(values))


@EACH
def test_third_derivatives(name):
    function, values = functions(Butterfly(3))[name]
    values = trainable(values)
    weight = normal(*function(*values).shape, seed=8)

    def second(*values):
        first = torch.autograd.grad((function(*values) * weight).sum(), values, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), values, create_graph=True)

    assert gradcheck(second, values)


@EACH
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_gradients_of_only_some_arguments(name, which):
    function, values = functions(SMALL["pairs-5"])[name]
    wanted = [v.clone().requires_grad_(k in which) for k, v in enumerate(values)]
    function(*wanted).pow(2).sum().backward()
    everything = trainable(values)
    function(*everything).pow(2).sum().backward()
    for k, (a, b) in enumerate(zip(wanted, everything, strict=True)):
        assert (a.grad is not None) == (k in which)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("angle_batch", [(3,), (1,), (2, 1)])
def test_gradients_of_broadcast_batches(angle_batch):
    wiring = SMALL["butterfly-5"]
    x, angles, d = normal(3, wiring.n), random_angles(wiring, *angle_batch), normal(3, wiring.n)
    assert gradcheck(lambda x, a: ops.rotate(x, wiring, a), trainable((x, angles)))
    assert gradcheck(lambda x, a, d: ops.symmetric_matvec(x, wiring, a, d), trainable((x, angles, d)))
    assert gradcheck(lambda x, a, d: ops.quadratic_form(x, wiring, a, d), trainable((x, angles, d)))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_gradients(dtype):
    """As good as the dtype: compared with float64 on the same numbers."""
    wiring = Butterfly(64, 2)
    stored = (
        normal(7, 64, dtype=dtype),
        random_angles(wiring, dtype=torch.float32),
        normal(64, dtype=torch.float32),
    )
    weight = normal(7, 64, dtype=dtype, seed=4)
    narrow, wide = trainable(stored), trainable([t.double() for t in stored])
    for values, w in ((narrow, weight), (wide, weight.double())):
        (ops.symmetric_matvec(values[0], wiring, *values[1:]) * w).sum().backward()
    for a, b in zip(narrow, wide, strict=True):
        assert_close(a.grad, b.grad, 2 * tolerance(dtype, 2 * wiring.n_layers))


@EACH
@ON_BACKENDS
def test_same_result_with_and_without_a_gradient(name, backend):
    function, values = functions(SMALL["butterfly-6-reverse"])[name]
    with use_backend(backend):
        direct, recorded = function(*values), function(*trainable(values))
        with torch.no_grad():
            quiet = function(*trainable(values))
    assert not direct.requires_grad
    assert not quiet.requires_grad
    assert recorded.requires_grad
    assert torch.equal(direct, recorded.detach())
    assert torch.equal(direct, quiet)


def peak_bytes(depth, m=20_000, n=32):
    """The most that forward and backward hold at once beyond parameters and their gradients: torch's and NumPy's."""
    wiring = Butterfly(n, depth)
    x = normal(m, n, dtype=torch.float32).requires_grad_()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    d = normal(n, dtype=torch.float32).requires_grad_()

    def work():
        y = ops.rotate(x, wiring, angles)
        ops.symmetric_matvec(y, wiring, angles, d).sum().backward()

    work()  # compile, and fill what is kept
    x.grad = angles.grad = d.grad = None
    tracemalloc.start()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        work()
    numpy_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    # The gradient of x, and at least one activation: the measurement sees something.
    assert peak >= 2 * x.nbytes
    return peak + numpy_peak


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # on machines with a GPU
def test_memory_does_not_grow_with_depth():
    shallow, deep = peak_bytes(1), peak_bytes(8)
    assert deep <= 1.1 * shallow, (shallow, deep)


@settings(deadline=None, max_examples=40)
@given(
    n=some.integers(1, 40), depth=some.integers(1, 3), reverse=some.booleans(),
    batch=some.lists(some.integers(0, 4), max_size=3), seed=some.integers(0, 2**31),
)  # fmt: skip
def test_property_back_ends_agree(n, depth, reverse, batch, seed):
    wiring = Butterfly(n, depth, reverse=reverse)
    values = normal(*batch, n, seed=seed), random_angles(wiring, seed=seed), normal(n, seed=seed + 1)
    results = []
    for backend in ("reference", "cpu"):
        with use_backend(backend):
            x, angles, d = trainable(values)
            y = ops.symmetric_matvec(ops.rotate(x, wiring, angles), wiring, angles, d)
            y.pow(2).sum().backward()
            results.append((y, x.grad, angles.grad, d.grad))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
