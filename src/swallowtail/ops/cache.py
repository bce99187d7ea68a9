"""Coefficients kept between calls, for as long as the numbers they were made from stay the same.

Results follow the numbers, always. A tensor can change where no counter notices: through ``.data``, through
``numpy()``, through the array it was made from. So there are two kinds of owners:

- An operator has copies of its own that nobody else can reach. They never change, and what was made of them stays good.
- A layer has parameters that anybody may change. On a CPU their numbers are compared with a copy at every call. On
  other devices that would wait for the device, so nothing is kept: the kernels read the angles at every call.
"""

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
    """What back ends computed from angles and eigenvalues. An operator or layer has one.

    Args:
        owned: the tensors it will be asked for are copies that nobody else can reach.
    """

    def __init__(self, owned: bool = False) -> None:
        self.owned = owned
        self._prepared: dict[Any, tuple[Snapshot, Any]] = {}
        self._bound: dict[str, tuple[Snapshot, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept holds addresses and compiled closures: a copy starts empty.
        return PreparedCache, (self.owned,)

    def get(
        self,
        backend: str,
        wiring: Wiring,
        angles: Tensor,
        eigenvalues: Tensor | None = None,
        sources: tuple[Tensor, ...] | None = None,
    ) -> Any:
        """The back end's prepared coefficients for angles (B, K) and eigenvalues (B, n); None if none can be kept.

        ``sources`` are the user's own tensors, if this call converted those: only they show a change.
        """
        if sources is None:
            sources = (angles,) if eigenvalues is None else (angles, eigenvalues)
        kept = self._kept(backend, wiring, angles, eigenvalues, sources)
        return None if kept is None else kept[1]

    def _kept(
        self,
        backend: str,
        wiring: Wiring,
        angles: Tensor,
        eigenvalues: Tensor | None,
        sources: tuple[Tensor, ...],
    ) -> tuple[Snapshot, Any] | None:
        """What `get` returns, with the snapshot that it belongs to."""
        key = (backend, angles.dtype, angles.device, angles.shape, eigenvalues is not None)
        kept = self._prepared.get(key)
        if kept is None or not kept[0].is_current(sources):
            if not self._keeps(sources[0]):
                return None
            if angles.is_cpu:  # elsewhere it would wait for the device, and operators have looked already
                checks.finite("angles", angles)
            # The snapshot first, and coefficients of its numbers: another thread may change the sources meanwhile.
            snapshot = Snapshot(sources, self.owned)
            settled = snapshot.settled(sources, (angles,) if eigenvalues is None else (angles, eigenvalues))
            if settled is None:
                return None
            kept = self._prepared[key] = (snapshot, kernels.load(backend).prepare(wiring, *settled))
        return kept

    def for_training(self, backend: str, wiring: Wiring, angles: Tensor, x: Tensor) -> Any:
        """Coefficients for Q x and its gradients, angles (K,): kept while gradients are accumulated, or while one
        forward pass uses them several times.
        """
        kept = self._prepared.get((backend, "training"))
        if kept is None or not kept[0].is_current((angles,)):
            prepare = kernels.load(backend).prepare_training
            if not angles.is_cpu:
                return prepare(wiring, angles[None], x)
            snapshot = Snapshot((angles,), self.owned)
            kept = (snapshot, prepare(wiring, snapshot.copies[0][None], x))
            self._prepared[backend, "training"] = kept
        return kept[1]

    def quick(
        self, form: str, x: Tensor, wiring: Wiring, angles: Tensor, eigenvalues: Tensor | None = None
    ) -> Tensor | None:
        """The result, where nobody watches and the case is the simplest one; None elsewhere.

        A single vector of 1024 numbers takes about a microsecond. Checking and looking everything up would take ten,
        and twice as much after a batch has gone through the caches.
        """
        if x.is_cpu:
            if x.dtype is not angles.dtype or not angles.is_cpu:
                return None
        elif (
            x.dtype is not angles.dtype and not (angles.dtype is torch.float32 and x.dtype in checks.HALF)
        ) or x.device != angles.device:
            return None
        shape = x.shape
        if not x.is_contiguous() or not shape or shape[-1] != wiring.n or kernels.forced() is not None:
            return None
        if x.is_neg():  # a view whose numbers PyTorch negates when it reads them; kernels read the memory
            return None
        sources = (angles,) if eigenvalues is None else (angles, eigenvalues)
        kept = self._bound.get(form)
        if kept is None or not kept[0].is_current(sources):
            if not _is_simplest(wiring, angles, eigenvalues):
                return None
            name = kernels.select_backend(x)
            if not self._keeps(angles):
                return kernels.load(name).live(form, wiring, x, angles, eigenvalues)
            rows = None if eigenvalues is None else eigenvalues[None]
            made = self._kept(name, wiring, angles[None], rows, sources)
            if made is None:
                return None
            kept = self._bound[form] = (made[0], kernels.load(name).bind(wiring, form, made[1]))
        run = kept[1]
        return None if run is None else run(x)

    def _keeps(self, tensor: Tensor) -> bool:
        """Whether what is made of a tensor now may be used by later calls."""
        if tensor.is_cpu:
            return True
        # What is made while a CUDA graph is recorded has no numbers yet, and lies in the graph's own memory.
        return self.owned and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _is_simplest(wiring: Wiring, angles: Tensor, eigenvalues: Tensor | None) -> bool:
    """One rotation whose numbers need no conversion."""
    if angles.shape != (wiring.n_rotations,) or angles.dtype not in (torch.float32, torch.float64):
        return False
    return eigenvalues is None or (
        eigenvalues.shape == (wiring.n,)
        and eigenvalues.dtype is angles.dtype
        and eigenvalues.device == angles.device
    )


class _Taken(NamedTuple):
    """A tensor as it was. The copy of one that is owned is the tensor itself, which keeps its memory from reuse."""

    copy: Tensor
    address: int  # of the copy
    size: int  # bytes
    dtype: torch.dtype
    shape: torch.Size


class Snapshot:
    """Tensors as they were when something was computed from them."""

    def __init__(self, tensors: tuple[Tensor, ...], owned: bool = False) -> None:
        self._owned = owned
        # A copy does not keep a graph alive.
        copies = [t if owned else t.detach().clone() for t in tensors]
        self._taken = [_Taken(c, c.data_ptr(), c.numel() * c.itemsize, c.dtype, c.shape) for c in copies]

    @property
    def copies(self) -> list[Tensor]:
        """The tensors as they were."""
        return [taken.copy for taken in self._taken]

    def settled(self, sources: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> list[Tensor] | None:
        """``given``, what the kernels take in place of the sources, with the numbers of this snapshot.

        None if the sources were converted before the snapshot was taken, and have changed since.
        """
        if self._owned:
            return list(given)
        found = []
        for source, copy, tensor in zip(sources, self.copies, given, strict=True):
            if tensor.numel() == copy.numel() and tensor.data_ptr() == source.data_ptr():
                found.append(copy.reshape(tensor.shape))
                continue
            same = copy.reshape(tensor.shape) if tensor.numel() == copy.numel() else copy
            if (same.ndim > 1 and same is copy) or not bool((tensor == same.to(tensor.dtype)).all()):
                return None
            found.append(tensor)
        return found

    def is_current(self, tensors: tuple[Tensor, ...]) -> bool:
        """Whether these tensors have the same dtypes, shapes and numbers."""
        if len(tensors) != len(self._taken):
            return False
        for t, (copy, address, size, dtype, shape) in zip(tensors, self._taken):  # noqa: B905 (strict takes a tenth of the call)
            if t is copy:  # owned
                continue
            if t.dtype is not dtype or t.shape != shape:
                return False
            if self._owned:
                # A view of the same memory is the same numbers, if it goes through it the same way.
                if t.data_ptr() != address or t.stride() != copy.stride():
                    return False
            # Bit by bit: torch.equal takes ten times as long.
            elif t.is_contiguous() and copy.is_contiguous():
                if _memcmp(address, t.data_ptr(), size):
                    return False
            elif not torch.equal(copy, t.detach()):
                return False
        return True


_memcmp: Callable[[int, int, int], int] = (
    ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)  # type: ignore[attr-defined]
