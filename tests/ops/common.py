"""Small wirings, and the four functions on them."""

import pytest
from cases import normal, random_angles

from swallowtail import Butterfly, Pairs, ops

SMALL = {
    "butterfly-1": Butterfly(1),
    "butterfly-5": Butterfly(5),
    "butterfly-4-deep": Butterfly(4, 2),
    "butterfly-6-reverse": Butterfly(6, reverse=True),
    "pairs-5": Pairs(5, [[(0, 3), (4, 1)], [], [(2, 0)], [(1, 2), (3, 4)]]),
    "pairs-3-none": Pairs(3, [[]]),
}
# PyTorch itself uses torch.jit.script when it compiles, and in forward mode.
OLD_JIT = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
ON_SMALL = pytest.mark.parametrize("wiring", SMALL.values(), ids=SMALL.keys())
ON_BACKENDS = pytest.mark.parametrize("backend", ["reference", "cpu"])
EACH = pytest.mark.parametrize("name", ["rotate", "rotate_transpose", "symmetric_matvec", "quadratic_form"])


def functions(wiring):
    """name: (function of tensors that have gradients, their values)."""
    x, angles, d = normal(3, wiring.n), random_angles(wiring), normal(wiring.n, seed=2)
    return {
        "rotate": (lambda x, a: ops.rotate(x, wiring, a), (x, angles)),
        "rotate_transpose": (lambda x, a: ops.rotate_transpose(x, wiring, a), (x, angles)),
        "symmetric_matvec": (lambda x, a, d: ops.symmetric_matvec(x, wiring, a, d), (x, angles, d)),
        "quadratic_form": (lambda x, a, d: ops.quadratic_form(x, wiring, a, d), (x, angles, d)),
    }


def trainable(values):
    return tuple(v.clone().requires_grad_() for v in values)
