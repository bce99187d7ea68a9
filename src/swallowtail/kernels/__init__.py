"""The table of back ends: which exist, why one cannot run here, which one would run.

Every back end is a module with the functions of `reference` (x (B, m, n), angles (B, K), eigenvalues (B, n)):
``rotate``, ``symmetric``, ``quadratic``, ``rotate_backward``; and, but for the reference itself, ``prepare``
for coefficients that outlive a call, ``prepare_training`` for a call and its gradient, ``multiply_adds`` and
``available``.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

from swallowtail import checks
from swallowtail.kernels import reference

NAMES = ("reference", "cpu", "gpu")
_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar("swallowtail_backend", default=None)


def load(name: str) -> ModuleType:
    """The module of a back end, or a RuntimeError that says why it cannot run here."""
    module, reason = _import(name)
    if module is None:
        usable = [other for other, why in available_backends().items() if why is None]
        raise RuntimeError(
            f"back end {name!r} was asked for but cannot run: {reason}; try one of: {', '.join(usable)}"
        )
    return module


def available_backends() -> dict[str, str | None]:
    """For each back end None, or the reason why it cannot run on this machine.

    >>> available_backends()["reference"] is None
    True
    """
    return {name: _import(name)[1] for name in NAMES}


@functools.cache
def _import(name: str) -> tuple[ModuleType | None, str | None]:
    checks.choice("backend", name, NAMES)
    if name == "reference":
        return reference, None
    try:
        module = importlib.import_module(f"swallowtail.kernels.{name}.backend")
    except ImportError as error:
        return None, f"its import failed ({error})"
    reason: str | None = module.available()
    return (module, None) if reason is None else (None, reason)


def select_backend(x: torch.Tensor) -> str:
    """The name of the back end that would work on ``x`` now.

    >>> select_backend(torch.zeros(3))
    'cpu'
    """
    name = _forced.get()
    if name is not None:
        return name
    if x.device.type == "cpu":
        return "cpu"
    if x.device.type == "cuda" and _import("gpu")[1] is None:
        return "gpu"
    return "reference"  # any device PyTorch has


@contextlib.contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Within the block, run this back end or raise; none is tried in its place.

    >>> with use_backend("reference"):
    ...     select_backend(torch.zeros(3))
    'reference'
    """
    load(name)
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


def direct(*tensors: Tensor) -> bool:
    """Whether no transformation, tracer or gradient is watching these tensors."""
    if is_compiling() or _transformation() is not None or forward_ad._current_level >= 0:
        return False
    grad = _grad_enabled()
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not Parameter) or (grad and tensor.requires_grad):
            return False
    return True


_transformation, _grad_enabled = torch._C._functorch.peek_interpreter_stack, torch.is_grad_enabled


class PreparedCache:
    """Keeps what a back end computed from parameters until they change.

    Tensors count their in-place changes. Trainable ones are compared number by number as well, because fused
    optimisers and edits through ``.data`` do not count; inference tensors cannot count at all.
    """

    def __init__(self) -> None:
        self._prepared: dict[Any, tuple[Seen, Any]] = {}
        self._bound: dict[str, tuple[Seen, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept holds addresses and compiled closures: a copy starts empty.
        return PreparedCache, ()

    def get(
        self,
        backend: str,
        wiring: Any,
        angles: torch.Tensor,
        eigenvalues: torch.Tensor | None = None,
        sources: tuple[torch.Tensor, ...] | None = None,
    ) -> Any:
        """The back end's prepared coefficients for angles (B, K) and eigenvalues (B, n).

        ``sources`` are the user's own tensors, if this call converted those: only they tell a change.
        """
        if sources is None:
            sources = (angles,) if eigenvalues is None else (angles, eigenvalues)
        key = (backend, angles.dtype, angles.device, angles.shape, eigenvalues is not None)
        kept = self._prepared.get(key)
        if kept is None or not kept[0].still(sources):
            checks.finite("angles", angles)
            kept = (Seen(sources), load(backend).prepare(wiring, angles, eigenvalues))
            self._prepared[key] = kept
        return kept[1]

    def for_training(self, wiring: Any, angles: torch.Tensor, x: torch.Tensor) -> Any:
        """The CPU's coefficients for Q x and its gradients, angles (K,): kept while gradients are accumulated, or while
        one forward pass uses them several times. On a GPU looking whether they have changed would wait for it.
        """
        kept = self._prepared.get("training")
        if kept is None or not kept[0].still((angles,)):
            kept = (Seen((angles,)), load("cpu").prepare_training(wiring, angles[None], x))
            self._prepared["training"] = kept
        return kept[1]

    def bound(
        self,
        action: str,
        x: torch.Tensor,
        wiring: Any,
        angles: torch.Tensor,
        eigenvalues: torch.Tensor | None = None,
    ) -> Any:
        """A function of x alone, where the case is the simplest one and nobody watches: no checks, little Python.

        A single vector of 1024 numbers takes about a microsecond; looking everything up would take ten, and twice as
        much after a batch has gone through the caches.
        """
        watched = not direct(x, angles) if eigenvalues is None else not direct(x, angles, eigenvalues)
        if (
            watched
            or not x.is_cpu
            or x.dtype is not angles.dtype
            or not x.is_contiguous()
            or x.shape[-1:] != (wiring.n,)
            or _forced.get() is not None
        ):
            return None
        sources = (angles,) if eigenvalues is None else (angles, eigenvalues)
        kept = self._bound.get(action)
        if kept is None or not kept[0].still(sources):
            if (
                angles.shape != (wiring.n_rotations,)
                or angles.dtype not in (torch.float32, torch.float64)
                or (eigenvalues is not None and eigenvalues.shape != (wiring.n,))
                or (eigenvalues is not None and eigenvalues.dtype is not angles.dtype)
            ):
                return None
            rows = None if eigenvalues is None else eigenvalues[None]
            prepared = self.get("cpu", wiring, angles[None], rows, sources)
            kept = (Seen(sources), load("cpu").bind(wiring, action, prepared))
            self._bound[action] = kept
        return kept[1]


class Seen:
    """Tensors as they were when something was computed from them."""

    def __init__(self, tensors: tuple[torch.Tensor, ...]) -> None:
        # Of a tensor that counts its changes itself and an alias, which keeps the memory from being given to another;
        # of the others (whose graph must not be kept either) a copy to compare with.
        self._seen = [
            (None, t.detach().clone(), _state(t)) if _uncounted(t) else (t, t.detach(), _state(t))
            for t in tensors
        ]

    def still(self, tensors: tuple[torch.Tensor, ...]) -> bool:
        """Whether they are the same tensors with the same numbers."""
        if len(tensors) != len(self._seen):
            return False
        for t, (seen, kept, state) in zip(tensors, self._seen):
            if t is seen and not t.requires_grad:  # soon told
                if t.data_ptr() != state[0] or t._version != state[1] or t.shape != state[3]:
                    return False
            elif _state(t) != state:
                return False
            elif seen is None:
                if not _equal(kept, t.detach()):
                    return False
            elif _uncounted(t):  # since then: an alias shows no change
                return False
        return True


def _state(t: torch.Tensor) -> tuple[Any, ...]:
    return t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.shape


def _uncounted(t: torch.Tensor) -> bool:
    return t.requires_grad or t.is_inference()


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_cpu and a.is_contiguous() and b.is_contiguous():
        # Bit by bit, since torch.equal takes ten times as long. The tensors' dtypes and shapes are the same.
        return _memcmp(a.data_ptr(), b.data_ptr(), a.numel() * a.itemsize) == 0
    return torch.equal(a, b)


_memcmp = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
