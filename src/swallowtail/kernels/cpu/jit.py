"""Everything we take from inside Numba: the compilers with a disk cache of our own, and helpers that emit code.

Other modules use Numba's public names (``types``, ``carray``, ``intrinsic``) and this one.

Numba's own cache looks only at the file a function is in, and one damaged file makes every call fail. Ours differs:

- The names of its files hold a hash of all sources the code may be made from. Files of other sources are removed.
- Each file begins with a digest of its contents. A damaged one is as good as none: the kernel is compiled again.
- Where no folder can be written to, kernels are compiled in every process. A warning says so once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.cgutils import alloca_once_value, for_range, for_range_slice
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.sigutils import normalize_signature

from swallowtail.kernels.cpu import interrupts

__all__ = ["alloca_once_value", "cfunc", "for_range", "for_range_slice", "njit", "register_bytes"]
__all__ += ["seconds_compiling", "switched_off", "watch_compilation"]

config: Any = numba.config  # its names are set when it is imported
KERNELS = Path(__file__).parent
DIGEST = hashlib.sha256  # of a cache file's contents
_PLAIN = (types.Number, types.Boolean, types.NoneType, types.RawPointer)  # need no guard, which costs time


def switched_off() -> str | None:
    """Why nothing can be compiled, or None."""
    return "NUMBA_DISABLE_JIT is set" if config.DISABLE_JIT else None


def njit(cache: bool = False, *, inner: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As ``numba.njit(cache=cache, **options)``, with the cache of this module.

    Args:
        cache: keep the code on disk.
        inner: only compiled functions call it, and it is kept as a part of them. Without an entry for Python it takes
            half the time to compile.
    """

    def compile_later(function: Callable[..., Any]) -> Any:
        entries: dict[str, Any] = {"no_cpython_wrapper": inner, "no_cfunc_wrapper": True}
        compiled: Any = numba.njit(**entries, **options)(function)
        if switched_off():
            return compiled
        if inner:
            object.__setattr__(compiled, "__class__", _Inner)
            return compiled
        if cache:
            compiled._cache = _Cache(function)
        _guard(compiled)
        return compiled

    return compile_later


class _Inner(CPUDispatcher):
    """A function that Python must not call: there is no code for that, and the process would crash."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} can be called from compiled code only")


class _Guarded(CPUDispatcher):
    """A function that may return arrays. Ctrl-C while Numba makes Python objects of them is no SystemError."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super().__call__(*arguments, **named)
        except SystemError as error:
            interrupts.raise_cause(error)
            raise


def _guard(compiled: Any) -> None:
    """Let interrupts neither fall into the compiler nor be taken for errors of Numba's."""
    compile_for_args = interrupts.put_off(compiled._compile_for_args)

    def compile_and_look(*arguments: Any, **options: Any) -> Any:
        try:
            return compile_for_args(*arguments, **options)
        finally:
            plain = all(isinstance(a.signature.return_type, _PLAIN) for a in compiled.overloads.values())
            object.__setattr__(compiled, "__class__", CPUDispatcher if plain else _Guarded)

    compiled._compile_for_args = compile_and_look


def cfunc(signature: Any, function: Callable[..., Any]) -> Any:
    """As ``numba.cfunc(signature, cache=True)(function)``, with the cache of this module."""
    compiled: Any = CFunc(function, normalize_signature(signature), locals={}, options={"nopython": True})
    compiled._cache = _Cache(function)
    compiled.compile()
    return compiled


def register_bytes() -> int:
    """Width of the widest vector register Numba's target has, read off the code LLVM makes for it."""
    probe = """define void @probe(ptr %x) {
      %a = load <16 x float>, ptr %x
      %b = fadd <16 x float> %a, %a
      store <16 x float> %b, ptr %x
      ret void }"""
    codegen = cpu_target.target_context.codegen()
    options = {
        "cpu": config.CPU_NAME or llvm.get_host_cpu_name(),
        "features": codegen._get_host_cpu_features(),
    }
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, **options)
    code = machine.emit_assembly(llvm.parse_assembly(probe))
    return 64 if "zmm" in code else 32 if "ymm" in code else 16


@contextlib.contextmanager
def watch_compilation(names: list[str]) -> Iterator[None]:
    """Add the names of our functions that are compiled within the block; those found on disk are not."""
    with event.install_listener("numba:compile", _Names(names)):
        yield


class _Names(event.Listener):
    def __init__(self, names: list[str]) -> None:
        self._names = names

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("swallowtail."):
            self._names.append(function.__name__)

    def on_end(self, event: Any) -> None:
        pass


class _Announcer(event.Listener):
    """Tells the user once when a function of ours has to be compiled, and counts the seconds that takes.

    Numba tells when a compilation starts; a kernel found in the disk cache is not compiled.
    """

    def __init__(self) -> None:
        self.told = False

    def on_start(self, event: Any) -> None:
        _CLOCK.depth += 1  # a function that calls another compiles that inside its own compilation
        if _CLOCK.depth == 1:
            _CLOCK.begin = time.perf_counter()
        dispatcher = event.data["dispatcher"]
        if not self.told and dispatcher.py_func.__module__.startswith("swallowtail."):
            self.told = True
            kept = "; they are kept on disk" if getattr(dispatcher._cache, "works", False) else " per process"
            sys.stderr.write(f"swallowtail: compiling CPU kernels, some seconds each, once{kept}\n")

    def on_end(self, event: Any) -> None:
        _CLOCK.depth -= 1
        if _CLOCK.depth == 0:
            _CLOCK.seconds += time.perf_counter() - _CLOCK.begin


class _Clock(threading.local):
    depth, begin, seconds = 0, 0.0, 0.0  # of the compilation under way; and in all, of this thread


_CLOCK = _Clock()


event.register("numba:compile", _Announcer())


def seconds_compiling() -> float:
    """Seconds that this thread has spent compiling so far."""
    return _CLOCK.seconds


@functools.cache
def _warn_uncached() -> None:
    """Say so once per process: `cache` keeps the second call from running."""
    text = "swallowtail cannot keep compiled CPU kernels on disk, so every process compiles its own"
    warnings.warn(
        f"{text}; set NUMBA_CACHE_DIR to a folder that can be written to", RuntimeWarning, stacklevel=2
    )


class _Cache(FunctionCache):
    """Numba's cache of one function, with files of our own kind. It looks for a folder when it is first needed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @functools.cached_property
    def works(self) -> bool:
        """Whether there is a folder to write to."""
        try:
            super().__init__(self._function)
        except RuntimeError:
            _warn_uncached()
            return False
        stamp = source_stamp(os.path.dirname(self._function.__code__.co_filename))
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)
        return True

    @property
    def cache_path(self) -> Any:
        return super().cache_path if self.works else None

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context) if self.works else None
        except Exception:  # what cannot be read is compiled again
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            if self.works:
                super().save_overload(signature, data)
        except OSError:  # a full disk, say
            _warn_uncached()


class _Files(IndexDataCacheFile):
    """The index of one function's compiled code by types, and a file for each."""

    def __init__(self, folder: str, name: str, stamp: str) -> None:
        super().__init__(folder, f"{name}.{stamp}", stamp)
        self._name, self._made_by = f"{name}.{stamp}", (numba.__version__, stamp)

    def _data_name(self, number: int) -> str:
        # Numba counts 1, 2, …: two processes that compile for different types at once would both write file 1, and the
        # index would name one process's types and the other's code.
        return f"{self._name}.{uuid.uuid4().hex}.nbc"

    def _load_index(self) -> dict[Any, str]:
        made_by, index = self._read(self._index_path) or (None, {})
        return index if made_by == self._made_by else {}

    def _save_index(self, index: dict[Any, str]) -> None:
        _remove_stale_files(self._cache_path, self._source_stamp)
        self._write(self._index_path, (self._made_by, index))

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _read(self, path: str) -> Any:
        """What a file holds, or None if it is missing or damaged."""
        try:
            contents = Path(path).read_bytes()
        except OSError:
            return None
        size = DIGEST().digest_size
        if DIGEST(contents[size:]).digest() != contents[:size]:
            return None
        return pickle.loads(contents[size:])

    def _write(self, path: str, value: Any) -> None:
        contents = self._dump(value)
        with self._open_for_write(path) as file:
            file.write(DIGEST(contents).digest() + contents)


@functools.cache
def source_stamp(folder: str) -> str:
    """A hash of the sources that code in a folder may be made from: that folder's and the kernels'."""
    digest = hashlib.sha256()
    for path in sorted({*Path(folder).rglob("*.py"), *KERNELS.rglob("*.py")}):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _remove_stale_files(folder: str, stamp: str) -> None:
    """Remove compiled code of other sources, once per process: nobody will read it again."""
    for path in Path(folder).iterdir():
        if path.suffix in (".nbi", ".nbc") and f".{stamp}." not in path.name:
            with contextlib.suppress(OSError):
                path.unlink()
