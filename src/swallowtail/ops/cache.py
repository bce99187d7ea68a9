"""Coefficients kept between calls, for as long as the numbers they were made from stay the same."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swallowtail import checks, kernels
from swallowtail.wiring import Wiring


class PreparedCache:
    """What back ends computed from angles and eigenvalues. An operator or layer has one."""

    def __init__(self) -> None:
        self._prepared: dict[Any, tuple[Snapshot, Any]] = {}
        self._bound: dict[str, tuple[Snapshot, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept holds addresses and compiled closures: a copy starts empty.
        return PreparedCache, ()

    def get(
        self,
        backend: str,
        wiring: Wiring,
        angles: Tensor,
        eigenvalues: Tensor | None = None,
        sources: tuple[Tensor, ...] | None = None,
    ) -> Any:
        """The back end's prepared coefficients for angles (B, K) and eigenvalues (B, n).

        ``sources`` are the user's own tensors, if this call converted those: only they show a change.
        """
        if sources is None:
            sources = (angles,) if eigenvalues is None else (angles, eigenvalues)
        key = (backend, angles.dtype, angles.device, angles.shape, eigenvalues is not None)
        kept = self._prepared.get(key)
        if kept is None or not kept[0].is_current(sources):
            checks.finite("angles", angles)
            kept = (Snapshot(sources), kernels.load(backend).prepare(wiring, angles, eigenvalues))
            self._prepared[key] = kept
        return kept[1]

    def for_training(self, backend: str, wiring: Wiring, angles: Tensor, x: Tensor) -> Any:
        """Coefficients for Q x and its gradients, angles (K,): kept while gradients are accumulated, or while one
        forward pass uses them several times.
        """
        kept = self._prepared.get((backend, "training"))
        if kept is None or not kept[0].is_current((angles,)):
            kept = (Snapshot((angles,)), kernels.load(backend).prepare_training(wiring, angles[None], x))
            self._prepared[backend, "training"] = kept
        return kept[1]

    def bound(
        self, form: str, x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor | None = None
    ) -> Callable[[Tensor], Tensor] | None:
        """A function of x alone, where nobody watches and the case is the simplest one; None elsewhere.

        A single vector of 1024 numbers takes about a microsecond. Checking and looking everything up would take ten,
        and twice as much after a batch has gone through the caches.
        """
        shape = x.shape
        if (
            x.dtype is not angles.dtype
            or (not (x.is_cpu and angles.is_cpu) and x.device != angles.device)
            or not x.is_contiguous()
            or not shape
            or shape[-1] != wiring.n
            or kernels.forced() is not None
        ):
            return None
        sources = (angles,) if eigenvalues is None else (angles, eigenvalues)
        kept = self._bound.get(form)
        if kept is None or not kept[0].is_current(sources):
            if (
                angles.shape != (wiring.n_rotations,)
                or angles.dtype not in (torch.float32, torch.float64)
                or (eigenvalues is not None and eigenvalues.shape != (wiring.n,))
                or (eigenvalues is not None and eigenvalues.dtype is not angles.dtype)
                or (eigenvalues is not None and eigenvalues.device != angles.device)
            ):
                return None
            rows = None if eigenvalues is None else eigenvalues[None]
            name = kernels.select_backend(x)
            prepared = self.get(name, wiring, angles[None], rows, sources)
            kept = (Snapshot(sources), kernels.load(name).bind(wiring, form, prepared))
            self._bound[form] = kept
        return kept[1]


class Snapshot:
    """Tensors as they were when something was computed from them.

    Tensors count their changes in place (`_version`). Trainable ones are compared number by number as well, because
    fused optimisers and edits through ``.data`` do not count. Inference tensors cannot count at all.
    """

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        # Tensors with a version counter: keep the tensor and an alias, so that its memory is not reused.
        # Others: keep a copy and compare. Their graph must not be kept alive.
        self._taken = [
            (None, t.detach().clone(), _state(t)) if _uncounted(t) else (t, t.detach(), _state(t))
            for t in tensors
        ]

    def is_current(self, tensors: tuple[Tensor, ...]) -> bool:
        """Whether these are the same tensors with the same numbers."""
        if len(tensors) != len(self._taken):
            return False
        for t, (taken, kept, state) in zip(tensors, self._taken):  # noqa: B905 (strict=True takes a tenth of the call)
            if t is taken and not t.requires_grad:  # the quick test first
                if (
                    t.data_ptr() != state[0] or t._version != state[1] or t.shape != state[3]
                ):  # quicker than by name
                    return False
            elif _state(t) != state:
                return False
            elif taken is None:
                if not _equal(kept, t.detach()):
                    return False
            elif _uncounted(t):  # it became trainable since: an alias shows no change
                return False
        return True


class _State(NamedTuple):
    """What a tensor shows of itself without a look at its numbers."""

    address: int
    version: int
    dtype: torch.dtype
    shape: torch.Size


def _state(t: Tensor) -> _State:
    return _State(t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.shape)


def _uncounted(t: Tensor) -> bool:
    return t.requires_grad or t.is_inference()


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.is_cpu and a.is_contiguous() and b.is_contiguous():
        # Bit by bit: torch.equal takes ten times as long. Dtypes and shapes are known to be the same.
        return bool(_memcmp(a.data_ptr(), b.data_ptr(), a.numel() * a.itemsize) == 0)
    return torch.equal(a, b)


_memcmp = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
