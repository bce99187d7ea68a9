"""The operators that compilers and exporters see."""

import shutil

import numpy as np
import pytest
import torch
from cases import WIRINGS, normal, random_angles
from ops.common import OLD_JIT, SMALL, trainable

from swallowtail import ArgumentError, Butterfly, Grouped, Rotation, SymmetricOperator, ops
from swallowtail.nn import Rotate
from swallowtail.ops.library import decode

GROUPED = Grouped(5, [[([0, 4, 2], [(0, 4), (4, 2)]), ([1, 3], [(3, 1)])], [([0, 1], [(0, 1)])]])


def library_arguments(wiring, dtype=torch.float64):
    x, g = (normal(2, 3, wiring.n, dtype=dtype, seed=s) for s in (1, 2))
    angles, d = random_angles(wiring, 2, dtype=dtype), normal(2, wiring.n, dtype=dtype)
    how = (wiring.encoded,)
    x, g, angles, d = trainable((x, g, angles, d))
    return {
        "rotate": (x, angles, *how, False),
        "rotate_backward": (x, g, angles, *how, True),
        "symmetric": (x, angles, d, *how),
        "quadratic": (x, angles, d, *how),
    }


@pytest.mark.parametrize("name", ["rotate", "rotate_backward", "symmetric", "quadratic"])
@pytest.mark.parametrize(
    "wiring",
    [SMALL["butterfly-6-reverse"], SMALL["pairs-5"], GROUPED],
    ids=["butterfly", "pairs", "grouped"],
)
def test_opcheck(name, wiring):
    torch.library.opcheck(getattr(torch.ops.swallowtail, name).default, library_arguments(wiring)[name])


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


@pytest.mark.parametrize(
    "wiring", [SMALL["butterfly-5"], SMALL["pairs-5"], GROUPED], ids=["butterfly", "pairs", "grouped"]
)
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


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_layer_takes_batches_of_any_size(strict):
    layer, sizes = (
        Rotate(6, init="random", seed=0),
        {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")},
    )
    program = torch.export.export(layer, (torch.ones(3, 5, 6),), dynamic_shapes=(sizes,), strict=strict)
    for shape in ((1, 5, 6), (7, 2, 6)):
        x = normal(*shape, dtype=torch.float32)
        torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("name", [name for name in WIRINGS if "grouped" in name])
def test_groups_survive_the_journey(name):
    decoded = decode(WIRINGS[name].encoded)
    assert decoded == WIRINGS[name]
    assert decoded.rounds[0][0].coordinates.dtype == np.int64


@OLD_JIT
@pytest.mark.parametrize("name", ["butterfly-6-reverse", "pairs-5"])
def test_layers_and_operators_compile_whole(name):
    """In one graph each, on first use; and the graph goes on reading the parameters."""
    wiring, x = SMALL[name], normal(3, SMALL[name].n)
    layer, frozen = (Rotate(wiring=wiring, init="random", seed=1, dtype=torch.float64) for _ in range(2))
    frozen.requires_grad_(False)
    H = SymmetricOperator(Rotation(wiring, random_angles(wiring)), normal(wiring.n, seed=2))

    def everything(x):
        return [f(x) * 2 for f in (layer, frozen, layer.T, H.rotation, H, H.quadratic_form)]

    torch.compiler.reset()
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        for actual, expected in zip(compiled(x), everything(x), strict=True):
            torch.testing.assert_close(actual, expected)
        layer.angles.data.add_(0.3)
        frozen.angles.numpy()[:] += 0.3
    torch.compiler.reset()


@OLD_JIT
# The compiler looks at tensors within the broken graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("whole", [False, True])
def test_what_a_compiled_layer_cannot_take_is_said_clearly(whole):
    """By our error or, where there must be one graph, by the compiler's own, which quotes ours."""
    torch.compiler.reset()
    layer = Rotate(8)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=whole)
    for dtype in (torch.float32, torch.bfloat16):
        assert compiled(torch.ones(2, 8, dtype=dtype)).dtype == dtype
    for text, x in {
        "the last axis to be n = 8": torch.ones(2, 6),
        "float64, float32": torch.ones(2, 8, dtype=torch.int32),
        "everything on one device": torch.ones(2, 8, device="meta"),
    }.items():
        with pytest.raises(RuntimeError if whole else ArgumentError, match=text):
            compiled(x)
    layer.double()
    assert compiled(torch.ones(2, 8, dtype=torch.float64)).dtype == torch.float64
    torch.compiler.reset()


def test_an_exported_layer_is_saved_and_loaded(tmp_path):
    for wiring in (SMALL["butterfly-5"], SMALL["pairs-5"]):
        layer, x = Rotate(wiring=wiring, init="random", seed=0), normal(3, wiring.n, dtype=torch.float32)
        torch.export.save(torch.export.export(layer, (x,)), tmp_path / "layer.pt2")
        program = torch.export.load(tmp_path / "layer.pt2")
        torch.testing.assert_close(program.module()(x), layer(x))


def test_checkpointing_and_autocast_change_no_numbers():
    layer, x = Rotate(12, init="random", seed=0), normal(4, 12, dtype=torch.float32).requires_grad_()
    expected = torch.autograd.grad(layer(x).square().sum() + layer(x).sum(), (x, layer.angles))
    saved = torch.utils.checkpoint.checkpoint(lambda z: layer(z), x, use_reentrant=False)
    actual = torch.autograd.grad(saved.square().sum() + saved.sum(), (x, layer.angles))
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)
    with torch.autocast("cpu", torch.bfloat16):
        half = torch.nn.functional.linear(x, torch.eye(12))
        assert half.dtype == torch.bfloat16
        y = layer(half)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(layer(x), layer(x.detach()))
    y.sum().backward()
    assert layer.angles.grad.dtype == torch.float32
