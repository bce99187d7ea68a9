"""The table of back ends: which exist, why one cannot run here, which one would run.

`protocol` says what a back end offers.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from torch import Tensor

from swallowtail import checks
from swallowtail.kernels.protocol import Backend

if TYPE_CHECKING:  # the type checker compares every back end with the protocol
    from swallowtail.kernels import reference
    from swallowtail.kernels.cpu import backend as cpu
    from swallowtail.kernels.gpu import backend as gpu

    _: list[Backend] = [cpu, gpu, reference]

# In the order in which they are asked whether they accept a device; the reference accepts any.
BACKENDS = {
    "cpu": "swallowtail.kernels.cpu.backend",
    "gpu": "swallowtail.kernels.gpu.backend",
    "reference": "swallowtail.kernels.reference",
}
_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar("swallowtail_backend", default=None)
forced = _forced.get  # the name of the back end that `use_backend` asks for, or None


def load(name: str) -> Backend:
    """The module of a back end, or a RuntimeError that says why it cannot run here."""
    if name not in BACKENDS:
        checks.choice("backend", name, tuple(BACKENDS))
    module, reason = _import(name)
    if module is None:
        usable = ", ".join(other for other, why in available_backends().items() if why is None)
        why_not = str(reason).rstrip(".")
        raise RuntimeError(f"back end {name!r} was asked for but cannot run: {why_not}; try one of: {usable}")
    return module


def available_backends() -> dict[str, str | None]:
    """For each back end None, or the reason why it cannot run on this machine.

    >>> available_backends()["reference"] is None
    True
    """
    return {name: _import(name)[1] for name in BACKENDS}


@functools.cache
def _import(name: str) -> tuple[Backend | None, str | None]:
    try:
        module = cast(Backend, importlib.import_module(BACKENDS[name]))
    except ImportError as error:
        return None, f"its import failed ({error})"
    reason = module.available()
    return (module, None) if reason is None else (None, reason)


def select_backend(x: Tensor) -> str:
    """The name of the back end that would work on ``x`` now.

    >>> import torch
    >>> select_backend(torch.zeros(3))
    'cpu'
    """
    try:
        return _forced.get() or _for_device(x.device.type)
    except AttributeError:
        checks.instance("x", x, Tensor)
        raise


@functools.cache
def _for_device(kind: str) -> str:
    for name in BACKENDS:
        module = _import(name)[0]
        if module is not None and module.accepts(kind):
            return name
    raise RuntimeError(f"no back end accepts tensors on {kind!r}")


def backend_for(x: Tensor) -> Backend:
    """The back end that would work on ``x`` now."""
    return load(select_backend(x))


@contextlib.contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Within the block, run this back end or raise; none is tried in its place.

    >>> import torch
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
