"""The specification: what every back end must compute, in plain differentiable PyTorch.

Shapes are those of all back ends: x (B, m, n), angles (B, K), eigenvalues (B, n); B is the number of
rotations that share one wiring, m the number of vectors each of them acts on.
"""

from __future__ import annotations

import torch

from swallowtail import checks
from swallowtail.kernels import scaled
from swallowtail.wiring import Wiring


def rotate(
    wiring: Wiring, angles: torch.Tensor, x: torch.Tensor, transpose: bool = False, prepared: None = None
) -> torch.Tensor:
    """Q x, or Qᵀ x: on every pair (i, j) of a layer, [[c, −s], [s, c]] or its transpose."""
    return scaled.rotate(_layers(wiring, angles), _arithmetic(x), transpose).to(x.dtype)


def symmetric(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: None = None
) -> torch.Tensor:
    """Q D Qᵀ x."""
    d = _arithmetic(eigenvalues)
    return scaled.symmetric(_layers(wiring, angles), d, _arithmetic(x)).to(x.dtype)


def quadratic(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: None = None
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, one number per vector: it stops halfway. Shape (B, m)."""
    d = _arithmetic(eigenvalues)
    return scaled.quadratic(_layers(wiring, angles), d, _arithmetic(x)).to(x.dtype)


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ with respect to x and the angles, given the output y = Q x.

    d(Gx)/dθ = J G x with J = [[0, −1], [1, 0]], so an angle's gradient is the wedge product
    g_j y_i − g_i y_j after its rotation. Walking back, y gives up each layer's input again:
    nothing was stored on the way forward.
    """
    storage, y, grad, angles = y.dtype, _arithmetic(y), _arithmetic(grad), _arithmetic(angles)
    grad_angles = torch.empty_like(angles)
    # Vectors near 1 keep their digits. The wedge products, which are summed, have one power of two in common.
    a, common = scaled.outer_exponents(y, grad)
    b = scaled.row_exponents(grad)
    weight = scaled.shift(torch.ones_like(grad[..., :1]), a + b - common)
    y, grad = scaled.shift(y, -a), scaled.shift(grad, -b)
    for index in reversed(range(wiring.n_layers)) if transpose else range(wiring.n_layers):
        i, j = _indices(wiring, index, y.device)
        wedge = (weight * _wedge(y, grad, i, j)).sum(-2)
        grad_angles[:, wiring.offsets[index] : wiring.offsets[index + 1]] = -wedge if transpose else wedge
        y = _rotate_layer(wiring, index, angles, y, not transpose)
        grad = _rotate_layer(wiring, index, angles, grad, not transpose)
    return scaled.shift(grad, b).to(storage), scaled.shift(grad_angles, common[:, 0])


def rotate_backward_vjp(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool,
    cotangent_x: torch.Tensor,
    cotangent_angles: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Second derivatives: the gradients of `rotate_backward` with respect to y, grad and angles.

    `rotate_backward` walks (y, g) one way; this walks them, and their adjoints (ȳ, ḡ), the other way. It is
    made of differentiable operations, so it gives third and higher derivatives too.
    """
    dtypes, y, g, angles = (y.dtype, grad.dtype), _arithmetic(y), _arithmetic(grad), _arithmetic(angles)
    y, g = (rotate(wiring, angles, z, not transpose) for z in (y, g))
    adjoint_y, adjoint_g = torch.zeros_like(y), _arithmetic(cotangent_x)
    sign = -1.0 if transpose else 1.0
    grads: list[torch.Tensor] = [angles[:, :0]] * wiring.n_layers
    for index in range(wiring.n_layers) if transpose else reversed(range(wiring.n_layers)):
        i, j = _indices(wiring, index, y.device)
        # y ← Gᵀy was the step (G for the transpose); its adjoint's wedge is the angle's gradient.
        wedge = _wedge(y, adjoint_y, i, j) + _wedge(g, adjoint_g, i, j)
        grads[index] = -sign * wedge.sum(-2)
        y, g, adjoint_y, adjoint_g = (
            _rotate_layer(wiring, index, angles, z, transpose) for z in (y, g, adjoint_y, adjoint_g)
        )
        v = sign * cotangent_angles[:, None, wiring.offsets[index] : wiring.offsets[index + 1]]
        adjoint_y = adjoint_y.index_add(-1, i, v * g[..., j]).index_add(-1, j, -v * g[..., i])
        adjoint_g = adjoint_g.index_add(-1, j, v * y[..., i]).index_add(-1, i, -v * y[..., j])
    grad_angles = torch.cat(grads, -1) if grads else torch.zeros_like(angles)
    return adjoint_y.to(dtypes[0]), adjoint_g.to(dtypes[1]), grad_angles


def rotate_jvp(
    wiring: Wiring,
    angles: torch.Tensor,
    x: torch.Tensor,
    transpose: bool,
    angles_t: torch.Tensor,
    x_t: torch.Tensor | None,
) -> torch.Tensor:
    """Forward mode: the tangent of `rotate`, given those of the angles and of x (None: zero)."""
    storage, x, angles, angles_t = x.dtype, _arithmetic(x), _arithmetic(angles), _arithmetic(angles_t)
    x_t = torch.zeros_like(x) if x_t is None else _arithmetic(x_t)
    for index in range(wiring.n_layers) if transpose else reversed(range(wiring.n_layers)):
        x, x_t = _rotate_layer_jvp(wiring, index, angles, x, transpose, angles_t, x_t)
    return x_t.to(storage)


def rotate_backward_jvp(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool,
    y_t: torch.Tensor | None,
    grad_t: torch.Tensor | None,
    angles_t: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Forward over reverse: the tangents of both results of `rotate_backward`. None stands for zero."""
    storage, y, grad, angles = y.dtype, _arithmetic(y), _arithmetic(grad), _arithmetic(angles)
    y_t, grad_t, angles_t = (
        torch.zeros_like(z) if t is None else _arithmetic(t)
        for z, t in ((y, y_t), (grad, grad_t), (angles, angles_t))
    )
    sign = -1.0 if transpose else 1.0
    tangents: list[torch.Tensor] = [angles[:, :0]] * wiring.n_layers
    for index in reversed(range(wiring.n_layers)) if transpose else range(wiring.n_layers):
        i, j = _indices(wiring, index, y.device)
        tangents[index] = sign * (_wedge(y_t, grad, i, j) + _wedge(y, grad_t, i, j)).sum(-2)
        y, y_t = _rotate_layer_jvp(wiring, index, angles, y, not transpose, angles_t, y_t)
        grad, grad_t = _rotate_layer_jvp(wiring, index, angles, grad, not transpose, angles_t, grad_t)
    return grad_t.to(storage), torch.cat(tangents, -1) if tangents else torch.zeros_like(angles)


def _rotate_layer_jvp(
    wiring: Wiring,
    index: int,
    angles: torch.Tensor,
    x: torch.Tensor,
    transpose: bool,
    angles_t: torch.Tensor,
    x_t: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer of x and its tangent: d(G x) = G dx + J G x dθ with J = [[0, −1], [1, 0]]; −J for Gᵀ."""
    i, j = _indices(wiring, index, x.device)
    x = _rotate_layer(wiring, index, angles, x, transpose)
    x_t = _rotate_layer(wiring, index, angles, x_t, transpose)
    turn = angles_t[:, None, wiring.offsets[index] : wiring.offsets[index + 1]] * (-1.0 if transpose else 1.0)
    return x, x_t.index_add(-1, i, -turn * x[..., j]).index_add(-1, j, turn * x[..., i])


# What every back end offers besides; the reference prepares nothing.

TAKES_ONE_ROTATION = False


def available() -> str | None:
    """None: plain PyTorch runs everywhere."""
    return None


def accepts(device: str) -> bool:
    """Any device that PyTorch has."""
    return True


def prepare(wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor | None = None) -> None:
    """Nothing to prepare."""


def prepare_training(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> None:
    """Nothing to prepare."""


def bind(wiring: Wiring, form: str, prepared: None) -> None:
    """No shortcut."""


def live(
    form: str, wiring: Wiring, x: torch.Tensor, angles: torch.Tensor, eigenvalues: torch.Tensor | None
) -> None:
    """No shortcut."""


def live_backward(
    wiring: Wiring, y: torch.Tensor, grad: torch.Tensor, angles: torch.Tensor, transpose: bool
) -> None:
    """No shortcut."""


def multiply_adds(wiring: Wiring, prepared: None = None, form: str = "rotate") -> int:
    """Four multiply-adds per rotation, as the paper counts them."""
    once, n = 4 * wiring.n_rotations, wiring.n
    return {"rotate": once, "symmetric": 2 * once + n, "quadratic": once + 2 * n}[form]


def _layers(wiring: Wiring, angles: torch.Tensor) -> scaled.Run:
    """The rotation as a function of (x, transpose), layer by layer."""
    angles = _arithmetic(angles)

    def run(x: torch.Tensor, transpose: bool) -> torch.Tensor:
        indices = range(wiring.n_layers)  # Qᵀ x: Q₁ first; Q x: Q_L first
        for index in indices if transpose else reversed(indices):
            x = _rotate_layer(wiring, index, angles, x, transpose)
        return x

    return run


def _wedge(y: torch.Tensor, g: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return g[..., j] * y[..., i] - g[..., i] * y[..., j]


def _arithmetic(x: torch.Tensor) -> torch.Tensor:
    """Half precision is for storage: arithmetic is float32, between layers too."""
    return x.float() if x.dtype in checks.HALF else x


def _indices(wiring: Wiring, index: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = torch.as_tensor(wiring.layer(index), device=device)
    return pairs[:, 0], pairs[:, 1]


def _rotate_layer(
    wiring: Wiring, index: int, angles: torch.Tensor, x: torch.Tensor, transpose: bool
) -> torch.Tensor:
    i, j = _indices(wiring, index, x.device)
    theta = angles[:, None, wiring.offsets[index] : wiring.offsets[index + 1]]
    c, s = torch.cos(theta), torch.sin(-theta if transpose else theta)
    a, b = x[..., i], x[..., j]
    x = x.index_copy(-1, i, c * a - s * b)
    return x.index_copy(-1, j, s * a + c * b)
