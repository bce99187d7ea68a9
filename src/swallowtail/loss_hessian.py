"""The Hessian of a PyTorch loss as an operator: products by automatic differentiation, never the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators.base import Operator


def hessian(loss: Callable[[], Tensor], params: Tensor | Iterable[Tensor]) -> Hessian:
    """The Hessian of ``loss()`` at the present values of ``params``, as something to multiply with and to fit.

    Args:
        loss: a function without arguments that computes the loss, one number, from the parameters. It is called once
            per product, so it must give the same number every time: fix the batch, and switch dropout off.
        params: the tensors to differentiate by. The Hessian's coordinates are their numbers, in this order.

    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> H = hessian(lambda: (w**3).sum(), [w])
    >>> H @ torch.eye(2)
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return Hessian(loss, params)


class Hessian(Operator):
    """See `hessian`. ``fit_symmetric(H)`` takes it as it takes every operator.

    Products cost one gradient of the loss, and one more per column. Gradients do not flow through them.
    """

    def __init__(self, loss: Callable[[], Tensor], params: Tensor | Iterable[Tensor]) -> None:
        if not callable(loss):
            got = type(loss).__name__
            raise ArgumentError("loss", "a function that computes it", got, "try `lambda: loss(model(x), y)`")
        self._loss = loss
        listed = [params] if isinstance(params, Tensor) else params
        self._params = list(checks.items("params", listed, "tensors that require a gradient"))
        for index, p in enumerate(self._params):
            if not isinstance(p, Tensor) or not p.requires_grad:
                got = f"number {index} is {'a tensor without one' if isinstance(p, Tensor) else type(p).__name__}"
                raise ArgumentError(
                    "params", "tensors that require a gradient", got, "try model.parameters()"
                )
        if not self._params:
            raise ArgumentError("params", "at least one tensor", "none", "try model.parameters()")
        checks.same_device(**{f"params[{i}]": p for i, p in enumerate(self._params)})
        self._sizes = [p.numel() for p in self._params]
        self.n = sum(self._sizes)
        self.batch_shape = torch.Size()
        self.device = self._params[0].device
        self.dtype = checks.real_dtype("params", self._params[0].dtype)
        for p in self._params:
            self.dtype = torch.promote_types(self.dtype, p.dtype)

    @property
    def T(self) -> Hessian:
        """H itself: second derivatives are symmetric."""
        return self

    def _rows(self, x: Tensor) -> Tensor:
        checks.last_axis("x", x, self.n, "the number of parameters")
        rows = x.reshape(-1, self.n)
        with torch.enable_grad():
            gradients = self._gradients()
            products = [self._product(gradients, row.to(self.dtype)) for row in rows.detach()]
        result = torch.stack(products) if products else rows.new_zeros(rows.shape)
        return result.to(torch.promote_types(x.dtype, self.dtype)).reshape(x.shape)

    _transposed_rows = _rows

    def _gradients(self) -> list[Tensor | None]:
        value = self._loss()
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ArgumentError("loss", "one number, a tensor", got, "try its .mean()")
        if not value.requires_grad:
            hint = "compute it inside the function, without torch.no_grad"
            raise ArgumentError("loss", "a tensor that depends on params", "one that does not", hint)
        return list(torch.autograd.grad(value, self._params, create_graph=True, allow_unused=True))

    def _product(self, gradients: list[Tensor | None], v: Tensor) -> Tensor:
        """H v, by the derivative of gᵀv. Parts of the loss that are linear have no second derivative: zeros."""
        parts = v.split(self._sizes)
        terms = [
            (g * part.reshape(g.shape).to(g.dtype)).sum()
            for g, part in zip(gradients, parts, strict=True)
            if g is not None and g.requires_grad
        ]
        if not terms:
            return torch.zeros_like(v)
        along = torch.stack([term.to(self.dtype) for term in terms]).sum()
        found: Any = torch.autograd.grad(along, self._params, retain_graph=True, allow_unused=True)
        flat = [
            torch.zeros(size, dtype=self.dtype, device=self.device)
            if part is None
            else part.detach().reshape(-1).to(self.dtype)
            for part, size in zip(found, self._sizes, strict=True)
        ]
        return torch.cat(flat)

    def __repr__(self) -> str:
        return f"Hessian(n={self.n}, {len(self._params)} tensors; {self.dtype}, {self.device})"
