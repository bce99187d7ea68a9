"""Rotate: a trainable rotation, orthogonal by construction however long it is trained."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor

from swallowtail import checks, ops
from swallowtail.errors import ArgumentError
from swallowtail.operators import Rotation
from swallowtail.wiring import Butterfly, Wiring


class Rotate(torch.nn.Module):
    """x ↦ Q x on the last axis, with the K angles of Q as parameters.

    The angles are free numbers and every set of them is a rotation, so there is nothing to project back.
    Half-precision inputs keep their dtype. The arithmetic is float32 then, and so are the angles by default.

    A state dict holds the angles and a fingerprint of the wiring. Loading one of another wiring is an error, even if
    it has as many angles.

    Args:
        n: size of the last axis, for a butterfly.
        depth: how many times the butterfly goes through the strides n/2 … 1.
        init: "identity", "random" (uniform angles) or "hadamard" (all π/4; a butterfly on 2^k coordinates).
        wiring: any wiring, in place of n and depth.
        seed: for "random"; torch's global generator otherwise.
        dtype, device: of the angles.

    >>> layer = Rotate(8, init="hadamard")
    >>> layer(torch.eye(8)).norm(dim=-1).allclose(torch.ones(8))
    True
    """

    def __init__(
        self,
        n: int | None = None,
        *,
        depth: int = 1,
        init: str = "identity",
        wiring: Wiring | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        checks.choice("init", init, ("identity", "random", "hadamard"))
        self.wiring = _one_wiring(n, depth, wiring)
        self.init, self.seed = init, seed
        self.angles = torch.nn.Parameter(torch.empty(self.wiring.n_rotations, dtype=dtype, device=device))
        self._cache = ops.PreparedCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the angles as ``init`` says."""
        regular = isinstance(self.wiring, Butterfly) and self.wiring.n & (self.wiring.n - 1) == 0
        if self.init == "hadamard" and not regular:
            expected = "a butterfly on 2^k coordinates for init='hadamard'"
            raise ArgumentError("wiring", expected, self.wiring, "try init='random'")
        with torch.no_grad():
            if self.init == "identity":
                self.angles.zero_()
            elif self.init == "hadamard":
                # Once through the strides is a Hadamard matrix; further rounds start as the identity.
                self.angles.zero_()[: Butterfly(self.wiring.n).n_rotations] = math.pi / 4
            else:
                generator = None
                if self.seed is not None:
                    generator = torch.Generator(self.angles.device).manual_seed(self.seed)
                self.angles.uniform_(-math.pi, math.pi, generator=generator)

    @property
    def rotation(self) -> Rotation:
        """The layer's rotation as an operator; it shares the angles."""
        return Rotation(self.wiring, self.angles)

    @property
    def T(self) -> Transposed:
        """The layer x ↦ Qᵀ x, a view: it has no parameters of its own and follows this layer's."""
        return Transposed(self)

    def forward(self, x: Tensor) -> Tensor:
        """Q x, shape (*batch, n)."""
        return ops.rotate(x, self.wiring, self.angles, cache=self._cache)

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows."""
        return f"n={self.wiring.n}, n_rotations={self.wiring.n_rotations}, init={self.init!r}"

    def get_extra_state(self) -> Tensor:
        """The wiring's fingerprint, as a tensor: some file formats hold nothing else."""
        return torch.tensor(self.wiring.fingerprint)

    def set_extra_state(self, state: Any) -> None:
        """Nothing to set: the fingerprint was compared before the angles were read."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        found = state_dict.get(f"{prefix}_extra_state")
        if found is not None and int(found) != self.wiring.fingerprint:
            error_msgs.append(
                f"{prefix}angles: expected those of {self.wiring!r}, got those of another wiring"
            )
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class Transposed(torch.nn.Module):
    """x ↦ Qᵀ x with the angles of a `Rotate`, made by `Rotate.T`.

    The `Rotate` owns the angles: optimisers, state dicts and ``.to()`` reach them through it. So keep it, in the same
    model or in another. This view does not keep it alive, because angles without an owner would be neither trained nor
    saved.

    >>> layer, x = Rotate(8, init="random", seed=0), torch.ones(8)
    >>> torch.allclose(layer.T(layer(x)), x)
    True
    """

    def __init__(self, layer: Rotate) -> None:
        super().__init__()
        self._layer = weakref.ref(layer)

    @property
    def T(self) -> Rotate:
        """The layer x ↦ Q x that this is the transpose of."""
        layer = self._layer()
        if layer is None:
            raise RuntimeError(
                "Rotate.T: expected its Rotate to be kept, got one that is gone; "
                "try layer = Rotate(…), then layer.T"
            )
        return layer

    @property
    def rotation(self) -> Rotation:
        """Qᵀ as an operator."""
        return self.T.rotation.T

    def forward(self, x: Tensor) -> Tensor:
        """Qᵀ x, shape (*batch, n)."""
        layer = self.T
        return ops.rotate_transpose(x, layer.wiring, layer.angles, cache=layer._cache)

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows."""
        return self.T.extra_repr()

    # A copy of a model copies the layer and its view: the view's reference has to follow.
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layer": self.T}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_layer": weakref.ref(state["_layer"])})


def _one_wiring(n: int | None, depth: int, wiring: Wiring | None) -> Wiring:
    """The wiring that is given, or the butterfly."""
    if wiring is None:
        if n is None:
            raise ArgumentError("n", "n, or a wiring", "neither", "try Rotate(64), or Rotate(wiring=…)")
        if isinstance(n, Wiring):
            raise ArgumentError("n", "an integer ≥ 1", repr(n), "try Rotate(wiring=…)")
        return Butterfly(n, depth)
    if not isinstance(wiring, Wiring):
        raise ArgumentError("wiring", "a Butterfly, Pairs or Grouped", repr(wiring), "try Pairs(n, layers)")
    if n is not None or depth != 1:
        name, got = ("n", n) if n is not None else ("depth", depth)
        raise ArgumentError(name, "it left out where a wiring is given", got, "try Rotate(wiring=…)")
    return wiring
