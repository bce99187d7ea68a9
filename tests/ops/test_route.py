"""Each way of watching a call is recognised."""

import pytest
import torch
from ops.common import OLD_JIT
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from swallowtail.errors import ArgumentError
from swallowtail.nn import Rotate
from swallowtail.ops.route import Route, route

pytestmark = OLD_JIT
PLAIN, PARAMETER = torch.ones(2), torch.nn.Parameter(torch.ones(2))


class Silent(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    pass


def test_only_the_numbers_are_wanted():
    assert route(PLAIN, PLAIN) is Route.KERNEL
    with torch.no_grad():
        assert route(PLAIN, PARAMETER) is Route.KERNEL
    with torch.inference_mode():
        assert route(torch.ones(2), PARAMETER) is Route.KERNEL


@pytest.mark.parametrize("tensors", [(PARAMETER,), (PLAIN, PARAMETER), (PLAIN, PARAMETER * 2)])
def test_a_gradient_is_wanted(tensors):
    assert route(*tensors) is Route.EAGER


def test_transformations():
    seen = []

    def look(x):
        seen.append(route(x))
        return x.sum()

    torch.func.grad(look)(PLAIN)
    torch.func.vmap(look)(torch.ones(3, 2))
    torch.func.jvp(look, (PLAIN,), (PLAIN,))
    with forward_ad.dual_level():
        look(forward_ad.make_dual(PLAIN, PLAIN))
        look(PLAIN)
    assert seen == [Route.TRANSFORMED] * 5
    assert route(PLAIN) is Route.KERNEL


def test_inside_the_forward_of_a_function_nobody_watches():
    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.seen = route(x)
            assert ctx.seen is Route.KERNEL
            return x.clone()

        @staticmethod
        def jvp(ctx, tangent):
            return tangent

    with forward_ad.dual_level():
        Look.apply(forward_ad.make_dual(PLAIN, PLAIN))


def test_tracers_modes_and_subclasses():
    seen = []

    def look(x):
        seen.append(route(x))
        return x * 2

    make_fx(look)(PLAIN)
    with FlopCounterMode(display=False):
        look(PLAIN)
    with Silent():
        look(PLAIN)
    look(PLAIN.as_subclass(Subclass))
    torch.compile(look, backend="aot_eager")(PLAIN)
    torch.compiler.reset()
    assert set(seen) == {Route.TRACED}
    assert route([1.0]) is Route.TRACED  # whoever comes next says what is wrong with it


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("module", [Rotate(8), Rotate(8).requires_grad_(False)])
def test_a_recording_by_the_old_compiler_is_refused(module):
    with pytest.raises(ArgumentError, match=r"torch.compile or torch.export, got torch.jit.trace; try"):
        torch.jit.trace(module, torch.ones(2, 8))
    assert torch.export.export(module, (torch.ones(2, 8),)).module()(torch.ones(2, 8)).shape == (2, 8)
