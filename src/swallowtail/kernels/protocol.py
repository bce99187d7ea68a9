"""What a back end must offer. CONTRIBUTING.md says how to add one.

A back end is a module. `reference` is the specification: same formulas, same shapes, plain PyTorch.

Shapes: x (B, m, n), angles (B, K), eigenvalues (B, n). B is the number of rotations that share a wiring, m the
number of vectors per rotation. Results have x's dtype. Half precision is for storage: where x has it, arithmetic,
angles and eigenvalues are float32. Otherwise all have x's dtype, float32 or float64. Tensors need not be contiguous.
A function does not change its arguments: autograd keeps some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from swallowtail.wiring import Wiring

# "from_basis" is Q x, "to_basis" is Qᵀ x, "symmetric" is Q D Qᵀ x, "quadratic" is xᵀ Q D Qᵀ x.
FORMS = ("from_basis", "to_basis", "symmetric", "quadratic")


class Backend(Protocol):
    """The functions and constants of a back end's module.

    ``prepared`` is what `prepare` returned for the same wiring, angles and eigenvalues. `rotate` may also get what
    `prepare_training` returned, and `rotate_backward` gets nothing else. Without it a function makes what it needs.
    """

    # Whether `rotate` and `rotate_backward` also take one rotation as angles (K,) and x (*batch, n).
    TAKES_ONE_ROTATION: bool

    def available(self) -> str | None:
        """None, or a sentence that says why this back end cannot run here."""

    def accepts(self, device: str) -> bool:
        """Whether this back end works on tensors of a device ("cpu", "cuda"). The automatic choice asks in turn."""

    def prepare(self, wiring: Wiring, angles: Tensor, eigenvalues: Tensor | None = None) -> Any:
        """Coefficients that outlive a call; they hold as long as the angles and eigenvalues do not change."""

    def prepare_training(self, wiring: Wiring, angles: Tensor, x: Tensor) -> Any:
        """Coefficients for `rotate` and its `rotate_backward`. x is as the user gave it: (*batch, n)."""

    def rotate(
        self, wiring: Wiring, angles: Tensor, x: Tensor, transpose: bool = False, prepared: Any = None
    ) -> Tensor:
        """Q x, or Qᵀ x. Never the argument itself."""

    def symmetric(
        self, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, x: Tensor, prepared: Any = None
    ) -> Tensor:
        """Q D Qᵀ x."""

    def quadratic(
        self, wiring: Wiring, angles: Tensor, eigenvalues: Tensor, x: Tensor, prepared: Any = None
    ) -> Tensor:
        """xᵀ Q D Qᵀ x, shape (B, m)."""

    def rotate_backward(
        self,
        wiring: Wiring,
        angles: Tensor,
        y: Tensor,
        grad: Tensor,
        transpose: bool = False,
        prepared: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Gradients of ⟨grad, Q x⟩ for x and the angles, from the output y = Q x (or Qᵀ x)."""

    def bind(self, wiring: Wiring, form: str, prepared: Any) -> Callable[[Tensor], Tensor] | None:
        """A function of x alone for one of `FORMS`, or None where the back end has no such shortcut.

        It takes one contiguous tensor (*batch, n) of the coefficients' dtype, and checks nothing. On a GPU the tensor
        may also be in half precision, with coefficients in float32.
        """

    def live(
        self, form: str, wiring: Wiring, x: Tensor, angles: Tensor, eigenvalues: Tensor | None
    ) -> Tensor | None:
        """The result for one of `FORMS` from angles that may change after every call, as a layer's; None where the back
        end has no such shortcut. Nothing waits for the device. x is as for what `bind` returns; angles are (K,) or
        (1, K), eigenvalues (n,) or (1, n).
        """

    def live_backward(
        self, wiring: Wiring, y: Tensor, grad: Tensor, angles: Tensor, transpose: bool
    ) -> tuple[Tensor, Tensor] | None:
        """Gradients as `rotate_backward` has them, after `live`: for vectors y and grad (*batch, n), and angles (K,) or
        (1, K). None where there is no shortcut.
        """

    def multiply_adds(self, wiring: Wiring, prepared: Any, form: str = "rotate") -> int:
        """Multiply-adds per vector of the kernel that runs; ``form`` is "rotate", "symmetric" or "quadratic"."""
