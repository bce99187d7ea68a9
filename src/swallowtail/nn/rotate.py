"""Rotate: a trainable rotation, orthogonal by construction however long it is trained. Channel scales if wished."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor

from swallowtail import checks, ops
from swallowtail.errors import ArgumentError
from swallowtail.nn.fold import check_linear, transform_columns, transform_rows
from swallowtail.operators import Rotation
from swallowtail.wiring import Butterfly, Wiring


class Rotate(torch.nn.Module):
    """x ↦ Q x on the last axis, with the K angles of Q as parameters; or x ↦ Q (s ∘ x), with a scale per channel.

    The angles are free numbers and every set of them is a rotation, so there is nothing to project back.
    But not every rotation is in reach: a butterfly of depth 1 has n⌈lg n⌉/2 angles or fewer, a general rotation
    n(n − 1)/2. A larger ``depth`` reaches more.

    Half-precision inputs keep their dtype. The arithmetic is float32 then, and so are the angles by default.

    A state dict holds the angles and a fingerprint of the wiring. Loading one of another wiring is an error, even if
    it has as many angles.

    Args:
        n: size of the last axis, for a butterfly.
        depth: how many times the butterfly goes through the strides n/2 … 1; time and angles grow with it.
        init: "identity", "random" (uniform angles) or "hadamard" (all π/4; a butterfly on 2^k coordinates).
        wiring: any wiring, in place of n and depth.
        seed: for "random"; torch's global generator otherwise.
        scales: whether to multiply each channel by a number of its own first. These are parameters as well, and start
            at 1. A quantiser's transform has them.
        dtype, device: of the parameters.

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
        scales: bool = False,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        checks.choice("init", init, ("identity", "random", "hadamard"))
        checks.flag("scales", scales)
        dtype = None if dtype is None else checks.real_dtype("dtype", dtype)
        device = None if device is None else checks.device("device", device)
        self.wiring = _one_wiring(n, depth, wiring)
        self.init, self.seed = init, None if seed is None else checks.seed("seed", seed)
        self.angles = torch.nn.Parameter(torch.empty(self.wiring.n_rotations, dtype=dtype, device=device))
        self.scales: torch.nn.Parameter | None = None  # s, shape (n,)
        if scales:
            self.scales = torch.nn.Parameter(torch.empty(self.wiring.n, dtype=dtype, device=device))
        self._cache = ops.PreparedCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the angles as ``init`` says, the scales to 1."""
        regular = isinstance(self.wiring, Butterfly) and self.wiring.n & (self.wiring.n - 1) == 0
        if self.init == "hadamard" and not regular:
            expected = "a butterfly on 2^k coordinates for init='hadamard'"
            raise ArgumentError("wiring", expected, self.wiring, "try init='random'")
        with torch.no_grad():
            if self.scales is not None:
                self.scales.fill_(1)
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
        """Q as an operator, without scales. It shares angles that require gradients, and copies others."""
        return Rotation(self.wiring, self.angles)

    @property
    def T(self) -> Transposed:
        """The layer x ↦ Qᵀ x, a view: it has no parameters of its own and follows this layer's.

        With scales it is x ↦ s ∘ Qᵀ x, which is the transpose but no longer the inverse.
        """
        return Transposed(self)

    def forward(self, x: Tensor) -> Tensor:
        """Q x, or Q (s ∘ x) with scales; shape (*batch, n)."""
        return ops.rotate(_scaled(x, self.scales), self.wiring, self.angles, cache=self._cache)

    def inverse(self, y: Tensor) -> Tensor:
        """Undo the layer: Qᵀ y, divided by the scales if there are any; shape (*batch, n)."""
        x = ops.rotate_transpose(y, self.wiring, self.angles, cache=self._cache)
        return x if self.scales is None else _scaled(x, 1 / self.scales)

    def fold(self, linear: torch.nn.Linear, side: str = "input") -> None:
        """Take this layer into the weight of its neighbour, in place.

        On the side "input", ``linear`` becomes what ``Sequential(layer, linear)`` was; on the side "output", what
        ``Sequential(linear, layer)`` was. The product is made in float64 and rounded once, to the weight's dtype.
        """
        check_linear(linear, side, self.wiring.n)
        if side == "input":
            transform_rows(linear, self.T)  # the layer is T = Q S, and W T has the rows Tᵀ w
        else:
            transform_columns(linear, self)

    def unfold(self, linear: torch.nn.Linear, side: str = "input") -> None:
        """Take this layer out of the weight of its neighbour, in place: undo `fold`.

        After it, ``Sequential(layer, linear)``, or ``Sequential(linear, layer)`` on the side "output", is what
        ``linear`` was. That is how a quantiser prepares a weight: the layer runs online, on the activations.
        """
        check_linear(linear, side, self.wiring.n)
        if self.scales is not None and not bool((self.scales != 0).all()):
            hint = "try scales without zeros: such a layer has no inverse"
            raise ArgumentError(
                "scales", "numbers other than 0", f"{int((self.scales == 0).sum())} zeros", hint
            )
        if side == "input":
            transform_rows(linear, self.inverse_transpose)
        else:
            transform_columns(linear, self.inverse)

    def inverse_transpose(self, x: Tensor) -> Tensor:
        """The inverse of `T`: Q x, or Q (x / s) with scales; shape (*batch, n). Rows of a weight go this way."""
        x = x if self.scales is None else _scaled(x, 1 / self.scales)
        return ops.rotate(x, self.wiring, self.angles, cache=self._cache)

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows."""
        scales = "" if self.scales is None else ", scales=True"
        return f"n={self.wiring.n}, n_rotations={self.wiring.n_rotations}, init={self.init!r}{scales}"

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
                f"{prefix}angles: expected those of {self.wiring!r}, got those of another wiring; "
                "try a layer with the n, size, rounds, pairs and seed that these angles were saved with"
            )
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class Transposed(torch.nn.Module):
    """x ↦ Qᵀ x, or s ∘ Qᵀ x, with the parameters of a `Rotate`, made by `Rotate.T`.

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
        """Qᵀ as an operator, without scales."""
        return self.T.rotation.T

    def forward(self, x: Tensor) -> Tensor:
        """Qᵀ x, or s ∘ Qᵀ x with scales; shape (*batch, n)."""
        layer = self.T
        y = ops.rotate_transpose(x, layer.wiring, layer.angles, cache=layer._cache)
        return _scaled(y, layer.scales)

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows."""
        return self.T.extra_repr()

    # A copy of a model copies the layer and its view: the view's reference has to follow.
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layer": self.T}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_layer": weakref.ref(state["_layer"])})


def _scaled(x: Tensor, scales: Tensor | None) -> Tensor:
    """s ∘ x; half-precision x keeps its dtype."""
    if scales is None:
        return x
    if not isinstance(x, Tensor) or x.shape[-1:] != scales.shape or not x.dtype.is_floating_point:
        return x  # `ops` says what is wrong with it; a last axis of 1 would be repeated here
    return (x * scales).to(x.dtype) if x.dtype in checks.HALF else x * scales


def _one_wiring(n: int | None, depth: int, wiring: Wiring | None) -> Wiring:
    """The wiring that is given, or the butterfly."""
    if wiring is None:
        if n is None:
            raise ArgumentError("n", "n, or a wiring", "neither", "try Rotate(64), or Rotate(wiring=…)")
        if isinstance(n, Wiring):
            raise ArgumentError("n", "an integer ≥ 1", repr(n), "try Rotate(wiring=…)")
        return Butterfly(n, depth)
    if not isinstance(wiring, Wiring):
        raise ArgumentError("wiring", "a Butterfly, Pairs or Grouped", repr(wiring), "try Butterfly(n)")
    if n is not None or depth != 1:
        name, got = ("n", n) if n is not None else ("depth", depth)
        raise ArgumentError(name, f"no {name} where a wiring is given", got, "try Rotate(wiring=…)")
    return wiring
