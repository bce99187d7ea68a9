"""One reader per file format. Sizes are compared with the file's before anything is allocated.

A header may claim any size, and SciPy follows the indices of a sparse matrix without a check. So the readers check
first. They raise whatever comes; `files.read_array` turns it into one kind of error.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from swallowtail import checks

REAL = "fiub"  # kinds of dtype that hold real numbers; "c", complex ones, are refused with a better message later
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")  # of real numbers the last is the second
ENTRIES = {  # numbers per line of a Matrix Market file, by layout and field
    "coordinate": {"real": 3, "double": 3, "integer": 3, "unsigned-integer": 3, "pattern": 2},
    "array": {"real": 1, "double": 1, "integer": 1, "unsigned-integer": 1},
}
MISSING = ("", "na", "n/a", "#n/a", "null", "none", "?", ".", "-")  # "nan" is a number, and refused as one
VECTOR_BYTES = 64  # per coordinate: a fit holds some vectors of length n at the least


def npy(path: Path) -> Any:
    """An array written by ``numpy.save``."""
    with path.open("rb") as file:
        return _array(file, path.stat().st_size, REAL + "c")


def npz(path: Path) -> Any:
    """A sparse matrix written by ``scipy.sparse.save_npz``, or the one array of an archive."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ValueError("two arrays of one name")

        def array(name: str, kinds: str) -> np.ndarray:
            if name not in members:
                raise ValueError(f"no array {name!r}")
            checks.fits_in_memory(f"the array {name!r}", members[name].file_size)
            with archive.open(members[name]) as file:
                return _array(file, members[name].file_size, kinds)

        if "format" in members:
            return _sparse(array)
        if len(members) != 1:
            raise ValueError(f"{len(members)} arrays: {', '.join(members)}")
        return array(next(iter(members)), REAL + "c")


def text(path: Path) -> Any:
    """Numbers in lines, separated by commas, semicolons, tabs or spaces. A header and names of rows are left out.

    A first column that the header has no name for numbers the rows, as pandas and R write it: it is left out too.
    """
    every = enumerate(path.read_text("utf-8-sig").splitlines(), 1)
    placed = [(number, line) for number, line in every if line.strip() and line[0] != "#"]
    lines = [line for _, line in placed]
    if not lines:
        raise ValueError("no numbers")
    mark = next((mark for mark in ";\t," if any(mark in line for line in lines)), None)
    names = [word.strip(' "') for word in lines[0].split(mark)]
    # Columns of a DataFrame that were given no names have numbers.
    unnamed = names[0] == "" and names[1:] == [str(k) for k in range(len(names) - 1)]
    headed = unnamed or not any(map(_is_meant, names[1:] or names))
    lines, last = lines[headed:], lines[-1].split(mark)
    numbered = headed and (names[0] == "" or len(names) == len(last) - 1)
    first = 0 if not lines or (not numbered and _is_meant(last[0])) else 1
    columns = range(first, len(lines[-1].split(mark))) if first else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a file without numbers is a warning to NumPy
        try:
            return np.loadtxt(lines, delimiter=mark, ndmin=2, usecols=columns, comments=None)
        except ValueError as error:
            raise ValueError(_fault(placed[headed:], mark, first) or str(error)) from error


def _fault(placed: list[tuple[int, str]], mark: str | None, first: int) -> str:
    """What is wrong, in which line of the file: NumPy counts rows without the header, and those from 0 or from 1."""
    width = len(placed[0][1].split(mark)) if placed else 0
    for number, line in placed:
        words = line.split(mark)
        if len(words) != width:
            return f"{width} columns at first and {len(words)} in line {number}"
        for word in words[first:]:
            if not _is_number(word):
                found = f"{word.strip()!r} in line {number}"
                if _is_meant(word):
                    return f"{found}; try decimal points"
                missing = word.strip(' "').lower() in MISSING
                return f"{found}; try leaving out rows where numbers are missing" if missing else found
    return ""


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _is_meant(word: str) -> bool:
    """Whether it is a number but for a decimal comma, which is a mistake to be named, and no header."""
    return _is_number(word.replace(",", "."))


def mtx(path: Path) -> Any:
    """A Matrix Market file, dense or sparse. SciPy's own reader crashes on some damaged ones."""
    import scipy.sparse as sp

    with path.open("rb") as file:
        banner = file.readline(1000).decode("ascii").lower().split()
        if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
            raise ValueError("no line '%%MatrixMarket matrix …' at its beginning")
        layout, field, symmetry = banner[2:]
        if layout not in ENTRIES or field not in ENTRIES[layout] or symmetry not in SYMMETRIES:
            raise ValueError(f"a matrix that is {layout} {field} {symmetry}")
        line = b"%"
        while line and (not line.strip() or line.startswith(b"%")):
            line = file.readline(1_000_000)
        body = file.read()
    sizes, sparse = [int(word) for word in line.split()], layout == "coordinate"
    if len(sizes) != (3 if sparse else 2) or min(sizes) < 0:
        raise ValueError(
            f"{'rows, columns and entries' if sparse else 'rows and columns'} unreadable: {line[:60]!r}"
        )
    rows, columns = sizes[:2]
    if symmetry != "general" and rows != columns:
        raise ValueError(f"{rows} rows and {columns} columns of a matrix that is {symmetry}")
    strict = symmetry == "skew-symmetric"  # its diagonal is zero and not stored
    stored = rows * columns if symmetry == "general" else rows * (rows - 1 if strict else rows + 1) // 2
    entries = sizes[2] if sparse else stored
    if 2 * entries > len(body) + 1:  # an entry takes two bytes or more
        raise ValueError(f"{checks.short(entries)} entries announced, {len(body)} bytes to hold them")
    _check_shape((rows, columns))
    width = ENTRIES[layout][field]
    table = (
        np.loadtxt(body.decode("ascii").splitlines(), comments="%", ndmin=2)
        if entries
        else np.zeros((0, width))
    )
    if table.shape != (entries, width):
        raise ValueError(
            f"{table.shape[0]} lines of {table.shape[1]} numbers where {entries} of {width} belong"
        )
    if not sparse:
        return _filled(table[:, 0], rows, columns, symmetry)
    row, column = table[:, 0] - 1, table[:, 1] - 1
    if (row != np.floor(row)).any() or (column != np.floor(column)).any():
        raise ValueError("coordinates that are no integers")
    _indices("rows", row, entries, rows)
    _indices("columns", column, entries, columns)
    values = table[:, 2] if width == 3 else np.ones(entries)
    lower = sp.coo_array((values, (row.astype(np.int64), column.astype(np.int64))), shape=(rows, columns))
    if symmetry == "general":
        return lower
    off = sp.coo_array(sp.tril(lower, -1) + sp.triu(lower, 1))
    return sp.coo_array(lower + (-off.T if strict else off.T))


def _filled(values: np.ndarray, rows: int, columns: int, symmetry: str) -> np.ndarray:
    """A dense matrix from its stored entries, column by column; of a symmetric one the lower triangle is stored."""
    if symmetry == "general":
        return values.reshape(columns, rows).T
    strict = symmetry == "skew-symmetric"
    column, row = np.triu_indices(rows, int(strict))
    matrix = np.zeros((rows, rows))
    matrix[row, column] = values
    matrix[column, row] = -values if strict else values
    return matrix


def safetensors(path: Path) -> Any:
    """The one tensor of a safetensors file."""
    from safetensors.numpy import load_file

    tensors = load_file(path)
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} tensors: {', '.join(sorted(tensors))}")
    return next(iter(tensors.values()))


def _array(file: IO[bytes], size: int, kinds: str) -> np.ndarray:
    """An array in NumPy's format from a file of ``size`` bytes, if its dtype is of one of these kinds."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of NumPy's format")
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read_header(file)
    if dtype.kind not in kinds:
        raise ValueError(f"numbers of dtype {dtype}, or Python objects (a pickle)")
    if any(isinstance(side, bool) or side < 0 for side in shape):
        raise ValueError(f"shape {shape}")
    count, left = math.prod(shape), size - file.tell()
    if count * dtype.itemsize != left:
        raise ValueError(f"shape {shape} of {dtype} announced, {left} bytes to hold it")
    array = np.frombuffer(bytearray(file.read(left)), dtype, count)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _sparse(array: Any) -> Any:
    """A SciPy sparse array whose indices were looked at; ``array(name, kinds)`` gives its parts."""
    import scipy.sparse as sp

    kind = array("format", "SU").item()
    kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc", "bsr", "coo", "dia"):
        raise ValueError(f"the sparse format {kind!r}")
    shape, data = array("shape", "iu"), array("data", REAL + "c")
    if shape.shape != (2,) or shape.min() < 0:
        raise ValueError(f"the shape {shape.tolist()}")
    rows, columns = (int(side) for side in shape)
    _check_shape((rows, columns))
    build = getattr(sp, f"{kind}_array")
    if kind == "coo":
        row, column = array("row", "iu"), array("col", "iu")
        _indices("row", row, len(data), rows)
        _indices("col", column, len(data), columns)
        return build((data, (row, column)), shape=(rows, columns))
    if kind == "dia":
        offsets = array("offsets", "iu")
        if data.ndim != 2 or offsets.shape != data.shape[:1] or len(np.unique(offsets)) != len(offsets):
            raise ValueError("diagonals without an offset of their own")
        return build((data, offsets), shape=(rows, columns))
    down, across = data.shape[1:] if kind == "bsr" and data.ndim == 3 else (1, 1)
    if min(down, across) < 1 or rows % down or columns % across or data.ndim != (3 if kind == "bsr" else 1):
        raise ValueError(f"data of shape {data.shape}")
    major, minor = (columns, rows) if kind == "csc" else (rows // down, columns // across)
    indices, starts = array("indices", "iu"), array("indptr", "iu")
    _indices("indices", indices, len(data), minor)
    _indices("indptr", starts, major + 1, len(data) + 1)
    if starts[0] != 0 or starts[-1] != len(data) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"indptr that does not rise from 0 to {len(data)}")
    return build((data, indices, starts), shape=(rows, columns))


def _indices(name: str, indices: np.ndarray, length: int, below: int) -> None:
    """Check that there are ``length`` indices, all in 0 … below − 1."""
    if indices.shape != (length,):
        raise ValueError(f"{name} of shape {indices.shape} where {length} numbers belong")
    if length and (indices.min() < 0 or indices.max() >= below):
        raise ValueError(f"{name} outside 0 … {below - 1}")


def _check_shape(shape: tuple[int, int]) -> None:
    """A sparse matrix may be far larger than its file; its vectors have to fit."""
    checks.fits_in_memory(f"vectors of length {checks.short(max(shape))}", VECTOR_BYTES * max(shape))
