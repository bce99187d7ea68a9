"""The files of the command line: what it reads, and where it may write."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swallowtail.cli import readers
from swallowtail.errors import ArgumentError

READERS = {
    ".npy": (readers.npy, "an array of numbers written by numpy.save"),
    ".npz": (readers.npz, "a sparse matrix written by scipy.sparse.save_npz, or one array of numbers"),
    ".csv": (readers.csv, "comma-separated numbers without a header"),
    ".mtx": (readers.mtx, "a Matrix Market file"),
    ".safetensors": (readers.safetensors, "a safetensors file with one tensor"),
}
READS = ".npy, .npz (scipy sparse), .csv, .mtx, .safetensors"


def check_output(option: str, path: Path, suffix: str, *inputs: Path) -> None:
    """Whether ``path`` can be written: asked before the work, not after it. ``suffix`` "" allows any."""
    if path.is_dir():
        raise ArgumentError(option, "a file", f"the folder {path}", f"try {path / ('out' + suffix)}")
    if suffix and path.suffix != suffix:
        raise ArgumentError(option, f"a file ending in {suffix}", path, f"try {path.with_suffix(suffix)}")
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
        answer = input("another file to save to, or nothing to give up: ").strip()
        if not answer or _written(Path(answer), write):
            break
        print(f"swallowtail: {answer} cannot be written either", file=sys.stderr)
    else:
        answer = ""
    if not answer:
        raise failure
    return False


def _written(path: Path, write: Callable[[Path], None]) -> bool:
    try:
        write(path)
    except OSError:
        return False
    print(f"swallowtail: it is in {path} instead", file=sys.stderr)
    return True


def read_array(path: Path) -> Any:
    """A matrix, or columns, from a file: an array, or a scipy sparse array. The file is not trusted."""
    if not path.is_file():
        raise ArgumentError("", "a file", f"{'the folder' if path.is_dir() else 'nothing at'} {path}")
    if path.suffix not in READERS:
        raise ArgumentError(str(path), READS, path.suffix or "no suffix")
    read, expected = READERS[path.suffix]
    try:
        return read(path)
    except Exception as error:  # NumPy, SciPy, zipfile and safetensors raise anything on a damaged file
        reason = str(error) or type(error).__name__
        # NumPy takes what it cannot read for a pickle and says how to allow it: bad advice for junk.
        reason = "one of another kind, or with Python objects" if "pickle" in reason else reason
        raise ArgumentError(str(path), expected, reason.splitlines()[0]) from error
