"""The differentiable operations: derivatives of every order, transformations, compilation, memory."""

import math
import shutil
import tracemalloc
import weakref

import numpy as np
import pytest
import torch
from cases import DTYPES, FEW, HALF, WIRINGS, assert_close, dense_rotation, normal, random_angles, tolerance
from hypothesis import given, settings
from hypothesis import strategies as some
from torch.autograd import gradcheck, gradgradcheck

from swallowtail import Butterfly, Pairs, kernels, ops, use_backend
from swallowtail.kernels import PreparedCache

SMALL = {
    "butterfly-1": Butterfly(1),
    "butterfly-5": Butterfly(5),
    "butterfly-4-deep": Butterfly(4, 2),
    "butterfly-6-reverse": Butterfly(6, reverse=True),
    "pairs-5": Pairs(5, [[(0, 3), (4, 1)], [], [(2, 0)], [(1, 2), (3, 4)]]),
    "pairs-3-none": Pairs(3, [[]]),
}
ON_SMALL = pytest.mark.parametrize("wiring", SMALL.values(), ids=SMALL.keys())
OLD_JIT = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own use of it
ON_BACKENDS = pytest.mark.parametrize("backend", ["reference", "cpu"])


def functions(wiring):
    """name: (function of tensors that have gradients, their values)."""
    x, angles, d = normal(3, wiring.n), random_angles(wiring), normal(wiring.n, seed=2)
    return {
        "rotate": (lambda x, a: ops.rotate(x, wiring, a), (x, angles)),
        "rotate_transpose": (lambda x, a: ops.rotate_transpose(x, wiring, a), (x, angles)),
        "symmetric_matvec": (lambda x, a, d: ops.symmetric_matvec(x, wiring, a, d), (x, angles, d)),
        "quadratic_form": (lambda x, a, d: ops.quadratic_form(x, wiring, a, d), (x, angles, d)),
    }


NAMES = ("rotate", "rotate_transpose", "symmetric_matvec", "quadratic_form")
EACH = pytest.mark.parametrize("name", NAMES)


def trainable(values):
    return tuple(v.clone().requires_grad_() for v in values)


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


# Values and shapes


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


@pytest.mark.parametrize("angle_batch", [(3,), (1,), (2, 1)])
def test_gradients_of_broadcast_batches(angle_batch):
    wiring = SMALL["butterfly-5"]
    x, angles, d = normal(3, wiring.n), random_angles(wiring, *angle_batch), normal(3, wiring.n)
    assert gradcheck(lambda x, a: ops.rotate(x, wiring, a), trainable((x, angles)))
    assert gradcheck(lambda x, a, d: ops.symmetric_matvec(x, wiring, a, d), trainable((x, angles, d)))
    assert gradcheck(lambda x, a, d: ops.quadratic_form(x, wiring, a, d), trainable((x, angles, d)))


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


# Caches must notice every change


def edit_in_place(t):
    with torch.no_grad():
        t.add_(0.3)


def edit_data(t):
    t.data.add_(0.3)


def replace_data(t):
    t.data = t.data + 0.3


def fused_step(t):
    t.grad = torch.ones_like(t)
    torch.optim.Adam([t], lr=0.3, fused=True).step()


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, fused_step])
def test_cached_coefficients_notice_edits_of_angles_that_became_trainable(edit):
    wiring, cache = Butterfly(16), PreparedCache()
    angles, x = random_angles(wiring, dtype=torch.float32), torch.ones(3, 16)
    before = ops.rotate(x, wiring, angles, cache=cache)
    angles.requires_grad_()
    with torch.no_grad():
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), before)
        edit(angles)
        after = ops.rotate(x, wiring, angles, cache=cache)
        assert torch.equal(after, ops.rotate(x, wiring, angles))
    assert not torch.allclose(after, before)


def test_a_cache_keeps_no_graph_alive():
    wiring, cache, leaf = Butterfly(16), PreparedCache(), torch.ones(32, requires_grad=True)
    angles = leaf * 0.5
    with torch.no_grad():
        ops.rotate(torch.ones(3, 16), wiring, angles, cache=cache)
    tensor = weakref.ref(angles)  # which holds the graph
    del angles
    assert tensor() is None


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, fused_step])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_cached_coefficients_follow_trainable_parameters(edit, x_dtype):
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    d = normal(16, dtype=torch.float32).requires_grad_()
    x = normal(3, 16, dtype=x_dtype)
    for step in range(6):
        edit(angles if step % 2 else d)
        fresh = [t.detach().clone() for t in (angles, d)]
        with torch.no_grad():
            assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, fresh[0]))
            actual = ops.symmetric_matvec(x, wiring, angles, d, cache=cache)
            assert torch.equal(actual, ops.symmetric_matvec(x, wiring, *fresh))
            actual = ops.quadratic_form(x, wiring, angles, d, cache=cache)
            assert torch.equal(actual, ops.quadratic_form(x, wiring, *fresh))


@pytest.mark.parametrize("edit", [edit_in_place, edit_data, replace_data, fused_step])
@pytest.mark.parametrize("transpose", [False, True])
def test_coefficients_kept_for_training_follow_the_angles(edit, transpose):
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    x, g = normal(2, 3, 16, dtype=torch.float32)
    x.requires_grad_()
    rotate = ops.rotate_transpose if transpose else ops.rotate
    for _ in range(3):
        for _ in range(2):  # made anew, then kept
            actual = torch.autograd.grad(rotate(x, wiring, angles, cache=cache), (x, angles), g)
            fresh = angles.detach().clone().requires_grad_()
            expected = torch.autograd.grad(rotate(x, wiring, fresh), (x, fresh), g)
            assert all(map(torch.equal, actual, expected))
        edit(angles)


@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("batch", [(), (2, 1)])
def test_cached_coefficients_follow_plain_tensors(x_dtype, batch):
    """Also where every call converts or copies them: a new copy may lie where the last one was."""
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, *batch, dtype=torch.float32)
    x = normal(3, 16, dtype=x_dtype)
    for _ in range(20):
        angles.add_(0.1)
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, angles.clone()))


def test_a_cache_knows_a_new_tensor_at_an_old_address():
    wiring, cache, x = Butterfly(512), PreparedCache(), normal(512, dtype=torch.float32)
    for seed in range(10):
        angles = random_angles(wiring, dtype=torch.float32, seed=seed)
        assert torch.equal(ops.rotate(x, wiring, angles, cache=cache), ops.rotate(x, wiring, angles))
        del angles


def test_inference_mode():
    wiring, cache = Butterfly(16), PreparedCache()
    with torch.inference_mode():
        angles, x = random_angles(wiring), normal(16)
        for _ in range(3):
            angles.add_(0.1)  # nothing counts this
            y = ops.rotate(x, wiring, angles, cache=cache)
            assert torch.equal(y, ops.rotate(x, wiring, angles.clone()))


def test_kept_coefficients_are_used(monkeypatch):
    """The other side: nothing is prepared twice while nothing changes."""
    cpu, counted = kernels.load("cpu"), []
    prepare = cpu.prepare
    monkeypatch.setattr(cpu, "prepare", lambda *a, **k: counted.append(1) or prepare(*a, **k))
    wiring, cache = Butterfly(16), PreparedCache()
    angles = random_angles(wiring, dtype=torch.float32).requires_grad_()
    with torch.no_grad():
        for dtype, times in ((torch.float32, 1), (torch.float64, 2)):
            for _ in range(3):
                ops.rotate(normal(16, dtype=dtype), wiring, angles, cache=cache)
            assert len(counted) == times


@pytest.mark.parametrize("transpose", [False, True])
def test_a_training_step_prepares_once(monkeypatch, transpose):
    """Backward finds forward's coefficients, but not those of angles it was not given."""
    backend, counted = kernels.load("cpu"), []
    make = backend.prepare_training
    monkeypatch.setattr(backend, "prepare_training", lambda *a: counted.append(1) or make(*a))
    wiring = Butterfly(16, reverse=transpose)
    function = ops.rotate_transpose if transpose else ops.rotate
    x, g = normal(3, 16).requires_grad_(), normal(3, 16, seed=1)
    first, second = (random_angles(wiring, seed=seed).requires_grad_() for seed in (1, 2))
    outputs = [function(x, wiring, angles) for angles in (first, second)]
    assert len(counted) == 2
    for angles, y in zip((first, second), outputs, strict=True):
        actual = torch.autograd.grad(y, (x, angles), g)
        with kernels.use_backend("reference"):
            expected = torch.autograd.grad(function(x, wiring, angles), (x, angles), g)
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(actual, expected, strict=True))
    assert len(counted) == 2


# torch's own checks and transformations


def library_arguments(wiring, dtype=torch.float64):
    x, g = (normal(2, 3, wiring.n, dtype=dtype, seed=s) for s in (1, 2))
    angles, d = random_angles(wiring, 2, dtype=dtype), normal(2, wiring.n, dtype=dtype)
    how = (wiring.pairs_tensor, wiring.code)
    x, g, angles, d = trainable((x, g, angles, d))
    return {
        "rotate": (x, angles, *how, False),
        "rotate_backward": (x, g, angles, *how, True),
        "symmetric": (x, angles, d, *how),
        "quadratic": (x, angles, d, *how),
    }


@pytest.mark.parametrize("name", ["rotate", "rotate_backward", "symmetric", "quadratic"])
@pytest.mark.parametrize(
    "wiring", [SMALL["butterfly-6-reverse"], SMALL["pairs-5"]], ids=["butterfly", "pairs"]
)
def test_opcheck(name, wiring):
    torch.library.opcheck(getattr(torch.ops.swallowtail, name).default, library_arguments(wiring)[name])


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


@OLD_JIT
def test_forward_mode_says_no_rather_than_zero():
    wiring = Butterfly(4)
    x, angles = normal(4), random_angles(wiring)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.func.jvp(lambda a: ops.rotate(x, wiring, a), (angles,), (torch.ones_like(angles),))


@OLD_JIT
@pytest.mark.parametrize(
    ("backend", "name"),
    [
        ("aot_eager", "butterfly-6-reverse"),
        ("aot_eager", "pairs-5"),
        pytest.param(
            "inductor",
            "pairs-5",
            marks=pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler"),
        ),
    ],
)
def test_compile(backend, name):
    wiring = SMALL[name]
    torch.compiler.reset()

    def model(x, angles, d):
        y = ops.rotate(torch.sin(x), wiring, angles)
        return (ops.symmetric_matvec(y, wiring, angles, d) * 2).sum() + ops.quadratic_form(
            y, wiring, angles, d
        ).sum()

    values = normal(3, wiring.n), random_angles(wiring), normal(wiring.n, seed=2)
    eager, compiled = trainable(values), trainable(values)
    model(*eager).backward()
    result = torch.compile(model, fullgraph=True, backend=backend)(*compiled)
    result.backward()
    torch.testing.assert_close(result, model(*values))
    for a, b in zip(compiled, eager, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    torch.compiler.reset()


def test_compile_with_dynamic_shapes():
    torch.compiler.reset()
    wiring, angles = Butterfly(6), random_angles(Butterfly(6))
    compiled = torch.compile(
        lambda x: ops.rotate(x, wiring, angles), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for batch in ((3,), (5,), (2, 4)):
        x = normal(*batch, 6)
        torch.testing.assert_close(compiled(x), ops.rotate(x, wiring, angles))
    torch.compiler.reset()


@pytest.mark.parametrize("wiring", [SMALL["butterfly-5"], SMALL["pairs-5"]], ids=["butterfly", "pairs"])
def test_export(wiring):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.angles = torch.nn.Parameter(random_angles(wiring))

        def forward(self, x):
            return ops.rotate(x, wiring, self.angles)

    model, x = Model(), normal(3, wiring.n)
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))


# Memory


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
    assert (
        peak >= 2 * x.nbytes
    )  # the gradient of x, and at least one activation: the measurement sees something
    return peak + numpy_peak


def test_memory_does_not_grow_with_depth():
    shallow, deep = peak_bytes(1), peak_bytes(8)
    assert deep <= 1.1 * shallow, (shallow, deep)


# Properties


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


def test_a_right_angle_is_exact():
    y = ops.rotate(torch.tensor([3.0, 5.0]), Butterfly(2), torch.tensor([math.pi / 2]))
    torch.testing.assert_close(y, torch.tensor([-5.0, 3.0]), rtol=1e-6, atol=1e-6)
