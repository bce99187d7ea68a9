"""Checks of arguments that several modules need. All raise `ArgumentError`."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from swallowtail.errors import ArgumentError

HALF = (torch.bfloat16, torch.float16)  # for storage only: arithmetic is float32
REAL = (torch.float64, torch.float32, *HALF)
_REAL_NAMES = "float64, float32, bfloat16 or float16"


def integer(name: str, value: Any, at_least: int) -> int:
    """Return ``value`` as an int of at least ``at_least``."""
    expected = f"an integer ≥ {at_least}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(name, expected, repr(value), "try int(...)")
    if value < at_least:
        raise ArgumentError(name, expected, short(int(value)), f"try {at_least} or more")
    return int(value)


def seed(name: str, value: Any) -> int:
    """Return ``value`` as a seed that every generator takes."""
    if integer(name, value, at_least=0) >= 2**64:
        raise ArgumentError(name, "an integer below 2^64", short(value), "try 0")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(name, "True or False", repr(value), "try bool(...)")
    return bool(value)


def function(name: str, value: Any, of: str, hint: str = "") -> Callable[..., Any]:
    """Return ``value`` if it can be called; ``of`` says with what."""
    if not callable(value):
        raise ArgumentError(name, f"a function of {of}", type(value).__name__, hint)
    return value


def items(name: str, value: Any, expected: str) -> Iterable[Any]:
    """Return ``value`` if one can go through it."""
    try:
        iter(value)
    except TypeError as error:
        raise ArgumentError(name, expected, f"{type(value).__name__}", "try a list") from error
    return value


def path(name: str, value: Any) -> str | os.PathLike[str]:
    """Return ``value`` if it names a file."""
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentError(name, "a path, as text or a pathlib.Path", type(value).__name__, "try str(...)")
    return value


def device(name: str, value: Any) -> torch.device:
    """Return ``value`` as a device that is there."""
    try:
        found = torch.device(value)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(name, "a torch device", repr(value), f"try {name}='cpu'") from error
    there = found.type == "cpu" or (found.type == "cuda" and torch.cuda.is_available())
    if not there:
        try:
            torch.zeros(1, device=found)
        except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
            raise ArgumentError(name, "a device that is there", found, f"try {name}='cpu'") from error
    return found


def short(number: int) -> str:
    """A whole number for a message; Python refuses to print one of more than 4300 digits.

    >>> short(4096), short(10**400)
    ('4096', 'about 10^400')
    """
    digits = int(abs(number).bit_length() * math.log10(2))
    return str(number) if digits < 20 else f"about {'−' if number < 0 else ''}10^{digits}"


def choice(name: str, value: Any, allowed: tuple[str, ...], besides: str = "") -> str:
    """Return ``value`` if it is one of ``allowed``; ``besides`` says what else the caller takes."""
    if not isinstance(value, str) or value not in allowed:
        expected = f"one of {', '.join(map(repr, allowed))}{besides}"
        near = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
        raise ArgumentError(name, expected, repr(value), f"try {(near or allowed)[0]!r}")
    return str(value)


def operator_in(value: Any) -> str:
    """A hint where an operator was expected and ``value`` only holds one, as a fit or a layer does."""
    return next((f"try its .{name}" for name in ("operator", "rotation") if hasattr(value, name)), "")


def real_dtype(name: str, dtype: Any) -> torch.dtype:
    """Return ``dtype`` if the kernels can hold it."""
    if not isinstance(dtype, torch.dtype):
        raise ArgumentError(name, _REAL_NAMES, repr(dtype), "try torch.float32")
    if dtype not in REAL:
        hint = "try its real part, x.real" if dtype.is_complex else "try x.to(torch.float32)"
        raise ArgumentError(name, _REAL_NAMES, dtype, hint)
    return dtype


def as_tensor(name: str, value: Any, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``value`` as a real floating tensor; whole numbers, and numbers in lists, take the dtype of ``like``."""
    where = None if like is None or isinstance(value, torch.Tensor) else like.device
    unmasked(name, value)
    try:
        tensor = torch.as_tensor(readable(value), device=where)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(
            name,
            "a tensor or array of real numbers",
            f"{type(value).__name__} ({error})",
            f"try {name}.astype(numpy.float64)"
            if isinstance(value, np.ndarray)  # of objects, text or longdouble
            else "try torch.as_tensor(…) or numpy.asarray(…) on it first",
        ) from error
    strided(name, tensor)
    if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        tensor = tensor.to(torch.get_default_dtype() if like is None else like.dtype)
    elif like is not None and not hasattr(value, "dtype") and tensor.dtype.is_floating_point:
        # A list's numbers are Python's: PyTorch would round 0.1 to float32 beside a float64 operator.
        tensor = torch.as_tensor(
            readable(value), dtype=torch.promote_types(tensor.dtype, like.dtype), device=where
        )
    real_dtype(name, tensor.dtype)
    return tensor


def unmasked(name: str, value: Any) -> None:
    """Check that ``value`` is no masked array with masked entries: NumPy would hand out what lies under the mask."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        got = f"{int(np.ma.count_masked(value))} of {value.size} masked"
        raise ArgumentError(name, "all entries", got, "try its filled(…)")


def strided(name: str, tensor: torch.Tensor) -> None:
    """Check that ``tensor`` has its numbers in memory, one after another or in steps."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        got = "a nested one" if tensor.is_nested else f"{tensor.layout} of {tensor.dtype}"
        raise ArgumentError(name, "a dense tensor", got, "try its to_dense(), dequantize() or parts")


def readable(value: Any) -> Any:
    """NumPy arrays of a kind that torch cannot share (read-only, reversed, big-endian) as copies that it can."""
    if isinstance(value, torch.Tensor) or not hasattr(value, "__array__"):
        return value
    array = np.asarray(value)
    shared = array.flags.writeable and array.dtype.isnative and all(s >= 0 for s in array.strides)
    return array if shared else array.astype(array.dtype.newbyteorder("="), order="C")


def last_axis(name: str, tensor: torch.Tensor, size: int, what: str) -> None:
    """Check that the last axis of ``tensor`` has ``size`` entries."""
    if tensor.ndim == 0 or tensor.shape[-1] != size:
        hint = f"try a tensor of shape (…, {size})"
        if tensor.ndim >= 2 and tensor.shape[-2] == size:
            hint = f"the axis before it is {size}: try {name}.mT"
        raise ArgumentError(
            name, f"the last axis to be {what} = {size}", f"shape {tuple(tensor.shape)}", hint
        )


def same_device(**tensors: torch.Tensor) -> None:
    """Check that all the named tensors lie on one device."""
    devices = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        listing = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ArgumentError("", "everything on one device", listing, "try .to(device) on one of them")


def finite(name: str, tensor: torch.Tensor) -> None:
    """Check that ``tensor`` has no NaN and no infinity."""
    good = torch.isfinite(tensor.detach())
    if not bool(good.all()):
        raise ArgumentError(
            name,
            "finite numbers",
            f"{int((~good).sum())} of {tensor.numel()} NaN or infinite",
            "try torch.nan_to_num, or look for the step that produced them",
        )


def fits_in_memory(
    what: str,
    n_bytes: int,
    hint: str = "try a smaller n, a narrower dtype, or products with the operator itself",
) -> None:
    """Fail before allocating what this machine cannot hold."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system: let the allocation decide
        return
    if n_bytes > installed:
        raise ArgumentError(
            what,
            f"at most the {installed / 2**30:.1f} GiB this machine has",
            f"{n_bytes / 2**30:.1f} GiB" if n_bytes < 2**70 else f"{short(n_bytes >> 30)} GiB",
            hint,
        )


def number(name: str, value: Any, *, at_least: float | None = None, above: float | None = None) -> float:
    """Return ``value`` as a finite number of at least ``at_least``, or greater than ``above``."""
    bound = f" ≥ {at_least:g}" if at_least is not None else f" > {above:g}" if above is not None else ""
    real = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.complexfloating))
    if isinstance(value, int) and abs(value) >= 2**1023:  # more than a float holds
        raise ArgumentError(name, f"a number{bound}", short(value), "try 1.0")
    if (
        not real
        or not math.isfinite(value)
        or (at_least is not None and value < at_least)
        or (above is not None and value <= above)
    ):
        got = f"{value:g}" if real else repr(value)
        raise ArgumentError(name, f"a number{bound}", got, "try 1.0" if real else "try float(...)")
    return float(value)


def instance(name: str, value: Any, kind: type, hint: str = "") -> None:
    """Check that ``value`` is of the class ``kind``."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ArgumentError(name, f"{article} {kind.__name__}", type(value).__name__, hint)


def single(name: str, batch_shape: torch.Size) -> None:
    """Check that there is no batch."""
    if batch_shape:
        raise ArgumentError(name, "one operator", f"a batch {tuple(batch_shape)}", "try one of the batch")


def same_batch(**tensors: torch.Tensor) -> None:
    """Check that the leading axes of the named tensors broadcast together."""
    if all(tensor.ndim <= 1 for tensor in tensors.values()):  # the usual case, and broadcast_shapes is slow
        return
    try:
        torch.broadcast_shapes(*(tensor.shape[:-1] for tensor in tensors.values()))
    except RuntimeError as error:
        got = ", ".join(f"{tuple(tensor.shape[:-1])} of {name}" for name, tensor in tensors.items())
        raise ArgumentError(
            "", "batch shapes that broadcast", got, "try equal ones, or axes of length 1"
        ) from error
