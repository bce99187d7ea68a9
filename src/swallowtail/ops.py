"""Differentiable Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x: the only autograd code, above all back ends.

Vectors lie on the last axis. Calls that need no gradient go straight to the kernel; the others go through
``torch.library`` operators, which is what autograd, ``torch.func``, ``torch.compile`` and ``torch.export`` see.
Backward passes rebuild activations by running the rotation the other way: they store none.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from swallowtail import _checks
from swallowtail.kernels import PreparedCache, load, reference, select_backend
from swallowtail.wiring import Butterfly, Pairs, Wiring

_HALF = (torch.float16, torch.bfloat16)


def rotate(x: Tensor, wiring: Wiring, angles: Tensor, *, cache: PreparedCache | None = None) -> Tensor:
    """Q x for vectors on the last axis.

    Args:
        x: shape (*batch, n).
        wiring: who meets whom.
        angles: shape (*batch, K) with leading axes that broadcast against those of x, or just (K,).
        cache: where to keep coefficients between calls that need no gradient.

    Returns:
        Shape (*batch, n). Half-precision x keeps its dtype (arithmetic is float32); otherwise dtypes promote.
    """
    return _rotate(x, wiring, angles, False, cache)


def rotate_transpose(x: Tensor, wiring: Wiring, angles: Tensor, *, cache: PreparedCache | None = None) -> Tensor:
    """Qᵀ x for vectors on the last axis; arguments as in `rotate`."""
    return _rotate(x, wiring, angles, True, cache)


def symmetric_matvec(
    x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """Q D Qᵀ x in one pass; ``eigenvalues`` (*batch, n) is the diagonal of D. Returns shape (*batch, n)."""
    direct = _direct(x, angles, eigenvalues)
    if direct and cache is not None and (run := cache.bound("symmetric", x, wiring, angles, eigenvalues)):
        return run(x)
    x3, (angles2, d2), shape = _canonical(x, wiring, angles, eigenvalues)
    if direct:
        name = select_backend(x)
        prepared = _prepared(cache, name, wiring, angles2, d2)
        y = load(name).symmetric(wiring, angles2, d2, x3, **prepared)
    else:
        y = _call("symmetric", x3, angles2, d2, *_encode(wiring))
    return y.reshape(*shape, wiring.n)


def quadratic_form(
    x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, *, cache: PreparedCache | None = None
) -> Tensor:
    """xᵀ Q D Qᵀ x, one number a vector, at about half the cost of the product. Returns shape (*batch,)."""
    x3, (angles2, d2), shape = _canonical(x, wiring, angles, eigenvalues)
    if _direct(x, angles, eigenvalues):
        name = select_backend(x)
        prepared = _prepared(cache, name, wiring, angles2, d2)
        q = load(name).quadratic(wiring, angles2, d2, x3, **prepared)
    else:
        q = _call("quadratic", x3, angles2, d2, *_encode(wiring))
    return q.reshape(shape)


def _rotate(x: Tensor, wiring: Wiring, angles: Tensor, transpose: bool, cache: PreparedCache | None) -> Tensor:
    direct = _direct(x, angles)
    if direct and cache is not None and (run := cache.bound("down" if transpose else "up", x, wiring, angles)):
        return run(x)
    x3, (angles2,), shape = _canonical(x, wiring, angles)
    if direct:
        name = select_backend(x)
        prepared = _prepared(cache, name, wiring, angles2, None)
        y = load(name).rotate(wiring, angles2, x3, transpose, **prepared)
    else:
        y = _call("rotate", x3, angles2, *_encode(wiring), transpose)
    return y.reshape(*shape, wiring.n)


def _prepared(
    cache: PreparedCache | None, name: str, wiring: Wiring, angles: Tensor, eigenvalues: Tensor | None
) -> dict[str, Any]:
    if cache is None or name == "reference":
        return {}
    return {"prepared": cache.get(name, wiring, angles, eigenvalues)}


def _direct(*tensors: Tensor) -> bool:
    """Whether no transformation, tracer or gradient is watching these tensors."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    grad, forward_mode = torch.is_grad_enabled(), forward_ad._current_level >= 0
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not torch.nn.Parameter) or forward_mode or (grad and tensor.requires_grad):
            return False
    return True


def _canonical(x: Tensor, wiring: Wiring, angles: Tensor, *diagonals: Tensor) -> tuple[Tensor, list[Tensor], torch.Size]:
    """Check, promote and reshape to x (B, m, n), angles (B, K), eigenvalues (B, n); also the batch shape."""
    for name, tensor in zip(("x", "angles", "eigenvalues"), (x, angles, *diagonals), strict=False):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a torch tensor, got {type(tensor).__name__}; try torch.as_tensor(...)")
        _checks.real_dtype(name, tensor.dtype)
        size, what = (wiring.n_rotations, "the wiring's K") if name == "angles" else (wiring.n, "n")
        _checks.last_axis(name, tensor, size, what)
        if tensor.device != x.device:
            _checks.same_device(x=x, **{name: tensor})
    dtype = torch.float32 if x.dtype in _HALF else x.dtype
    for tensor in (angles, *diagonals):
        if x.dtype not in _HALF:
            dtype = torch.promote_types(dtype, tensor.dtype)
    parameters = [t.to(dtype) for t in (angles, *diagonals)]
    x = x if x.dtype in _HALF else x.to(dtype)

    batch = torch.broadcast_shapes(*(t.shape[:-1] for t in parameters))
    if math.prod(batch) == 1 and len(batch) < max(x.ndim, 2):
        return x.reshape(1, x.shape[:-1].numel(), wiring.n), [t.reshape(1, t.shape[-1]) for t in parameters], x.shape[:-1]
    shape = torch.broadcast_shapes(batch, x.shape[:-1])
    batch = (1,) * (len(shape) - len(batch)) + tuple(batch)
    n_own = max((i + 1 for i, size in enumerate(batch) if size != 1), default=0)  # axes with parameters of their own
    b, m = math.prod(shape[:n_own]), math.prod(shape[n_own:])
    x = x.expand(*shape, wiring.n).reshape(b, m, wiring.n)
    keep = shape[:n_own]
    parameters = [_own_axes(t, len(shape), n_own).expand(*keep, t.shape[-1]).reshape(b, t.shape[-1]) for t in parameters]
    return x, parameters, torch.Size(shape)


def _own_axes(parameter: Tensor, n_axes: int, n_own: int) -> Tensor:
    """Drop the broadcast axes behind the first ``n_own`` of ``n_axes`` batch axes."""
    lead = (1,) * (n_axes + 1 - parameter.ndim) + tuple(parameter.shape)
    return parameter.reshape(*lead[:n_own], lead[-1])


# A wiring as operator arguments: Butterfly → (None, [0, n, depth, reverse]); Pairs → (pairs, [1, n, *offsets]).


def _encode(wiring: Wiring) -> tuple[Tensor | None, list[int]]:
    return wiring.pairs_tensor, wiring.code


def _decode(pairs: Tensor | None, code: list[int]) -> Wiring:
    if pairs is None:
        return _butterfly(*code[1:])
    return Pairs.from_flat(code[1], pairs.cpu().numpy(), code[2:])


class _TensorPairs:
    """What `reference` asks of a wiring, with pairs that may be tracers and have no values."""

    def __init__(self, pairs: Tensor, code: list[int]) -> None:
        self.n, self.offsets, self.n_layers, self._pairs = code[1], code[2:], len(code) - 3, pairs

    def layer(self, index: int) -> Tensor:
        return self._pairs[self.offsets[index] : self.offsets[index + 1]]


@lru_cache(maxsize=256)
def _butterfly(n: int, depth: int, reverse: int) -> Butterfly:
    return Butterfly(n, depth, reverse=bool(reverse))


_library = torch.library.Library("swallowtail", "DEF")
_WIRING = "Tensor? pairs, int[] code"
_library.define(f"rotate(Tensor x, Tensor angles, {_WIRING}, bool transpose) -> Tensor")
_library.define(f"rotate_backward(Tensor y, Tensor grad, Tensor angles, {_WIRING}, bool transpose) -> (Tensor, Tensor)")
_library.define(f"symmetric(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor")
_library.define(f"quadratic(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor")


@torch.library.impl(_library, "rotate", "CompositeExplicitAutograd")
def _rotate_op(x: Tensor, angles: Tensor, pairs: Tensor | None, code: list[int], transpose: bool) -> Tensor:
    return load(select_backend(x)).rotate(_decode(pairs, code), angles, x, transpose)


@torch.library.impl(_library, "rotate_backward", "CompositeExplicitAutograd")
def _rotate_backward_op(
    y: Tensor, grad: Tensor, angles: Tensor, pairs: Tensor | None, code: list[int], transpose: bool
) -> tuple[Tensor, Tensor]:
    return load(select_backend(y)).rotate_backward(_decode(pairs, code), angles, y, grad, transpose)


@torch.library.impl(_library, "symmetric", "CompositeExplicitAutograd")
def _symmetric_op(x: Tensor, angles: Tensor, eigenvalues: Tensor, pairs: Tensor | None, code: list[int]) -> Tensor:
    return load(select_backend(x)).symmetric(_decode(pairs, code), angles, eigenvalues, x)


@torch.library.impl(_library, "quadratic", "CompositeExplicitAutograd")
def _quadratic_op(x: Tensor, angles: Tensor, eigenvalues: Tensor, pairs: Tensor | None, code: list[int]) -> Tensor:
    return load(select_backend(x)).quadratic(_decode(pairs, code), angles, eigenvalues, x)


@torch.library.register_fake("swallowtail::rotate", lib=_library)
def _(x, angles, pairs, code, transpose):
    return x.new_empty(x.shape)


@torch.library.register_fake("swallowtail::rotate_backward", lib=_library)
def _(y, grad, angles, pairs, code, transpose):
    return grad.new_empty(grad.shape), angles.new_empty(angles.shape)


@torch.library.register_fake("swallowtail::symmetric", lib=_library)
def _(x, angles, eigenvalues, pairs, code):
    return x.new_empty(x.shape)


@torch.library.register_fake("swallowtail::quadratic", lib=_library)
def _(x, angles, eigenvalues, pairs, code):
    return x.new_empty(x.shape[:2])


def _keep_for_rotate(ctx, inputs, output):
    _, angles, pairs, ctx.code, ctx.transpose = inputs
    ctx.save_for_backward(output, angles, pairs)


def _rotate_gradient(ctx, grad):
    y, angles, pairs = ctx.saved_tensors
    grad_x, grad_angles = _call("rotate_backward", y, grad, angles, pairs, ctx.code, ctx.transpose)
    return grad_x, grad_angles, None, None, None


def _keep_for_rotate_backward(ctx, inputs, output):
    y, grad, angles, pairs, ctx.code, ctx.transpose = inputs
    ctx.save_for_backward(y, grad, angles, pairs)


def _rotate_second_gradient(ctx, cotangent_x, cotangent_angles):
    y, grad, angles, pairs = ctx.saved_tensors
    wiring = _decode(None, ctx.code) if pairs is None else _TensorPairs(pairs, ctx.code)
    gradients = reference.rotate_backward_vjp(wiring, angles, y, grad, ctx.transpose, cotangent_x, cotangent_angles)
    return *gradients, None, None, None


def _keep_for_symmetric(ctx, inputs, output):
    x, angles, eigenvalues, pairs, ctx.code = inputs
    ctx.save_for_backward(x, angles, eigenvalues, pairs)


def _symmetric_gradient(ctx, grad):
    x, angles, eigenvalues, pairs = ctx.saved_tensors
    wiring = (pairs, ctx.code)
    d = eigenvalues[:, None]
    # y = Q D w with w = Qᵀx. D's gradient is Σ w h with h = Qᵀ grad. Wedge products do not change when both
    # vectors are rotated, so each half's angle gradient can be taken walking up from the middle.
    w, h = (_call("rotate", z.to(angles.dtype), angles, *wiring, True) for z in (x, grad))
    grad_x, from_right = _call("rotate_backward", w, d * h, angles, *wiring, True)
    _, from_left = _call("rotate_backward", d * w, h, angles, *wiring, True)
    return grad_x.to(x.dtype), from_right - from_left, (w * h).sum(-2), None, None


def _quadratic_gradient(ctx, grad):
    x, angles, eigenvalues, pairs = ctx.saved_tensors
    wiring = (pairs, ctx.code)
    w = _call("rotate", x.to(angles.dtype), angles, *wiring, True)
    half = grad.to(w.dtype)[..., None] * w  # q = Σ d w²: ∂q/∂d = w², ∂q/∂w = 2 d w
    grad_x, grad_angles = _call("rotate_backward", w, 2 * eigenvalues[:, None] * half, angles, *wiring, True)
    return grad_x.to(x.dtype), grad_angles, (half * w).sum(-2), None, None


_GRADIENTS = {
    "rotate": (_rotate_gradient, _keep_for_rotate),
    "rotate_backward": (_rotate_second_gradient, _keep_for_rotate_backward),
    "symmetric": (_symmetric_gradient, _keep_for_symmetric),
    "quadratic": (_quadratic_gradient, _keep_for_symmetric),
}
_N_TENSORS = {"rotate": 2, "rotate_backward": 3, "symmetric": 3, "quadratic": 3}  # before the wiring


def _call(name: str, *arguments: Any) -> Any:
    """The operator; under torch.func, which operators registered with autograd do not support, its Function."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return _FUNCTIONS[name].apply(*arguments)
    return getattr(torch.ops.swallowtail, name)(*arguments)


def _vmap_rule(name: str) -> Any:
    n_tensors = _N_TENSORS[name]

    def rule(info, in_dims, *arguments):
        size = info.batch_size
        if in_dims[n_tensors] is not None:
            raise ValueError("vmap: expected one wiring for all, got a batch of wirings; try a loop over them")
        folded = [_fold(size, t, dim) for t, dim in zip(arguments[:n_tensors], in_dims, strict=False)]
        out = _call(name, *folded, *arguments[n_tensors:])
        if isinstance(out, Tensor):
            return out.unflatten(0, (size, out.shape[0] // size)), 0
        return tuple(o.unflatten(0, (size, o.shape[0] // size)) for o in out), (0,) * len(out)

    return rule


def _fold(size: int, tensor: Tensor, dim: int | None) -> Tensor:
    """Fold a vmapped axis into the leading B."""
    tensor = tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)
    return tensor.flatten(0, 1)


def _function(name: str) -> Any:
    gradient, keep = _GRADIENTS[name]
    members = {
        "forward": staticmethod(lambda *arguments: _call(name, *arguments)),
        "setup_context": staticmethod(keep),
        "backward": staticmethod(gradient),
        "vmap": staticmethod(_vmap_rule(name)),
    }
    return type(f"_{name}", (torch.autograd.Function,), members)


_FUNCTIONS = {name: _function(name) for name in _GRADIENTS}
for _name, (_gradient, _keep) in _GRADIENTS.items():
    torch.library.register_autograd(f"swallowtail::{_name}", _gradient, setup_context=_keep, lib=_library)
    torch.library.register_vmap(f"swallowtail::{_name}", _vmap_rule(_name), lib=_library)
