"""The torch.library operators behind `ops`, with their gradients: the only autograd code there is.

Shapes are the kernels': x (B, m, n), angles (B, K), eigenvalues (B, n). A wiring travels as two arguments:
Butterfly → (None, [0, n, depth, reverse]), Pairs → (pairs (K, 2), [1, n, *offsets]).
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch.utils._python_dispatch import _get_current_dispatch_mode

from swallowtail.kernels import PreparedCache, load, reference, select_backend
from swallowtail.wiring import Butterfly, Pairs, Wiring


def encode(wiring: Wiring) -> tuple[Tensor | None, list[int]]:
    return wiring.pairs_tensor, wiring.code


def _decode(pairs: Tensor | None, code: list[int]) -> Wiring:
    if pairs is None:
        return _butterfly(*code[1:])
    return Pairs.from_flat(code[1], pairs.cpu().numpy(), np.array(code[2:]))


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
_library.define(
    f"rotate_backward(Tensor y, Tensor grad, Tensor angles, {_WIRING}, bool transpose) -> (Tensor, Tensor)"
)
_library.define(f"symmetric(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor")
_library.define(f"quadratic(Tensor x, Tensor angles, Tensor eigenvalues, {_WIRING}) -> Tensor")


@torch.library.impl(_library, "rotate", "CompositeExplicitAutograd")
def _rotate_op(x: Tensor, angles: Tensor, pairs: Tensor | None, code: list[int], transpose: bool) -> Tensor:
    return load(select_backend(x)).rotate(_decode(pairs, code), angles, x, transpose)


@torch.library.impl(_library, "rotate_backward", "CompositeExplicitAutograd")
def _rotate_backward_op(
    y: Tensor,
    grad: Tensor,
    angles: Tensor,
    pairs: Tensor | None,
    code: list[int],
    transpose: bool,
) -> tuple[Tensor, Tensor]:
    return load(select_backend(y)).rotate_backward(_decode(pairs, code), angles, y, grad, transpose)


@torch.library.impl(_library, "symmetric", "CompositeExplicitAutograd")
def _symmetric_op(
    x: Tensor, angles: Tensor, eigenvalues: Tensor, pairs: Tensor | None, code: list[int]
) -> Tensor:
    return load(select_backend(x)).symmetric(_decode(pairs, code), angles, eigenvalues, x)


@torch.library.impl(_library, "quadratic", "CompositeExplicitAutograd")
def _quadratic_op(
    x: Tensor, angles: Tensor, eigenvalues: Tensor, pairs: Tensor | None, code: list[int]
) -> Tensor:
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
    grad_x, grad_angles = call("rotate_backward", y, grad, angles, pairs, ctx.code, ctx.transpose)
    return grad_x, grad_angles, None, None, None


def _keep_for_rotate_backward(ctx, inputs, output):
    y, grad, angles, pairs, ctx.code, ctx.transpose = inputs
    ctx.save_for_backward(y, grad, angles, pairs)


def _rotate_second_gradient(ctx, cotangent_x, cotangent_angles):
    y, grad, angles, pairs = ctx.saved_tensors
    wiring: Any = _decode(None, ctx.code) if pairs is None else _TensorPairs(pairs, ctx.code)
    gradients = reference.rotate_backward_vjp(
        wiring, angles, y, grad, ctx.transpose, cotangent_x, cotangent_angles
    )
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
    w, h = (call("rotate", z.to(angles.dtype), angles, *wiring, True) for z in (x, grad))
    grad_x, from_right = call("rotate_backward", w, d * h, angles, *wiring, True)
    _, from_left = call("rotate_backward", d * w, h, angles, *wiring, True)
    return grad_x.to(x.dtype), from_right - from_left, (w * h).sum(-2), None, None


def _quadratic_gradient(ctx, grad):
    x, angles, eigenvalues, pairs = ctx.saved_tensors
    wiring = (pairs, ctx.code)
    w = call("rotate", x.to(angles.dtype), angles, *wiring, True)
    half = grad.to(w.dtype)[..., None] * w  # q = Σ d w²: ∂q/∂d = w², ∂q/∂w = 2 d w
    grad_x, grad_angles = call("rotate_backward", w, 2 * eigenvalues[:, None] * half, angles, *wiring, True)
    return grad_x.to(x.dtype), grad_angles, (half * w).sum(-2), None, None


_GRADIENTS: dict[str, tuple[Any, Any]] = {
    "rotate": (_rotate_gradient, _keep_for_rotate),
    "rotate_backward": (_rotate_second_gradient, _keep_for_rotate_backward),
    "symmetric": (_symmetric_gradient, _keep_for_symmetric),
    "quadratic": (_quadratic_gradient, _keep_for_symmetric),
}
_KERNELS: dict[str, Any] = {
    "rotate": _rotate_op,
    "rotate_backward": _rotate_backward_op,
    "symmetric": _symmetric_op,
    "quadratic": _quadratic_op,
}
_N_TENSORS = {"rotate": 2, "rotate_backward": 3, "symmetric": 3, "quadratic": 3}  # before the wiring


def call(name: str, *arguments: Any) -> Any:
    """Run an operator with its gradient: registered for tracers, an autograd.Function for torch.func, and one of
    the older kind, a third of the others' overhead, in eager mode. Where no gradient is wanted, as in most backward
    passes, the kernel is called.
    """
    if _unwatched(*arguments):
        return _KERNELS[name](*arguments)
    if not _eager(*arguments):
        return getattr(torch.ops.swallowtail, name)(*arguments)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return _FUNCTIONS[name].apply(*arguments)
    return _EAGER[name].apply(*arguments)


def _unwatched(*arguments: Any) -> bool:
    """Whether only the numbers are wanted: no gradient of any kind, and nobody traces."""
    return (
        not torch.is_grad_enabled()
        and forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and _eager(*arguments)
    )


def _eager(*arguments: Any) -> bool:
    """Whether nobody traces this call: no compiler, no dispatch mode, no tensor of a class of its own."""
    if torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None:
        return False
    return all(type(a) is Tensor or type(a) is Parameter or not isinstance(a, Tensor) for a in arguments)


def _vmap_rule(name: str) -> Any:
    n_tensors = _N_TENSORS[name]

    def rule(info, in_dims, *arguments):
        size = info.batch_size
        if in_dims[n_tensors] is not None:
            raise ValueError(
                "vmap: expected one wiring for all, got a batch of wirings; try a loop over them"
            )
        folded = [_fold(size, t, dim) for t, dim in zip(arguments[:n_tensors], in_dims, strict=False)]
        out = call(name, *folded, *arguments[n_tensors:])
        if isinstance(out, Tensor):
            return out.unflatten(0, (size, out.shape[0] // size)), 0
        return tuple(o.unflatten(0, (size, o.shape[0] // size)) for o in out), (0,) * len(out)

    return rule


def _fold(size: int, tensor: Tensor, dim: int | None) -> Tensor:
    """Fold a vmapped axis into the leading B."""
    tensor = tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)
    return tensor.flatten(0, 1)


def _function(name: str) -> Any:
    """The form torch.func takes."""
    gradient, keep = _GRADIENTS[name]
    members = {
        "forward": staticmethod(partial(call, name)),
        "setup_context": staticmethod(keep),
        "backward": staticmethod(gradient),
        "vmap": staticmethod(_vmap_rule(name)),
    }
    return type(f"_{name}", (torch.autograd.Function,), members)


def _eager_function(name: str) -> Any:
    gradient, keep = _GRADIENTS[name]

    def forward(ctx, *arguments):
        output = _KERNELS[name](*arguments)
        keep(ctx, arguments, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(gradient)}
    return type(f"_eager_{name}", (torch.autograd.Function,), members)


class _OneRotation(torch.autograd.Function):
    """Q x for x (*batch, n) and one set of angles (K,), as `call("rotate", …)` but with fewer nodes in the graph: at
    n = 1024 reshaping outside would cost as much as rotating a hundred vectors.
    """

    @staticmethod
    def forward(ctx, x, angles, wiring, transpose, cache):
        name, ctx.wiring, ctx.transpose = select_backend(x), wiring, transpose
        ctx.on_cpu, ctx.backend, ctx.prepared = name == "cpu", load(name), {}
        if ctx.on_cpu and cache is not None:
            ctx.prepared = {"prepared": cache.for_training(wiring, angles, x)}
        elif name != "reference":
            ctx.prepared = {"prepared": ctx.backend.prepare_training(wiring, angles[None], x)}
        if ctx.on_cpu:  # takes vectors of any shape, and rotates ten in the time a view takes
            y = ctx.backend.rotate(wiring, angles, x, transpose, **ctx.prepared)
        else:
            rows = x.reshape(1, -1, wiring.n)
            y = ctx.backend.rotate(wiring, angles[None], rows, transpose, **ctx.prepared).view(x.shape)
        ctx.save_for_backward(y, angles)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, angles = ctx.saved_tensors
        wiring, transpose, backward = ctx.wiring, ctx.transpose, ctx.backend.rotate_backward
        unwatched = _unwatched(y, grad, angles)
        if unwatched and ctx.on_cpu:
            return *backward(wiring, angles, y, grad, transpose, **ctx.prepared), None, None, None
        rows = (1, -1, wiring.n)
        y, grad_rows, angles = y.view(rows), grad.reshape(rows), angles[None]
        if unwatched:
            grad_x, grad_angles = backward(wiring, angles, y, grad_rows, transpose, **ctx.prepared)
        else:
            grad_x, grad_angles = call("rotate_backward", y, grad_rows, angles, *encode(wiring), transpose)
        return grad_x.view(grad.shape), grad_angles[0], None, None, None


def rotate_simply(
    x: Tensor, angles: Tensor, wiring: Wiring, transpose: bool, cache: PreparedCache | None
) -> Tensor | None:
    """The shortest way to a differentiable Q x in eager mode; None where the case is not the simplest one."""
    if (
        not isinstance(x, Tensor)
        or not isinstance(angles, Tensor)
        or angles.ndim != 1
        or x.dtype is not angles.dtype
        or x.dtype not in (torch.float32, torch.float64)
        or x.device != angles.device
        or x.shape[-1:] != (wiring.n,)
        or len(angles) != wiring.n_rotations
        or not x.numel()
        or not _eager(x, angles)
        or torch._C._functorch.peek_interpreter_stack() is not None
    ):
        return None
    return _OneRotation.apply(x, angles, wiring, transpose, cache)


_EAGER = {name: _eager_function(name) for name in _GRADIENTS}
_FUNCTIONS = {name: _function(name) for name in _GRADIENTS}
for _name, (_gradient, _keep) in _GRADIENTS.items():
    torch.library.register_autograd(f"swallowtail::{_name}", _gradient, setup_context=_keep, lib=_library)
    torch.library.register_vmap(f"swallowtail::{_name}", _vmap_rule(_name), lib=_library)
