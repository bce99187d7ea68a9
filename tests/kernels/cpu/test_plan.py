"""Plans take every layer once, and programs name shapes that were compiled."""

import numpy as np
import pytest

from swallowtail.kernels.cpu.codegen import shapes
from swallowtail.kernels.cpu.plan import BOTH, ONE, OTHER, STEP, make_plan, program

WIDTHS = pytest.mark.parametrize("width", [2, 4, 8, 16])
SIZES = pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 100, 1024, 4096])


@SIZES
@WIDTHS
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("radix", [2, 3])
def test_passes_take_every_layer_once(n, width, depth, radix):
    plan = make_plan(n, depth, width, radix)
    assert plan.padded >= max(n, width)
    assert plan.padded & (plan.padded - 1) == 0
    inner = width.bit_length() - 1
    strides = []
    for p, first, end in zip(plan.passes, plan.bounds[:-1], plan.bounds[1:], strict=True):
        assert (p.layer, p.layer + p.radix + inner * p.inner) == (first, end)
        assert p.radix <= radix
        strides += [p.stride << k for k in reversed(range(p.radix))]
        strides += [width >> (k + 1) for k in range(inner)] if p.inner else []
    assert strides == plan.strides.tolist()
    assert strides == [plan.padded >> (k + 1) for k in range(plan.padded.bit_length() - 1)] * depth


@SIZES
@pytest.mark.parametrize("family", shapes.FAMILIES)
@pytest.mark.parametrize("plain_passes", ["none", "some", "all"])
def test_steps_of_a_program(n, family, plain_passes):
    wedge = family.endswith("wedge")
    plan = make_plan(n, 3, shapes.lanes(32), shapes.WEDGE_RADIX if wedge else shapes.MAX_RADIX)
    count = len(plan.passes)
    plain = {"none": np.zeros(count, bool), "all": np.ones(count, bool), "some": np.arange(count) % 2 == 0}[
        plain_passes
    ]
    if family == "from_basis wedge":
        plain[:] = True  # the only form it is compiled in
    for vectors in (1, 2):
        steps = program(plan, family, plain, True, vectors)
        assert steps.dtype == STEP
        assert steps["first"].tolist() == [1] + [0] * (len(steps) - 1) or steps["which"][1] == OTHER
        assert set(steps["which"]) <= ({BOTH} if wedge else {ONE} if vectors == 1 else {ONE, OTHER, BOTH})
        assert (steps["start"] % plan.padded == 0).all()
        layers = steps["start"] // plan.padded
        assert set(layers) == {p.layer for p in plan.passes}
        used = [shapes.FAMILIES[family][code] for code in steps["code"]]
        for step, shape, layer in zip(steps, used, layers, strict=True):
            p = next(p for p in plan.passes if p.layer == layer)
            assert (shape.radix, shape.inner, step["stride"]) == (p.radix, p.inner, p.stride)
            assert step["span"] == p.stride << p.radix
            assert shape.plain == plain[plan.passes.index(p)]
            assert bool(step["scaled"]) == shape.scale
