"""Fails loudly when a private name of PyTorch changes its meaning: a silent change would mean missing gradients."""

import pytest
import torch
from ops.common import OLD_JIT
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from swallowtail.ops import torch_private

pytestmark = OLD_JIT


def test_active_transformation():
    seen = []

    def look(x):
        seen.append(torch_private.active_transformation())
        return x.sum()

    assert torch_private.active_transformation() is None
    torch.func.vmap(look)(torch.ones(2, 2))
    torch.func.grad(look)(torch.ones(2))
    torch.func.jvp(look, (torch.ones(2),), (torch.ones(2),))
    assert None not in seen
    assert torch_private.active_transformation() is None


def test_forward_levels_are_counted():
    seen = []

    def look(x):
        seen.append(torch_private.n_forward_levels())
        return x.sum()

    look(torch.ones(2))
    torch.func.grad(look)(torch.ones(2))
    torch.func.jacfwd(look)(torch.ones(2))
    torch.func.hessian(look)(torch.ones(2))
    torch.func.jacfwd(torch.func.jacfwd(look))(torch.ones(2))
    assert seen == [0, 0, 1, 1, 2]


def test_dispatch_modes_are_counted():
    assert torch_private.n_dispatch_modes() == 0
    with TorchDispatchMode():
        assert torch_private.n_dispatch_modes() == 1
        with TorchDispatchMode():
            assert torch_private.n_dispatch_modes() == 2
    assert torch_private.n_dispatch_modes() == 0


def test_forward_mode_is_seen_and_its_pauses_too():
    assert not torch_private.in_forward_mode()
    with forward_ad.dual_level():
        assert torch_private.in_forward_mode()
        with forward_ad._set_fwd_grad_enabled(False):
            assert not torch_private.in_forward_mode()
    assert not torch_private.in_forward_mode()


def test_a_constant_result_is_marked_as_the_compiler_marks_it():
    def ours():
        return 1

    def theirs():
        return 1

    torch_private.constant_result(ours)
    torch.compiler.assume_constant_result(theirs)
    assert vars(ours) == vars(theirs) != {}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_recording_is_seen():
    seen = []

    def look(x):
        seen.append((torch_private.is_recording(), torch_private.nothing_active()))
        return x + 1

    look(torch.ones(2))
    torch.jit.trace(look, torch.ones(2), check_trace=False)
    look(torch.ones(2))
    assert seen == [(False, True), (True, False), (False, True)]
