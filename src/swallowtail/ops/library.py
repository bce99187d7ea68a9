"""The four functions of `autograd` as torch.library operators: what compilers, exporters and tracers see.

An operator takes tensors and simple values only, so a wiring travels as text (`Wiring.encoded`). A tensor of pairs
would do as well, but compilers do not record a CUDA graph around an operator that reads memory of the CPU.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import torch

from swallowtail.ops.autograd import RULES, setup, vmap_rule
from swallowtail.wiring import Butterfly, Grouped, Pairs, Wiring, from_text

_WIRING = "str wiring"
_SCHEMAS = {
    "rotate": f"(Tensor x, Tensor angles, {_WIRING}, bool transpose) -> Tensor",
    "rotate_backward": f"(Tensor y, Tensor grad, Tensor angles, {_WIRING}, bool transpose) -> (Tensor, Tensor)",
    "symmetric": f"(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor",
    "quadratic": f"(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor",
}


@cache  # never dropped: a recorded graph goes on reading what kernels made from it
def decode(text: str) -> Wiring:
    """The wiring that was encoded."""
    code, table = from_text(text)
    if table is None:
        n, depth, reverse = code
        return Butterfly(n, depth, reverse=bool(reverse))
    if code[0] < 0:
        return Grouped.from_encoded(table, code)
    n, *offsets = code
    return Pairs.from_flat(n, table, np.array(offsets))


def _decoded(name: str, *arguments: Any) -> tuple[Any, ...]:
    """Tensors, wiring, flags."""
    at = RULES[name].n_tensors
    return (*arguments[:at], decode(arguments[at]), *arguments[at + 1 :])


def _run(name: str, *arguments: Any) -> Any:
    return RULES[name].run(*_decoded(name, *arguments))


def _fake(name: str, *arguments: Any) -> Any:
    """Shapes and dtypes of the results."""
    x = arguments[0]
    if name == "rotate_backward":
        grad, angles = arguments[1:3]
        return grad.new_empty(grad.shape), angles.new_empty(angles.shape)
    return x.new_empty(x.shape[:2] if name == "quadratic" else x.shape)


def _backward(name: str, ctx: Any, *grads: Any) -> tuple[Any, ...]:
    gradients = RULES[name].vjp(ctx.saved_tensors, decode(ctx.wiring), ctx.flags, grads)
    return (*gradients, None, *(None for _ in ctx.flags))


def _vmap(name: str, info: Any, in_dims: Any, *arguments: Any) -> Any:
    return vmap_rule(name, info, in_dims, *_decoded(name, *arguments))


_library = torch.library.Library("swallowtail", "DEF")
for _name, _schema in _SCHEMAS.items():
    _operator = f"swallowtail::{_name}"
    _library.define(_name + _schema)
    torch.library.impl(_library, _name, "CompositeExplicitAutograd")(partial(_run, _name))
    torch.library.register_fake(_operator, partial(_fake, _name), lib=_library)
    torch.library.register_autograd(
        _operator, partial(_backward, _name), setup_context=partial(setup, _name), lib=_library
    )
    torch.library.register_vmap(_operator, partial(_vmap, _name), lib=_library)
