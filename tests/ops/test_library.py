"""The operators that compilers and exporters see."""

import shutil

import numpy as np
import pytest
import torch
from cases import WIRINGS, normal, random_angles
from ops.common import OLD_JIT, SMALL, trainable

from swallowtail import Butterfly, Grouped, ops
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


@pytest.mark.parametrize("name", [name for name in WIRINGS if "grouped" in name])
def test_groups_survive_the_journey(name):
    decoded = decode(WIRINGS[name].encoded)
    assert decoded == WIRINGS[name]
    assert decoded.rounds[0][0].coordinates.dtype == np.int64
