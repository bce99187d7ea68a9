"""Guard pages around every buffer: one number read or written outside it is a segmentation fault.

Vectors, results, gradients, coefficients and scratch buffers each lie directly before or behind a page that may not be
touched. A fault ends a child process, and counts as a failure.
"""

from __future__ import annotations

import ctypes
import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from soak import cases
from soak.trial import Outcome, Outcomes, Trial, in_child
from swallowtail import Rotation, SymmetricOperator, ops
from swallowtail.kernels.cpu import coefficients, launch

PAGE = mmap.PAGESIZE
BATCH = 100  # cases per child
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.mprotect.argtypes = _libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guards:
    """Memory between two pages that may not be touched."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._taken = rng, list[tuple[int, int]]()

    def array(self, shape: Any, dtype: Any) -> np.ndarray:
        """An array that begins behind a guard page, or ends before one."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        size = max(1, count) * dtype.itemsize
        room = -(-size // PAGE) * PAGE
        start = _libc.mmap(None, room + 2 * PAGE, 3, 0x22, -1, 0)  # private, anonymous, to read and write
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError
        for guard in (start, start + PAGE + room):
            assert _libc.mprotect(guard, PAGE, 0) == 0
        self._taken.append((start, room + 2 * PAGE))
        first = start + PAGE + (room - size if self._rng.integers(2) else 0)
        memory = (ctypes.c_char * size).from_address(first)
        made = np.frombuffer(memory, dtype, max(1, count))[:count].reshape(shape)
        if dtype.kind == "f":
            made[...] = np.nan
        return made

    def tensor(self, values: np.ndarray) -> torch.Tensor:
        made = self.array(values.shape, values.dtype)
        made[...] = values
        return torch.from_numpy(made)

    def release(self) -> None:
        for start, size in self._taken:
            _libc.munmap(start, size)
        self._taken.clear()


class _Patched:
    """The package's allocations, guarded."""

    def __init__(self, guards: Guards) -> None:
        self._guards, self._before = guards, (torch.empty, torch.empty_like)

    def __enter__(self) -> None:
        guards, (empty, empty_like) = self._guards, self._before

        def guarded(*shape: Any, dtype: Any = None, **rest: Any) -> torch.Tensor:
            if dtype not in (torch.float32, torch.float64) or set(rest) - {"device"}:
                return empty(*shape, dtype=dtype, **rest)
            sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
            return torch.from_numpy(guards.array(tuple(sizes), str(dtype).removeprefix("torch.")))

        def guarded_like(x: torch.Tensor, **rest: Any) -> torch.Tensor:
            if rest and set(rest) != {"memory_format"}:
                return empty_like(x, **rest)
            return guarded(tuple(x.shape), dtype=x.dtype)

        torch.empty, torch.empty_like = guarded, guarded_like  # type: ignore[assignment]
        numpy = SimpleNamespace(**{name: getattr(np, name) for name in dir(np)})
        numpy.empty = lambda shape, dtype=np.float64: guards.array(shape, dtype)
        for module in (coefficients, launch):
            module.np = numpy  # type: ignore[attr-defined]

    def __exit__(self, *rest: object) -> None:
        torch.empty, torch.empty_like = self._before
        for module in (coefficients, launch):
            module.np = np  # type: ignore[attr-defined]


def _case(seed: int) -> Outcome:
    rng = np.random.default_rng(seed)
    guards = Guards(rng)
    wiring, _ = cases.wiring(rng)
    number, m = (np.float32, np.float64)[int(rng.integers(2))], int(rng.choice([1, 2, 3, 5, 16, 17, 33]))
    angles, d = (
        rng.uniform(-3, 3, wiring.n_rotations).astype(number),
        rng.normal(size=wiring.n).astype(number),
    )
    x, g = (rng.normal(size=(m, wiring.n)).astype(number) for _ in range(2))
    plain = [torch.from_numpy(z.copy()) for z in (x, angles, d, g)]
    with _Patched(guards):
        found = _results(wiring, *(guards.tensor(z) for z in (x, angles, d, g)))
        found = [np.array(z.numpy()) for z in found]
    expected = _results(wiring, *plain)
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if not np.array_equal(a, b.numpy()):
            return (
                f"seed {seed}, {wiring!r}, {number.__name__}, m = {m}: result {k} differs beside a guard page"
            )
    guards.release()
    return None


def _results(wiring: Any, x: Any, angles: Any, d: Any, g: Any) -> list[torch.Tensor]:
    """Every form, and the gradients of two."""
    Q = Rotation(wiring, angles)
    H = SymmetricOperator(Q, d)
    found = [Q(x), Q.T(x), H(x), H.quadratic_form(x), Q(x[0]), H(x[0])]
    for act in (
        lambda v, a, e: ops.rotate(v, wiring, a),
        lambda v, a, e: ops.symmetric_matvec(v, wiring, a, e),
    ):
        v, a, e = (z.detach().requires_grad_() for z in (x, angles, d))
        act(v, a, e).backward(g)
        found += [z.grad for z in (v, a, e) if z.grad is not None]
    return [z.detach() for z in found]


def _batch(seeds: range) -> Outcomes:
    torch.set_num_threads(1)
    for seed in seeds:
        yield _case(seed)


def outcomes(seed: int) -> Outcomes:
    first = seed * 10**6
    while True:
        yield from in_child(lambda seeds=range(first, first + BATCH): _batch(seeds), timeout=300)
        first += BATCH


TRIALS = (Trial("guard pages", outcomes, 4_000, 0.08),)
