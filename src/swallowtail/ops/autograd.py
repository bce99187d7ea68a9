"""Derivatives of Q x, Q D Qᵀ x and xᵀ Q D Qᵀ x, written once for all back ends and all ways of differentiating.

Shapes are the kernels': x (B, m, n), angles (B, K), eigenvalues (B, n). There are four functions. Each takes its
tensors first, then the wiring, then flags:

    rotate(x, angles, wiring, transpose)                   Q x, or Qᵀ x
    rotate_backward(y, grad, angles, wiring, transpose)    the gradients of ⟨grad, Q x⟩ for x and the angles
    symmetric(x, angles, eigenvalues, wiring)              Q D Qᵀ x
    quadratic(x, angles, eigenvalues, wiring)              xᵀ Q D Qᵀ x

A name that ends in ``_t`` is a tangent: x_t is that of x. None stands for a tangent that is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swallowtail.kernels import reference
from swallowtail.ops import run
from swallowtail.ops.route import EAGER, KERNEL, TRANSFORMED, Route, route
from swallowtail.ops.torch_private import n_forward_levels
from swallowtail.wiring import Wiring


class Rules(NamedTuple):
    """One of the four functions."""

    n_tensors: int  # its arguments before the wiring
    run: Callable[..., Any]  # the numbers, by the kernel of the back end in charge
    plain: Callable[..., Any]  # the same by plain PyTorch operations, which anything can differentiate
    keep: Callable[..., tuple[Tensor, ...]]  # (arguments, output) ↦ the tensors that ``vjp`` wants
    # (kept, wiring, flags, outputs' gradients) ↦ the tensors' gradients.
    vjp: Callable[..., tuple[Tensor, ...]]
    jvp: Callable[..., Any]  # (arguments, the tensors' tangents) ↦ the outputs' tangents


def apply(how: Route, name: str, *arguments: Any) -> Any:
    """Run one of the four functions so that whoever is watching sees it."""
    if how is KERNEL:
        return RULES[name].run(*arguments)
    if how is EAGER:
        return _EAGER[name].apply(*arguments)
    if how is TRANSFORMED:
        # PyTorch loses derivatives of the jvp rule of an autograd.Function when jvp is nested in jvp.
        return (RULES[name].plain if n_forward_levels() > 1 else _TRANSFORMED[name].apply)(*arguments)
    at = RULES[name].n_tensors
    return getattr(torch.ops.swallowtail, name)(*arguments[:at], arguments[at].encoded, *arguments[at + 1 :])


def _call(name: str, *arguments: Any) -> Any:
    """The same from within a derivative, whose own tensors say who is watching now."""
    return apply(route(*arguments[: RULES[name].n_tensors]), name, *arguments)


# rotate


def _plain_rotate(x: Tensor, angles: Tensor, wiring: Wiring, transpose: bool) -> Any:
    return reference.rotate(wiring, angles, x, transpose)


def _rotate_vjp(kept: Any, wiring: Wiring, flags: Any, grads: Any) -> tuple[Tensor, ...]:
    y, angles = kept
    return _call("rotate_backward", y, grads[0], angles, wiring, *flags)


def _rotate_tangent(
    x: Tensor, x_t: Tensor | None, angles: Tensor, angles_t: Tensor | None, wiring: Wiring, transpose: bool
) -> Tensor:
    """Without a tangent of the angles Q x is linear: a kernel does it. With one, layers are walked one by one."""
    if angles_t is None:
        return _call("rotate", torch.zeros_like(x) if x_t is None else x_t, angles, wiring, transpose)
    return reference.rotate_jvp(wiring, angles, x, transpose, angles_t, x_t)


def _rotate_jvp(arguments: Any, tangents: Any) -> Tensor:
    x, angles, wiring, transpose = arguments
    return _rotate_tangent(x, tangents[0], angles, tangents[1], wiring, transpose)


# rotate_backward


def _plain_backward(y: Tensor, grad: Tensor, angles: Tensor, wiring: Wiring, transpose: bool) -> Any:
    return reference.rotate_backward(wiring, angles, y, grad, transpose)


def _backward_vjp(kept: Any, wiring: Wiring, flags: Any, grads: Any) -> tuple[Tensor, ...]:
    y, grad, angles = kept
    cotangents = (torch.zeros_like(z) if g is None else g for z, g in zip((grad, angles), grads, strict=True))
    return reference.rotate_backward_vjp(wiring, angles, y, grad, *flags, *cotangents)


def _backward_jvp(arguments: Any, tangents: Any) -> tuple[Tensor, Tensor]:
    y, grad, angles, wiring, transpose = arguments
    return reference.rotate_backward_jvp(wiring, angles, y, grad, transpose, *tangents)


# symmetric


def _plain_symmetric(x: Tensor, angles: Tensor, eigenvalues: Tensor, wiring: Wiring) -> Any:
    return reference.symmetric(wiring, angles, eigenvalues, x)


def _symmetric_vjp(kept: Any, wiring: Wiring, flags: Any, grads: Any) -> tuple[Tensor, ...]:
    x, angles, eigenvalues = kept
    d = eigenvalues[:, None]
    # y = Q D w with w = Qᵀx. D's gradient is Σ w h with h = Qᵀ grad. Wedge products do not change when both
    # vectors are rotated, so the angle gradient of each half can be taken on the way from the middle.
    w, h = (_call("rotate", z.to(angles.dtype), angles, wiring, True) for z in (x, grads[0]))
    grad_x, from_right = _call("rotate_backward", w, d * h, angles, wiring, True)
    _, from_left = _call("rotate_backward", d * w, h, angles, wiring, True)
    return grad_x.to(x.dtype), from_right - from_left, (w * h).sum(-2)


def _symmetric_jvp(arguments: Any, tangents: Any) -> Tensor:
    x, angles, eigenvalues, wiring = arguments
    x_t, angles_t, eigenvalues_t = tangents
    d, x, x_t = eigenvalues[:, None], x.to(angles.dtype), None if x_t is None else x_t.to(angles.dtype)
    w, w_t = (
        _call("rotate", x, angles, wiring, True),
        _rotate_tangent(x, x_t, angles, angles_t, wiring, True),
    )
    z_t = d * w_t if eigenvalues_t is None else d * w_t + eigenvalues_t[:, None] * w
    return _rotate_tangent(d * w, z_t, angles, angles_t, wiring, False).to(arguments[0].dtype)


# quadratic


def _plain_quadratic(x: Tensor, angles: Tensor, eigenvalues: Tensor, wiring: Wiring) -> Any:
    return reference.quadratic(wiring, angles, eigenvalues, x)


def _quadratic_vjp(kept: Any, wiring: Wiring, flags: Any, grads: Any) -> tuple[Tensor, ...]:
    x, angles, eigenvalues = kept
    w = _call("rotate", x.to(angles.dtype), angles, wiring, True)
    half = grads[0].to(w.dtype)[..., None] * w  # q = Σ d w²: ∂q/∂d = w², ∂q/∂w = 2 d w
    grad_x, grad_angles = _call("rotate_backward", w, 2 * eigenvalues[:, None] * half, angles, wiring, True)
    return grad_x.to(x.dtype), grad_angles, (half * w).sum(-2)


def _quadratic_jvp(arguments: Any, tangents: Any) -> Tensor:
    x, angles, eigenvalues, wiring = arguments
    x_t, angles_t, eigenvalues_t = tangents
    x, x_t = x.to(angles.dtype), None if x_t is None else x_t.to(angles.dtype)
    w = _call("rotate", x, angles, wiring, True)
    total = 2 * eigenvalues[:, None] * w * _rotate_tangent(x, x_t, angles, angles_t, wiring, True)
    if eigenvalues_t is not None:
        total = total + eigenvalues_t[:, None] * w * w
    return total.sum(-1).to(arguments[0].dtype)


RULES = {
    "rotate": Rules(
        n_tensors=2,
        run=run.rotate,
        plain=_plain_rotate,
        keep=lambda arguments, y: (y, arguments[1]),
        vjp=_rotate_vjp,
        jvp=_rotate_jvp,
    ),
    "rotate_backward": Rules(
        n_tensors=3,
        run=run.rotate_backward,
        plain=_plain_backward,
        keep=lambda arguments, _: arguments[:3],
        vjp=_backward_vjp,
        jvp=_backward_jvp,
    ),
    "symmetric": Rules(
        n_tensors=3,
        run=run.symmetric,
        plain=_plain_symmetric,
        keep=lambda arguments, _: arguments[:3],
        vjp=_symmetric_vjp,
        jvp=_symmetric_jvp,
    ),
    "quadratic": Rules(
        n_tensors=3,
        run=run.quadratic,
        plain=_plain_quadratic,
        keep=lambda arguments, _: arguments[:3],
        vjp=_quadratic_vjp,
        jvp=_quadratic_jvp,
    ),
}


# The ways to a derivative


def setup(name: str, ctx: Any, inputs: Any, output: Any) -> None:
    at = RULES[name].n_tensors
    ctx.save_for_backward(*RULES[name].keep(inputs, output))
    ctx.wiring, ctx.flags = inputs[at], inputs[at + 1 :]


def _setup_transformed(name: str, ctx: Any, inputs: Any, output: Any) -> None:
    setup(name, ctx, inputs, output)
    ctx.set_materialize_grads(False)  # a tangent that is zero comes as None
    ctx.save_for_forward(*inputs[: RULES[name].n_tensors])


def _backward(name: str, ctx: Any, *grads: Any) -> tuple[Any, ...]:
    grads = tuple(grad if grad is None else grad.resolve_neg() for grad in grads)
    gradients = RULES[name].vjp(ctx.saved_tensors, ctx.wiring, ctx.flags, grads)
    return (*gradients, None, *(None for _ in ctx.flags))


def _jvp(name: str, ctx: Any, *tangents: Any) -> Any:
    arguments = (*ctx.saved_tensors, ctx.wiring, *ctx.flags)
    return RULES[name].jvp(arguments, tangents[: RULES[name].n_tensors])


def vmap_rule(name: str, info: Any, in_dims: Any, *arguments: Any) -> Any:
    """Fold the mapped axis into B, the number of rotations."""
    size, at = info.batch_size, RULES[name].n_tensors
    folded = [_fold(size, t, dim) for t, dim in zip(arguments[:at], in_dims, strict=False)]
    out = _call(name, *folded, *arguments[at:])
    if isinstance(out, Tensor):
        return out.unflatten(0, (size, out.shape[0] // size)), 0
    return tuple(o.unflatten(0, (size, o.shape[0] // size)) for o in out), (0,) * len(out)


def _fold(size: int, tensor: Tensor, dim: int | None) -> Tensor:
    tensor = tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)
    return tensor.flatten(0, 1)


def _transformed(name: str) -> Any:
    """The kind of autograd.Function that torch.func and forward mode take: with a ``setup_context``."""
    members = {
        "forward": partial(_call, name),
        "setup_context": partial(_setup_transformed, name),
        "backward": partial(_backward, name),
        "jvp": partial(_jvp, name),
        "vmap": partial(vmap_rule, name),
    }
    return type(f"_{name}", (torch.autograd.Function,), {k: staticmethod(f) for k, f in members.items()})


def _eager(name: str) -> Any:
    """The older kind of autograd.Function, without a ``setup_context``: it has a third of the overhead."""

    def forward(ctx: Any, *arguments: Any) -> Any:
        output = RULES[name].run(*arguments)
        setup(name, ctx, arguments, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(partial(_backward, name))}
    return type(f"_eager_{name}", (torch.autograd.Function,), members)


_EAGER = {name: _eager(name) for name in RULES}
_TRANSFORMED = {name: _transformed(name) for name in RULES}
