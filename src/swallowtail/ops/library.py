"""The four functions of `autograd` as torch.library operators: what compilers, exporters and tracers see.

An operator takes tensors and integers only, so a wiring travels encoded: (None, [n, depth, reverse]) for a Butterfly,
(pairs (K, 2), [n, *offsets]) for Pairs, a longer table and code for Grouped (`wiring.groups.encode`).
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swallowtail.errors import ArgumentError
from swallowtail.ops.autograd import RULES, vmap_rule
from swallowtail.ops.route import TRACED, route
from swallowtail.wiring import Butterfly, Grouped, Pairs, Wiring, offsets_of

_WIRING = "Tensor? pairs, int[] code"
_SCHEMAS = {
    "rotate": f"(Tensor x, Tensor angles, {_WIRING}, bool transpose) -> Tensor",
    "rotate_backward": f"(Tensor y, Tensor grad, Tensor angles, {_WIRING}, bool transpose) -> (Tensor, Tensor)",
    "symmetric": f"(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor",
    "quadratic": f"(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor",
}


class TracedPairs:
    """What derivatives ask of a wiring, with a tracer's pairs: they have a shape but no values."""

    def __init__(self, pairs: Tensor, code: list[int]) -> None:
        self.encoded, self._pairs = (pairs, code), pairs
        self.n, self.offsets = offsets_of(code)
        self.n_layers = len(self.offsets) - 1

    def layer(self, index: int) -> Tensor:
        return self._pairs[self.offsets[index] : self.offsets[index + 1]]


def _for_derivatives(pairs: Tensor | None, code: list[int]) -> Any:
    if pairs is not None and route(pairs) is TRACED:
        return TracedPairs(pairs, code)
    return decode(pairs, code)


def decode(pairs: Tensor | None, code: list[int]) -> Wiring:
    """The wiring that was encoded."""
    if pairs is None:
        return _butterfly(*code)
    table = pairs.cpu().numpy()
    if code[0] < 0:
        return Grouped.from_encoded(table, code)
    n, *offsets = code
    return Pairs.from_flat(n, table, np.array(offsets))


@lru_cache(maxsize=256)
def _butterfly(n: int, depth: int, reverse: int) -> Butterfly:
    return Butterfly(n, depth, reverse=bool(reverse))


def _decoded(name: str, *arguments: Any) -> tuple[Any, ...]:
    """Tensors, wiring, flags."""
    at = RULES[name].n_tensors
    return (*arguments[:at], decode(*arguments[at : at + 2]), *arguments[at + 2 :])


def _run(name: str, *arguments: Any) -> Any:
    return RULES[name].run(*_decoded(name, *arguments))


def _fake(name: str, *arguments: Any) -> Any:
    """Shapes and dtypes of the results."""
    x = arguments[0]
    if name == "rotate_backward":
        grad, angles = arguments[1:3]
        return grad.new_empty(grad.shape), angles.new_empty(angles.shape)
    return x.new_empty(x.shape[:2] if name == "quadratic" else x.shape)


def _setup(name: str, ctx: Any, inputs: Any, output: Any) -> None:
    at = RULES[name].n_tensors
    ctx.save_for_backward(*RULES[name].keep(inputs, output), inputs[at])
    ctx.code, ctx.flags = inputs[at + 1], inputs[at + 2 :]


def _backward(name: str, ctx: Any, *grads: Any) -> tuple[Any, ...]:
    *kept, pairs = ctx.saved_tensors
    gradients = RULES[name].vjp(kept, _for_derivatives(pairs, ctx.code), ctx.flags, grads)
    return (*gradients, None, None, *(None for _ in ctx.flags))


def _vmap(name: str, info: Any, in_dims: Any, *arguments: Any) -> Any:
    at = RULES[name].n_tensors
    if in_dims[at] is not None:
        raise ArgumentError("vmap", "one wiring for all", "a batch of wirings", "try a loop over them")
    tensors, wiring, flags = arguments[:at], _for_derivatives(*arguments[at : at + 2]), arguments[at + 2 :]
    return vmap_rule(name, info, in_dims, *tensors, wiring, *flags)


_library = torch.library.Library("swallowtail", "DEF")
for _name, _schema in _SCHEMAS.items():
    _operator = f"swallowtail::{_name}"
    _library.define(_name + _schema)
    torch.library.impl(_library, _name, "CompositeExplicitAutograd")(partial(_run, _name))
    torch.library.register_fake(_operator, partial(_fake, _name), lib=_library)
    torch.library.register_autograd(
        _operator, partial(_backward, _name), setup_context=partial(_setup, _name), lib=_library
    )
    torch.library.register_vmap(_operator, partial(_vmap, _name), lib=_library)
