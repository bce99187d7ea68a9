"""The files of the command line: what it reads, and where it may write."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from swallowtail import atomic, checks
from swallowtail.cli import readers
from swallowtail.errors import ArgumentError

TEXT = "numbers, separated by commas, semicolons, tabs or spaces, with or without a header"
READERS = {
    ".npy": (readers.npy, "an array of numbers written by numpy.save"),
    ".npz": (readers.npz, "a sparse matrix written by scipy.sparse.save_npz, or one array of numbers"),
    ".csv": (readers.text, TEXT),
    ".tsv": (readers.text, TEXT),
    ".txt": (readers.text, TEXT),
    ".mtx": (readers.mtx, "a Matrix Market file"),
    ".safetensors": (readers.safetensors, "a safetensors file with one tensor"),
}
READS = ".npy, .npz (scipy sparse), .csv, .tsv, .txt, .mtx, .safetensors"
ARRAYS = (".npy", ".csv", ".txt")  # that are written
STANDARD = Path("-")  # standard input or output
# First bytes of what is piped in; else it is text.
BEGINNINGS = {b"\x93NUMPY": ".npy", b"PK": ".npz", b"%%MatrixMarket": ".mtx"}


def check_outputs(option: str, paths: list[Path], suffixes: tuple[str, ...], *inputs: Path) -> None:
    """Whether all can be written: asked before the work, not after it. Without ``suffixes`` any will do."""
    for k, path in enumerate(paths):
        if path != STANDARD or not suffixes:
            _check_output(option, path, suffixes, *inputs, *paths[:k])
        elif path in paths[:k]:
            raise ArgumentError(option, "- only once", "it twice")


def _check_output(option: str, path: Path, suffixes: tuple[str, ...], *inputs: Path) -> None:
    if path.is_dir():
        raise ArgumentError(
            option, "a file", f"the folder {path}", f"try {path / ('out' + ''.join(suffixes[:1]))}"
        )
    if suffixes and path.suffix not in suffixes:
        expected = f"a file ending in {' or '.join(suffixes)}"
        raise ArgumentError(option, expected, path, f"try {path.with_suffix(suffixes[0])}")
    if not path.parent.is_dir():
        raise ArgumentError(option, "an existing folder", path.parent, "try mkdir, or another folder")
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(option, "a folder to write in", path.parent, "try another one")
    for other in inputs:
        if path.absolute() == other.absolute() or (path.exists() and other.exists() and path.samefile(other)):
            raise ArgumentError(option, "a file of its own", f"{path} a second time", "try another name")


def keep(path: Path, write: Callable[[Path], None]) -> bool:
    """Write what took long to compute: to ``path`` or, if that fails, where there is room; say so on stderr.

    The other places are the current folder, the folder for temporary files and the home folder; in a terminal the user
    is asked if none of them can be written to.

    Returns:
        Whether it is in ``path``.

    Raises:
        OSError: it could be written nowhere.
    """
    try:
        write(path)
    except OSError as error:
        failure = error
    else:
        return True
    print(f"swallowtail: {path} cannot be written: {failure.strerror or failure}", file=sys.stderr)
    name = f"swallowtail-{uuid.uuid4().hex[:8]}{path.suffix}"
    for folder in (Path.cwd(), Path(tempfile.gettempdir()), Path(os.path.expanduser("~"))):
        if _written(folder / name, write):
            return False
    while sys.stdin is not None and sys.stdin.isatty():
        answer = _asked("another file to save to, or nothing to give up: ")
        if not answer or _written(Path(answer), write):
            break
        print(f"swallowtail: {answer} cannot be written either", file=sys.stderr)
    else:
        answer = ""
    if not answer:
        raise failure
    return False


def _asked(question: str) -> str:
    """The answer; nothing where the input has ended, as by Ctrl-D."""
    try:
        return input(question).strip()
    except EOFError:
        return ""


def _written(path: Path, write: Callable[[Path], None]) -> bool:
    try:
        write(path)
    except OSError:
        return False
    print(f"swallowtail: it is in {path} instead", file=sys.stderr)
    return True


def read_array(path: Path) -> Any:
    """A matrix, or vectors, from a file: an array, or a scipy sparse array. The file is not trusted."""
    if path == STANDARD:
        return _of_any_kind(sys.stdin.buffer.read(), "standard input")
    if path.is_fifo():  # the shell's <(command)
        return _of_any_kind(path.read_bytes(), str(path))
    if not path.is_file():
        raise ArgumentError("", "a file", f"{'the folder' if path.is_dir() else 'nothing at'} {path}")
    if path.suffix not in READERS:
        hint = "try numpy.save, or writing it as .csv"
        raise ArgumentError(str(path), READS, path.suffix or "no suffix", hint)
    return _read(path, str(path))


def read_operator(path: Path) -> Any:
    """A saved operator, from a file or from a pipe. It is not trusted."""
    from swallowtail import load

    if path != STANDARD and not path.is_fifo():
        if path.is_file() and path.suffix in READERS and path.suffix != ".safetensors":
            hint = f"try swallowtail fit {path} -o {path.with_suffix('.safetensors')}"
            raise ArgumentError(
                str(path), "a saved operator", f"{path.suffix}, for matrices and vectors", hint
            )
        return load(path)
    piped, name = path != STANDARD, "standard input" if path == STANDARD else str(path)
    contents = path.read_bytes() if piped else sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "piped.safetensors"
        copy.write_bytes(contents)
        try:
            return load(copy)
        except ArgumentError as error:
            raise ArgumentError(name, error.expected, error.got, error.hint) from error


def dense(name: str, matrix: Any) -> np.ndarray:
    """A matrix from `read_array` as an array; a sparse one may be far larger so than its file."""
    if not hasattr(matrix, "toarray"):
        return np.asarray(matrix)
    rows, columns = matrix.shape
    checks.fits_in_memory(f"{name} as a dense array", matrix.dtype.itemsize * rows * columns)
    return np.asarray(matrix.toarray())


def _read(path: Path, name: str) -> Any:
    read, expected = READERS[path.suffix]
    try:
        return read(path)
    except Exception as error:  # NumPy, SciPy, zipfile and safetensors raise anything on a damaged file
        reason = str(error) or type(error).__name__
        # NumPy takes what it cannot read for a pickle and says how to allow it: bad advice for junk.
        reason = "one of another kind, or with Python objects" if "pickle" in reason else reason
        reason = reason.splitlines()[0].partition("; use `usecols`")[0]
        raise ArgumentError(name, expected, reason) from error


def _of_any_kind(contents: bytes, name: str) -> Any:
    """What is piped in, its kind told by how it begins."""
    kinds = [kind for beginning, kind in BEGINNINGS.items() if contents.startswith(beginning)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"piped{kinds[0] if kinds else '.txt'}"
        path.write_bytes(contents)
        return _read(path, name)


def write_array(path: Path, array: Any) -> None:
    """An array to a file of one of the kinds `ARRAYS`."""
    with atomic.replacing(path) as file:
        if path.suffix == ".npy":
            np.save(file, array)
        else:
            np.savetxt(file, array, delimiter="," if path.suffix == ".csv" else " ")


def write_standard(write: Callable[[Path], None], suffix: str) -> None:
    """What ``write`` puts into a file, to standard output."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"piped{suffix}"
        write(path)
        sys.stdout.flush()
        sys.stdout.buffer.write(path.read_bytes())
