"""The files of the command line: what it reads, and where it may write."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError

READS = ".npy, .npz (scipy sparse), .csv, .mtx, .safetensors"
_CONTENTS = {
    ".npy": "an array of numbers written by numpy.save",
    ".npz": "a sparse matrix written by scipy.sparse.save_npz, or one array of numbers",
    ".csv": "comma-separated numbers without a header",
    ".mtx": "a Matrix Market file",
    ".safetensors": "a safetensors file with one tensor",
}


class UserError(Exception):
    """Something the user can mend; shown without a traceback."""


def check_output(option: str, path: Path, suffix: str, *inputs: Path) -> None:
    """Whether ``path`` can be written: asked before the work, not after it. ``suffix`` "" allows any."""
    if path.is_dir():
        raise UserError(f"{option}: expected a file, got the folder {path}; try {path / ('out' + suffix)}")
    if suffix and path.suffix != suffix:
        raise UserError(
            f"{option}: expected a file ending in {suffix}, got {path}; try {path.with_suffix(suffix)}"
        )
    if not path.parent.is_dir():
        raise UserError(
            f"{option}: expected an existing folder, got {path.parent}; try mkdir, or another folder"
        )
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{option}: expected a folder to write in, got {path.parent}; try another one")
    for other in inputs:
        if path.absolute() == other.absolute() or (path.exists() and other.exists() and path.samefile(other)):
            raise UserError(
                f"{option}: expected a file of its own, got {path} a second time; try another name"
            )


def read_array(path: Path) -> Any:
    """A matrix, or columns, from a file: an array, or a scipy sparse matrix."""
    if not path.is_file():
        raise UserError(f"expected a file, got {'the folder' if path.is_dir() else 'nothing at'} {path}")
    if path.suffix not in _CONTENTS:
        raise UserError(f"{path}: expected {READS}, got {path.suffix or 'no suffix'}")
    try:
        return _read(path)
    except (ValueError, KeyError, EOFError, OSError, UserWarning, BadZipFile, SafetensorError) as error:
        # NumPy takes what it cannot read for a pickle and says how to allow it: bad advice for junk.
        reason = "it is of another kind, or holds Python objects" if "pickle" in str(error) else str(error)
        raise UserError(f"{path}: expected {_CONTENTS[path.suffix]}; could not read it ({reason})") from error


def _read(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive)
            if "format" not in names:
                if len(names) != 1:
                    raise UserError(f"{path}: expected one array or a scipy sparse matrix, got {names}")
                return archive[names[0]]
        from scipy.sparse import load_npz

        return load_npz(path)
    if path.suffix == ".csv":
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a file without numbers is a warning to NumPy
            return np.loadtxt(path, delimiter=",", ndmin=2)
    if path.suffix == ".mtx":
        from scipy.io import mmread

        return mmread(path)
    from safetensors.numpy import load_file

    tensors = load_file(path)
    if len(tensors) != 1:
        raise UserError(f"{path}: expected one tensor, got {sorted(tensors)}")
    return next(iter(tensors.values()))
